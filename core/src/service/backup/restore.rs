//! Makes a service of a backup.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::copying::{CopyProgress, Copying, reader_of, sync_all_folders};
use super::manifest::BackupManifest;
use crate::database::{JobDatabase, SqliteDatabase, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::file_lock::FileLock;
use crate::files::{create_private_folder, sync_folder};
use crate::service::process::initial_lock;
use crate::service::{Service, layout};
use crate::storage::{BlobKey, BlobKind};

/// What may lie in a folder that counts as empty: the root of a file system has it.
const NOT_OURS: &str = "lost+found";

impl Service {
    /// Makes the service in `folder`, which is new or empty, of a backup, and checks every file of it meanwhile. Stored files are
    /// linked where that can be, so that this takes no room on the file system of the backup, and the backup stays as it is.
    /// Until all is there and on the disk, the folder cannot be opened. `watch` is told how far the work is; its error ends it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no complete backup, [`ErrorKind::InvalidFile`] if it is damaged or of a newer program,
    /// [`ErrorKind::InvalidArgument`] if `folder` is not empty, [`ErrorKind::Conflict`] while another call restores to it,
    /// [`ErrorKind::DiskFull`]; what `watch` returns. Then nothing is left in `folder`.
    pub fn restore(
        backup: &Path,
        folder: &Path,
        watch: &mut dyn FnMut(CopyProgress) -> Result<()>,
    ) -> Result<BackupManifest> {
        #[cfg(feature = "failpoints")]
        failpoints::read_environment();
        let manifest = BackupManifest::read(backup)?;
        let was_there = folder.is_dir();
        create_private_folder(folder)?;
        let restored = begin(folder).and_then(|marker| {
            let filled = fill(&manifest, backup, folder, watch).and_then(|()| finish(folder));
            if filled.is_err() {
                // The first failure is what matters. What cannot be removed is in a folder that does not open.
                let _ = clear(folder);
            }
            drop(marker);
            filled
        });
        if restored.is_err() && !was_there {
            // Only if it is empty.
            let _ = fs::remove_dir(folder);
        }
        restored.map(|()| manifest)
    }
}

/// Marks the empty folder as one that is being filled.
fn begin(folder: &Path) -> Result<FileLock> {
    let path = folder.join(layout::RESTORING);
    // Whoever opens the folder looks for the mark under this lock, too.
    let _making = initial_lock(folder)?;
    if !path.exists() {
        check_empty(folder)?;
    }
    let marker = FileLock::try_take(FileLock::open(&path)?).map_err(|e| Error::io("lock", &path, e))?;
    let marker = marker.ok_or_else(|| {
        Error::new(ErrorKind::Conflict, format!("another program restores to {} now", folder.display()))
            .hint("wait for its end")
    })?;
    // What a restoration left that was cut off. The folder was empty before it.
    empty(folder)?;
    check_empty(folder)?;
    sync_folder(folder)?;
    Ok(marker)
}

fn check_empty(folder: &Path) -> Result<()> {
    let io = |e| Error::io("list", folder, e);
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if ![NOT_OURS, layout::RESTORING, layout::LOCK].iter().any(|known| name == *known) {
            return Err(Error::argument(format!(
                "{} is not empty: {} is in it",
                folder.display(),
                Path::new(&name).display()
            ))
            .hint("restore to a new folder, or move away what is in this one"));
        }
    }
    Ok(())
}

/// Takes the mark away: the folder can be opened.
fn finish(folder: &Path) -> Result<()> {
    let path = folder.join(layout::RESTORING);
    failpoints::pass("restore.place")
        .and_then(|()| fs::remove_file(&path))
        .map_err(|e| Error::io("remove", &path, e))?;
    sync_folder(folder)
}

/// Removes what a restoration makes, but for its mark.
fn empty(folder: &Path) -> Result<()> {
    let folders = [BlobKind::Video.prefix(), BlobKind::Artifact.prefix()];
    for name in folders.into_iter().chain([layout::DATABASE, layout::SECRETS]) {
        let path = folder.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", &path, e)),
            _ => {}
        }
    }
    Ok(())
}

/// Makes the folder as empty as it was.
fn clear(folder: &Path) -> Result<()> {
    empty(folder)?;
    for name in [layout::RESTORING, layout::LOCK] {
        let path = folder.join(name);
        fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

fn fill(
    manifest: &BackupManifest,
    backup: &Path,
    folder: &Path,
    watch: &mut dyn FnMut(CopyProgress) -> Result<()>,
) -> Result<()> {
    let mut copying = Copying::new(folder, manifest.bytes(), watch);
    for file in &manifest.files {
        let from = backup.join(&file.name);
        failpoints::pass("restore.copy").map_err(|e| Error::io("copy", &from, e))?;
        let damaged = |why: String| {
            Error::new(ErrorKind::InvalidFile, format!("the backup is damaged: {} {why}", from.display()))
                .hint("use another backup; nothing was restored")
        };
        let missing = |e: Error| match e.kind() {
            ErrorKind::NotFound => damaged("is missing".to_owned()),
            _ => e,
        };
        let copied = match BlobKey::parse(&file.name) {
            Some(_) => {
                let blob = reader_of(&from).map_err(missing)?;
                copying.place(&file.name, blob, std::slice::from_ref(&from), None)?
            }
            // The service writes to these.
            None => copying.copy(&file.name, &from).map_err(missing)?,
        };
        if copied != *file {
            return Err(damaged(format!(
                "has {} bytes and the SHA-256 {}, it had {} and {}",
                copied.size, copied.sha256, file.size, file.sha256
            )));
        }
    }
    check_rows(&folder.join(layout::DATABASE))?;
    sync_all_folders(folder)
}

/// Refuses rows that this program cannot open.
fn check_rows(path: &Path) -> Result<()> {
    let rows = SqliteDatabase::open_to_look(path, Arc::new(SystemClock::new()), true)?;
    let version = rows.schema_version()?;
    if version.found > version.newest {
        let message = format!(
            "the database of the backup has version {}; this program knows up to {}",
            version.found, version.newest
        );
        return Err(
            Error::new(ErrorKind::InvalidFile, message).hint("use the newer program that made the backup")
        );
    }
    match rows.integrity_check()?.first() {
        Some(wrong) => {
            Err(Error::new(ErrorKind::InvalidFile, format!("the database of the backup: {wrong}")))
        }
        None => Ok(()),
    }
}
