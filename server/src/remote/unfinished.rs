//! What is known of an upload that is under way, kept in a file: the same command goes on with it after the process has ended.
//!
//! The file lies in the user's folder for such things and only the user can read it: whoever has the address in it can send
//! another video in place of the user's.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// An upload that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unfinished {
    /// Of which file: its size and when it was last changed, nanoseconds.
    pub(super) size: u64,
    pub(super) modified: u128,
    /// Where it goes.
    pub(super) url: String,
    pub(super) blob_name: String,
    /// So many blocks from the first on are there.
    pub(super) blocks: u64,
    /// How many pieces are there of the blocks that were sent in pieces.
    #[serde(default)]
    pub(super) pieces: BTreeMap<u64, u64>,
    /// Whether all of it is there, as a video.
    pub(super) is_complete: bool,
    /// What makes its submission repeatable.
    pub(super) idempotency_key: String,
}

/// Where that is kept for one video on its way to one server.
pub(super) struct Notes(Option<PathBuf>);

impl Notes {
    /// Without a folder of the user's nothing is kept, and an upload that is cut off begins anew.
    pub(super) fn of(server: &str, video: &Path) -> Self {
        let path = std::path::absolute(video).unwrap_or_else(|_| video.to_owned());
        let name = Sha256::digest(format!("{server}\n{}", path.display()));
        let name: String = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self(folder().map(|folder| folder.join(format!("{name}.json"))))
    }

    /// What is kept, if it is of this file as it is now.
    pub(super) fn read(&self, size: u64, modified: u128) -> Option<Unfinished> {
        let text = std::fs::read(self.0.as_ref()?).ok()?;
        let found: Unfinished = serde_json::from_slice(&text).ok()?;
        (found.size == size && found.modified == modified).then_some(found)
    }

    /// Keeps it. What cannot be kept keeps nobody from sending the video.
    pub(super) fn write(&self, unfinished: &Unfinished) {
        let (Some(path), Ok(text)) = (&self.0, serde_json::to_vec(unfinished)) else { return };
        if let Err(error) = replace(path, &text) {
            tracing::debug!(%error, path = %path.display(), "an upload that is cut off will begin anew");
        }
    }

    /// Forgets it.
    pub(super) fn remove(&self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a file that only its owner may read: aside first, so that it is never found half written.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let aside = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&aside)?.write_all(text)?;
    fs::rename(&aside, path)
}

/// When a file was last changed.
pub(super) fn modified(metadata: &std::fs::Metadata) -> u128 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.unwrap_or_default().as_nanos()
}

/// The folder of what may be lost.
fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let caches = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Caches"))
    } else {
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))
    };
    caches.map(|folder| folder.join("reconstruct").join("uploads"))
}
