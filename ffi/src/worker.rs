//! Workers
//!
//! A worker takes the first job of the queue, whoever's it is, makes its scene, and takes the next. It lives on threads of
//! its own (rc_engine_start_workers()) or on the caller's (rc_engine_run_worker()); a worker in another program on the
//! same folder does as well. A job whose worker dies is taken by another one within half a minute and goes on where its
//! last checkpoint was.

use std::ffi::c_char;
use std::sync::PoisonError;
use std::time::Duration;

use libreconstruct::service::WorkerOptions;

use crate::argument::{Versioned, not_null, optional_text, versioned};
use crate::cancel::{rc_cancel, token_of};
use crate::engine::{Engine, MOST_WORKERS, rc_engine};
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::Opaque;
use crate::job::timeout;

/// What a worker is. Start from RC_WORKER_OPTIONS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_worker_options {
    /// sizeof(rc_worker_options)
    pub struct_size: usize,
    /// Name for people, in logs; NULL = "worker".
    pub name: *const c_char,
    /// Threads that it computes with; 0 = as many as there are processors.
    pub threads: u32,
    /// How much it yields to other programs, 0 (not) to 19 (to everybody), as `nice` counts; RC_WORKER_OPTIONS_INIT has 10.
    pub niceness: u32,
}

// SAFETY: numbers and a pointer.
unsafe impl Versioned for rc_worker_options {
    const DEFAULT: Self = Self { niceness: 10, ..Self::EMPTY };
}

/// # Safety
/// `options` is NULL or what its type says.
unsafe fn read(options: *const rc_worker_options) -> Result<WorkerOptions, Fault> {
    // SAFETY: the caller's promise.
    let (options, name) = unsafe {
        let options = versioned(options, "options")?;
        (options, optional_text(options.name, "options.name")?)
    };
    let too_much = |n: u32| Fault::argument(format!("options.niceness is {n}: 0 to 19 is allowed"));
    let niceness = u8::try_from(options.niceness).ok().filter(|n| *n <= 19);
    Ok(WorkerOptions {
        name: name.unwrap_or("worker").to_owned(),
        threads: check_threads(options.threads, "options.threads")?,
        niceness: niceness.ok_or_else(|| too_much(options.niceness))?,
        ..WorkerOptions::default()
    })
}

pub(crate) fn check_threads(threads: u32, name: &str) -> Result<usize, Fault> {
    const MOST: u32 = 1024;
    if threads > MOST {
        return Err(Fault::argument(format!("{name} is {threads}: 0 to {MOST} is allowed")));
    }
    Ok(threads as usize)
}

impl Engine {
    pub(crate) fn start_workers(&self, count: u32, options: &WorkerOptions) -> Result<(), Fault> {
        if !(1..=MOST_WORKERS).contains(&count) {
            let message = format!("{count} workers are asked for: 1 to {MOST_WORKERS} are allowed");
            return Err(Fault::argument(message));
        }
        let workers = self.service.start_workers(count as usize, options)?;
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(workers);
        Ok(())
    }
}

/// Starts `count` more workers (1 to 256), each on threads of its own. They stop when the engine is freed, or with
/// rc_engine_stop_workers().
///
/// options: NULL = the defaults.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_start_workers(
    engine: *const rc_engine,
    count: u32,
    options: *const rc_worker_options,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::call(engine, error, |engine| engine.start_workers(count, &read(options)?)) }
}

/// Stops the workers that were started on this engine: each writes a checkpoint of its job and puts it back into the
/// queue. Does nothing if there are none.
///
/// timeout_seconds: how long to wait for them; negative = until all have ended.
///
/// Fails with RC_DEADLINE_EXCEEDED if one has not ended in time; nobody waits for it any more, its job is taken by
/// another worker.
///
/// Thread-safe. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_stop_workers(
    engine: *const rc_engine,
    timeout_seconds: f64,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::call(engine, error, |engine| {
            let limit = timeout(timeout_seconds, "timeout_seconds")?;
            let workers = std::mem::take(&mut *engine.workers.lock().unwrap_or_else(PoisonError::into_inner));
            // All hear it before one is waited for.
            workers.iter().for_each(libreconstruct::service::Workers::cancel);
            let Some(limit) = limit else {
                drop(workers);
                return Ok(());
            };
            let end = std::time::Instant::now() + limit.min(Duration::from_secs(1 << 30));
            let left = || end.saturating_duration_since(std::time::Instant::now());
            let stopped: Vec<bool> = workers.into_iter().map(|workers| workers.stop(left())).collect();
            if stopped.contains(&false) {
                let message = format!("a worker has not ended within {timeout_seconds} s");
                return Err(Fault::of_slug("deadline_exceeded", message));
            }
            Ok(())
        })
    }
}

/// Works on jobs on this thread until `cancel` is raised; then the job at hand goes back to the queue. What goes wrong
/// with a job is written to the job.
///
/// options: NULL = the defaults.
///
/// Fails if the worker cannot be set up.
///
/// Thread-safe. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_run_worker(
    engine: *const rc_engine,
    options: *const rc_worker_options,
    cancel: *const rc_cancel,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::call(engine, error, |engine| {
            let options = read(options)?;
            not_null(cancel, "cancel")?;
            Ok(engine.service.run_worker(&options, &token_of(cancel)?)?)
        })
    }
}

/// Does what is to be done from time to time (jobs of dead workers, deletions, files that nobody needs) and stores in
/// *json what that was; free it with rc_string_free(). A program that holds an engine for long calls this every minute.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_maintain(
    engine: *const rc_engine,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::ask_json(engine, json, error, |engine| Ok(engine.service.maintain()?)) }
}

/// Stores in *json counts of the whole folder, for its operator: users, jobs by state, bytes. Free it with
/// rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_statistics_json(
    engine: *const rc_engine,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::ask_json(engine, json, error, |engine| Ok(engine.service.statistics()?)) }
}
