//! Shapes of what is sent and received, for the description only: the values themselves are those of the core.
#![allow(dead_code)] // only their descriptions are used

use utoipa::ToSchema;
use uuid::Uuid;

/// A job.
#[derive(ToSchema)]
pub(super) struct Job {
    /// Identifies the job.
    job_id: Uuid,
    /// The name of the uploaded file if none was given.
    title: String,
    /// Queued, Queued - position: X, Processing video, Generating 3D scene, Finished or Failed.
    #[schema(
        pattern = "^(Queued( - position: [1-9][0-9]*)?|Processing video|Generating 3D scene|Finished|Failed|Not found)$",
        example = "Queued - position: 1"
    )]
    status: String,
    /// Progress of the scene; null until its generation starts, 100 only when the job is finished.
    #[schema(required, minimum = 0, maximum = 100)]
    percent_complete: Option<u8>,
    /// When the job was submitted, UTC.
    #[schema(format = DateTime)]
    uploaded_at: String,
    /// Whether the job is publicly visible.
    public: bool,
    /// How camera poses are found: glomap or colmap.
    reconstruction_method: String,
    /// Largest number of Gaussians.
    training_max_num_gaussians: u32,
    /// Number of training steps.
    training_num_steps: u32,
    /// Whether the background is removed.
    remove_background: bool,
    /// Whether the ply file can be downloaded.
    has_ply: bool,
    /// Whether the spz file can be downloaded.
    has_spz: bool,
    /// Where a viewer starts.
    camera_data: CameraData,
}

/// A job in a list.
#[derive(ToSchema)]
pub(super) struct JobSummary {
    /// Identifies the job.
    job_id: Uuid,
    /// Its title.
    title: String,
}

/// Changes to a job; what is absent stays as it is.
#[derive(ToSchema)]
pub(super) struct JobUpdate {
    /// 1 to 255 characters, none of them a control character; blanks around it are taken away.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[!-~][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    title: Option<String>,
    /// Whether the job is publicly visible.
    public: Option<bool>,
    /// Where a viewer starts; null goes back to what the reconstruction found.
    camera_data: Option<CameraUpdate>,
}

/// Where a viewer starts, in the frame of the ply file.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CameraData {
    /// Where the camera is.
    position: Vector,
    /// The point it looks at.
    look_at: Vector,
    /// The direction that is up.
    up: Vector,
    /// How it moves: orbital or drone.
    camera_type: String,
}

/// Where a viewer starts. `up` is not zero, and `position` is not `lookAt`.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CameraUpdate {
    /// Where the camera is.
    position: Vector,
    /// The point it looks at.
    look_at: Vector,
    /// The direction that is up.
    up: Vector,
    /// How it moves: orbital or drone; as before if it is absent.
    #[schema(pattern = "^(orbital|drone)$")]
    camera_type: Option<String>,
}

/// A point or direction.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

/// What kind of video will be uploaded.
#[derive(ToSchema)]
pub(super) struct UploadRequest {
    /// Without a dot or path: mp4, mov, m4v, mkv, webm or avi, in upper or lower case.
    #[schema(
        pattern = "^([mM][pP]4|[mM][oO][vV]|[mM]4[vV]|[mM][kK][vV]|[wW][eE][bB][mM]|[aA][vV][iI])$",
        example = "mp4"
    )]
    file_extension: String,
}

/// Where to PUT the video, and its name for the submission.
#[derive(ToSchema)]
pub(super) struct UploadAddress {
    /// Holds for a limited time; needs no key.
    url: String,
    /// `videos/<uuid>.<file_extension>`
    blob_name: String,
}

/// A job to be done. Fields that are absent or null have their defaults.
#[derive(ToSchema)]
pub(super) struct SubmitRequest {
    /// The one that came with the upload address.
    #[schema(example = "videos/7a0f0f7e-3f5e-4d0c-9d57-0f6d1c1f8a11.mp4")]
    blob_name: String,
    /// 1 to 255 characters, none of them a control character; the name of the file if absent.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[!-~][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    title: Option<String>,
    /// Whether the job is publicly visible; false if absent.
    public: Option<bool>,
    /// glomap (global, the default) or colmap (incremental structure from motion), in upper or lower case.
    #[schema(pattern = "^([gG][lL][oO][mM][aA][pP]|[cC][oO][lL][mM][aA][pP])$", example = "glomap")]
    reconstruction_method: Option<String>,
    /// Largest number of Gaussians; 1000000 if absent.
    #[schema(minimum = 1000, maximum = 10000000)]
    training_max_num_gaussians: Option<u32>,
    /// Number of training steps; 25000 if absent.
    #[schema(minimum = 1, maximum = 200000)]
    training_num_steps: Option<u32>,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their width: sets the scale.
    #[schema(minimum = 1, maximum = 1000)]
    apriltag_size_mm: Option<f64>,
    /// Whether to remove the background first; false if absent.
    remove_background: Option<bool>,
    /// How a viewer moves: orbital or drone; drone if absent.
    #[schema(pattern = "^(orbital|drone)$", example = "drone")]
    camera_type: Option<String>,
}

/// A job that was taken.
#[derive(ToSchema)]
pub(super) struct Submitted {
    /// Always true.
    success: bool,
    /// Identifies the job.
    job_id: Uuid,
    /// Its title.
    title: String,
    /// Always queued.
    #[schema(example = "queued")]
    status: String,
    /// When it was submitted, UTC.
    #[schema(format = DateTime)]
    uploaded_at: String,
    /// Whether it is publicly visible.
    public: bool,
    /// How camera poses are found.
    reconstruction_method: String,
    /// Largest number of Gaussians.
    training_max_num_gaussians: u32,
    /// Number of training steps.
    training_num_steps: u32,
    /// Whether the background is removed.
    remove_background: bool,
}

/// Why a request failed.
#[derive(ToSchema)]
pub(super) struct Error {
    /// For a person.
    error: String,
}
