//! What is told of a job beyond the fields that the interface promises: how far it is, why it failed, what ran and how good the
//! scene is.

use std::io::Read;

use serde::Serialize;

use super::Service;
use crate::control::Warning;
use crate::error::{ErrorKind, Result};
use crate::job::{
    ArtifactKind, BlobName, Failure, Job, JobId, JobStatus, ReconstructionMethod, Timestamp, UserId,
};
use crate::pipeline::{Report, StageCosts};
use crate::presentation::FrameCamera;
use crate::sfm::{Grade, MappingMethod, Reason, ScaleReport, Verdict};
use crate::stage::Stage;

/// A report that is stored is at most so long: that of a capture of 10,000 frames is a few megabytes.
const MAX_BYTES: u64 = 64 << 20;

/// What is told of a job. It changes with the job's `version`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobReport {
    /// Identifies the job.
    pub job_id: JobId,
    /// What it is doing.
    pub status: JobStatus,
    /// Counts the changes of the job: another number, another state.
    pub version: u64,
    /// How far it is.
    pub progress: JobProgress,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// What its owner should know about the scene.
    pub warnings: Vec<Warning>,
    /// What was asked for.
    pub requested: Requested,
    /// What ran; absent until the job is finished.
    pub ran: Option<Ran>,
    /// How good the scene is; absent until the job is finished.
    pub quality: Option<Quality>,
    /// What the camera poses are worth; absent until the job is finished.
    pub verdict: Option<JobVerdict>,
    /// The size of the scene: whether it is in metres, how sure that is, the tags that were seen. Absent if it was not asked for,
    /// and until the job is finished.
    pub scale: Option<ScaleReport>,
    /// What each stage cost; absent until the job is finished.
    pub costs: Option<StageCosts>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobProgress {
    /// The stage at which the current attempt is: `frames`, `sfm`, `train` or `export`; absent before the first.
    pub stage: Option<Stage>,
    /// How much of that stage is done, 0 to 1.
    pub stage_fraction: f32,
    /// Seconds until that stage is done, as the worker reckons; absent where it does not know, and while no worker is at it.
    pub stage_seconds_left: Option<u64>,
    /// How far the scene is, 0 to 100; absent until its generation starts.
    pub percent_complete: Option<u8>,
    /// How often a worker has begun with it.
    pub attempt: u32,
    /// When it was submitted.
    pub uploaded_at: Timestamp,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it finished or failed.
    pub finished_at: Option<Timestamp>,
    /// When anything about it last changed.
    pub updated_at: Timestamp,
}

/// What a job was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requested {
    /// The uploaded video. It can be submitted again as long as this job is there.
    pub blob_name: BlobName,
    /// How camera poses are found.
    pub reconstruction_method: ReconstructionMethod,
    /// Largest number of Gaussians.
    pub training_max_num_gaussians: u32,
    /// Number of training steps.
    pub training_num_steps: u32,
    /// Edge of the inner white square of the AprilTags in millimetres.
    pub apriltag_size_mm: Option<f64>,
    /// Whether the background is removed.
    pub remove_background: bool,
}

/// What ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ran {
    /// The program.
    pub version: String,
    /// What training ran on.
    pub device: String,
    /// The mapper that made the camera poses: another than was asked for where that one failed.
    pub method: MappingMethod,
    /// Frames that were chosen of the video.
    pub frames: usize,
    /// Training steps that were done.
    pub steps: u32,
    /// Gaussians in the scene.
    pub splats: usize,
}

/// How good a scene is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Frames that were placed.
    pub registered: usize,
    /// Distance between where scene points are seen and where the camera poses have them, mean, pixels.
    pub mean_reprojection_error: f64,
    /// Fraction of the verified matches that agree with the camera poses.
    pub agreeing_matches: f64,
    /// Likeness to frames that were held out of the training, dB; absent if none were.
    pub psnr: Option<f64>,
    /// The same as structural similarity, 0 to 1.
    pub ssim: Option<f64>,
}

/// What the camera poses are worth: [`Verdict`] without its figures by frame, which the file `report` has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobVerdict {
    /// `good` or `doubtful`: a job whose poses are broken has failed.
    pub grade: Grade,
    /// Expected error of the rotations, degrees.
    pub rotation_error_degrees: f64,
    /// Expected error of the places, as a share of the radius of the camera path.
    pub position_error: f64,
    /// What the rotation error stays below in 19 of 20 captures, degrees.
    pub rotation_bound_degrees: f64,
    /// What the error of the places stays below in 19 of 20 captures.
    pub position_bound: f64,
    /// What speaks against the poses, gravest first; empty where they are good.
    pub reasons: Vec<Reason>,
}

impl From<Verdict> for JobVerdict {
    fn from(verdict: Verdict) -> Self {
        Self {
            grade: verdict.grade,
            rotation_error_degrees: verdict.rotation_error_degrees,
            position_error: verdict.position_error,
            rotation_bound_degrees: verdict.rotation_bound_degrees,
            position_bound: verdict.position_bound,
            reasons: verdict.reasons,
        }
    }
}

/// From where a frame was taken, and how sure that is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobCamera {
    /// The camera.
    #[serde(flatten)]
    pub camera: FrameCamera,
    /// 0 where there is no doubt; 1 and more where it may be as far off as no good model's is (1 degree, 2 % of the camera path).
    pub doubt: Option<f64>,
}

impl JobReport {
    fn new(job: Job, made: Option<Report>, now: Timestamp) -> Self {
        let details = job.details;
        let mut report = Self {
            job_id: job.job_id,
            status: job.status,
            version: details.version,
            progress: JobProgress {
                stage: details.stage,
                stage_fraction: details.stage_fraction,
                stage_seconds_left: details.stage_ends_at.map(|end| {
                    // One that is late has none left.
                    (end.as_micros() - now.as_micros()).max(0).unsigned_abs().div_ceil(1_000_000)
                }),
                percent_complete: job.percent_complete,
                attempt: details.attempt,
                uploaded_at: job.uploaded_at,
                started_at: details.started_at,
                finished_at: details.finished_at,
                updated_at: details.updated_at,
            },
            failure: details.failure,
            warnings: details.warnings,
            requested: Requested {
                blob_name: details.blob_name,
                reconstruction_method: job.reconstruction_method,
                training_max_num_gaussians: job.training_max_num_gaussians,
                training_num_steps: job.training_num_steps,
                apriltag_size_mm: details.apriltag_size_mm,
                remove_background: job.remove_background,
            },
            ran: None,
            quality: None,
            verdict: None,
            scale: None,
            costs: None,
        };
        let Some(made) = made else { return report };
        let scores = made.train.evaluation.as_ref();
        report.quality = Some(Quality {
            registered: made.sfm.registered,
            mean_reprojection_error: made.sfm.mean_reprojection_error,
            agreeing_matches: made.sfm.agreeing_matches,
            psnr: scores.map(|scores| scores.psnr),
            ssim: scores.map(|scores| scores.ssim),
        });
        report.ran = Some(Ran {
            version: made.version,
            device: made.train.device,
            method: made.sfm.method,
            frames: made.frames.used,
            steps: made.train.training.steps,
            splats: made.export.splats,
        });
        report.verdict = made.sfm.verdict.map(JobVerdict::from);
        report.scale = made.sfm.scale;
        report.costs = Some(made.costs);
        report
    }
}

impl Service {
    /// What is told of a job: all of it at any time, the figures of the scene once it is finished.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; what keeps the stored report from being read.
    pub fn report(&self, user: UserId, job: JobId) -> Result<JobReport> {
        self.report_of(user, self.job(user, job)?)
    }

    /// The same of a job of the user's that was just read ([`Service::job`]). Nothing is read for one that is not finished.
    ///
    /// # Errors
    /// What keeps the stored report from being read.
    pub fn report_of(&self, user: UserId, found: Job) -> Result<JobReport> {
        let is_finished = found.status == JobStatus::Finished;
        let made = if is_finished { self.report_made(user, found.job_id)? } else { None };
        Ok(JobReport::new(found, made, self.inner.clock.now()))
    }

    /// From where the frames of a finished scene were taken, in the order of the capture; nothing where no report tells.
    ///
    /// # Errors
    /// As for [`Service::report`].
    pub fn cameras(&self, user: UserId, job: JobId) -> Result<Vec<JobCamera>> {
        let found = self.job(user, job)?;
        let made = if found.status == JobStatus::Finished { self.report_made(user, job)? } else { None };
        let Some(made) = made else { return Ok(Vec::new()) };
        let doubts = made.sfm.verdict.as_ref().map(Verdict::image_doubts).unwrap_or_default();
        let with_doubt =
            |camera: FrameCamera| JobCamera { doubt: doubts.get(&camera.image).copied(), camera };
        Ok(made.export.cameras.into_iter().map(with_doubt).collect())
    }

    /// The report of a finished reconstruction; nothing where another version wrote what this one cannot read.
    fn report_made(&self, user: UserId, job: JobId) -> Result<Option<Report>> {
        let artifact = match self.artifact(user, job, ArtifactKind::Report) {
            Ok(artifact) => artifact,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let blob = match self.open_blob(&artifact.key) {
            Ok(blob) => blob,
            // The job was deleted in this moment.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        let read = blob.file.take(MAX_BYTES).read_to_end(&mut text);
        read.map_err(|e| crate::Error::io("read", std::path::Path::new("the report"), e))?;
        match serde_json::from_slice(&text) {
            Ok(report) => Ok(Some(report)),
            Err(error) => {
                log::warn!("job {job}: its report is not understood: {error}");
                Ok(None)
            }
        }
    }
}
