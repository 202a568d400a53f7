//! What the fuzz targets call that no caller of the library needs: readers of which only a part of it knows. No part of the
//! interface; `fuzz/` says what is tried on them.

#[cfg(feature = "service")]
use std::io::Cursor;
use std::path::Path;

use image::DynamicImage;
use image::metadata::Orientation;

use crate::error::Result;
#[cfg(feature = "service")]
use crate::pipeline::{StageArrival, StageKeys};
#[cfg(feature = "service")]
use crate::service::archive::{ArchiveReader, ArchiveWriter};
#[cfg(feature = "service")]
use crate::stage::Stage;
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

/// Unpacks an archive of pictures from outside into `folder`, which is there and empty.
///
/// # Errors
/// [`InvalidMedia`](crate::ErrorKind::InvalidMedia) if it is damaged or breaks a bound; the disk's.
#[cfg(feature = "service")]
pub fn unpack_pictures(archive: &Path, folder: &Path) -> Result<()> {
    crate::video::unpack_pictures(archive, folder, &crate::Control::new())
}

/// The key that a manifest must have for [`take_stage`].
pub const KEY: &str = "k";

/// Takes a stage that another machine stored into `folder`, if it was made under [`KEY`]; says whether it was.
///
/// # Errors
/// [`InvalidFile`](crate::ErrorKind::InvalidFile) for an archive or a manifest that is none; the disk's.
#[cfg(feature = "service")]
pub fn take_stage(archive: &[u8], folder: &Path, stage: Stage) -> Result<bool> {
    let mut tar = tar::Archive::new(archive);
    let mut archive = ArchiveReader::begin(&mut tar)?;
    let manifest = archive.about()?;
    let Some(mut arrival) = StageArrival::begin(folder, stage, &manifest, &StageKeys::all(KEY))? else {
        return Ok(false);
    };
    while archive.next(&mut |path, size, content| arrival.take(path, size, content))? {}
    arrival.finish()?;
    Ok(true)
}

/// An archive with this manifest and these files, as it would be stored; nothing if a name cannot stand in one.
#[cfg(feature = "service")]
pub fn archive_of(manifest: &[u8], files: &[(&Path, &[u8])]) -> Option<Vec<u8>> {
    let mut writer = ArchiveWriter::begin(Vec::new(), manifest).ok()?;
    for (name, content) in files {
        writer.append(name, content.len() as u64, Cursor::new(content)).ok()?;
    }
    writer.finish().ok()
}
