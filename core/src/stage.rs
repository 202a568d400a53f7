//! The stages of a reconstruction, as errors, events and files name them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The stages of a reconstruction, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Probe and decode the video, choose key frames.
    Frames,
    /// Camera poses and sparse points (structure from motion).
    Sfm,
    /// Fit the Gaussians to the undistorted frames.
    Train,
    /// Write the scene files, the preview and the turntable.
    Export,
}

impl Stage {
    /// All stages, in the order in which they run.
    pub const ALL: [Stage; 4] = [Stage::Frames, Stage::Sfm, Stage::Train, Stage::Export];

    /// The name used in files, events and messages.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Frames => "frames",
            Stage::Sfm => "sfm",
            Stage::Train => "train",
            Stage::Export => "export",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
