//! Lists of jobs

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use libreconstruct::job::{Cursor, JobState, JobSummary, ListQuery};
use serde::Serialize;

use crate::argument::{Versioned, choice, optional_text, versioned};
use crate::engine::rc_engine;
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::{Opaque, opaque};
use crate::job::{CHOICES, rc_choice};
use crate::text::{c_string, json};

/// Jobs, newest first, as they were when the list was made. Never changes.
pub struct rc_job_list {
    _opaque: [u8; 0],
}

/// What is behind an `rc_job_list`.
pub(crate) struct JobList {
    jobs: Vec<(CString, CString)>,
    next: Option<CString>,
    json: CString,
}

opaque!(rc_job_list, JobList, "list", b"rc_jlist");

/// Which jobs to list. Start from RC_LIST_QUERY_INIT, which asks for all.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_list_query {
    /// sizeof(rc_list_query)
    pub struct_size: usize,
    /// At most this many, 1 to 1000; negative = all.
    pub limit: i64,
    /// Where an earlier list ended (rc_job_list_next()); NULL = from the newest on.
    pub cursor: *const c_char,
    /// Only those in this state: "Queued", "Processing video", "Generating 3D scene", "Finished", "Failed" or
    /// "Not found"; NULL = all.
    pub status: *const c_char,
    /// Only those that are, or are not, public.
    pub is_public: MaybeUninit<rc_choice>,
}

// SAFETY: numbers, pointers and an enum that may be anything.
unsafe impl Versioned for rc_list_query {
    const DEFAULT: Self = Self { limit: -1, ..Self::EMPTY };
}

/// Lists the jobs of the engine's user and stores the list in *list; free it with rc_job_list_free().
///
/// query: NULL = all.
///
/// Fails with RC_INVALID_ARGUMENT for a limit out of range or a cursor or state that is none.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_jobs(
    engine: *const rc_engine,
    query: *const rc_list_query,
    list: *mut *mut rc_job_list,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, list, "list", error, |engine| {
            let query = read(&versioned(query, "query")?)?;
            let page = engine.service.list(engine.user, &query)?;
            Ok(rc_job_list::make(JobList::new(&page.jobs, page.next)?))
        })
    }
}

/// # Safety
/// The pointers of `query` are NULL or strings.
unsafe fn read(query: &rc_list_query) -> Result<ListQuery, Fault> {
    // SAFETY: the caller's promise.
    let (cursor, status) = unsafe {
        (optional_text(query.cursor, "query.cursor")?, optional_text(query.status, "query.status")?)
    };
    let limit = match query.limit {
        ..0 => None,
        // What is too large for the type is out of range as its largest value is.
        limit => Some(u32::try_from(limit).unwrap_or(u32::MAX)),
    };
    Ok(ListQuery {
        limit,
        cursor: cursor.map(str::parse::<Cursor>).transpose()?,
        status: status.map(str::parse::<JobState>).transpose()?,
        public: choice(query.is_public, "query.is_public", &CHOICES)?,
    })
}

#[derive(Serialize)]
struct Page<'a> {
    jobs: &'a [JobSummary],
    next: Option<String>,
}

impl JobList {
    fn new(jobs: &[JobSummary], next: Option<Cursor>) -> Result<Self, Fault> {
        let next = next.map(|cursor| cursor.to_string());
        let json = c_string(json(&Page { jobs, next: next.clone() })?);
        let jobs =
            jobs.iter().map(|j| (c_string(j.job_id.to_string()), c_string(j.title.as_str()))).collect();
        Ok(Self { jobs, next: next.map(c_string), json })
    }
}

/// How many jobs are in the list; 0 for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_list_count(list: *const rc_job_list) -> usize {
    // SAFETY: the caller's promise.
    unsafe { rc_job_list::look(list, 0, |list| list.jobs.len()) }
}

/// The id of a job, by its place from 0; NULL beyond the end. Lives as long as the list.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_list_id(list: *const rc_job_list, index: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_job_list::text(list, |list| Some(&list.jobs.get(index)?.0)) }
}

/// The title of a job, by its place from 0; NULL beyond the end. Lives as long as the list.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_list_title(list: *const rc_job_list, index: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_job_list::text(list, |list| Some(&list.jobs.get(index)?.1)) }
}

/// Where the next list begins; NULL if this one is the last. Lives as long as the list.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_list_next(list: *const rc_job_list) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_job_list::text(list, |list| list.next.as_ref()) }
}

/// The list as JSON: {"jobs": [{"job_id", "title"}], "next": a cursor or null}; NULL for NULL. Lives as long as the list.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_list_json(list: *const rc_job_list) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_job_list::text(list, |list| Some(&list.json)) }
}

/// Frees a list. NULL is allowed.
///
/// Thread-safe, while nobody uses the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_list_free(list: *mut rc_job_list) {
    // SAFETY: the caller's promise.
    unsafe { rc_job_list::free(list) }
}
