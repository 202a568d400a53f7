//! `.spz` files: the compressed format of Niantic, about a tenth of the `.ply`.
//!
//! Written in version 3 (gzip, the one that every reader knows) unless another is asked for; versions 1 to 4 are read.
//! The format's frame is x right, y up, z back; this engine's is x right, y down, z forward, so scenes are turned by 180
//! degrees about x on the way out and back on the way in, spherical harmonics included ([`SpzFrame`]). Nothing is set
//! that readers disagree about: no vendor extensions, no other flag than the one for anti-aliased scenes.

mod container;
mod options;
mod quantise;

use std::io::{Read, Write};
use std::path::Path;

use super::source::Source;
use super::values::Splats;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use container::{Header, Packed};
pub use options::{SpzFrame, SpzOptions, SpzVersion};

impl Splats {
    /// Writes the scene as an `.spz` file, under a temporary name first.
    ///
    /// Positions that do not fit are moved towards the origin, and shrunk as much: they look the same from there. Log
    /// scales are kept to -10..5.94 in steps of 1/16, colours f_dc to ±3.33, other colour coefficients to -1..1.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are no splats (the format cannot say so) or an option is
    /// out of range, [`InvalidFile`](ErrorKind::InvalidFile) if a value is not finite or the arrays do not belong
    /// together; else the operating system's.
    pub fn write_spz(&self, path: &Path, options: &SpzOptions) -> Result<()> {
        let bytes = self.to_spz(options)?;
        files::write_atomically(path, |out| out.write_all(&bytes))
    }

    /// The content of the file that [`Splats::write_spz`] writes.
    pub(crate) fn to_spz(&self, options: &SpzOptions) -> Result<Vec<u8>> {
        self.check_for_export(".spz")?;
        if self.len() > container::MAX_SPLATS {
            let message =
                format!("an .spz file holds {} splats at most, not {}", container::MAX_SPLATS, self.len());
            return Err(Error::argument(message));
        }
        let fractional_bits = match options.fractional_bits {
            Some(bits @ 0..=23) => bits,
            Some(bits) => {
                return Err(Error::argument(format!("{bits} fractional bits; an .spz file has 0 to 23")));
            }
            None => quantise::fractional_bits(&self.means),
        };
        let version = match options.version {
            SpzVersion::V2 => 2,
            SpzVersion::V3 => 3,
            SpzVersion::V4 => 4,
        };
        let header = Header {
            version,
            count: self.len(),
            sh_degree: self.sh_degree,
            fractional_bits,
            antialiased: self.antialiased,
        };
        let attributes = quantise::encode(self, &header, options.frame);
        container::write(&Packed { header, attributes })
    }

    /// Reads an `.spz` file of version 1 to 4. `frame` says in which frame it is. Opacities of exactly 0 and 1 become the
    /// nearest ones with a finite logit, and spherical harmonics beyond degree 3 are left out. A pipe may take the place of the
    /// file.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if it is no `.spz` file, of an unknown version, damaged, or would unpack to
    /// more than it can honestly hold: 64 MB, or 128 times its size if that is more. The memory taken is below 6 times that.
    pub fn read_spz(path: &Path, frame: SpzFrame) -> Result<Self> {
        Self::from_spz(Source::open(path)?, frame)
    }

    /// [`Splats::read_spz`] from a file that is open already.
    pub(super) fn from_spz(source: Source, frame: SpzFrame) -> Result<Self> {
        let path = source.path().to_owned();
        let damaged = |why: String| Error::new(ErrorKind::InvalidFile, format!("{}: {why}", path.display()));
        // What is no .spz file is not read to its end, which an endless one does not have.
        container::check_start(source.start()).map_err(damaged)?;
        let too_large = || {
            damaged(format!("it has more than the {} bytes that an .spz file can have", container::MAX_FILE))
        };
        let size = source.size().unwrap_or(0);
        if size > container::MAX_FILE {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(size as usize);
        source
            .take(container::MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io("read", &path, e))?;
        if bytes.len() as u64 > container::MAX_FILE {
            return Err(too_large());
        }
        let packed = container::read(&bytes).map_err(damaged)?;
        drop(bytes);
        Ok(quantise::decode(&packed, frame))
    }
}

#[cfg(test)]
mod tests;
