//! One file after the other: linked or copied, hashed, on the disk.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::manifest::BackedUpFile;
use crate::error::{Error, Result};
use crate::files::{create_private_file, create_private_folder, sync_folder};
use crate::hex::hex;
use crate::storage::BlobReader;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// How far a backup or its restoration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes that there are.
    pub total_bytes: u64,
}

/// The work on many files.
pub(super) struct Copying<'a> {
    /// The folder that they go to.
    folder: &'a Path,
    progress: CopyProgress,
    watch: &'a mut dyn FnMut(CopyProgress) -> Result<()>,
}

impl<'a> Copying<'a> {
    /// `watch` is told how far the work is; its error ends it.
    pub(super) fn new(
        folder: &'a Path,
        total_bytes: u64,
        watch: &'a mut dyn FnMut(CopyProgress) -> Result<()>,
    ) -> Self {
        Self { folder, progress: CopyProgress { bytes: 0, total_bytes }, watch }
    }

    /// Makes the file `name` of `blob`: as a link to the first of `same` that can be linked, which are the same bytes under other
    /// names and never change, else as a copy. What is known to have the hash `known` is read only to be copied.
    pub(super) fn place(
        &mut self,
        name: &str,
        mut blob: BlobReader,
        same: &[PathBuf],
        known: Option<&str>,
    ) -> Result<BackedUpFile> {
        let to = self.path(name);
        create_private_folder(to.parent().unwrap_or(self.folder))?;
        let linked = same.iter().any(|path| fs::hard_link(path, &to).is_ok());
        if let (true, Some(known)) = (linked, known) {
            self.advance(blob.size)?;
            return Ok(BackedUpFile { name: name.to_owned(), size: blob.size, sha256: known.to_owned() });
        }
        let copied = match linked {
            true => self.pass(&mut blob.file, &mut io::sink(), &to),
            false => self.copy_to(&to, &mut blob),
        };
        let (size, sha256) = copied?;
        Ok(BackedUpFile { name: name.to_owned(), size, sha256 })
    }

    /// Makes the file `name` of the bytes of `from`, which may change later.
    pub(super) fn copy(&mut self, name: &str, from: &Path) -> Result<BackedUpFile> {
        let mut blob = reader_of(from)?;
        let (size, sha256) = self.copy_to(&self.path(name), &mut blob)?;
        Ok(BackedUpFile { name: name.to_owned(), size, sha256 })
    }

    /// What is already there as `name`.
    pub(super) fn hash(&mut self, name: &str) -> Result<BackedUpFile> {
        let path = self.path(name);
        let mut blob = reader_of(&path)?;
        let (size, sha256) = self.pass(&mut blob.file, &mut io::sink(), &path)?;
        Ok(BackedUpFile { name: name.to_owned(), size, sha256 })
    }

    /// Where the file `name` is made.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn copy_to(&mut self, to: &Path, blob: &mut BlobReader) -> Result<(u64, String)> {
        let io = |e| Error::io("write", to, e);
        let mut file = create_private_file(to).map_err(io)?;
        let done = self.pass(&mut blob.file, &mut file, to)?;
        file.set_times(FileTimes::new().set_modified(blob.modified))
            .and_then(|()| file.sync_all())
            .map_err(io)?;
        Ok(done)
    }

    /// Hands the bytes on; returns how many there were and their hash.
    fn pass(&mut self, from: &mut impl Read, to: &mut impl Write, name: &Path) -> Result<(u64, String)> {
        let (mut size, mut hash) = (0, Sha256::new());
        let mut piece = vec![0; PIECE];
        loop {
            let count = from.read(&mut piece).map_err(|e| Error::io("read what becomes", name, e))?;
            let Some(bytes) = piece.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
            to.write_all(bytes).map_err(|e| Error::io("write", name, e))?;
            hash.update(bytes);
            size += bytes.len() as u64;
            self.advance(bytes.len() as u64)?;
        }
        Ok((size, hex(&hash.finalize())))
    }

    fn advance(&mut self, bytes: u64) -> Result<()> {
        self.progress.bytes += bytes;
        // What was damaged may be longer than it should be.
        self.progress.total_bytes = self.progress.total_bytes.max(self.progress.bytes);
        (self.watch)(self.progress)
    }
}

/// Opens any file as one of a storage.
pub(super) fn reader_of(path: &Path) -> Result<BlobReader> {
    let io = |e| Error::io("open", path, e);
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let modified = metadata.modified().map_err(io)?;
    Ok(BlobReader { file: Box::new(file), size: metadata.len(), modified })
}

/// Makes the names in `folder` and below durable.
pub(super) fn sync_all_folders(folder: &Path) -> Result<()> {
    let io = |e| Error::io("list", folder, e);
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_type().map_err(io)?.is_dir() {
            sync_all_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}
