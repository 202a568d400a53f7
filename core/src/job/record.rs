//! A job as it is shown.

use serde::{Deserialize, Serialize};

use super::{BlobName, CameraData, JobId, JobStatus, Timestamp, UserId};
use crate::control::Warning;
use crate::pipeline::ReconstructionMethod;
use crate::stage::Stage;

/// A job. Serialises to exactly the thirteen fields of the interface; the rest is in `details`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Identifies the job.
    pub job_id: JobId,
    /// Title, for people.
    pub title: String,
    /// What it is doing.
    pub status: JobStatus,
    /// How far the scene is, 0 to 100; absent until its generation starts, 100 only when it is finished.
    pub percent_complete: Option<u8>,
    /// When it was submitted.
    pub uploaded_at: Timestamp,
    /// Whether others may see it.
    pub public: bool,
    /// How camera poses are found.
    pub reconstruction_method: ReconstructionMethod,
    /// Largest number of Gaussians.
    pub training_max_num_gaussians: u32,
    /// Number of training steps.
    pub training_num_steps: u32,
    /// Whether the background is removed.
    pub remove_background: bool,
    /// Whether the `.ply` can be fetched.
    pub has_ply: bool,
    /// Whether the `.spz` can be fetched.
    pub has_spz: bool,
    /// Where a viewer starts.
    pub camera_data: CameraData,
    /// What the interface does not show by default.
    #[serde(skip)]
    pub details: JobDetails,
}

/// More about a job, for faces that show more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDetails {
    /// Whose job it is.
    pub owner: UserId,
    /// The uploaded video.
    pub blob_name: BlobName,
    /// Edge of the inner white square of the AprilTags in millimetres.
    pub apriltag_size_mm: Option<f64>,
    /// The stage at which the current attempt is.
    pub stage: Option<Stage>,
    /// How much of the stage is done, 0 to 1.
    pub stage_fraction: f32,
    /// How often a worker has begun with it.
    pub attempt: u32,
    /// What the user should know about the scene.
    pub warnings: Vec<Warning>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it finished or failed.
    pub finished_at: Option<Timestamp>,
    /// When anything about it last changed.
    pub updated_at: Timestamp,
    /// Counts the changes: another number, another state.
    pub version: u64,
    /// When the stage will be done, as the worker reckons; unknown at its beginning.
    pub stage_ends_at: Option<Timestamp>,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable slug: one of [`crate::ErrorKind::slug`], or `crashed`, `files_lost`, `video_missing`.
    pub code: String,
    /// For a person: what was wrong and what to do.
    pub message: String,
}

impl Failure {
    /// The code of a job of which the storage no longer has the video: it is shown as [`JobStatus::NotFound`].
    pub const VIDEO_MISSING: &'static str = "video_missing";

    /// Whether it is that.
    pub fn is_of_a_missing_video(&self) -> bool {
        self.code == Self::VIDEO_MISSING
    }
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Identifies the job.
    pub job_id: JobId,
    /// Title, for people.
    pub title: String,
}

/// What everybody may see of a job that is public and finished.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicJob {
    /// Identifies the job.
    pub job_id: JobId,
    /// Title, for people. User text: encode it where it is shown.
    pub title: String,
    /// Where a viewer starts, in the frame of `scene.ply`.
    pub camera_data: CameraData,
}

/// The answer to a submission: exactly its ten fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Always true.
    pub success: bool,
    /// Identifies the job.
    pub job_id: JobId,
    /// Title, for people.
    pub title: String,
    /// Always [`JobStatus::SUBMITTED`].
    pub status: String,
    /// When it was submitted.
    pub uploaded_at: Timestamp,
    /// Whether others may see it.
    pub public: bool,
    /// How camera poses are found.
    pub reconstruction_method: ReconstructionMethod,
    /// Largest number of Gaussians.
    pub training_max_num_gaussians: u32,
    /// Number of training steps.
    pub training_num_steps: u32,
    /// Whether the background is removed.
    pub remove_background: bool,
}
