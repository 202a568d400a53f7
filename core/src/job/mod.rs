//! What a job is: its names, what it was asked for, what it has come to. Values only: nothing here reads or writes.
//!
//! Every value is checked once, when it is made ([`JobRequest::from_json`], `FromStr` of names), and can be trusted from
//! then on. Serialised names are those of the REST interface.

mod file_name;
mod ids;
mod json;
mod key;
mod limits;
mod query;
mod record;
mod request;
mod status;
mod text;
mod time;
mod update;
mod validate;

pub use file_name::file_name_in_disposition;
pub(crate) use ids::BLOB_NOT_FOUND;
pub use ids::{BlobName, DeliveryId, JobId, UserId, VideoExtension, WebhookId};
pub use json::UniqueJson;
pub use key::{ApiKey, ApiKeySecret, Tier, User};
pub use limits::Limits;
pub use query::{Cursor, JobPage, JobState, ListQuery};
pub use record::{Failure, Job, JobDetails, JobSummary, PublicJob, Submitted};
pub use request::JobRequest;
pub use status::JobStatus;
pub use time::Timestamp;
pub use update::{CameraUpdate, JobUpdate};

pub use crate::pipeline::ReconstructionMethod;
pub use crate::presentation::{CameraData, CameraType, Xyz};

/// What can be fetched of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    /// The scene as `.ply`.
    Ply,
    /// The scene as `.spz`.
    Spz,
    /// A picture of the scene, JPEG.
    Preview,
    /// Every figure of the reconstruction, JSON.
    Report,
    /// What the worker wrote about the job, text. The only one that a failed job may have.
    Log,
    /// The camera poses as COLMAP has them (`sparse/`), zip.
    Cameras,
    /// Masks of the object in the undistorted frames, if the background was removed, zip.
    Masks,
    /// A film around the scene, MP4, if the service makes it.
    Turntable,
    /// The scene as `.sog`, if the service makes it.
    Sog,
    /// The scene as glTF, `.glb`, if the service makes it.
    Glb,
    /// A large scene with few splats, as `.spz`: what a viewer shows until it has the whole.
    FirstLook,
    /// A picture of the camera poses, JPEG.
    Poses,
}

impl ArtifactKind {
    /// All kinds.
    pub const ALL: [ArtifactKind; 12] = [
        Self::Ply,
        Self::Spz,
        Self::Preview,
        Self::Report,
        Self::Log,
        Self::Cameras,
        Self::Masks,
        Self::Turntable,
        Self::Sog,
        Self::Glb,
        Self::FirstLook,
        Self::Poses,
    ];

    /// The extension of its file, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Ply => "ply",
            Self::Spz => "spz",
            Self::Preview => "jpg",
            Self::Report => "json",
            Self::Log => "log",
            Self::Cameras => "cameras.zip",
            Self::Masks => "masks.zip",
            Self::Turntable => "mp4",
            Self::Sog => "sog",
            Self::Glb => "glb",
            Self::FirstLook => "first.spz",
            Self::Poses => "poses.jpg",
        }
    }

    /// The media type of its file.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Ply | Self::Spz | Self::Sog | Self::FirstLook => "application/octet-stream",
            Self::Glb => "model/gltf-binary",
            Self::Preview | Self::Poses => "image/jpeg",
            Self::Report => "application/json",
            Self::Log => "text/plain; charset=utf-8",
            Self::Cameras | Self::Masks => "application/zip",
            Self::Turntable => "video/mp4",
        }
    }

    /// The kind whose files have this extension.
    pub fn from_extension(extension: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.extension() == extension)
    }
}
