//! Scenes from and to files of any format.

use std::path::Path;

use super::source::Source;
use super::spz::{SpzFrame, SpzOptions};
use super::values::Splats;
use crate::error::{Error, ErrorKind, Result};

/// The formats in which scenes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SceneFormat {
    /// The layout that 3D Gaussian Splatting tools share.
    Ply,
    /// Niantic's compressed format.
    Spz,
    /// Binary glTF with the extension `KHR_gaussian_splatting`.
    Glb,
    /// PlayCanvas' compressed format.
    Sog,
}

impl SceneFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Ply, Self::Spz, Self::Glb, Self::Sog];

    /// What the names of its files end in, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Ply => "ply",
            Self::Spz => "spz",
            Self::Glb => "glb",
            Self::Sog => "sog",
        }
    }

    /// The format that the name of a file asks for. Long work calls this before it begins.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for any extension but those of the formats.
    pub fn of(path: &Path) -> Result<Self> {
        let own = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        let found = Self::ALL.into_iter().find(|format| own.as_deref() == Some(format.extension()));
        found.ok_or_else(|| {
            let message = format!("{} is named after no format of scenes", path.display());
            Error::argument(message).hint(format!("the name must end in {}", Self::extensions()))
        })
    }

    /// The format of a file that begins so.
    fn beginning_with(start: &[u8]) -> Option<Self> {
        match start {
            [b'p', b'l', b'y', ..] => Some(Self::Ply),
            [b'N', b'G', b'S', b'P'] | [0x1f, 0x8b, ..] => Some(Self::Spz),
            b"glTF" => Some(Self::Glb),
            b"PK\x03\x04" => Some(Self::Sog),
            _ => None,
        }
    }

    /// The extensions of all formats, as a part of a sentence.
    fn extensions() -> String {
        let all = Self::ALL.map(|format| format!(".{}", format.extension()));
        match &all[..] {
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
            [] => String::new(),
        }
    }
}

impl Splats {
    /// Reads a scene from a file of any [`SceneFormat`] (`.ply` plain or packed; of an `.spz` file the frame is taken to be
    /// the format's). The content decides, not the name. A pipe may take the place of the file.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if it is none of these or damaged, else the operating system's.
    pub fn read(path: &Path) -> Result<Self> {
        let source = Source::open(path)?;
        match SceneFormat::beginning_with(source.start()) {
            Some(SceneFormat::Ply) => Self::from_ply(source),
            Some(SceneFormat::Spz) => Self::from_spz(source, SpzFrame::default()),
            Some(SceneFormat::Glb) => Self::from_glb(source),
            Some(SceneFormat::Sog) => Self::from_sog(source),
            None => {
                let message = format!("{} is no scene in a known format", path.display());
                Err(Error::new(ErrorKind::InvalidFile, message)
                    .hint(format!("{} are known", SceneFormat::extensions().replace(" or ", " and "))))
            }
        }
    }

    /// Writes the scene in the [`SceneFormat`] that the name says, with the usual options.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for another extension, and those of [`Splats::write_ply`],
    /// [`Splats::write_spz`], [`Splats::write_glb`] and [`Splats::write_sog`].
    pub fn write(&self, path: &Path) -> Result<()> {
        match SceneFormat::of(path)? {
            SceneFormat::Ply => self.write_ply(path),
            SceneFormat::Spz => self.write_spz(path, &SpzOptions::default()),
            SceneFormat::Glb => self.write_glb(path),
            SceneFormat::Sog => self.write_sog(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spz::SpzVersion;
    use super::super::test_scenes::random_splats;
    use super::*;

    #[test]
    fn the_name_decides_on_writing_and_the_content_on_reading() {
        let folder = tempfile::tempdir().unwrap();
        let splats = random_splats(4, 50, 3);
        let (ply, spz, glb) =
            (folder.path().join("a.PLY"), folder.path().join("a.spz"), folder.path().join("a.glb"));
        splats.write(&ply).unwrap();
        assert_eq!(Splats::read(&ply).unwrap(), splats);
        splats.write(&spz).unwrap();
        let rounded = Splats::read(&spz).unwrap();
        std::fs::rename(&spz, &ply).unwrap();
        assert_eq!(Splats::read(&ply).unwrap(), rounded);
        assert!((rounded.means[3][1] - splats.means[3][1]).abs() < 1e-3);
        splats.write(&glb).unwrap();
        assert_eq!(Splats::read(&glb).unwrap().means, splats.means);
        for format in SceneFormat::ALL {
            assert_eq!(SceneFormat::of(&ply.with_extension(format.extension())).unwrap(), format);
        }
        let error = splats.write(&folder.path().join("a.obj")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("a.obj"), "{error}");
        for content in [&b"OBJ0"[..], b"glTF", b"PK\x03\x04", b"glT", b"", b"p"] {
            std::fs::write(&ply, content).unwrap();
            assert_eq!(Splats::read(&ply).unwrap_err().kind(), ErrorKind::InvalidFile);
        }
        assert_eq!(Splats::read(&folder.path().join("b.ply")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// What `reader` gets from a pipe through which `bytes` come, a few at first.
    #[cfg(unix)]
    fn through_a_pipe(bytes: &[u8], reader: impl Fn(&Path) -> Result<Splats>) -> Result<Splats> {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string that ends in zero and lives until the call is over.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
                let (first, rest) = bytes.split_at(bytes.len().min(2));
                // A reader that refuses what it has seen hangs up.
                let _ = writer.write_all(first).and_then(|()| writer.write_all(rest));
            });
            reader(&pipe)
        })
    }

    #[test]
    #[cfg(unix)]
    fn a_scene_comes_through_a_pipe_as_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let splats = random_splats(8, 30_000, 2);
        splats.write_ply(&path("a.ply")).unwrap();
        let options = |version| SpzOptions { version, ..SpzOptions::default() };
        splats.write_spz(&path("a3.spz"), &options(SpzVersion::V3)).unwrap();
        splats.write_spz(&path("a4.spz"), &options(SpzVersion::V4)).unwrap();
        type Reader = fn(&Path) -> Result<Splats>;
        splats.write_glb(&path("a.glb")).unwrap();
        splats.write_sog(&path("a.sog")).unwrap();
        let readers: [(&str, Reader); 5] = [
            ("a.ply", Splats::read_ply),
            ("a.glb", Splats::read_glb),
            ("a.sog", Splats::read_sog),
            ("a3.spz", |path| Splats::read_spz(path, SpzFrame::default())),
            ("a4.spz", |path| Splats::read_spz(path, SpzFrame::default())),
        ];
        for (name, reader) in readers {
            let bytes = std::fs::read(path(name)).unwrap();
            let expected = Splats::read(&path(name)).unwrap();
            assert_eq!(through_a_pipe(&bytes, Splats::read).unwrap(), expected, "{name}");
            assert_eq!(through_a_pipe(&bytes, reader).unwrap(), expected, "{name}");
            for cut in [0, 3, 200, 2000, bytes.len() - 1] {
                let error = through_a_pipe(&bytes[..cut], reader).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidFile, "{name} after {cut} bytes: {error}");
            }
        }
    }

    /// From a pipe nothing is known beforehand: no room is made for what a header promises.
    #[test]
    #[cfg(unix)]
    fn a_promise_through_a_pipe_must_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.ply");
        random_splats(1, 1, 0).write_ply(&file).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        let promise = "element vertex 1\n";
        let at = bytes.windows(promise.len()).position(|w| w == promise.as_bytes()).unwrap();
        let (before, after) = (&bytes[..at], &bytes[at + promise.len()..]);
        for format in ["binary_little_endian", "ascii"] {
            let before = String::from_utf8_lossy(before).replace("binary_little_endian", format);
            for count in ["10000000000000000000", "4000000000000"] {
                let promise = format!("element vertex {count}\n");
                let hostile = [before.as_bytes(), promise.as_bytes(), after].concat();
                let error = through_a_pipe(&hostile, Splats::read).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
            }
        }
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
