//! Jobs whose video the storage no longer has (rule 82 of docs/rest.md): where the storage is apart from the rows, somebody may
//! remove files there, or rows may come back from a backup without them.
//!
//! A worker that takes up such a job finds out, and for those that wait it is looked now and then. The job ends with a code of
//! its own, in its row; the upload stays as it is, so that the job can be done again once the file is back in its place. In a
//! service of one folder a missing file is a matter for the doctor.

use super::Service;
use super::job_changes::{JobEvent, tell_of};
use super::machine::try_storage;
use crate::error::Result;
use crate::job::{BlobName, Failure};
use crate::storage::BlobKey;

/// How a job fails whose video is missing.
pub(super) fn failure() -> Failure {
    Failure {
        code: Failure::VIDEO_MISSING.to_owned(),
        message: "the storage no longer has the video of this job: upload it again".to_owned(),
    }
}

impl Service {
    /// Whether a video that a row names is not in the storage; never in a service of one folder.
    ///
    /// # Errors
    /// The storage's: then it is not known.
    pub(super) fn is_video_missing(&self, name: &BlobName, version: u64) -> Result<bool> {
        let (key, storage) = (BlobKey::Video { name: *name, version }, &self.inner.storage);
        if !self.inner.has_other_machines || storage.metadata(&key)?.is_some() {
            return Ok(false);
        }
        // Of a bucket that is not there some stores say the same as of a file; they cannot list what is in it.
        Ok(!storage.list_upload(name)?.contains(&key))
    }

    /// Ends the jobs that wait for a video which is missing; says how many.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn end_jobs_without_video(&self, name: &BlobName, version: u64) -> Result<u64> {
        let ended = self.inner.database.fail_waiting(name, version, &failure())?;
        if !ended.is_empty() {
            log::error!(
                "the video {name} is not in the storage: {} jobs that waited for it end",
                ended.len()
            );
            self.inner.changes.notify();
            ended.iter().for_each(|job| tell_of(*job, JobEvent::Failed { code: Failure::VIDEO_MISSING }));
        }
        Ok(ended.len() as u64)
    }

    /// Looks for the videos of all jobs that wait, and ends those of which it is missing; says how many.
    ///
    /// # Errors
    /// The storage's and the database's.
    pub(super) fn look_for_waiting_videos(&self) -> Result<u64> {
        let mut ended = 0;
        if !self.inner.has_other_machines {
            return Ok(ended);
        }
        for (name, version) in self.inner.database.waiting_videos()? {
            if self.is_video_missing(&name, version)? {
                // A folder that is just not mounted has no files either.
                try_storage(self)?;
                ended += self.end_jobs_without_video(&name, version)?;
            }
        }
        Ok(ended)
    }
}
