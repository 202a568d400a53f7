//! Films straight to key frames, without a video between.

use std::path::Path;

use image::RgbImage;
use image::codecs::jpeg::JpegEncoder;
use libreconstruct::camera::Pose;
use libreconstruct::camera::panorama::Side;
use libreconstruct::video::{Frame, FrameSource, Frames, Projection, VideoInfo, cut_panorama, side_size};
use libreconstruct::{Error, Result};

use super::Film;

/// Quality of the pictures: what key frames have.
const QUALITY: u8 = 93;

/// Takes photographs into `folder`: of `cameras`, which are carried along one way, each takes those pictures that `taken_by` says.
/// With the pose of every picture.
///
/// # Errors
/// A folder that cannot be written.
pub fn take_photographs(
    cameras: &[Film],
    folder: &Path,
    taken_by: impl Fn(usize) -> usize,
) -> Result<(Frames, Vec<Pose>)> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let (mut frames, mut poses) = (Vec::new(), Vec::new());
    for k in 0..cameras.first().map_or(0, |film| film.options().frames) {
        let camera = taken_by(k as usize).min(cameras.len() - 1);
        let film = &cameras[camera];
        let (picture, _) = film.expose(k);
        let frame = store(&picture, format!("{k:04}.jpg"), u64::from(k), folder)?;
        frames.push(Frame { camera: camera as u32, ..frame });
        poses.extend(film.poses().get(k as usize));
    }
    let frames = Frames::of_images(folder, frames);
    frames.save()?;
    Ok((frames, poses))
}

/// Stores a picture in `folder`.
fn store(picture: &RgbImage, name: String, index: u64, folder: &Path) -> Result<Frame> {
    let path = folder.join(&name);
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, QUALITY)
        .encode_image(picture)
        .map_err(|e| Error::io("encode", &path, std::io::Error::other(e)))?;
    // Under its name a picture is whole.
    let part = folder.join(".part");
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, &path));
    written.map_err(|e| Error::io("write", &path, e))?;
    Ok(Frame::new(name, index, picture.width(), picture.height()))
}

/// Takes all frames of `films`, which have one size and follow each other as clips of one video, into `folder`. With the
/// pose of every frame. Panoramas are cut into their sides, six frames each.
///
/// # Errors
/// A folder that cannot be written.
pub fn film_frames(films: &[Film], folder: &Path) -> Result<(Frames, Vec<Pose>)> {
    take_frames(films, folder, false)
}

/// As [`film_frames`], but for the frames that `folder` has already: it is one of these films, which was not filmed to its end.
///
/// # Errors
/// A folder that cannot be written.
pub fn film_missing_frames(films: &[Film], folder: &Path) -> Result<(Frames, Vec<Pose>)> {
    take_frames(films, folder, true)
}

fn take_frames(films: &[Film], folder: &Path, is_begun: bool) -> Result<(Frames, Vec<Pose>)> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let (mut frames, mut poses) = (Vec::new(), Vec::new());
    let mut total = 0;
    for film in films {
        for (k, pose) in (0..film.options().frames).zip(film.poses()) {
            let index = total;
            total += 1;
            let timestamp = Some(index as f64 / film.options().frame_rate);
            let name = Frames::name_of(index);
            if is_begun && folder.join(&name).is_file() {
                let frame = Frame::new(name, index, film.options().width, film.options().height);
                frames.push(Frame { timestamp, ..frame });
                poses.push(pose);
                continue;
            }
            let (picture, _) = film.expose(k);
            let seen: Vec<(String, RgbImage, Option<Side>)> = if film.options().panorama {
                let sides = cut_panorama(&picture, side_size(picture.width()))?;
                let named = Side::ALL.map(|side| (Frames::side_name_of(index, side), Some(side)));
                named.into_iter().zip(sides).map(|((name, side), picture)| (name, picture, side)).collect()
            } else {
                vec![(name, picture, None)]
            };
            for (name, picture, side) in seen {
                let frame = store(&picture, name, index, folder)?;
                frames.push(Frame { timestamp, side, ..frame });
                poses.push(side.map_or(pose, |side| pose_of_side(&pose, side)));
            }
        }
    }
    let options = films.last().map(Film::options);
    let rate = options.map_or(1.0, |o| o.frame_rate);
    let info = VideoInfo {
        container: "none".into(),
        codec: "none".into(),
        width: options.map_or(0, |o| o.width),
        height: options.map_or(0, |o| o.height),
        rotation: 0,
        duration: total as f64 / rate,
        frame_rate: rate,
        hdr: false,
        projection: match options.is_some_and(|o| o.panorama) {
            true => Projection::Equirectangular,
            false => Projection::Flat,
        },
        file: None,
    };
    let source = FrameSource::Video(info);
    let frames = Frames { folder: folder.to_path_buf(), source, total, frames, warnings: Vec::new() };
    frames.save()?;
    Ok((frames, poses))
}

/// World-to-camera of a side of the panorama whose front has the pose `front`.
fn pose_of_side(front: &Pose, side: Side) -> Pose {
    let turn = side.side_from_panorama();
    Pose { rotation: turn * front.rotation, translation: turn * front.translation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::CaptureOptions;
    use nalgebra::Vector3;

    #[test]
    fn the_front_of_a_panorama_is_what_a_lens_sees_and_its_sides_have_their_poses() {
        let clip = CaptureOptions {
            width: 320,
            height: 160,
            frames: 2,
            noise: 0.0,
            panorama: true,
            ..CaptureOptions::default()
        };
        let film = Film::new(&clip);
        let folder = tempfile::tempdir().unwrap();
        let (frames, poses) = film_frames(std::slice::from_ref(&film), folder.path()).unwrap();
        assert_eq!((frames.frames.len(), poses.len(), frames.total, frames.chosen()), (12, 12, 2, 2));
        let size = side_size(320);
        // A lens that sees 90 degrees in a square, from the same place.
        let lens = CaptureOptions {
            width: size,
            height: size,
            relative_focal: 0.5,
            distortion: 0.0,
            panorama: false,
            ..clip
        };
        let lens = Film::in_scenery(film.scenery.clone(), &lens);
        for k in 0..2 {
            let (seen, _) = lens.expose(k);
            let apart = |frame: usize| {
                let side = frames.rgb(frame).unwrap();
                let sum: u64 =
                    seen.as_raw().iter().zip(side.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
                sum as f64 / seen.as_raw().len() as f64
            };
            let first = 6 * k as usize;
            assert!(apart(first) < 6.0, "{}", apart(first));
            assert!((1..4).all(|s| apart(first + s) > 3.0 * apart(first)), "the sides show something else");
            let front = poses[first];
            assert_eq!(front, film.poses()[k as usize]);
            let forward = |s: usize| poses[first + s].rotation.inverse() * Vector3::z();
            for (s, axis) in
                [Vector3::z(), Vector3::x(), -Vector3::z(), -Vector3::x(), -Vector3::y(), Vector3::y()]
                    .iter()
                    .enumerate()
            {
                assert_eq!(frames.frames[first + s].side, Some(Side::ALL[s]));
                assert!((poses[first + s].centre() - front.centre()).norm() < 1e-12);
                assert!((forward(s) - front.rotation.inverse() * axis).norm() < 1e-12, "{s}");
            }
        }
    }
}
