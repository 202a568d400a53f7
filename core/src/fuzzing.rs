//! What the fuzz targets call that no caller of the library needs: readers of which only a part of it knows. No part of the
//! interface; `fuzz/` says what is tried on them.

use std::path::Path;

use image::DynamicImage;
use image::metadata::Orientation;

use crate::error::Result;
use crate::train::Checkpoint;
use crate::video::{VideoInfo, exif_of, info_of};

/// Reads a checkpoint of the trainer that was written under these two hashes; gives the number of its splats.
///
/// # Errors
/// Those of a checkpoint that is damaged or was written for something else.
pub fn read_checkpoint(path: &Path, options: &str, dataset: &str) -> Result<usize> {
    Ok(Checkpoint::read(path, options, dataset)?.state.splats.len())
}

/// Reads the EXIF data of a picture: how it must be turned to be upright, and the focal length in pixels if the picture has this
/// size.
pub fn read_exif(picture: &[u8], width: u32, height: u32) -> (Orientation, Option<f64>) {
    exif_of(picture, width, height)
}

/// Reads what ffprobe writes about a video.
///
/// # Errors
/// [`InvalidMedia`](crate::ErrorKind::InvalidMedia) if it describes no video, or one that breaks a limit.
pub fn read_probe(description: &[u8]) -> Result<VideoInfo> {
    info_of(description)
}

/// Reads a picture as those of a capture are read.
///
/// # Errors
/// [`InvalidMedia`](crate::ErrorKind::InvalidMedia) if it is none, damaged, or too large.
pub fn read_picture(bytes: &[u8]) -> Result<DynamicImage> {
    crate::picture_file::decode(std::io::Cursor::new(bytes), Path::new("picture"))
}
