//! What is told of the shutter.

use serde::{Deserialize, Serialize};

use crate::camera::ReadoutDirection;

/// What a capture says of its rolling shutter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShutterReport {
    /// Whether poses and points were corrected for it; else they are as a global shutter explains them best.
    pub applied: bool,
    /// Milliseconds from the first line of the picture to the last one.
    pub readout_ms: f64,
    /// Where the readout goes in the upright picture.
    pub direction: ReadoutDirection,
    /// Standard deviation of `readout_ms`; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation_ms: Option<f64>,
    /// How far it shifts keypoints, pixels of the frames (root mean square).
    pub shift: f64,
    /// By which part the median reprojection error of tracks falls that took no part in the estimate; absent where the shift
    /// is too small to matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Why it was not applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}
