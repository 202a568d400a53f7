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
    /// Queued, Queued - position: X, Processing video, Generating 3D scene, Finished, Failed or Not found.
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
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
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
    /// Without a dot or path: mp4, mov, m4v, mkv, webm, avi or zip (pictures), in upper or lower case.
    #[schema(
        pattern = "^([mM][pP]4|[mM][oO][vV]|[mM]4[vV]|[mM][kK][vV]|[wW][eE][bB][mM]|[aA][vV][iI]|[zZ][iI][pP])$",
        example = "mp4"
    )]
    file_extension: String,
}

/// Where to PUT the video, and its name for the submission.
#[derive(ToSchema)]
pub(super) struct UploadAddress {
    /// Holds for a limited time; needs no key. It may lead to a cloud storage.
    url: String,
    /// `videos/<uuid>.<file_extension>`
    blob_name: String,
    /// Headers that the upload must have, by name; absent where it needs none.
    headers: Option<std::collections::HashMap<String, String>>,
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
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    title: Option<String>,
    /// Whether the job is publicly visible; false if absent.
    public: Option<bool>,
    /// glomap (global, the default) or colmap (incremental structure from motion), in upper or lower case.
    #[schema(pattern = "^([gG][lL][oO][mM][aA][pP]|[cC][oO][lL][mM][aA][pP])$", example = "glomap")]
    reconstruction_method: Option<String>,
    /// Largest number of Gaussians; if absent 1000000, or what the server allows if that is less.
    #[schema(minimum = 1000, maximum = 10000000)]
    training_max_num_gaussians: Option<u32>,
    /// Number of training steps; if absent 25000, or what the server allows if that is less.
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

/// What is to be other than in the job that is restarted. Fields that are absent or null are as they were.
#[derive(ToSchema)]
pub(super) struct RestartRequest {
    /// 1 to 255 characters, none of them a control character.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    title: Option<String>,
    /// Whether the job is publicly visible.
    public: Option<bool>,
    /// glomap (global) or colmap (incremental structure from motion), in upper or lower case.
    #[schema(pattern = "^([gG][lL][oO][mM][aA][pP]|[cC][oO][lL][mM][aA][pP])$", example = "colmap")]
    reconstruction_method: Option<String>,
    /// Largest number of Gaussians.
    #[schema(minimum = 1000, maximum = 10000000)]
    training_max_num_gaussians: Option<u32>,
    /// Number of training steps.
    #[schema(minimum = 1, maximum = 200000)]
    training_num_steps: Option<u32>,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres.
    #[schema(minimum = 1, maximum = 1000)]
    apriltag_size_mm: Option<f64>,
    /// Whether to remove the background first.
    remove_background: Option<bool>,
    /// How a viewer moves: orbital or drone.
    #[schema(pattern = "^(orbital|drone)$", example = "drone")]
    camera_type: Option<String>,
}

/// What is told of a job.
#[derive(ToSchema)]
pub(super) struct JobReport {
    /// Identifies the job.
    job_id: Uuid,
    /// As the job has it.
    status: String,
    /// Grows with every change of the job.
    version: u64,
    /// How far it is.
    progress: Progress,
    /// Why it failed; null unless it did.
    failure: Option<Failure>,
    /// What its owner should know about the scene.
    warnings: Vec<Warning>,
    /// What it was asked for.
    requested: Requested,
    /// What ran; null until it is finished.
    ran: Option<Ran>,
    /// How good the scene is; null until it is finished.
    quality: Option<Quality>,
    /// What the camera poses are worth; null until it is finished.
    verdict: Option<JobVerdict>,
    /// How the size of the scene was measured; null unless a size of tags was given, and until it is finished.
    #[schema(value_type = Option<Object>)]
    scale: Option<()>,
    /// Seconds and memory of each stage; null until it is finished.
    #[schema(value_type = Option<Object>)]
    costs: Option<()>,
}

/// How far a job is.
#[derive(ToSchema)]
pub(super) struct Progress {
    /// frames, sfm, train or export; null before the first.
    stage: Option<String>,
    /// How much of the stage is done.
    #[schema(minimum = 0, maximum = 1)]
    stage_fraction: f32,
    /// Seconds until the stage is done, as the worker reckons; null where it does not know.
    stage_seconds_left: Option<u64>,
    /// How far the scene is; null until its generation starts.
    #[schema(minimum = 0, maximum = 100)]
    percent_complete: Option<u8>,
    /// How often a worker has begun with it.
    attempt: u32,
    /// When it was submitted, UTC.
    #[schema(format = DateTime)]
    uploaded_at: String,
    /// When a worker first began with it.
    #[schema(format = DateTime)]
    started_at: Option<String>,
    /// When it finished or failed.
    #[schema(format = DateTime)]
    finished_at: Option<String>,
    /// When anything about it last changed.
    #[schema(format = DateTime)]
    updated_at: String,
}

/// Why a job failed.
#[derive(ToSchema)]
pub(super) struct Failure {
    /// For programs.
    code: String,
    /// For a person: what was wrong and what to do.
    message: String,
}

/// What the owner of a scene should know.
#[derive(ToSchema)]
pub(super) struct Warning {
    /// For programs.
    code: String,
    /// For a person.
    message: String,
}

/// What a job was asked for.
#[derive(ToSchema)]
pub(super) struct Requested {
    /// The video; it can be submitted again as long as the job is there.
    blob_name: String,
    /// How camera poses are found.
    reconstruction_method: String,
    /// Largest number of Gaussians.
    training_max_num_gaussians: u32,
    /// Number of training steps.
    training_num_steps: u32,
    /// Edge of the inner white square of the AprilTags in millimetres.
    apriltag_size_mm: Option<f64>,
    /// Whether the background is removed.
    remove_background: bool,
}

/// What ran.
#[derive(ToSchema)]
pub(super) struct Ran {
    /// The program's.
    version: String,
    /// What training ran on.
    device: String,
    /// How the camera poses were found in the end: global or incremental.
    method: String,
    /// Frames that were chosen of the video.
    frames: u32,
    /// Training steps that were done.
    steps: u32,
    /// Gaussians in the scene.
    splats: u32,
}

/// How good a scene is.
#[derive(ToSchema)]
pub(super) struct Quality {
    /// Frames that were placed.
    registered: u32,
    /// Mean distance between where scene points are seen and where the camera poses have them, pixels.
    mean_reprojection_error: f64,
    /// Part of the verified matches that agree with the camera poses.
    #[schema(minimum = 0, maximum = 1)]
    agreeing_matches: f64,
    /// Likeness to frames that were held out of the training, dB.
    psnr: Option<f64>,
    /// The same as structural similarity.
    ssim: Option<f64>,
}

/// What the camera poses are worth, without knowing the truth.
#[derive(ToSchema)]
pub(super) struct JobVerdict {
    /// good or doubtful: a job whose poses are broken has failed.
    grade: String,
    /// Expected error of the rotations, degrees.
    rotation_error_degrees: f64,
    /// Expected error of the places, as a share of the radius of the camera path.
    position_error: f64,
    /// What the rotation error stays below in 19 of 20 captures, degrees.
    rotation_bound_degrees: f64,
    /// What the error of the places stays below in 19 of 20 captures.
    position_bound: f64,
    /// What speaks against the poses, gravest first; each with doubt, grade and message.
    reasons: Vec<Reason>,
}

/// One thing that speaks against camera poses.
#[derive(ToSchema)]
pub(super) struct Reason {
    /// For programs.
    doubt: String,
    /// How grave it is.
    grade: String,
    /// For a person, with the figures.
    message: String,
}

/// Why a request failed.
#[derive(ToSchema)]
pub(super) struct Error {
    /// For a person.
    error: String,
}

/// What is to be told when a job ends.
#[derive(ToSchema)]
pub(super) struct WebhookRequest {
    /// https://…, at most 2048 characters, without a name, a password or what follows #, and on the Internet.
    #[schema(max_length = 2048, example = "https://hooks.example.org/scenes")]
    url: String,
}

/// An address that is told when a job ends.
#[derive(ToSchema)]
pub(super) struct Webhook {
    /// Identifies it.
    webhook_id: Uuid,
    /// The address.
    url: String,
    /// Since when it is told, UTC.
    #[schema(format = DateTime)]
    created_at: String,
}

/// A webhook with its secret.
#[derive(ToSchema)]
pub(super) struct NewWebhook {
    /// Identifies it.
    webhook_id: Uuid,
    /// The address.
    url: String,
    /// Since when it is told, UTC.
    #[schema(format = DateTime)]
    created_at: String,
    /// What signatures are verified with: whsec_ and 32 bytes in base64. It is shown only now.
    secret: String,
}

/// One thing that a webhook is told.
#[derive(ToSchema)]
pub(super) struct Delivery {
    /// Identifies it, at every try: the header webhook-id.
    delivery_id: Uuid,
    /// job.finished, job.failed or job.cancelled.
    event: String,
    /// The job.
    job_id: Uuid,
    /// pending, delivered or failed.
    status: String,
    /// How often it was tried, since it happened or was last replayed.
    attempts: u32,
    /// When it happened, UTC.
    #[schema(format = DateTime)]
    created_at: String,
    /// When it was last tried.
    #[schema(format = DateTime)]
    last_attempt_at: Option<String>,
    /// When it is tried next; null unless it is pending.
    #[schema(format = DateTime)]
    next_attempt_at: Option<String>,
    /// The status of the last answer.
    response_status: Option<u32>,
    /// What was wrong with the last try.
    error: Option<String>,
}
