//! The files that go with the rows: each is read back from where it went.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::database::{SqliteDatabase, UpkeepRows};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::service::CopyProgress;
use crate::service::lost_files::key_of;
use crate::service::needed::is_needed;
use crate::storage::{BlobKey, BlobKind, BlobReader, LocalStorage, Storage};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// Names that a message shows.
const SHOWN: usize = 3;

/// Files of a folder.
pub(super) struct Files {
    here: LocalStorage,
    files: Vec<File>,
}

struct File {
    key: BlobKey,
    size: u64,
    /// What its row says, if it does.
    sha256: Option<[u8; 32]>,
}

impl Files {
    /// All that `rows` name, and what belongs to uploads and jobs that are not finished.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] if one is missing or has another size than its row says.
    pub(super) fn of(from: &Path, rows: &SqliteDatabase) -> Result<Self> {
        let here = LocalStorage::to_look_at(from);
        let mut files: Vec<File> = rows
            .named_files()?
            .into_iter()
            .map(|file| File { key: key_of(file.file), size: file.size, sha256: file.sha256 })
            .collect();
        let mut lost = vec![];
        for file in &files {
            if here.metadata(&file.key)?.is_none_or(|found| found.size != file.size) {
                lost.push(file.key.to_string());
            }
        }
        if !lost.is_empty() {
            let shown = lost.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
            let message = format!("{} files that rows name are missing or damaged: {shown}", lost.len());
            return Err(Error::new(ErrorKind::InvalidFile, message).hint(
                "copy them from a backup, or let `reconstruct doctor --repair` take back what the rows say of them; then start \
                 this again",
            ));
        }
        for kind in [BlobKind::Block, BlobKind::Incoming, BlobKind::Checkpoint] {
            for key in here.list(kind, Duration::ZERO)? {
                if let (true, Some(found)) = (is_needed(rows, &key)?, here.metadata(&key)?) {
                    files.push(File { key, size: found.size, sha256: None });
                }
            }
        }
        Ok(Self { here, files })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.files.len() as u64
    }

    /// Bytes of all.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Brings all to `there` that did not arrive in an earlier call, which is what the file `list` says.
    pub(super) fn bring(
        &self,
        there: &dyn Storage,
        list: &Path,
        watch: &mut dyn FnMut(CopyProgress) -> Result<()>,
    ) -> Result<()> {
        let io = |e| Error::io("write", list, e);
        let arrived: HashSet<String> = match fs::read(list) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => HashSet::new(),
            read => String::from_utf8_lossy(&read.map_err(|e| Error::io("read", list, e))?)
                .lines()
                .map(str::to_owned)
                .collect(),
        };
        let mut list = fs::OpenOptions::new().create(true).append(true).open(list).map_err(io)?;
        // A name that was cut off ends here.
        list.write_all(b"\n").map_err(io)?;
        let mut progress = CopyProgress { bytes: 0, total_bytes: self.bytes() };
        watch(progress)?;
        for file in &self.files {
            let name = file.key.to_string();
            if arrived.contains(&name) && is_there(there, file)? {
                progress.bytes += file.size;
                watch(progress)?;
                continue;
            }
            failpoints::pass("migrate.copy").map_err(|e| Error::io("move", Path::new(&name), e))?;
            let before = progress.bytes;
            self.bring_one(there, file, &mut |bytes| {
                progress.bytes = before + bytes.min(file.size);
                watch(progress)
            })?;
            progress.bytes = before + file.size;
            list.write_all(format!("{name}\n").as_bytes()).map_err(io)?;
            watch(progress)?;
        }
        Ok(())
    }

    /// Brings one file to `there`, unless it is there, and compares what can be read there with what is here.
    fn bring_one(
        &self,
        there: &dyn Storage,
        file: &File,
        watch: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let wanted = match file.sha256 {
            Some(hash) => hash,
            None => hash_of(&mut self.here.open(&file.key)?, &file.key, &mut |_| watch(0))?,
        };
        // It may have come whole in a call that was killed before it could say so.
        if is_there(there, file)? && hash_of(&mut there.open(&file.key)?, &file.key, watch)? == wanted {
            return Ok(());
        }
        let path = self.here.local_path(&file.key).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("{} has no place in its folder", file.key))
        })?;
        there.put_file(&file.key, &path)?;
        let found = hash_of(&mut there.open(&file.key)?, &file.key, watch)?;
        if is_there(there, file)? && found == wanted {
            return Ok(());
        }
        if hash_of(&mut self.here.open(&file.key)?, &file.key, &mut |_| Ok(()))? != wanted {
            let message =
                format!("{} is damaged: its bytes are not those that were uploaded", path.display());
            return Err(Error::new(ErrorKind::InvalidFile, message).hint(
                "copy it from a backup, or delete the jobs that use it (`reconstruct jobs`); then start this again",
            ));
        }
        Err(Error::new(ErrorKind::Io, format!("{} did not arrive as it was sent", file.key))
            .hint("start this again; if it happens again, the storage is not to be trusted"))
    }

    /// Sees that all are there now.
    pub(super) fn check(&self, there: &dyn Storage) -> Result<()> {
        for file in &self.files {
            if !is_there(there, file)? {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("{} had arrived and is not there any more", file.key),
                )
                .hint(
                    "stop what removes files there, such as a server that was started too early, and start this again: it goes on",
                ));
            }
        }
        Ok(())
    }
}

fn is_there(there: &dyn Storage, file: &File) -> Result<bool> {
    Ok(there.metadata(&file.key)?.is_some_and(|found| found.size == file.size))
}

/// SHA-256 of a blob; `watch` is told how many bytes were read.
fn hash_of(
    blob: &mut BlobReader,
    key: &BlobKey,
    watch: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<[u8; 32]> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        let count =
            blob.file.read(&mut piece).map_err(|e| Error::io("read", Path::new(&key.to_string()), e))?;
        let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else { break };
        hash.update(read);
        bytes += count as u64;
        watch(bytes)?;
    }
    Ok(hash.finalize().into())
}
