//! 360° video as a whole: clips of a walk through a room that is known, written and read again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use image::RgbImage;
use nalgebra::Vector3;

use super::ffmpeg::Tools;
use super::full_size::at_full_size;
use super::*;
use crate::camera::panorama::{Side, direction_in_panorama};
use crate::control::Control;
use crate::error::ErrorKind;

const WIDTH: u32 = 320;
const FRAMES: u32 = 24;

/// Plane waves through space in all directions: how quickly each turns along them, where it begins, and how high it is.
static WAVES: LazyLock<[(Vector3<f64>, f64, f64); 12]> = LazyLock::new(|| {
    std::array::from_fn(|k| {
        let k = k as f64;
        let (turn, height) = (2.4 * k, ((0.618 * k).fract() - 0.5) * 1.8);
        let flat = (1.0 - height * height).sqrt();
        let direction = Vector3::new(flat * turn.cos(), height, flat * turn.sin());
        // Lengths from 2 m down to 0.16 m.
        (3.0 * 1.265f64.powf(k) * direction, 1.3 * k * k, 24.0 * 0.88f64.powf(k))
    })
});

/// A grey level for every place in space, different everywhere.
pub(super) fn texture(at: &Vector3<f64>) -> f64 {
    127.5 + WAVES.iter().map(|(turns, start, height)| height * (turns.dot(at) + start).sin()).sum::<f64>()
}

/// What a camera in a room of 6 x 2.6 x 6 metres sees all around it at a moment of a walk along a bow.
fn seen_at(frame: u32) -> RgbImage {
    let angle = 0.06 * f64::from(frame);
    let place = Vector3::new(1.4 * angle.sin(), 0.03 * (2.0 * angle).sin(), -1.4 * angle.cos());
    let half: Vector3<f64> = Vector3::new(3.0, 1.3, 3.0);
    RgbImage::from_fn(WIDTH, WIDTH / 2, |x, y| {
        let at = |v: u32, of: u32| (f64::from(v) + 0.5) / f64::from(of);
        let direction = direction_in_panorama([at(x, WIDTH), at(y, WIDTH / 2)]);
        // Where the ray leaves the room.
        let far = (0..3)
            .map(|k| (half[k].copysign(direction[k]) - place[k]) / direction[k])
            .fold(f64::INFINITY, f64::min);
        let point = place + far * direction;
        let grey = texture(&point);
        image::Rgb([grey, 0.9 * grey + 10.0, 0.8 * grey + 20.0].map(|v| v as u8))
    })
}

fn walk(folder: &Path) -> PathBuf {
    let path = folder.join("walk.mp4");
    let mut writer = VideoWriter::create(&path, WIDTH, WIDTH / 2, 10.0).unwrap();
    (0..FRAMES).for_each(|k| writer.write(&seen_at(k)).unwrap());
    writer.finish().unwrap();
    path
}

/// The same video with its index at the end, and in it what 360° cameras of the older kind write (Spherical Video V1): a box
/// `uuid` at the end of `trak`.
fn described(video: &Path, projection: &str) -> PathBuf {
    let path = video.with_file_name("described.mp4");
    let mut command = Command::new(&Tools::find().unwrap().ffmpeg);
    command.args(["-v", "error", "-nostdin", "-y", "-i"]).arg(probe::address(video));
    assert!(command.args(["-c", "copy"]).arg(probe::address(&path)).status().unwrap().success());
    let mut bytes = std::fs::read(&path).unwrap();
    let xml = format!(
        "<?xml version=\"1.0\"?><rdf:SphericalVideo xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" \
         xmlns:GSpherical=\"http://ns.google.com/videos/1.0/spherical/\"><GSpherical:Spherical>true</GSpherical:Spherical>\
         <GSpherical:Stitched>true</GSpherical:Stitched><GSpherical:StitchingSoftware>a test</GSpherical:StitchingSoftware>\
         <GSpherical:ProjectionType>{projection}</GSpherical:ProjectionType></rdf:SphericalVideo>"
    );
    let name = b"\xff\xcc\x82\x63\xf8\x55\x4a\x93\x88\x14\x58\x7a\x02\x52\x1f\xdd";
    let size = u32::try_from(8 + name.len() + xml.len()).unwrap();
    let uuid = [&size.to_be_bytes()[..], b"uuid", name, xml.as_bytes()].concat();
    // Where the box of this kind begins among those from `at` on.
    let find = |bytes: &[u8], mut at: usize, kind: &[u8]| loop {
        let size = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        if &bytes[at + 4..at + 8] == kind {
            break (at, size);
        }
        at += size;
    };
    let moov = find(&bytes, 0, b"moov");
    assert_eq!(moov.0 + moov.1, bytes.len(), "nothing lies behind it, so that no offset changes");
    let trak = find(&bytes, moov.0 + 8, b"trak");
    for (at, old) in [moov, trak] {
        bytes[at..at + 4].copy_from_slice(&(old as u32 + size).to_be_bytes());
    }
    let end = trak.0 + trak.1;
    bytes.splice(end..end, uuid);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn extract(
    input: &Path,
    output: &Path,
    projection: Option<Projection>,
    max_frames: usize,
) -> crate::Result<Frames> {
    let options = FrameOptions { max_frames, projection, ..FrameOptions::default() };
    extract_frames(input, output, &options, &Control::new())
}

fn difference(a: &RgbImage, b: &RgbImage) -> f64 {
    assert_eq!(a.dimensions(), b.dimensions());
    let sum: u64 = a.as_raw().iter().zip(b.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.as_raw().len() as f64
}

#[test]
fn a_walk_becomes_the_sides_of_its_panoramas() {
    let folder = tempfile::tempdir().unwrap();
    let (video, output) = (walk(folder.path()), folder.path().join("frames"));
    let around = Some(Projection::Equirectangular);
    let frames = extract(&video, &output, around, 28).unwrap();
    assert_eq!(frames.total, u64::from(FRAMES));
    let count = frames.chosen();
    assert!((6..=10).contains(&count), "{count} panoramas for 28 frames");
    assert_eq!(frames.frames.len(), 6 * count);
    assert!(frames.is_panoramic() && frames.is_sequential());
    assert!(frames.warnings.is_empty(), "{:?}", frames.warnings);
    let FrameSource::Video(info) = &frames.source else { panic!("a video is a video") };
    assert_eq!((info.width, info.height, info.projection), (320, 160, Projection::Equirectangular));
    let size = side_size(WIDTH);
    for (k, one) in frames.frames.chunks(6).enumerate() {
        let number = one[0].index;
        let expected = cut_panorama(&seen_at(number as u32), size).unwrap();
        let other = cut_panorama(&seen_at((number as u32 + 8) % FRAMES), size).unwrap();
        for (s, frame) in one.iter().enumerate() {
            assert_eq!((frame.side, frame.index), (Some(Side::ALL[s]), number));
            assert_eq!(frame.name, format!("frame_{number:06}_{}.jpg", Side::ALL[s].name()));
            assert_eq!((frame.width, frame.height, frame.focal_prior), (size, size, None));
            assert_eq!((frame.timestamp, frame.sharpness), (one[0].timestamp, one[0].sharpness));
            let picture = frames.rgb(6 * k + s).unwrap();
            let own = difference(&picture, &expected[s]);
            assert!(
                own < 6.0 && own < 0.5 * difference(&picture, &other[s]),
                "{}: {own} {}",
                frame.name,
                difference(&picture, &other[s])
            );
        }
    }
    assert_eq!(Frames::load(&output).unwrap(), frames);
    // One thumbnail a panorama: 144 x 72 with four pixels between.
    let sheet = image::open(output.join("frames.jpg")).unwrap();
    let cells = (sheet.width() - 4) / 148 * ((sheet.height() - 4) / 76);
    assert!((count as u32..2 * count as u32).contains(&cells), "{cells} cells");

    // Tags are looked for in what is stored.
    let sizes =
        at_full_size(&frames, Some(&video), &Control::new(), || Ok(()), |(), _, p| p.dimensions()).unwrap();
    assert_eq!(sizes, vec![(size, size); 6 * count]);

    // Fewer and smaller, into the same folder, of which the description was lost.
    std::fs::remove_file(Frames::description_path(&output)).unwrap();
    let options =
        FrameOptions { max_frames: 3, max_resolution: 64, projection: around, ..Default::default() };
    let fewer = extract_frames(&video, &output, &options, &Control::new()).unwrap();
    assert_eq!((fewer.chosen(), fewer.frames.len()), (3, 18));
    assert!(fewer.frames.iter().all(|f| (f.width, f.height) == (64, 64)));
    assert_eq!(std::fs::read_dir(&output).unwrap().count(), 18 + 2, "nothing else is left");
    // And as an ordinary video.
    let flat = extract(&video, &output, Some(Projection::Flat), 10).unwrap();
    assert!(!flat.is_panoramic() && flat.frames.iter().all(|f| (f.width, f.height) == (320, 160)));
    assert_eq!(std::fs::read_dir(&output).unwrap().count(), flat.frames.len() + 2);
}

#[test]
fn it_is_recognised_by_what_the_file_says_or_by_its_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let (video, output) = (walk(folder.path()), folder.path().join("frames"));
    let file = described(&video, "equirectangular");
    assert_eq!(super::probe(&file).unwrap().projection, Projection::Equirectangular);
    let frames = extract(&file, &output, None, 12).unwrap();
    assert_eq!((frames.is_panoramic(), &frames.warnings[..]), (true, &[][..]));
    // In a folder of its own it is the same.
    let alone = folder.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    std::fs::copy(&file, alone.join("walk.mp4")).unwrap();
    assert_eq!(extract(&alone, &output, None, 12).unwrap().frames, frames.frames);
    // So it is beside what is no video, ...
    std::fs::write(alone.join("notes.avi"), "buy milk").unwrap();
    let beside = extract(&alone, &output, None, 12).unwrap();
    assert_eq!((beside.is_sequential(), &beside.frames), (true, &frames.frames));
    // ... but not beside another one.
    std::fs::copy(&file, alone.join("walk2.mp4")).unwrap();
    let error = extract(&alone, &output, None, 12).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMedia);
    assert!(error.message().contains("is a 360° video, and there is something else beside it"), "{error}");
    std::fs::remove_dir_all(&alone).unwrap();
    // Not a word of what it is.
    assert_eq!(super::probe(&video).unwrap().projection, Projection::Flat);
    let frames = extract(&video, &output, None, 12).unwrap();
    assert!(frames.is_panoramic());
    let codes: Vec<&str> = frames.warnings.iter().map(|w| w.code.as_ref()).collect();
    assert_eq!(codes, ["taken_for_360"]);
    assert!(frames.warnings[0].message.contains("projection flat"), "{:?}", frames.warnings);
}

#[test]
fn what_is_no_panorama_is_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = (folder.path().join("a.mp4"), folder.path().join("frames"));
    let mut writer = VideoWriter::create(&path, 320, 180, 10.0).unwrap();
    for k in 0..12 {
        let picture = image::imageops::crop_imm(&seen_at(k), 0, 0, 320, 160).to_image();
        writer
            .write(&image::imageops::resize(&picture, 320, 180, image::imageops::FilterType::Triangle))
            .unwrap();
    }
    writer.finish().unwrap();
    let error = extract(&path, &output, Some(Projection::Equirectangular), 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("320x180") && error.message().contains("320x160"), "{error}");
    let error = extract(&described(&path, "equirectangular"), &output, None, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMedia);
    assert!(error.message().contains("320x180"), "{error}");
    assert!(!extract(&path, &output, None, 10).unwrap().is_panoramic());
}
