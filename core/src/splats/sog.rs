//! `.sog` files: the compressed format of PlayCanvas (Spatially Ordered Gaussians, version 2), about a twentieth of the `.ply`.
//!
//! A zip archive of lossless WebP pictures, in which a pixel stands for a splat, and of their description in `meta.json`.
//! Positions have 16 bits on each axis, of logarithms; the three smaller components of a quaternion a byte each; scales and
//! colours are numbers of 256 values that are chosen for the scene; splats share at most 65,536 sets of spherical harmonics.
//! Splats are in the order of a space-filling curve, so they come back in another order than they had.
//!
//! The frame of the file is that of the scene, nothing is turned: the text of the format says x right, y up, z back, but
//! splat-transform, PlayCanvas' engine and SuperSplat take such files as they take the `.ply` of the same scene.
//!
//! Source: the specification at developer.playcanvas.com and what splat-transform 2.7 reads and writes.

mod archive;
mod codebook;
mod decode;
mod encode;
mod meta;
mod palette;
mod picture;
mod points;
mod webp;

use std::io::{Read, Write};
use std::path::Path;

use super::source::Source;
use super::values::Splats;
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// What a local file in a zip archive begins with.
const START: &[u8] = b"PK\x03\x04";
/// Largest file that is read, bytes. As many splats as are read take less.
const MAX_FILE: u64 = 4 << 30;

impl Splats {
    /// Writes the scene as a `.sog` file, under a temporary name first. A million splats with all their colours take some
    /// seconds of all processors; the file does not depend on their number.
    ///
    /// Positions are rounded to a 65535th of the extent of their logarithms, opacities to 1/255, components of quaternions to
    /// √2/255. Scales and colours become the nearest of 256 values, spherical harmonics beyond degree 0 the nearest of as many
    /// sets as a sixteenth of the splats, 1024 to 65,536, chosen for what is seen most.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are no splats or more than 100 million,
    /// [`InvalidFile`](ErrorKind::InvalidFile) if a value is not finite or the arrays do not belong together; else the
    /// operating system's.
    pub fn write_sog(&self, path: &Path) -> Result<()> {
        let bytes = self.to_sog()?;
        files::write_atomically(path, |out| out.write_all(&bytes))
    }

    /// The content of the file that [`Splats::write_sog`] writes.
    fn to_sog(&self) -> Result<Vec<u8>> {
        self.check_for_export(".sog")?;
        if self.len() > meta::MAX_SPLATS {
            let message =
                format!("a .sog file holds {} splats at most, not {}", meta::MAX_SPLATS, self.len());
            return Err(Error::argument(message));
        }
        archive::write(&encode::encode(self)).map_err(|e| {
            Error::new(ErrorKind::Internal, format!("cannot write an archive: {e}")).caused_by(e)
        })
    }

    /// Reads a `.sog` file of version 2; the files in it may have been compressed once more. Opacities of exactly 0 and 1
    /// become the nearest ones with a finite logit. A pipe may take the place of the file.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if it is no `.sog` file, of another version, damaged, or would become more than
    /// it can honestly hold: 64 MB, or 128 times its size if that is more.
    pub fn read_sog(path: &Path) -> Result<Self> {
        Self::from_sog(Source::open(path)?)
    }

    /// [`Splats::read_sog`] from a file that is open already.
    pub(super) fn from_sog(source: Source) -> Result<Self> {
        let path = source.path().to_owned();
        let damaged = |why: String| Error::new(ErrorKind::InvalidFile, format!("{}: {why}", path.display()));
        // What is no archive is not read to its end, which an endless one does not have.
        if source.start() != START {
            return Err(damaged("it is no .sog file: it does not begin as a zip archive does".into()));
        }
        let too_large = || damaged(format!("it has more than the {MAX_FILE} bytes that are read"));
        let size = source.size().unwrap_or(0);
        if size > MAX_FILE {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(size as usize);
        source.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| Error::io("read", &path, e))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large());
        }
        decode::decode(&bytes).map_err(damaged)
    }
}

#[cfg(test)]
mod tests;
