//! What a finished run has to say.

use serde::{Deserialize, Serialize};

use crate::control::Warning;
use crate::raster::StepStatistics;

/// What a finished run has to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainReport {
    /// Steps that were done.
    pub steps: u32,
    /// Number of Gaussians.
    pub splats: usize,
    /// How many were taken out of free space on the way ([`clean`](super::TrainOptions::clean)); one that comes back counts again.
    #[serde(default)]
    pub cleaned: u64,
    /// Seconds of all sittings together, placing the first Gaussians among them.
    pub seconds: f64,
    /// Steps per second of the last sitting.
    pub steps_per_second: f64,
    /// The last step's figures.
    pub statistics: StepStatistics,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}
