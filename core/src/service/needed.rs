//! Which stored files are needed: the rows say.

use std::time::Duration;

use crate::database::{FileOwner, JobDatabase};
use crate::error::Result;
use crate::storage::BlobKey;

/// How long a file must have been left alone to be taken for an orphan: its row may be about to be written.
pub(super) const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// Whether a row names the file, or may come to.
pub(super) fn is_needed(rows: &dyn JobDatabase, key: &BlobKey) -> Result<bool> {
    Ok(match *key {
        BlobKey::Video { name, version } => rows
            .upload(&name)?
            .is_some_and(|upload| upload.video.is_some_and(|video| video.version == version)),
        BlobKey::Block { name, .. } => {
            rows.upload(&name)?.is_some_and(|upload| !upload.submitted && !upload.deleted)
        }
        BlobKey::Incoming { name } => {
            rows.upload(&name)?.is_some_and(|upload| !upload.submitted && !upload.deleted)
        }
        BlobKey::Checkpoint { job, .. } => matches!(rows.file_owner(job)?, FileOwner::Unfinished),
        BlobKey::Artifact { job, attempt, kind } => match rows.file_owner(job)? {
            FileOwner::Unfinished => true,
            FileOwner::Nobody => false,
            FileOwner::Ended(kept) => kept.contains(&(kind, attempt)),
        },
    })
}
