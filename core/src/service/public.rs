//! What everybody may see of a job that its owner has made public: a title, a camera, the scene and a picture of it.
//!
//! No user is named here, so nothing else can be reached this way. To everybody but its owner a job exists only while it is
//! public and finished: any other has the same answer as an unknown one, after the same work.

use super::jobs::Artifact;
use super::{Service, job_not_found};
use crate::error::Result;
use crate::job::{ArtifactKind, JobId, PublicJob};

impl Service {
    /// A job that is public and finished, whoever owns it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) for every other job.
    pub fn public_job(&self, job: JobId) -> Result<PublicJob> {
        let job = self.inner.database.public_job(job)?.ok_or_else(job_not_found)?;
        Ok(PublicJob { job_id: job.job_id, title: job.title, camera_data: job.camera_data })
    }

    /// The `.spz` file, its first look or the preview of a job that is public and finished, whoever owns it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) for every other job and every other kind.
    pub fn public_artifact(&self, job: JobId, kind: ArtifactKind) -> Result<Artifact> {
        let found = match kind {
            ArtifactKind::Spz | ArtifactKind::FirstLook | ArtifactKind::Preview => {
                self.inner.database.public_artifact(job, kind)?
            }
            ArtifactKind::Ply
            | ArtifactKind::Report
            | ArtifactKind::Log
            | ArtifactKind::Cameras
            | ArtifactKind::Masks
            | ArtifactKind::Turntable
            | ArtifactKind::Sog
            | ArtifactKind::Glb
            | ArtifactKind::Poses => None,
        };
        found.map(|found| Artifact::new(job, kind, found)).ok_or_else(job_not_found)
    }
}
