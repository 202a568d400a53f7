//! Files that rows name and that are lost.

use std::collections::HashSet;

use crate::database::{Lost, NamedFile, RowsFile, UpkeepRows};
use crate::error::Result;
use crate::job::Failure;
use crate::storage::{BlobKey, Storage};

/// Of so many videos and artifacts at most, of each end of all jobs, it is looked whether they are there.
pub(super) const SOME_FILES: u32 = 16;

/// The code with which a job fails whose files were lost on the server.
pub(super) const FILES_LOST: &str = "files_lost";

/// The stored file that a row names.
pub(super) fn key_of(file: RowsFile) -> BlobKey {
    match file {
        RowsFile::Video { name, version } => BlobKey::Video { name, version },
        RowsFile::Artifact { job, attempt, kind } => BlobKey::Artifact { job, attempt, kind },
    }
}

/// One of some files that rows name which is not there, if there is such. Looks at those of the oldest jobs and of the newest: where
/// the address of the storage was changed, those of either side of it are missing.
pub(super) fn one_missing(
    rows: &(impl UpkeepRows + ?Sized),
    storage: &dyn Storage,
) -> Result<Option<BlobKey>> {
    let some = || -> Result<Vec<NamedFile>> {
        Ok([rows.oldest_files(SOME_FILES)?, rows.newest_files(SOME_FILES)?].concat())
    };
    let mut looked_for = HashSet::new();
    for file in some()?.into_iter().map(|named| named.file) {
        let key = key_of(file);
        // Whoever deletes a file changes its row first.
        if looked_for.insert(file)
            && storage.metadata(&key)?.is_none()
            && some()?.iter().any(|named| named.file == file)
        {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Makes the rows no longer name a file that is lost. Lost videos come before lost artifacts: without its video a job cannot be
/// done again.
pub(super) fn lose(rows: &(impl UpkeepRows + ?Sized), file: RowsFile) -> Result<Lost> {
    let failure = |message: &str| Failure { code: FILES_LOST.to_owned(), message: message.to_owned() };
    match file {
        RowsFile::Video { name, version } => {
            let failure = failure("the video of this job was lost on the server: upload it again");
            rows.lose_video(&name, version, &failure)
        }
        RowsFile::Artifact { job, attempt, kind } => {
            let failure = failure(
                "the scene and the video of this job were lost on the server: upload the video again",
            );
            rows.lose_artifact(job, attempt, kind, &failure)
        }
    }
}
