//! Jobs
//!
//! An rc_job names a job; it holds nothing of it. Every function asks what is true now, so an rc_job is never out of
//! date, several may name one job, and all of them may be used by several threads at once. A job that was deleted is
//! RC_NOT_FOUND from then on.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use libreconstruct::job::{
    self, CameraType, CameraUpdate, JobId, JobStatus, JobUpdate, Timestamp, UserId, Xyz,
};
use libreconstruct::service::Service;
use libreconstruct::{Error, ErrorKind, Stage};

use crate::argument::{Versioned, VersionedOutput, choice, not_null, optional_text, text, versioned};
use crate::engine::{Engine, rc_engine};
use crate::error::{Fault, rc_code, rc_error, rc_stage};
use crate::handle::{Opaque, opaque};
use crate::submit::{CAMERA_TYPES, parse, rc_camera_type};
use crate::text::{c_string, owned};

/// A job of an engine's user.
pub struct rc_job {
    _opaque: [u8; 0],
}

/// What is behind an `rc_job`.
pub(crate) struct Job {
    pub(crate) service: Service,
    pub(crate) user: UserId,
    pub(crate) id: JobId,
    id_text: CString,
}

impl Job {
    pub(crate) fn new(engine: &Engine, id: JobId) -> Self {
        let id_text = c_string(id.to_string());
        Self { service: engine.service.clone(), user: engine.user, id, id_text }
    }

    /// Another job of the same user.
    pub(crate) fn other(&self, id: JobId) -> Self {
        Self { service: self.service.clone(), user: self.user, id, id_text: c_string(id.to_string()) }
    }

    fn now(&self) -> Result<job::Job, Fault> {
        Ok(self.service.job(self.user, self.id)?)
    }
}

opaque!(rc_job, Job, "job", b"rc_job--");

/// What a job is doing.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_job_status {
    /// Not found: ended, because the storage no longer has the video. Only where many machines share it; also: not known.
    RC_JOB_UNKNOWN = 0,
    /// Waiting for a worker.
    RC_JOB_QUEUED = 1,
    /// Frames are chosen and cameras placed.
    RC_JOB_PROCESSING_VIDEO = 2,
    /// The scene is trained and written.
    RC_JOB_GENERATING_SCENE = 3,
    /// Done: the scene can be fetched. Never changes again.
    RC_JOB_FINISHED = 4,
    /// Ended without a scene. Never changes again.
    RC_JOB_FAILED = 5,
}

/// Where a viewer starts, in the frame of scene.ply: x right, y down, z forward, so that up is about (0, -1, 0).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_camera {
    /// Where the camera is, world units.
    pub position: [f64; 3],
    /// The point it looks at.
    pub look_at: [f64; 3],
    /// The direction that is up.
    pub up: [f64; 3],
    /// How it moves.
    pub camera_type: MaybeUninit<rc_camera_type>,
}

/// What is true about a job at one moment. Start from RC_JOB_INFO_INIT. Times are microseconds since 1970 (UTC).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_job_info {
    /// sizeof(rc_job_info)
    pub struct_size: usize,
    /// What it is doing.
    pub status: rc_job_status,
    /// Place among all waiting jobs, from 1; 0 = it does not wait.
    pub queue_position: u32,
    /// How far the scene is, 0 to 100, 100 only when it is finished; -1 = it is not begun.
    pub percent_complete: i32,
    /// The stage that runs.
    pub stage: rc_stage,
    /// How much of the stage is done, 0 to 1.
    pub stage_fraction: f32,
    /// How often a worker has begun with it.
    pub attempt: u32,
    /// Whether others may see it.
    pub is_public: bool,
    /// Whether the .ply can be fetched.
    pub has_ply: bool,
    /// Whether the .spz can be fetched.
    pub has_spz: bool,
    /// When it was submitted.
    pub uploaded_at: i64,
    /// When a worker began with it; 0 = not yet.
    pub started_at: i64,
    /// When it finished or failed; 0 = not yet.
    pub finished_at: i64,
    /// Counts the changes: another number, another state.
    pub version: u64,
    /// Where a viewer starts.
    pub camera: rc_camera,
}

// SAFETY: the library fills it and reads its size only.
unsafe impl Versioned for rc_job_info {
    const DEFAULT: Self = Self { percent_complete: -1, ..Self::EMPTY };
}

impl From<&job::Job> for rc_job_info {
    fn from(job: &job::Job) -> Self {
        let (details, camera) = (&job.details, &job.camera_data);
        let (status, position) = match job.status {
            JobStatus::Queued { position } => (rc_job_status::RC_JOB_QUEUED, position),
            JobStatus::ProcessingVideo => (rc_job_status::RC_JOB_PROCESSING_VIDEO, None),
            JobStatus::GeneratingScene => (rc_job_status::RC_JOB_GENERATING_SCENE, None),
            JobStatus::Finished => (rc_job_status::RC_JOB_FINISHED, None),
            JobStatus::Failed => (rc_job_status::RC_JOB_FAILED, None),
            JobStatus::NotFound => (rc_job_status::RC_JOB_UNKNOWN, None),
        };
        Self {
            struct_size: size_of::<Self>(),
            status,
            queue_position: position.map_or(0, |p| u32::try_from(p).unwrap_or(u32::MAX)),
            percent_complete: job.percent_complete.map_or(-1, i32::from),
            stage: details.stage.map_or(rc_stage::RC_STAGE_NONE, |stage: Stage| stage.into()),
            stage_fraction: details.stage_fraction,
            attempt: details.attempt,
            is_public: job.public,
            has_ply: job.has_ply,
            has_spz: job.has_spz,
            uploaded_at: job.uploaded_at.as_micros(),
            started_at: details.started_at.map_or(0, Timestamp::as_micros),
            finished_at: details.finished_at.map_or(0, Timestamp::as_micros),
            version: details.version,
            camera: rc_camera {
                position: numbers(camera.position),
                look_at: numbers(camera.look_at),
                up: numbers(camera.up),
                camera_type: MaybeUninit::new(match camera.camera_type {
                    CameraType::Orbital => rc_camera_type::RC_CAMERA_ORBITAL,
                    CameraType::Drone => rc_camera_type::RC_CAMERA_DRONE,
                }),
            },
        }
    }
}

fn numbers(v: Xyz) -> [f64; 3] {
    [v.x, v.y, v.z]
}

/// What to do with a yes-or-no property.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_choice {
    /// Leave it as it is; in a query, do not ask for it.
    RC_ANY = 0,
    /// No.
    RC_NO = 1,
    /// Yes.
    RC_YES = 2,
}

pub(crate) const CHOICES: [(rc_choice, Option<bool>); 3] =
    [(rc_choice::RC_ANY, None), (rc_choice::RC_NO, Some(false)), (rc_choice::RC_YES, Some(true))];

/// Changes to a job. Start from RC_JOB_CHANGES_INIT, which changes nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_job_changes {
    /// sizeof(rc_job_changes)
    pub struct_size: usize,
    /// New title, 1 to 255 characters; NULL = as it is.
    pub title: *const c_char,
    /// Whether others may see it.
    pub is_public: MaybeUninit<rc_choice>,
    /// Whether the camera goes back to what the reconstruction found; not together with `camera`.
    pub reset_camera: bool,
    /// New camera; NULL = as it is.
    pub camera: *const rc_camera,
}

// SAFETY: pointers, an enum that may be anything, and bool, which C compilers set to 0 or 1.
unsafe impl Versioned for rc_job_changes {}

/// Finds a job by its id and stores it in *job; free that with rc_job_free().
///
/// Fails with RC_NOT_FOUND if the engine's user has no such job, and for text that is no id.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_job(
    engine: *const rc_engine,
    job_id: *const c_char,
    job: *mut *mut rc_job,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, job, "job", error, |engine| {
            let id: Result<JobId, _> = text(job_id, "job_id")?.parse();
            let id = id.map_err(|_| Error::new(ErrorKind::NotFound, "Job not found"))?;
            let found = Job::new(engine, id);
            found.now()?;
            Ok(rc_job::make(found))
        })
    }
}

/// Frees a handle; the job itself stays. NULL is allowed.
///
/// Thread-safe, while nobody uses the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_free(job: *mut rc_job) {
    // SAFETY: the caller's promise.
    unsafe { rc_job::free(job) }
}

/// The id, a UUID; NULL for NULL. Lives as long as the handle.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_id(job: *const rc_job) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_job::text(job, |job| Some(&job.id_text)) }
}

/// Fills *info with what is true now.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_get_info(
    job: *const rc_job,
    info: *mut rc_job_info,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::call(job, error, |job| {
            let info = VersionedOutput::new(info, "info")?;
            info.set(&rc_job_info::from(&job.now()?));
            Ok(())
        })
    }
}

/// Stores in *json the job as the REST interface shows it, with exactly its fields: job_id, title, status,
/// percent_complete, uploaded_at, public, reconstruction_method, training_max_num_gaussians, training_num_steps,
/// remove_background, has_ply, has_spz, camera_data. Free it with rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_json(
    job: *const rc_job,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::ask_json(job, json, error, Job::now) }
}

/// Stores in *json what else is known of the job: owner, blob_name, apriltag_size_mm, stage, stage_fraction, attempt,
/// warnings, failure, started_at, finished_at, updated_at, version. Free it with rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_details_json(
    job: *const rc_job,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::ask_json(job, json, error, |job| Ok(job.now()?.details)) }
}

/// Stores in *json what is told of the job beyond the fields of the REST interface (docs/rest.md, rule 80): job_id, status,
/// version, progress, failure, warnings, requested, and once it is finished ran, quality, verdict, scale, costs. Free it with
/// rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_report_json(
    job: *const rc_job,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::ask_json(job, json, error, |job| Ok(job.service.report(job.user, job.id)?)) }
}

/// Stores the title in *title; free it with rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_title(
    job: *const rc_job,
    title: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::ask(job, title, "title", error, |job| Ok(owned(job.now()?.title))) }
}

/// Stores in *failure why the job has failed, or NULL if it has not; free it with rc_error_free(). That of a job whose
/// workers died over it has the slug "crashed", that of one whose files were lost on the server "files_lost"; both
/// have the code RC_INTERNAL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_failure(
    job: *const rc_job,
    failure: *mut *mut rc_error,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::ask(job, failure, "failure", error, |job| {
            let failure = job.now()?.details.failure;
            Ok(failure.map_or(std::ptr::null_mut(), |f| Fault::of_slug(&f.code, f.message).into_handle()))
        })
    }
}

/// A function that is told how a job comes along. Returns 0 to go on waiting, another number to stop waiting.
pub type rc_job_fn = Option<unsafe extern "C" fn(user: *mut c_void, info: *const rc_job_info) -> c_int>;

/// Waits until the job has finished or failed; neither is an error here. Every state that is seen on the way is told to
/// on_change, the last one included, on this thread.
///
/// timeout_seconds: negative = wait for ever. on_change: NULL = nobody is told.
///
/// Fails with RC_DEADLINE_EXCEEDED if the job has not ended in time, RC_CANCELLED if on_change stopped the waiting (the
/// job goes on), RC_NOT_FOUND also if it is deleted meanwhile.
///
/// Thread-safe. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_wait(
    job: *const rc_job,
    timeout_seconds: f64,
    on_change: rc_job_fn,
    user: *mut c_void,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::call(job, error, |job| {
            let timeout = timeout(timeout_seconds, "timeout_seconds")?;
            let tell = |now: &job::Job| match on_change {
                Some(function) => function(user, &rc_job_info::from(now)) == 0,
                None => true,
            };
            wait(job, timeout, tell)
        })
    }
}

/// A length of time; none if it is negative, which means for ever.
pub(crate) fn timeout(seconds: f64, name: &str) -> Result<Option<Duration>, Fault> {
    if seconds.is_nan() {
        return Err(Fault::argument(format!("{name} is not a number")));
    }
    // What is too long to be written is for ever.
    Ok((seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten())
}

fn wait(job: &Job, timeout: Option<Duration>, tell: impl Fn(&job::Job) -> bool) -> Result<(), Fault> {
    /// How long one look at the database may be away.
    const STEP: Duration = Duration::from_secs(60);
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut now = job.now()?;
    loop {
        if !tell(&now) {
            return Err(Fault::of_slug("cancelled", "the caller stopped waiting"));
        }
        let seen = now.details.version;
        while now.details.version == seen {
            if now.status.is_terminal() {
                return Ok(());
            }
            let left = end.map_or(STEP, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                let message = format!("the job has not ended within {seconds} s: it is {}", now.status);
                return Err(Fault::of_slug("deadline_exceeded", message));
            }
            now = job.service.wait(job.user, job.id, seen, left.min(STEP))?;
        }
    }
}

/// Changes a job. What the changes do not name stays, also what others change at the same time.
///
/// Fails with RC_INVALID_ARGUMENT for a title or camera that cannot be.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_update(
    job: *const rc_job,
    changes: *const rc_job_changes,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::call(job, error, |job| {
            not_null(changes, "changes")?;
            let update = update(&versioned(changes, "changes")?)?;
            Ok(job.service.update(job.user, job.id, &update)?)
        })
    }
}

/// # Safety
/// The pointers of `changes` are NULL or what their types say.
unsafe fn update(changes: &rc_job_changes) -> Result<JobUpdate, Fault> {
    // SAFETY: the caller's promise.
    let (title, camera) =
        unsafe { (optional_text(changes.title, "changes.title")?, changes.camera.as_ref()) };
    let camera_data = match (camera, changes.reset_camera) {
        (Some(_), true) => {
            return Err(Fault::argument("changes has a camera and reset_camera: only one can be"));
        }
        (None, true) => Some(CameraUpdate::Reset),
        (None, false) => None,
        (Some(camera), false) => {
            let xyz = |[x, y, z]: [f64; 3]| Xyz { x, y, z };
            let (position, look_at, up) = (xyz(camera.position), xyz(camera.look_at), xyz(camera.up));
            let camera_type = choice(camera.camera_type, "changes.camera.camera_type", &CAMERA_TYPES)?;
            Some(CameraUpdate::Set { position, look_at, up, camera_type })
        }
    };
    let public = choice(changes.is_public, "changes.is_public", &CHOICES)?;
    // `null` would be absent: the reader of JSON trims and checks, so text takes that way too.
    let title = match title {
        Some(title) => JobUpdate::from_json(&serde_json::json!({ "title": title }))?.title,
        None => None,
    };
    Ok(JobUpdate { title, public, camera_data })
}

/// Changes a job like rc_job_update(), with the JSON body of the REST interface: {"title": "Garden", "public": true,
/// "camera_data": {"position": {"x", "y", "z"}, "lookAt": .., "up": .., "cameraType": ..}}; "camera_data": null resets
/// the camera.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_update_json(
    job: *const rc_job,
    changes_json: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::call(job, error, |job| {
            let update = JobUpdate::from_json(&parse(text(changes_json, "changes_json")?)?)?;
            Ok(job.service.update(job.user, job.id, &update)?)
        })
    }
}

/// Stops a job for good: it has failed, with the slug "cancelled", when this returns.
///
/// Fails with RC_CONFLICT if it has ended already; it stays as it is.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_cancel(job: *const rc_job, error: *mut *mut rc_error) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::call(job, error, |job| Ok(job.service.cancel(job.user, job.id)?)) }
}

/// Deletes a job with all its files, irreversibly; its video goes with the last job that uses it. The handle is still to be
/// freed.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_delete(job: *const rc_job, error: *mut *mut rc_error) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::call(job, error, |job| Ok(job.service.delete(job.user, job.id)?)) }
}

/// Stores in *log what the worker has written about the job so far, "" if none has begun; free it with rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_log(
    job: *const rc_job,
    log: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_job::ask(job, log, "log", error, |job| Ok(owned(job.service.log(job.user, job.id)?))) }
}
