//! Films straight to key frames, without a video between.

use std::path::Path;

use image::codecs::jpeg::JpegEncoder;
use libreconstruct::camera::Pose;
use libreconstruct::video::{Frame, FrameSource, Frames, VideoInfo};
use libreconstruct::{Error, Result};

use super::Film;

/// Quality of the pictures: what key frames have.
const QUALITY: u8 = 93;

/// Takes all frames of `films`, which have one size and follow each other as clips of one video, into `folder`. With the
/// pose of every frame.
///
/// # Errors
/// A folder that cannot be written.
pub fn film_frames(films: &[Film], folder: &Path) -> Result<(Frames, Vec<Pose>)> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let (mut frames, mut poses) = (Vec::new(), Vec::new());
    let mut rate = 1.0;
    for film in films {
        rate = film.options().frame_rate;
        poses.extend(film.poses());
        for k in 0..film.options().frames {
            let index = frames.len() as u64;
            let name = Frames::name_of(index);
            let path = folder.join(&name);
            let (picture, _) = film.expose(k);
            let mut bytes = Vec::new();
            JpegEncoder::new_with_quality(&mut bytes, QUALITY)
                .encode_image(&picture)
                .map_err(|e| Error::io("encode", &path, std::io::Error::other(e)))?;
            std::fs::write(&path, bytes).map_err(|e| Error::io("write", &path, e))?;
            let (width, height) = picture.dimensions();
            let timestamp = Some(index as f64 / rate);
            frames.push(Frame {
                name,
                index,
                timestamp,
                width,
                height,
                sharpness: 1.0,
                focal_prior: None,
                quarter_turns: 0,
                side: None,
            });
        }
    }
    let (width, height) = frames.first().map_or((0, 0), |f| (f.width, f.height));
    let info = VideoInfo {
        container: "none".into(),
        codec: "none".into(),
        width,
        height,
        rotation: 0,
        duration: frames.len() as f64 / rate,
        frame_rate: rate,
        hdr: false,
    };
    let total = frames.len() as u64;
    let source = FrameSource::Video(info);
    let frames = Frames { folder: folder.to_path_buf(), source, total, frames, warnings: Vec::new() };
    frames.save()?;
    Ok((frames, poses))
}
