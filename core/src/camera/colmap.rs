//! COLMAP's sparse-model folder: `cameras`, `images`, `points3D`, as `.bin` or as `.txt`.
//!
//! In: a folder from this program or any other; nothing in it is trusted. Out: a [`SparseModel`] whose references all
//! lead somewhere. It is the interchange between structure from motion and training, so that either can be replaced by
//! another tool. The layout is that of COLMAP's documentation ("Output format"): little-endian, quaternions w x y z,
//! world-to-camera, pixels with the centre of the top-left one at (0.5, 0.5), which is this engine's own convention.

mod binary;
mod parts;
mod text;

use std::path::Path;

use super::SparseModel;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use parts::{NAMES, file};

impl SparseModel {
    /// Reads the model in `folder`. The binary files are taken if all three are there, else the text files.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if neither kind is complete; [`ErrorKind::InvalidFile`] with file and position if one
    /// is damaged, uses a camera model that is not in [`CameraModel`](crate::camera::CameraModel), or refers to
    /// something that is not there.
    pub fn read(folder: &Path) -> Result<Self> {
        let complete = |extension| NAMES.iter().all(|name| file(folder, name, extension).is_file());
        let (parts, extension) = if complete("bin") {
            (binary::read(folder)?, "bin")
        } else if complete("txt") {
            (text::read(folder)?, "txt")
        } else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} holds no complete sparse model", folder.display()),
            )
            .hint("it needs cameras, images and points3D, all three as .bin or all three as .txt"));
        };
        parts.into_model(folder, extension)
    }

    /// Writes `cameras.bin`, `images.bin` and `points3D.bin` into `folder`, which is made if need be. Bit-exact: reading
    /// them gives the same model.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn write_binary(&self, folder: &Path) -> Result<()> {
        write(folder, "bin", |name, out| match name {
            "cameras" => binary::write_cameras(self, out),
            "images" => binary::write_images(self, out),
            _ => binary::write_points(self, out),
        })
    }

    /// Writes `cameras.txt`, `images.txt` and `points3D.txt` into `folder`, which is made if need be. Numbers have all
    /// their digits. Note that [`SparseModel::read`] prefers binary files that lie beside them.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn write_text(&self, folder: &Path) -> Result<()> {
        write(folder, "txt", |name, out| match name {
            "cameras" => text::write_cameras(self, out),
            "images" => text::write_images(self, out),
            _ => text::write_points(self, out),
        })
    }
}

fn write(
    folder: &Path,
    extension: &str,
    mut write_one: impl FnMut(&str, &mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    for name in NAMES {
        files::write_atomically(&file(folder, name, extension), |out| write_one(name, out))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
