//! A scene file as bytes that come once, in order: a plain file, or a pipe, whose size nobody knows beforehand.

use std::fs::File;
use std::io::{Chain, Cursor, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// As many bytes tell the formats apart.
const START: u64 = 4;

/// A file that has been opened and of which nothing was taken yet.
pub(super) struct Source {
    path: PathBuf,
    size: Option<u64>,
    bytes: Chain<Cursor<Vec<u8>>, File>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io("open", path, e))?;
        // Pipes say 0, and so do files that the system makes up while they are read.
        let size = (metadata.is_file() && metadata.len() > 0).then_some(metadata.len());
        let mut start = Vec::new();
        file.by_ref().take(START).read_to_end(&mut start).map_err(|e| Error::io("read", path, e))?;
        Ok(Self { path: path.to_owned(), size, bytes: Cursor::new(start).chain(file) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file, where they are known before they have been read.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// The first four bytes, or all of a shorter file.
    pub(super) fn start(&self) -> &[u8] {
        self.bytes.get_ref().0.get_ref()
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.bytes.read(buffer)
    }
}
