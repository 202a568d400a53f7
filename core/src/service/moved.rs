//! What a folder says of itself whose service was moved to many machines: that nobody starts it again by accident.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::layout;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Timestamp;

/// Where a service was moved to, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// When all had arrived.
    pub moved_at: Timestamp,
    /// Where its rows are, without a password.
    pub database: String,
    /// Where its files are.
    pub storage: String,
    /// Users.
    pub users: u64,
    /// Jobs, also those that wait.
    pub jobs: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Stored files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Where to, and how much.
    pub moved: Moved,
    /// Whether an earlier call had done all of it.
    pub before: bool,
}

/// What the folder says, if its service was moved.
pub(super) fn read(folder: &Path) -> Result<Option<Moved>> {
    let path = folder.join(layout::MOVED);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|e| Error::io("read", &path, e))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|e| {
        Error::new(ErrorKind::InvalidFile, format!("{} cannot be understood: {e}", path.display()))
            .hint("it says that the service was moved to many machines: do not start it on this folder")
            .caused_by(e)
    })
}

/// Refuses a folder whose service is somewhere else, or is on its way there.
pub(super) fn check(folder: &Path) -> Result<()> {
    if let Some(moved) = read(folder)? {
        let message = format!(
            "the service of {} was moved on {} to {} and {}",
            folder.display(),
            moved.moved_at,
            moved.database,
            moved.storage
        );
        return Err(Error::new(ErrorKind::Conflict, message).hint(format!(
            "name both with --database and --storage (docs/many-machines.md). The way back with all that happened since: `reconstruct \
             backup` there, `reconstruct restore` to a new folder. To use this folder as it was when it was moved, remove {}",
            folder.join(layout::MOVED).display()
        )));
    }
    if folder.join(layout::MOVING).exists() {
        let message = format!(
            "the service of {} is being moved to many machines, or that was cut off",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Conflict, message).hint(format!(
            "wait for the end of `reconstruct migrate`, or start it again: it goes on. To stay with this folder instead, remove {}, \
             and never use the database that was named",
            folder.join(layout::MOVING).display()
        )));
    }
    Ok(())
}
