//! What a backup holds: `backup.json`, which is written last, so that a backup without it is none.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::files::write_atomically;
use crate::job::Timestamp;
use crate::service::layout;
use crate::storage::BlobKey;

/// The name of the file.
const MANIFEST: &str = "backup.json";
/// The form that is written and read.
const FORMAT: u32 = 1;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    /// The form of this file.
    format: u32,
    /// The version of the program that made the backup.
    pub program: String,
    /// When the copy of the rows was made: nothing later is in the backup.
    pub made_at: Timestamp,
    /// Users.
    pub users: u64,
    /// Jobs, also those that wait.
    pub jobs: u64,
    /// All files but this one.
    pub files: Vec<BackedUpFile>,
    /// Stored files that rows named and that were missing or damaged although nobody had deleted them. The rows of the backup do
    /// not name them any more.
    pub lost: Vec<String>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUpFile {
    /// Its path in the backup, with `/`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of them, as hexadecimal digits.
    pub sha256: String,
}

impl BackupManifest {
    pub(super) fn new(made_at: Timestamp) -> Self {
        let program = crate::VERSION.to_owned();
        Self { format: FORMAT, program, made_at, users: 0, jobs: 0, files: vec![], lost: vec![] }
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Its files by their names.
    pub(super) fn by_name(&self) -> HashMap<&str, &BackedUpFile> {
        self.files.iter().map(|file| (file.name.as_str(), file)).collect()
    }

    /// Reads that of the backup in `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::InvalidFile`] if it cannot be understood; the system's.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let message = format!("{} holds no complete backup: it has no {MANIFEST}", folder.display());
                return Err(Error::new(ErrorKind::NotFound, message)
                    .hint("`reconstruct backup` writes that file last; name the folder that it made"));
            }
            read => read.map_err(|e| Error::io("read", &path, e))?,
        };
        let damaged = |why: String| {
            Error::new(ErrorKind::InvalidFile, format!("{} cannot be used: {why}", path.display()))
        };
        let whole: serde_json::Value = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if let Some(format) = whole["format"].as_u64().filter(|format| *format != u64::from(FORMAT)) {
            return Err(damaged(format!("it has format {format}, this program knows {FORMAT}"))
                .hint("use the newer program that wrote it"));
        }
        let manifest: Self = serde_json::from_value(whole).map_err(|e| damaged(e.to_string()))?;
        // Its names become paths.
        let ours = [layout::DATABASE, layout::SECRETS];
        let is_ours = |name: &str| ours.contains(&name) || BlobKey::parse(name).is_some();
        if let Some(file) = manifest.files.iter().find(|file| !is_ours(&file.name)) {
            return Err(damaged(format!("{:?} is no file of a service", file.name)));
        }
        if let Some(name) = ours.iter().find(|name| !manifest.files.iter().any(|file| file.name == **name)) {
            return Err(damaged(format!("it does not list {name}")));
        }
        Ok(manifest)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| {
            Error::new(ErrorKind::Internal, "the list of a backup cannot be written as JSON").caused_by(e)
        })?;
        write_atomically(&folder.join(MANIFEST), |file| file.write_all(&text))
    }
}
