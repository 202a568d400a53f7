//! Scenes from and to files of any format.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::spz::{SpzFrame, SpzOptions};
use super::values::Splats;
use crate::error::{Error, ErrorKind, Result};

/// The formats in which scenes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SceneFormat {
    /// The layout that 3D Gaussian Splatting tools share.
    Ply,
    /// Niantic's compressed format.
    Spz,
}

impl SceneFormat {
    /// The format that the name of a file asks for. Long work calls this before it begins.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for any extension but `.ply` and `.spz`.
    pub fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("ply") => Ok(Self::Ply),
            Some("spz") => Ok(Self::Spz),
            _ => Err(Error::argument(format!("{} ends neither in .ply nor in .spz", path.display()))),
        }
    }
}

impl Splats {
    /// Reads a scene from a `.ply` file (plain or packed) or an `.spz` file (whose frame is taken to be the format's). The
    /// content decides, not the name.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if it is neither or damaged, else the operating system's.
    pub fn read(path: &Path) -> Result<Self> {
        let mut start = Vec::new();
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        file.take(4).read_to_end(&mut start).map_err(|e| Error::io("read", path, e))?;
        match start[..] {
            [b'p', b'l', b'y', ..] => Self::read_ply(path),
            [b'N', b'G', b'S', b'P'] | [0x1f, 0x8b, ..] => Self::read_spz(path, SpzFrame::default()),
            _ => Err(Error::new(
                ErrorKind::InvalidFile,
                format!("{} is neither a .ply nor an .spz file", path.display()),
            )),
        }
    }

    /// Writes the scene as `.ply` or `.spz` (with the usual options), as the name says.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for another extension, and those of [`Splats::write_ply`] and
    /// [`Splats::write_spz`].
    pub fn write(&self, path: &Path) -> Result<()> {
        match SceneFormat::of(path)? {
            SceneFormat::Ply => self.write_ply(path),
            SceneFormat::Spz => self.write_spz(path, &SpzOptions::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_scenes::random_splats;
    use super::*;

    #[test]
    fn the_name_decides_on_writing_and_the_content_on_reading() {
        let folder = tempfile::tempdir().unwrap();
        let splats = random_splats(4, 50, 3);
        let (ply, spz) = (folder.path().join("a.PLY"), folder.path().join("a.spz"));
        splats.write(&ply).unwrap();
        assert_eq!(Splats::read(&ply).unwrap(), splats);
        splats.write(&spz).unwrap();
        let rounded = Splats::read(&spz).unwrap();
        std::fs::rename(&spz, &ply).unwrap();
        assert_eq!(Splats::read(&ply).unwrap(), rounded);
        assert!((rounded.means[3][1] - splats.means[3][1]).abs() < 1e-3);
        assert_eq!(
            splats.write(&folder.path().join("a.obj")).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        for content in [&b"glTF"[..], b"", b"p"] {
            std::fs::write(&ply, content).unwrap();
            assert_eq!(Splats::read(&ply).unwrap_err().kind(), ErrorKind::InvalidFile);
        }
        assert_eq!(Splats::read(&folder.path().join("b.ply")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// The same scene in the two formats of one author: the packed `.ply` in this engine's frame, the `.spz` in its own.
    #[test]
    fn a_packed_ply_is_the_spz_of_the_same_scene() {
        let Some(folder) = crate::prerequisites::capture("splats/biker") else { return };
        let ply = Splats::read(&folder.join("biker.compressed.ply")).unwrap();
        let spz = Splats::read(&folder.join("biker.spz")).unwrap();
        assert_eq!((ply.len(), ply.sh_degree), (spz.len(), spz.sh_degree));
        let mut worst = [0.0f32; 4];
        for i in 0..ply.len() {
            for k in 0..3 {
                worst[0] = worst[0].max((ply.means[i][k] - spz.means[i][k]).abs());
                // An .spz file has nothing below -10.
                worst[1] = worst[1].max((ply.log_scales[i][k].max(-10.0) - spz.log_scales[i][k]).abs());
                worst[2] = worst[2].max((ply.sh[3 * i + k] - spz.sh[3 * i + k]).abs());
            }
            worst[3] = worst[3].max(1.0 - ply.rotations[i].dot(spz.rotations[i]).abs());
        }
        println!(
            "position {}, scale {}, colour {}, 1 - cos of the rotation {}",
            worst[0], worst[1], worst[2], worst[3]
        );
        assert!(worst[0] < 0.02 && worst[1] < 0.1 && worst[2] < 0.1 && worst[3] < 1e-4, "{worst:?}");
    }
}
