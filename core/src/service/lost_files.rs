//! Files that rows name and that are lost.

use crate::database::{Lost, RowsFile, UpkeepRows};
use crate::error::Result;
use crate::job::Failure;
use crate::storage::BlobKey;

/// The code with which a job fails whose files were lost on the server.
const CODE: &str = "files_lost";

/// The stored file that a row names.
pub(super) fn key_of(file: RowsFile) -> BlobKey {
    match file {
        RowsFile::Video { name, version } => BlobKey::Video { name, version },
        RowsFile::Artifact { job, attempt, kind } => BlobKey::Artifact { job, attempt, kind },
    }
}

/// Makes the rows no longer name a file that is lost. Lost videos come before lost artifacts: without its video a job cannot be
/// done again.
pub(super) fn lose(rows: &(impl UpkeepRows + ?Sized), file: RowsFile) -> Result<Lost> {
    let failure = |message: &str| Failure { code: CODE.to_owned(), message: message.to_owned() };
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
