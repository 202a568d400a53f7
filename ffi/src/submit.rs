//! Submitting jobs
//!
//! A job makes a scene of a video. What it is asked for is written either in a structure, for C and C++, or as the JSON of
//! the REST interface, for languages in which that is easier; both mean the same and are held to the same limits.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use libreconstruct::job::{CameraType, JobRequest, UniqueJson};
use libreconstruct::pipeline::ReconstructionMethod;
use libreconstruct::service::Idempotency;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::argument::{Versioned, choice, optional_text, text, versioned};
use crate::engine::{Engine, rc_engine};
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::Opaque;
use crate::job::{Job, rc_job};

/// How camera poses are found.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_method {
    /// RC_METHOD_GLOMAP.
    RC_METHOD_DEFAULT = 0,
    /// Global structure from motion, and incremental where that finds no sound model.
    RC_METHOD_GLOMAP = 1,
    /// Incremental structure from motion.
    RC_METHOD_COLMAP = 2,
}

pub(crate) const METHODS: [(rc_method, Option<ReconstructionMethod>); 3] = [
    (rc_method::RC_METHOD_DEFAULT, None),
    (rc_method::RC_METHOD_GLOMAP, Some(ReconstructionMethod::Glomap)),
    (rc_method::RC_METHOD_COLMAP, Some(ReconstructionMethod::Colmap)),
];

/// How a viewer moves.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_camera_type {
    /// In a request RC_CAMERA_DRONE, in a change as before.
    RC_CAMERA_DEFAULT = 0,
    /// Around the point it looks at.
    RC_CAMERA_ORBITAL = 1,
    /// Freely.
    RC_CAMERA_DRONE = 2,
}

pub(crate) const CAMERA_TYPES: [(rc_camera_type, Option<CameraType>); 3] = [
    (rc_camera_type::RC_CAMERA_DEFAULT, None),
    (rc_camera_type::RC_CAMERA_ORBITAL, Some(CameraType::Orbital)),
    (rc_camera_type::RC_CAMERA_DRONE, Some(CameraType::Drone)),
];

/// What a job is asked for. Start from RC_REQUEST_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_request {
    /// sizeof(rc_request)
    pub struct_size: usize,
    /// Title, 1 to 255 characters; NULL = the file name of the video.
    pub title: *const c_char,
    /// Whether others may see it.
    pub is_public: bool,
    /// Whether to remove the background.
    pub remove_background: bool,
    /// How camera poses are found.
    pub reconstruction_method: MaybeUninit<rc_method>,
    /// How a viewer moves.
    pub camera_type: MaybeUninit<rc_camera_type>,
    /// Largest number of Gaussians, 1000 to 10,000,000; 0 = 1,000,000, or limits.max_gaussians if that is less.
    pub training_max_num_gaussians: u32,
    /// Number of training steps, 1 to 200,000; 0 = 25,000, or limits.max_steps if that is less.
    pub training_num_steps: u32,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their printed width, 1 to
    /// 1000: the scene is then in metres. 0 = there are none.
    pub apriltag_size_mm: f64,
    /// A key of the caller's, 1 to 255 bytes: if a job was submitted with it in the last day, that one is the answer and
    /// no other is added. The request must be the same, its blob_name included: a file that is imported again has another.
    /// NULL = none.
    pub idempotency_key: *const c_char,
}

// SAFETY: numbers, pointers, enums that may be anything, and bool, which C compilers set to 0 or 1.
unsafe impl Versioned for rc_request {}

/// Submits a job for a video and stores it in *job; free that with rc_job_free(). When this returns the job is on the
/// disk and stays in the queue until a worker has seen to it.
///
/// blob_name: from rc_engine_import_video() or rc_upload_finish(). request: NULL = the defaults.
///
/// Fails with RC_INVALID_ARGUMENT for a request out of range or a video that is not there or no video, RC_CONFLICT for a
/// video that is being replaced, RC_TOO_MANY_REQUESTS, RC_IDEMPOTENCY_MISMATCH, RC_DISK_FULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_submit(
    engine: *const rc_engine,
    blob_name: *const c_char,
    request: *const rc_request,
    job: *mut *mut rc_job,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, job, "job", error, |engine| {
            let blob_name = text(blob_name, "blob_name")?;
            let request = versioned(request, "request")?;
            let key = optional_text(request.idempotency_key, "request.idempotency_key")?;
            submit(engine, &body(blob_name, &request)?, key)
        })
    }
}

/// Submits a job like rc_engine_submit(), with the JSON body of the REST interface: {"blob_name": "videos/...", "title":
/// "Garden", "training_num_steps": 10000}. Fields that are not known are ignored; null counts as absent; one that is
/// there twice is refused.
///
/// idempotency_key: NULL = none.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_submit_json(
    engine: *const rc_engine,
    request_json: *const c_char,
    idempotency_key: *const c_char,
    job: *mut *mut rc_job,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, job, "job", error, |engine| {
            let body = parse(text(request_json, "request_json")?)?;
            submit(engine, &body, optional_text(idempotency_key, "idempotency_key")?)
        })
    }
}

/// Makes a new job of the video of one that has ended, without another upload, and stores it in *again; free that with
/// rc_job_free().
///
/// request_json: what is to be other than before, like the body of rc_engine_submit_json() without the blob_name; NULL =
/// nothing.
///
/// Fails with RC_CONFLICT if the job has not ended, else as rc_engine_submit() does.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_restart_json(
    job: *const rc_job,
    request_json: *const c_char,
    again: *mut *mut rc_job,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::ask(job, again, "again", error, |job| {
            let changes = parse(optional_text(request_json, "request_json")?.unwrap_or("{}"))?;
            let change = |before: JobRequest| before.with_json(&changes, job.service.limits());
            let submission = job.service.restart(job.user, job.id, None, change)?;
            Ok(rc_job::make(job.other(submission.body.job_id)))
        })
    }
}

/// Reads a body as the REST interface does: what one face refuses no other takes.
pub(crate) fn parse(text: &str) -> Result<Value, Fault> {
    match serde_json::from_str(text) {
        Ok(UniqueJson(value)) => Ok(value),
        Err(e) => Err(Fault::argument(format!("Request body is not valid JSON: {e}"))),
    }
}

/// The structure as the JSON of the interface, so that both ways are one.
///
/// # Safety
/// The pointers of `request` are NULL or strings.
unsafe fn body(blob_name: &str, request: &rc_request) -> Result<Value, Fault> {
    let mut body = Map::new();
    body.insert("blob_name".into(), json!(blob_name));
    // SAFETY: the caller's promise.
    if let Some(title) = unsafe { optional_text(request.title, "request.title") }? {
        body.insert("title".into(), json!(title));
    }
    body.insert("public".into(), json!(request.is_public));
    body.insert("remove_background".into(), json!(request.remove_background));
    let method = choice(request.reconstruction_method, "request.reconstruction_method", &METHODS)?;
    body.insert("reconstruction_method".into(), json!(method));
    let camera = choice(request.camera_type, "request.camera_type", &CAMERA_TYPES)?;
    body.insert("camera_type".into(), json!(camera));
    let numbers = [
        ("training_max_num_gaussians", request.training_max_num_gaussians),
        ("training_num_steps", request.training_num_steps),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
        body.insert(name.into(), json!(number));
    }
    let size = request.apriltag_size_mm;
    if !size.is_finite() {
        return Err(Fault::argument(format!("apriltag_size_mm is {size}: 1 to 1000 is allowed")));
    }
    if size != 0.0 {
        body.insert("apriltag_size_mm".into(), json!(size));
    }
    Ok(Value::Object(body))
}

fn submit(engine: &Engine, body: &Value, key: Option<&str>) -> Result<*mut rc_job, Fault> {
    let service = &engine.service;
    let request = JobRequest::from_json(body, service.limits())?;
    // As the REST interface makes it, so that a key means the same there.
    let hash = || Sha256::digest(body.to_string()).into();
    let idempotency = key.map(|key| Idempotency { key: key.to_owned(), body_hash: hash() });
    let submission = service.submit(engine.user, request, idempotency)?;
    Ok(rc_job::make(Job::new(engine, submission.body.job_id)))
}
