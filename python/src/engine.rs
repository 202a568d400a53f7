//! The service in this process.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libreconstruct::job::{
    BlobName, Job, JobId, JobRequest, JobUpdate, ListQuery, Tier, UserId, VideoExtension,
};
use libreconstruct::service::{Addresses, Service, ServiceOptions, WorkerOptions, Workers};
use libreconstruct::storage::BlobReader;
use libreconstruct::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Value, json};

use crate::error::{OrRaise, by_name, from_json, raise, to_json};
use crate::upkeep::Upkeep;
use crate::work::wait_for;

/// How often a waiting call looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// How long the workers of an engine that is let go of may take to end, as for `close` in the package.
const STOP: Duration = Duration::from_secs(60);

/// Ids and titles, and where the next page begins.
type Page = (Vec<(String, String)>, Option<String>);

/// A service with a user and workers. `Engine` in Python is made of this.
///
/// It belongs to the process that made it: threads are not copied by `fork`, and SQLite forbids using a connection on
/// both sides. In a child every call is refused, and nothing is closed when the object goes.
#[pyclass(frozen, module = "libreconstruct._native")]
pub(crate) struct Engine {
    process: u32,
    open: Mutex<Option<Open>>,
    folder: PathBuf,
}

struct Open {
    service: Service,
    user: UserId,
    workers: Option<Workers>,
    upkeep: Upkeep,
}

impl Open {
    /// Waits for the workers and the upkeep, so not with the GIL.
    fn close(self, limit: Duration) {
        let Self { service, workers, upkeep, .. } = self;
        // Nobody calls it any more; those below hold it until they have ended.
        drop(service);
        let begun = Instant::now();
        // First, so that it begins nothing while the workers end.
        let upkeep = upkeep.end();
        if let Some(workers) = workers {
            workers.stop(limit);
        }
        upkeep.wait(limit.saturating_sub(begun.elapsed()));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let mut open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.process != std::process::id() {
            // The parent's threads, locks and connections: ours are copies that must not be let go.
            std::mem::forget(open);
        } else if open.is_some() {
            let mut close = || {
                if let Some(open) = open.take() {
                    open.close(STOP);
                }
            };
            // Python lets go of objects with the GIL, for which all other threads would have to wait.
            Python::try_attach(|py| py.detach(&mut close));
            // Where there is no interpreter any more.
            close();
        }
    }
}

impl Engine {
    /// What holds this lock makes errors of the core only: an exception is made by Python, which may meanwhile run a thread that
    /// waits for the lock and does not let go of the GIL.
    ///
    /// # Errors
    /// In a child of the process that opened it.
    fn lock(&self) -> Result<MutexGuard<'_, Option<Open>>> {
        if self.process != std::process::id() {
            return Err(Error::new(ErrorKind::Conflict, "this engine was opened before the process forked")
                .hint("start processes that need an engine with the method spawn"));
        }
        Ok(self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn service(&self) -> Result<(Service, UserId)> {
        let open = self.lock()?;
        let open = open.as_ref().ok_or_else(closed)?;
        Ok((open.service.clone(), open.user))
    }

    /// Calls the service without the GIL.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Service, UserId) -> Result<T> + Send,
    ) -> PyResult<T> {
        wait_for(py, || {
            let (service, user) = self.service()?;
            work(&service, user)
        })
    }
}

#[pymethods]
impl Engine {
    /// Opens the service in `folder`, or the one at the addresses of its rows and its files for which `folder` is this
    /// machine's place; `options` are those of the core, as JSON.
    #[new]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        user: &str,
        options: &str,
        database: Option<String>,
        storage: Option<String>,
        secrets: Option<PathBuf>,
    ) -> PyResult<Self> {
        let options: ServiceOptions = from_json(options)?;
        let addresses = Addresses { database, storage, secrets, secrets_json: None };
        let open = wait_for(py, || {
            let service = Service::open_shared(&folder, &addresses, options)?;
            let user = service.user_or_new(user, Tier::Enterprise)?.user_id;
            let upkeep = Upkeep::start(service.clone())?;
            Ok(Open { service, user, workers: None, upkeep })
        })?;
        let folder = open.service.folder().to_owned();
        Ok(Self { process: std::process::id(), open: Mutex::new(Some(open)), folder })
    }

    #[getter]
    fn folder(&self) -> &Path {
        &self.folder
    }

    #[getter]
    fn is_closed(&self) -> PyResult<bool> {
        Ok(self.lock().or_raise()?.is_none())
    }

    /// Starts workers, unless there are some. `threads` is the number of threads of each, 0 = as many as processors.
    fn start(&self, py: Python<'_>, count: usize, threads: usize) -> PyResult<()> {
        wait_for(py, || {
            let mut open = self.lock()?;
            let open = open.as_mut().ok_or_else(closed)?;
            if open.workers.is_none() && count > 0 {
                let name = format!("python {}", self.process);
                let options = WorkerOptions { name, threads, ..WorkerOptions::default() };
                open.workers = Some(open.service.start_workers(count, &options)?);
            }
            Ok(())
        })
    }

    /// Stops the workers: their jobs go back to the queue with what is done of them. Returns whether all ended in time.
    fn stop(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let limit = duration(seconds)?;
        let workers = self.lock().or_raise()?.as_mut().and_then(|open| open.workers.take());
        Ok(py.detach(|| workers.is_none_or(|workers| workers.stop(limit))))
    }

    /// Stops the workers and closes the service. To close twice is fine.
    fn close(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let limit = duration(seconds)?;
        let open = self.lock().or_raise()?.take();
        py.detach(|| {
            if let Some(open) = open {
                open.close(limit);
            }
        });
        Ok(())
    }

    /// Takes over a video and submits it; `request` is the body of the REST interface without `blob_name`. `listener` is called
    /// now and then with the bytes that are copied and those that there are; an exception in it, or Ctrl-C, ends the copying. The
    /// job's id.
    fn submit(&self, py: Python<'_>, video: PathBuf, request: &str, listener: Py<PyAny>) -> PyResult<String> {
        let mut request: Value = from_json(request)?;
        let (mut told, mut stopped) = (Instant::now(), None);
        let tell = |copied: u64, size: u64| {
            if copied < size && told.elapsed() < LOOK {
                return Ok(());
            }
            told = Instant::now();
            let heard = Python::attach(|py| {
                py.check_signals()?;
                listener.call1(py, (copied, size)).map(drop)
            });
            heard.map_err(|exception| {
                stopped = Some(exception);
                Error::new(ErrorKind::Cancelled, "cancelled")
            })
        };
        let submitted = self.call(py, |service, user| {
            // What is wrong with the request is said before a large file is copied: the name is not the one it will have.
            let name = BlobName::random(VideoExtension::Mp4);
            if let Value::Object(fields) = &mut request {
                fields.insert("blob_name".into(), json!(name));
            }
            let request = JobRequest::from_json(&request, service.limits())?;
            let blob_name = service.import_video_with(user, &video, tell)?;
            match service.submit(user, JobRequest { blob_name, ..request }, None) {
                Ok(submission) => Ok(submission.body.job_id.to_string()),
                Err(error) => {
                    // The next try copies it anew.
                    if let Err(left) = service.discard_upload(user, &blob_name) {
                        let path = video.display();
                        log::warn!(target: "libreconstruct", "a copy of {path}, which is refused, is left: {left:?}");
                    }
                    Err(error)
                }
            }
        });
        stopped.map_or(submitted, Err)
    }

    /// A job with its details, as JSON.
    fn job(&self, py: Python<'_>, job_id: &str) -> PyResult<String> {
        let job = self.call(py, |service, user| service.job(user, id(job_id)?))?;
        job_json(&job)
    }

    /// (id, title) of the user's jobs, newest first, and the cursor of the next page.
    fn jobs(
        &self,
        py: Python<'_>,
        limit: Option<u32>,
        cursor: Option<&str>,
        status: Option<&str>,
        public: Option<bool>,
    ) -> PyResult<Page> {
        let page = self.call(py, |service, user| {
            let cursor = cursor.map(str::parse).transpose()?;
            let status = status.map(str::parse).transpose()?;
            service.list(user, &ListQuery { limit, cursor, status, public })
        })?;
        let jobs = page.jobs.into_iter().map(|job| (job.job_id.to_string(), job.title)).collect();
        Ok((jobs, page.next.map(|cursor| cursor.to_string())))
    }

    /// Changes a job; `changes` is the body of the REST interface. The job afterwards, as JSON.
    fn update(&self, py: Python<'_>, job_id: &str, changes: &str) -> PyResult<String> {
        let changes: Value = from_json(changes)?;
        let job = self
            .call(py, |service, user| service.update(user, id(job_id)?, &JobUpdate::from_json(&changes)?))?;
        job_json(&job)
    }

    /// Stops a job for good. The job afterwards, as JSON.
    fn cancel(&self, py: Python<'_>, job_id: &str) -> PyResult<String> {
        let job = self.call(py, |service, user| service.cancel(user, id(job_id)?))?;
        job_json(&job)
    }

    /// Submits the video of an ended job again, with the options in `changes` and else those that it had; the new job's id.
    fn restart(&self, py: Python<'_>, job_id: &str, changes: &str) -> PyResult<String> {
        let changes: Value = from_json(changes)?;
        self.call(py, |service, user| {
            let change = |before: JobRequest| before.with_json(&changes, service.limits());
            Ok(service.restart(user, id(job_id)?, None, change)?.body.job_id.to_string())
        })
    }

    /// What is told of a job beyond its fields, as JSON.
    fn report(&self, py: Python<'_>, job_id: &str) -> PyResult<String> {
        to_json(&self.call(py, |service, user| service.report(user, id(job_id)?))?)
    }

    /// Deletes a job with all its files.
    fn delete(&self, py: Python<'_>, job_id: &str) -> PyResult<()> {
        self.call(py, |service, user| service.delete(user, id(job_id)?))
    }

    /// What the worker wrote about the job.
    fn log(&self, py: Python<'_>, job_id: &str) -> PyResult<String> {
        self.call(py, |service, user| service.log(user, id(job_id)?))
    }

    /// Waits until the job's version is not `seen` any more, at most so many seconds; Ctrl-C ends the wait. The job as JSON.
    fn wait(&self, py: Python<'_>, job_id: &str, seen: u64, seconds: f64) -> PyResult<String> {
        let end = Instant::now().checked_add(duration(seconds)?);
        loop {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            let job = self.call(py, |service, user| service.wait(user, id(job_id)?, seen, left.min(LOOK)))?;
            py.check_signals()?;
            if job.details.version != seen || left.is_zero() {
                return job_json(&job);
            }
        }
    }

    /// Opens an artifact: `ply`, `spz`, `preview`, `report`, `log`, `cameras`, `masks`, `turntable`, `sog`, `glb`,
    /// `first_look` or `poses`.
    fn artifact(&self, py: Python<'_>, job_id: &str, kind: &str) -> PyResult<Blob> {
        self.call(py, |service, user| {
            let kind = by_name(kind).ok_or_else(|| {
                Error::argument(format!(
                    "kind is {kind:?}: ply, spz, preview, report, log, cameras, masks, turntable, sog, glb, \
                     first_look and poses are known"
                ))
            })?;
            let artifact = service.artifact(user, id(job_id)?, kind)?;
            let reader = service.open_blob(&artifact.key)?;
            Ok(Blob { size: reader.size, reader: Mutex::new(reader) })
        })
    }

    /// All users, by name, as JSON.
    fn users(&self, py: Python<'_>) -> PyResult<String> {
        to_json(&self.call(py, |service, _| service.users())?)
    }

    /// Changes what the user of this name may do.
    fn set_tier(&self, py: Python<'_>, name: &str, tier: &str) -> PyResult<()> {
        self.call(py, |service, _| {
            let tier: Tier = by_name(tier)
                .ok_or_else(|| Error::argument(format!("tier is {tier:?}: free and enterprise are known")))?;
            service.set_tier(service.user_by_name(name)?.user_id, tier)
        })
    }

    /// Makes a key of the user; its secret.
    fn create_key(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        self.call(py, |service, user| Ok(service.create_key(user, name)?.1.reveal().to_owned()))
    }

    /// The keys of the user, oldest first, without their secrets, as JSON.
    fn keys(&self, py: Python<'_>) -> PyResult<String> {
        to_json(&self.call(py, |service, user| service.keys(user))?)
    }

    /// Makes a key of the user useless.
    fn revoke_key(&self, py: Python<'_>, prefix: &str) -> PyResult<()> {
        self.call(py, |service, user| service.revoke_key(user, prefix))
    }
}

/// The bytes of an artifact.
#[pyclass(frozen, module = "libreconstruct._native")]
pub(crate) struct Blob {
    size: u64,
    reader: Mutex<BlobReader>,
}

#[pymethods]
impl Blob {
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// At most `count` more bytes; none at the end.
    fn read<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut bytes = Vec::new();
            let part = (&mut reader.file).take(count as u64).read_to_end(&mut bytes);
            part.map_err(|e| Error::io("read", Path::new("the artifact"), e)).map(|_| bytes)
        });
        Ok(PyBytes::new(py, &bytes.or_raise()?))
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Conflict, "the engine is closed")
}

/// What is no id names no job (as in the REST interface).
fn id(text: &str) -> Result<JobId> {
    text.parse().map_err(|_| Error::new(ErrorKind::NotFound, "Job not found"))
}

fn duration(seconds: f64) -> PyResult<Duration> {
    // For ever, where somebody waits without a limit.
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| raise(Error::argument(format!("a time of {seconds} seconds: it must be 0 or more"))))
}

/// The fields of the REST interface, and beside them `details`.
fn job_json(job: &Job) -> PyResult<String> {
    let mut value: Value = from_json(&to_json(job)?)?;
    if let Value::Object(fields) = &mut value {
        fields.insert("details".into(), from_json(&to_json(&job.details)?)?);
    }
    to_json(&value)
}
