//! What an operator sets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::database::{Lease, Patience, QueueOrder};
use crate::error::{Error, Result};
use crate::job::{JobRequest, Limits};
use crate::pipeline::ReconstructionOptions;
use crate::raster::DeviceChoice;
use crate::splats::SceneFormat;

/// Options of a service; the defaults are right for one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceOptions {
    /// Bounds on requests and resources.
    pub limits: Limits,
    /// What a request does not say about its reconstruction.
    pub reconstruction: ReconstructionDefaults,
    /// How often in a row the program may break down over a job before the job fails. What may lie with the machine (a killed
    /// process, a disk or a device that fails) is tried ten times, with growing rests; what does, for as long as it lasts.
    pub max_attempts: u32,
    /// How long a worker keeps a job without a sign of life, seconds. It gives one every sixth of that.
    pub lease_seconds: u64,
    /// Bytes that must stay free on the disk for uploads and jobs to be accepted.
    pub min_free_bytes: u64,
    /// In which order waiting jobs are taken up. All processes of one folder should have the same.
    pub queue: QueueOrder,
    /// How long a job may be worked on in all its attempts, hours; then it fails. 0: no limit.
    pub max_job_hours: u64,
    /// How old the stored state of a training is when a newer one is stored for other machines, seconds, 1 to 86,400. With
    /// its machine so much of it is lost at most, what the upload takes and seconds to write it. It keeps a state itself once
    /// a minute: below that it is as if it were 60. Only where many machines share the rows. A state of a million Gaussians
    /// has 0.7 GB.
    pub checkpoint_seconds: u64,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            reconstruction: ReconstructionDefaults::default(),
            max_attempts: 3,
            lease_seconds: 30,
            min_free_bytes: 1 << 30,
            queue: QueueOrder::default(),
            max_job_hours: 48,
            checkpoint_seconds: 225,
        }
    }
}

impl ServiceOptions {
    /// How often an attempt may end without a scene.
    pub(super) fn patience(&self) -> Patience {
        Patience { crashes: self.max_attempts, disturbances: 10.max(self.max_attempts) }
    }

    /// How long a job may be worked on, if there is a limit.
    pub(super) fn longest_job(&self) -> Option<Duration> {
        (self.max_job_hours > 0).then(|| Duration::from_secs(self.max_job_hours.saturating_mul(3600)))
    }

    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the option and its value.
    pub fn check(&self) -> Result<()> {
        self.limits.check()?;
        if self.max_attempts == 0 {
            return Err(Error::argument("max_attempts is 0: every job would fail"));
        }
        if !(6..=Lease::LONGEST_SECONDS).contains(&self.lease_seconds) {
            return Err(Error::argument(format!(
                "lease_seconds is {}: 6 to {} is allowed",
                self.lease_seconds,
                Lease::LONGEST_SECONDS
            )));
        }
        if !(1..=86_400).contains(&self.checkpoint_seconds) {
            return Err(Error::argument(format!(
                "checkpoint_seconds is {}: 1 to 86400 is allowed",
                self.checkpoint_seconds
            )));
        }
        let blob_name = crate::job::BlobName::random(crate::job::VideoExtension::Mp4);
        self.reconstruction.options(&JobRequest::new(blob_name)).check()
    }
}

/// What a request does not say about its reconstruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReconstructionDefaults {
    /// Where training runs.
    pub device: DeviceChoice,
    /// At most this many key frames; absent = 150 where training runs on the CPU, 300 on a GPU.
    pub max_frames: Option<usize>,
    /// Long side of the frames in pixels at most.
    pub max_resolution: u32,
    /// Long side of the training pictures in pixels at most.
    pub training_max_resolution: u32,
    /// Degree of the spherical harmonics, 0 to 3.
    pub sh_degree: u32,
    /// Fixes every random choice.
    pub seed: u64,
    /// Whether a film around each scene is made, too.
    pub turntable: bool,
    /// In which formats each scene is made, beside `.ply` and `.spz`.
    pub formats: Vec<SceneFormat>,
}

impl Default for ReconstructionDefaults {
    fn default() -> Self {
        let standard = ReconstructionOptions::default();
        Self {
            device: standard.device,
            max_frames: standard.max_frames,
            max_resolution: standard.max_resolution,
            training_max_resolution: standard.training_max_resolution,
            sh_degree: standard.sh_degree,
            seed: standard.seed,
            // It takes the device some time, and most people look at the scene itself.
            turntable: false,
            // Small, and what web pages load that do not read .spz.
            formats: vec![SceneFormat::Sog],
        }
    }
}

impl ReconstructionDefaults {
    /// The pipeline's options for a request.
    pub(crate) fn options(&self, request: &JobRequest) -> ReconstructionOptions {
        ReconstructionOptions {
            title: request.title.clone(),
            reconstruction_method: request.reconstruction_method,
            training_max_num_gaussians: request.training_max_num_gaussians,
            training_num_steps: request.training_num_steps,
            apriltag_size_mm: request.apriltag_size_mm,
            remove_background: request.remove_background,
            camera_type: request.camera_type,
            device: self.device.clone(),
            max_frames: self.max_frames,
            // The memory that a job takes is reckoned with before its video is read.
            more_frames: false,
            max_resolution: self.max_resolution,
            training_max_resolution: self.training_max_resolution,
            sh_degree: self.sh_degree,
            seed: self.seed,
            turntable: self.turntable,
            ..ReconstructionOptions::default()
        }
    }
}
