//! The status of a job, in the words of the interface.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a job is doing. `Display` is the one place where the seven strings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// Waiting.
    Queued {
        /// Place among all waiting jobs of the service, from 1; absent if it is not known.
        position: Option<u64>,
    },
    /// Frames are chosen and cameras placed.
    ProcessingVideo,
    /// The scene is trained and written.
    GeneratingScene,
    /// Done: both scene files can be fetched.
    Finished,
    /// Ended without a scene.
    Failed,
    /// Ended without a scene, because the storage no longer has the video ([`Failure::VIDEO_MISSING`](super::Failure)). Never
    /// where all is in one folder.
    NotFound,
}

impl JobStatus {
    /// The status in the answer to a submission, which the interface writes in lower case.
    pub const SUBMITTED: &'static str = "queued";

    /// Whether it will never change again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::NotFound)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued { position: None } => f.write_str("Queued"),
            Self::Queued { position: Some(position) } => write!(f, "Queued - position: {position}"),
            Self::ProcessingVideo => f.write_str("Processing video"),
            Self::GeneratingScene => f.write_str("Generating 3D scene"),
            Self::Finished => f.write_str("Finished"),
            Self::Failed => f.write_str("Failed"),
            Self::NotFound => f.write_str("Not found"),
        }
    }
}

impl Serialize for JobStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
