//! Workers: take the first job of the queue, make its scene, publish it, take the next.
//!
//! A worker holds its job by a lease that it prolongs while it lives. Whatever it writes about the job names the lease; once
//! that is lost (the job was cancelled, or given to another because this one seemed dead) nothing can be written any more and
//! the work stops. A job may so be run more than once, but is published exactly once: its files are stored under the number of
//! the attempt and durable before one commit makes them those of the job.
//!
//! The calling thread watches; the work is done by a thread and a rayon pool of its own, at low priority, so that requests to
//! the same machine come first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::fault::Fault;
use super::handing_over::{HandingOver, Orders};
use super::job_changes::{JobChange, JobEvent, tell};
use super::live_picture::LivePictures;
use super::machine::Machine;
use super::missing_videos;
use super::runner::{Outcome, Runner};
use super::taking_over::Takeover;
use super::video_file::{copy_in, input_of};
use super::worker_options::WorkerOptions;
use super::workspace::JobWorkspace;
use super::{PipelineRunner, Service};
use crate::control::{CancelToken, Control, Event, Warning};
use crate::database::{Claim, Lease, LeaseState, Progress, Publication, Return, Returned};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::{ArtifactKind, Failure, UserId};
use crate::stage::Stage;
use crate::storage::BlobKey;

/// How often an idle worker looks for jobs that another process submitted.
const IDLE_POLL: Duration = Duration::from_secs(1);
/// How long a busy worker waits for the end of the work before it looks around.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked whether a job has been stored.
const LOOK_AT_STORING: Duration = Duration::from_millis(10);
/// How often a busy worker asks whether its job was deleted or cancelled.
const WATCH: Duration = Duration::from_millis(500);
/// How often progress is written at most: each time is a flush of the disk.
const REPORT: Duration = Duration::from_secs(1);
/// How long the previous worker of a job may take to leave its workspace.
const LEAVE: Duration = Duration::from_secs(60);
/// How long after a file was found to be bad it is read again.
const SECOND_LOOK: Duration = Duration::from_millis(250);

/// Why a run was stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The worker is to end.
    Shutdown,
    /// The job is to be deleted.
    Deleted,
    /// The job is not this worker's any more.
    Lost,
    /// It was worked on for as long as a job may be.
    TooLong,
}

/// How far the work is, as its events tell.
#[derive(Default)]
struct Watched {
    progress: Option<Progress>,
    /// The stages that began since they were told of last, and when.
    begun: Vec<(Stage, SystemTime)>,
    warnings: Vec<Warning>,
}

impl Service {
    /// Works on jobs until `cancel` is raised or the options say so; when it is raised, the job at hand writes its checkpoint and
    /// goes back to the queue.
    /// Blocks; call it on a thread of its own, several times for several workers.
    ///
    /// # Errors
    /// If the worker cannot be set up. What fails later is written to the job or tried again: a worker does not end by itself.
    pub fn run_worker(&self, options: &WorkerOptions, cancel: &CancelToken) -> Result<()> {
        self.run_worker_with(options, cancel, &PipelineRunner)
    }

    /// Like [`Service::run_worker`], with something else than the pipeline.
    ///
    /// # Errors
    /// As for [`Service::run_worker`].
    pub fn run_worker_with(
        &self,
        options: &WorkerOptions,
        cancel: &CancelToken,
        runner: &dyn Runner,
    ) -> Result<()> {
        let mut worker = Worker::new(self, options, cancel, runner)?;
        let mut idle_since = Instant::now();
        while !cancel.is_cancelled() {
            self.tidy_machine();
            let mark = self.inner.changes.mark();
            match worker.work_once() {
                Ok(Worked::Nothing) => {
                    worker.machine.resume();
                    if options.end.patience().is_some_and(|limit| idle_since.elapsed() >= limit) {
                        break;
                    }
                    self.wait_for_work(mark, IDLE_POLL, cancel);
                }
                Ok(Worked::Done) => {
                    worker.machine.resume();
                    if options.end.is_after_one() {
                        break;
                    }
                    idle_since = Instant::now();
                }
                // The disk is full, the device gone, the database busy: no reason to go, and none to spoil the next job.
                Err(error) => {
                    pause(worker.machine.pause(&error), cancel);
                    idle_since = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// Waits for a change in short steps, since nobody wakes us when `cancel` is raised.
    fn wait_for_work(&self, mark: u64, limit: Duration, cancel: &CancelToken) {
        let end = Instant::now() + limit;
        while !cancel.is_cancelled() && self.inner.changes.mark() == mark && Instant::now() < end {
            self.inner.changes.wait_since(mark, Duration::from_millis(100));
        }
    }
}

/// Waits, whatever happens meanwhile, unless `cancel` is raised.
fn pause(limit: Duration, cancel: &CancelToken) {
    let end = Instant::now() + limit;
    while !cancel.is_cancelled() && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
}

/// What came of looking for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worked {
    /// There was none.
    Nothing,
    /// One was worked on: it has ended or waits for its next attempt.
    Done,
}

pub(super) struct Worker<'a> {
    service: &'a Service,
    options: &'a WorkerOptions,
    pool: rayon::ThreadPool,
    runner: &'a dyn Runner,
    cancel: &'a CancelToken,
    machine: Machine<'a>,
    /// Whose the job at hand is.
    user: Mutex<Option<UserId>>,
}

impl<'a> Worker<'a> {
    /// Starts the worker's threads.
    pub(super) fn new(
        service: &'a Service,
        options: &'a WorkerOptions,
        cancel: &'a CancelToken,
        runner: &'a dyn Runner,
    ) -> Result<Self> {
        let niceness = options.niceness;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|k| format!("worker-{k}"))
            .start_handler(move |_| lower_priority(niceness))
            .build()
            .map_err(|e| {
                Error::new(ErrorKind::Internal, "the worker's threads cannot be started").caused_by(e)
            })?;
        let machine = Machine::new(service, runner, &options.name);
        Ok(Self { service, options, pool, runner, cancel, machine, user: Mutex::default() })
    }

    /// Takes a job, if there is one that this machine can do, and sees it to its end.
    ///
    /// # Errors
    /// What keeps this machine from working. No job has lost anything by it.
    pub(super) fn work_once(&mut self) -> Result<Worked> {
        let inner = &self.service.inner;
        inner.host.check()?;
        self.service.reclaim()?;
        let abilities = self.machine.abilities()?;
        let (process, name) = (inner.process.id(), &self.options.name);
        let Some(claim) = inner.database.claim(process, name, inner.options.lease_seconds, &abilities)?
        else {
            return Ok(Worked::Nothing);
        };
        inner.changes.notify();
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim.user);
        self.tell(&claim.lease, JobEvent::Claimed);
        let done = failpoints::pass("worker.claimed")
            .map_err(|e| Error::new(ErrorKind::Io, "a worker failed").caused_by(e))
            .and_then(|()| self.run(&claim))
            // The disk or the database failed under us: whatever its kind, that is not the job's fault. If not even this can
            // be written, the lease runs out.
            .or_else(|error| {
                let fault = Fault::of_the_service(error.kind());
                self.fail_by(fault, &claim, None, &error)
            });
        inner.changes.notify();
        done.map(|()| Worked::Done)
    }

    fn run(&mut self, claim: &Claim) -> Result<()> {
        let lease = &claim.lease;
        let Some(workspace) = self.enter(lease)? else { return Ok(()) };
        self.log(&workspace, &format!("attempt {} by {}", lease.attempt, self.options.name));
        let (mut stop, mut result) = self.reconstruct(claim, &workspace)?;
        if let (None, Err(error)) = (stop, &result)
            && Fault::is_of_what_was_read(error.kind())
        {
            // Such a verdict is final, and a program that is just being replaced or a disk that fails for a moment leads to
            // the same: so it must be found twice. What is finished is not done again.
            self.log(&workspace, &format!("{}; it is looked at once more", error.kind().slug()));
            pause(SECOND_LOOK, self.cancel);
            (stop, result) = self.reconstruct(claim, &workspace)?;
        }
        match (stop, result) {
            // A scene that is done is published also when the worker is to end.
            (None | Some(Stop::Shutdown), Ok(outcome)) => self.publish(lease, workspace, outcome)?,
            (Some(Stop::Shutdown), Err(error)) if error.kind() == ErrorKind::Cancelled => {
                self.log(&workspace, "the worker ends; the job goes back to the queue");
                drop(workspace);
                self.give_back(lease)?;
            }
            (None | Some(Stop::Shutdown), Err(error)) => self.fail(claim, Some(workspace), &error)?,
            (Some(Stop::TooLong), Ok(outcome)) => self.publish(lease, workspace, outcome)?,
            (Some(Stop::TooLong), Err(_)) => {
                let hours = self.service.inner.options.max_job_hours;
                let error = Error::new(
                    ErrorKind::DeadlineExceeded,
                    format!("the job was worked on for {hours} hours, the longest that is allowed"),
                )
                .hint("ask for fewer steps or Gaussians, or send a shorter video");
                self.fail_by(Fault::Job, claim, Some(workspace), &error)?;
            }
            (Some(Stop::Deleted | Stop::Lost), _) => self.leave(lease, workspace)?,
        }
        Ok(())
    }

    /// Puts the job back into the queue; nothing is held against it.
    fn give_back(&self, lease: &Lease) -> Result<()> {
        self.release(lease, Return::Unharmed, None).map(drop)
    }

    /// Enters the workspace of the job. A worker that was fenced off may need a moment to leave it.
    pub(super) fn enter(&self, lease: &Lease) -> Result<Option<JobWorkspace>> {
        let end = Instant::now() + LEAVE;
        let mut beat = Instant::now();
        loop {
            if let Some(workspace) = self.service.inner.workspaces.enter(lease.job)? {
                return Ok(Some(workspace));
            }
            let database = &self.service.inner.database;
            if beat.elapsed() >= WATCH {
                beat = Instant::now();
                match database.heartbeat(lease, self.service.inner.options.lease_seconds)? {
                    LeaseState::Held => {}
                    LeaseState::Deleted => {
                        self.give_back(lease)?;
                        self.remove_later(|service| service.remove_deleted().map(drop));
                        return Ok(None);
                    }
                    LeaseState::Lost => return Ok(None),
                }
            }
            if self.cancel.is_cancelled() || Instant::now() >= end {
                // Nobody's fault: the other one is still at it. It goes back, and is taken again after others.
                self.release(lease, Return::Occupied, None)?;
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs the pipeline on a thread of its own and watches over it until it ends.
    fn reconstruct(
        &self,
        claim: &Claim,
        workspace: &JobWorkspace,
    ) -> Result<(Option<Stop>, Result<Outcome>)> {
        let inner = &self.service.inner;
        let (name, version) = (claim.request.blob_name, claim.video_version);
        let options = inner.options.reconstruction.options(&claim.request);
        let folder = workspace.pipeline_folder();
        let watched = Arc::new(Mutex::new(Watched::default()));
        let stop_work = CancelToken::new();
        let sink = watched.clone();
        let mut control = Control::new().with_cancel(stop_work.clone()).with_listener(move |event| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).hear(event);
        });
        let pictures = self.options.live_pictures.then(|| Arc::new(LivePictures::default()));
        if let Some(pictures) = pictures.clone() {
            control = control.with_viewer(move |picture| pictures.see(picture));
        }
        let (done, ended) = mpsc::channel();
        let log = |line: &str| self.log(workspace, line);
        let at_work_on =
            || watched.lock().unwrap_or_else(PoisonError::into_inner).progress.map(|progress| progress.stage);
        let handing_over = inner.has_other_machines.then(|| HandingOver {
            service: self.service,
            lease: &claim.lease,
            folder: folder.clone(),
            at_work_on: &at_work_on,
            log: &log,
            orders: Orders::default(),
        });
        let handing_over = handing_over.as_ref();
        std::thread::scope(|scope| {
            let niceness = self.options.niceness;
            let storing = handing_over.and_then(|it| Storing::start(scope, it, niceness));
            let work = move || {
                lower_priority(niceness);
                let run = || {
                    let video =
                        self.service.video_to_work_on(&name, version, workspace.folder(), &control)?;
                    let video = input_of(video, workspace.folder(), &control)?;
                    if let Some(handing_over) = handing_over {
                        let takeover =
                            Takeover { job: claim.lease.job, folder: &folder, control: &control, log: &log };
                        handing_over.orders.begin(self.service.take_over(&takeover, &video, &options)?);
                    }
                    self.runner.run(&video, &folder, &options, &control)
                };
                let result = catch_unwind(AssertUnwindSafe(|| self.pool.install(run)));
                // The receiver is there until this is sent.
                let _ = done.send(result.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))));
            };
            std::thread::Builder::new()
                .name("worker".into())
                .spawn_scoped(scope, work)
                .map_err(|e| Error::new(ErrorKind::Io, "a thread cannot be started").caused_by(e))?;
            let mut watch = Watch::new(self, claim, workspace, &watched, pictures.as_deref());
            let result = loop {
                match ended.recv_timeout(LOOK) {
                    Ok(result) => break result,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Error::new(
                            ErrorKind::Internal,
                            "the worker's thread ended without a word",
                        ));
                    }
                }
                watch.look();
                if watch.stop.is_some() {
                    stop_work.cancel();
                }
            };
            watch.tell_stages();
            if let Some(storing) = storing {
                let goes_back = matches!(&result, Err(error) if error.kind() == ErrorKind::Cancelled);
                storing.end(&mut watch, goes_back);
            }
            Ok((watch.stop, result))
        })
        .map(|(stop, result)| {
            let heard = std::mem::take(&mut *watched.lock().unwrap_or_else(PoisonError::into_inner));
            (stop, result.map(|outcome| with_warnings(outcome, heard.warnings)))
        })
    }

    /// Stores the files, then makes them those of the job.
    pub(super) fn publish(&self, lease: &Lease, workspace: JobWorkspace, outcome: Outcome) -> Result<()> {
        let inner = &self.service.inner;
        failpoints::pass("worker.reconstructed")
            .map_err(|e| Error::io("publish", Path::new("the scene"), e))?;
        self.log(&workspace, "the scene is done");
        let mut files = outcome.files;
        files.push((ArtifactKind::Log, workspace.log_path()));
        let mut artifacts = Vec::new();
        for (kind, path) in files {
            let key = BlobKey::Artifact { job: lease.job, attempt: lease.attempt, kind };
            artifacts.push((kind, inner.storage.put_file(&key, &path)?.size));
        }
        if ![ArtifactKind::Ply, ArtifactKind::Spz].iter().all(|k| artifacts.iter().any(|(kind, _)| kind == k))
        {
            return Err(Error::new(ErrorKind::Internal, "the reconstruction left no scene"));
        }
        failpoints::pass("worker.artifacts_stored")
            .map_err(|e| Error::io("publish", Path::new("the scene"), e))?;
        let publication = Publication { artifacts, camera: outcome.camera, warnings: outcome.warnings };
        match inner.database.publish(lease, &publication)? {
            LeaseState::Held => {
                inner.changes.notify();
                self.tell(lease, JobEvent::Finished);
                failpoints::pass("worker.published")
                    .map_err(|e| Error::io("clean up", Path::new("the job"), e))?;
                self.clean_up(lease, workspace);
                Ok(())
            }
            LeaseState::Deleted | LeaseState::Lost => {
                self.service.remove_artifacts(lease.job, lease.attempt..=lease.attempt)?;
                self.leave(lease, workspace)
            }
        }
    }

    /// Writes down why there is no scene: nothing is held against the job if its machine cannot work now, and it has more
    /// attempts if that may end otherwise. `workspace` is none if it could not be entered.
    ///
    /// # Errors
    /// What keeps the machine from working, after the job was given back.
    pub(super) fn fail(
        &mut self,
        claim: &Claim,
        workspace: Option<JobWorkspace>,
        error: &Error,
    ) -> Result<()> {
        self.fail_by(Fault::of(error.kind()), claim, workspace, error)
    }

    /// The same, when it is known whose fault it is.
    fn fail_by(
        &mut self,
        fault: Fault,
        claim: &Claim,
        workspace: Option<JobWorkspace>,
        error: &Error,
    ) -> Result<()> {
        let inner = &self.service.inner;
        let lease = &claim.lease;
        let key = BlobKey::Video { name: claim.request.blob_name, version: claim.video_version };
        let copy = || workspace.as_ref().map(|w| copy_in(w.folder(), &claim.request.blob_name));
        let video = inner.storage.local_path(&key).or_else(copy);
        let message = self.service.without_paths(&error.to_string(), video.as_deref());
        let failure = Failure { code: error.kind().slug().into(), message };
        let stage = error.stage().map_or(String::new(), |stage| format!(" in {stage}"));
        log::warn!("worker {}, job {}: {error:?}", self.options.name, lease.job);
        if let Some(workspace) = &workspace {
            self.log(workspace, &format!("failed{stage}: {}: {}", failure.code, failure.message));
        }
        // Also what looks like a fault of the job may be the machine's: a program that is missing, a file that cannot be read.
        if let Err(trouble) = self.machine.prove() {
            if let Some(workspace) = &workspace {
                self.log(workspace, "this machine cannot work now; the job goes back to the queue");
            }
            drop(workspace);
            self.give_back(lease)?;
            return Err(trouble);
        }
        // The scene may be published though it was not heard of: then the log of this attempt is the job's, and stays as it is.
        if inner.database.lease_state(lease)? == LeaseState::Lost {
            return workspace.map_or(Ok(()), |workspace| self.leave(lease, workspace));
        }
        let (fault, failure) = self.with_missing_video(fault, failure, claim, error);
        let key = BlobKey::Artifact { job: lease.job, attempt: lease.attempt, kind: ArtifactKind::Log };
        let log = workspace.as_ref().and_then(|w| inner.storage.put_file(&key, &w.log_path()).ok());
        let log_size = log.map(|log| log.size);
        let returned = match fault {
            Fault::Job => match inner.database.fail(lease, &failure, log_size)? {
                LeaseState::Held => {
                    self.tell(lease, JobEvent::Failed { code: &failure.code });
                    Returned::Failed
                }
                LeaseState::Deleted | LeaseState::Lost => Returned::Gone,
            },
            Fault::Program => self.release(lease, Return::Crashed(&failure), log_size)?,
            Fault::Machine => self.release(lease, Return::Disturbed(&failure), log_size)?,
        };
        match (returned, workspace) {
            (Returned::Failed, Some(workspace)) => self.clean_up(lease, workspace),
            (Returned::Failed, None) => {
                self.remove_later(|service| service.remove_leftovers(lease.job).map(drop));
            }
            (Returned::Queued, _) => inner.storage.delete(&key)?,
            (Returned::Gone, workspace) => {
                inner.storage.delete(&key)?;
                if let Some(workspace) = workspace {
                    self.leave(lease, workspace)?;
                }
            }
        }
        Ok(())
    }

    /// What is to be written where it may be the video that was not found: whether that is missing the storage knows.
    fn with_missing_video(
        &self,
        fault: Fault,
        failure: Failure,
        claim: &Claim,
        error: &Error,
    ) -> (Fault, Failure) {
        if error.kind() != ErrorKind::NotFound {
            return (fault, failure);
        }
        let (name, version) = (claim.request.blob_name, claim.video_version);
        match self.service.is_video_missing(&name, version) {
            Ok(false) => (fault, failure),
            Ok(true) => {
                // The others that wait for it would find out one by one.
                self.remove_later(|service| service.end_jobs_without_video(&name, version).map(drop));
                (Fault::Job, missing_videos::failure())
            }
            Err(_) => (Fault::Machine, failure),
        }
    }

    fn release(&self, lease: &Lease, why: Return<'_>, log_size: Option<u64>) -> Result<Returned> {
        let inner = &self.service.inner;
        let (name, code) = match &why {
            Return::Unharmed => ("unharmed", None),
            Return::Occupied => ("occupied", None),
            Return::Disturbed(failure) => ("disturbed", Some(&failure.code)),
            Return::Crashed(failure) => ("crashed", Some(&failure.code)),
        };
        let returned = inner.database.release(lease, why, &inner.options.patience(), log_size)?;
        match returned {
            Returned::Queued => self.tell(lease, JobEvent::GivenBack { why: name }),
            Returned::Failed => {
                self.tell(lease, JobEvent::Failed { code: code.map_or(name, String::as_str) });
            }
            Returned::Gone => {}
        }
        Ok(returned)
    }

    /// Tells of a change of the job at hand.
    fn tell(&self, lease: &Lease, what: JobEvent<'_>) {
        self.tell_at(SystemTime::now(), lease, what);
    }

    /// Tells of a change of the job at hand that was made at `when`.
    fn tell_at(&self, when: SystemTime, lease: &Lease, what: JobEvent<'_>) {
        let user = *self.user.lock().unwrap_or_else(PoisonError::into_inner);
        let (attempt, worker) = (Some(lease.attempt), Some(self.options.name.as_str()));
        tell(&JobChange { job: lease.job, user, attempt, worker, what, when });
    }

    /// Removes what a job that has ended does not need: its workspace, what earlier attempts stored and what others would have
    /// gone on with. What cannot be removed now is swept later.
    fn clean_up(&self, lease: &Lease, workspace: JobWorkspace) {
        let removed = self
            .service
            .remove_artifacts(lease.job, 1..lease.attempt)
            .and_then(|()| self.service.remove_checkpoints(lease.job))
            .and_then(|()| workspace.remove());
        if let Err(error) = removed {
            log::warn!("job {}: {error:?}", lease.job);
        }
    }

    /// Leaves a job that is not this worker's any more, and its files too if nobody needs them.
    pub(super) fn leave(&self, lease: &Lease, workspace: JobWorkspace) -> Result<()> {
        drop(workspace);
        self.give_back(lease)?;
        self.remove_later(|service| service.remove_leftovers(lease.job).map(drop));
        self.remove_later(|service| service.remove_deleted().map(drop));
        Ok(())
    }

    /// Removes what nobody needs. If that cannot be now, maintenance does it: it is no reason not to work.
    fn remove_later(&self, remove: impl FnOnce(&Service) -> Result<()>) {
        if let Err(error) = remove(self.service) {
            log::warn!("worker {}: {error:?}", self.options.name);
        }
    }

    fn log(&self, workspace: &JobWorkspace, line: &str) {
        workspace.log(self.service.inner.clock.now(), line);
    }
}

/// The thread that stores how far a job is, beside the work. It ends with this.
struct Storing<'scope, 'a> {
    of: &'a HandingOver<'a>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope, 'a> Storing<'scope, 'a> {
    /// Nothing if there is no thread to be had: the work goes on without.
    fn start(scope: &'scope Scope<'scope, '_>, of: &'a HandingOver<'a>, niceness: u8) -> Option<Self>
    where
        'a: 'scope,
    {
        let run = move || {
            lower_priority(niceness);
            of.run();
        };
        match std::thread::Builder::new().name("checkpoints".into()).spawn_scoped(scope, run) {
            Ok(thread) => Some(Self { of, thread }),
            Err(error) => {
                log::warn!("what jobs have reached is not stored, a thread cannot be started: {error}");
                None
            }
        }
    }

    /// Ends it when the work has stopped. A job that goes back to the queue because the worker is to end is stored once more
    /// before, if there is time for that; signs of life are given meanwhile.
    fn end(self, watch: &mut Watch<'_>, goes_back: bool) {
        if goes_back && watch.stop == Some(Stop::Shutdown) {
            self.of.orders.store_the_last();
        } else {
            self.of.orders.stop();
        }
        while !self.thread.is_finished() {
            std::thread::sleep(LOOK_AT_STORING);
            watch.look();
            if watch.stop != Some(Stop::Shutdown) || watch.has_drained() {
                self.of.orders.stop();
            }
        }
    }
}

impl Drop for Storing<'_, '_> {
    fn drop(&mut self) {
        self.of.orders.stop();
    }
}

/// The watching side of a run.
struct Watch<'a> {
    worker: &'a Worker<'a>,
    lease: &'a Lease,
    workspace: &'a JobWorkspace,
    watched: &'a Mutex<Watched>,
    /// None if nobody is to see them.
    pictures: Option<&'a LivePictures>,
    stop: Option<Stop>,
    /// When the worker was asked to end.
    asked_to_end: Option<Instant>,
    /// When the job will have been worked on for as long as it may be.
    end: Option<Instant>,
    looked: Instant,
    beat: Instant,
    /// When the database last knew that we live.
    known: Instant,
    reported: Option<(Instant, Progress)>,
}

impl<'a> Watch<'a> {
    fn new(
        worker: &'a Worker<'a>,
        claim: &'a Claim,
        workspace: &'a JobWorkspace,
        watched: &'a Mutex<Watched>,
        pictures: Option<&'a LivePictures>,
    ) -> Self {
        let now = Instant::now();
        let longest = worker.service.inner.options.longest_job();
        Self {
            worker,
            lease: &claim.lease,
            workspace,
            watched,
            pictures,
            stop: None,
            asked_to_end: None,
            end: longest.and_then(|longest| now.checked_add(longest.saturating_sub(claim.worked))),
            looked: now,
            beat: now,
            known: now,
            reported: None,
        }
    }

    /// Tells the database that we live and how far we are; finds out whether to stop.
    fn look(&mut self) {
        if self.stop.is_none() && self.worker.cancel.is_cancelled() {
            self.stop = Some(Stop::Shutdown);
            self.asked_to_end = Some(Instant::now());
        }
        if self.stop.is_none() && self.end.is_some_and(|end| Instant::now() >= end) {
            self.stop = Some(Stop::TooLong);
        }
        let database = &self.worker.service.inner.database;
        let lease_seconds = self.worker.service.inner.options.lease_seconds;
        // Also while the work is being stopped: until it has stopped, nobody else should begin.
        if self.beat.elapsed() >= Duration::from_secs(lease_seconds) / 6 {
            self.beat = Instant::now();
            let beat = database.heartbeat(self.lease, lease_seconds);
            self.obey(beat);
        } else if self.looked.elapsed() >= WATCH {
            self.looked = Instant::now();
            if let Ok(state @ (LeaseState::Deleted | LeaseState::Lost)) = database.lease_state(self.lease) {
                self.obey(Ok(state));
            }
        }
        self.tell_stages();
        if self.stop.is_none() {
            self.report();
        }
        if self.stop.is_none() {
            self.show_picture();
        }
    }

    /// Whether a worker that was asked to end has had its time.
    fn has_drained(&self) -> bool {
        self.asked_to_end.is_none_or(|moment| moment.elapsed() >= self.worker.options.drain)
    }

    /// Tells of the stages that have begun, also of those that are too short to be written to the job.
    fn tell_stages(&mut self) {
        let begun = std::mem::take(&mut self.watched.lock().unwrap_or_else(PoisonError::into_inner).begun);
        for (stage, when) in begun {
            self.worker.log(self.workspace, &format!("stage {stage}"));
            self.worker.tell_at(when, self.lease, JobEvent::Stage(stage));
        }
    }

    fn report(&mut self) {
        let progress = self.watched.lock().unwrap_or_else(PoisonError::into_inner).progress;
        let Some(progress) = progress else { return };
        let due = match &self.reported {
            None => true,
            Some((when, before)) => when.elapsed() >= REPORT && *before != progress,
        };
        if !due {
            return;
        }
        self.reported = Some((Instant::now(), progress));
        let state = self.worker.service.inner.database.progress(self.lease, &progress);
        self.obey(state);
        self.worker.service.inner.changes.notify();
    }

    /// Shows what the scene looks like. If that does not work, the work goes on without.
    fn show_picture(&mut self) {
        let Some(pictures) = self.pictures else { return };
        match pictures.take_due() {
            Ok(None) => {}
            Ok(Some(picture)) => {
                let state = self.worker.service.inner.database.show_picture(self.lease, &picture);
                self.obey(state);
            }
            Err(error) => log::warn!("job {}: {error:?}", self.lease.job),
        }
    }

    fn obey(&mut self, state: Result<LeaseState>) {
        match state {
            Ok(LeaseState::Held) => self.known = Instant::now(),
            Ok(LeaseState::Deleted) => {
                self.known = Instant::now();
                self.stop = Some(Stop::Deleted);
            }
            Ok(LeaseState::Lost) => self.stop = Some(Stop::Lost),
            // It may pass; but once the lease has run out, another may be at it.
            Err(_) => {
                let lease = Duration::from_secs(self.worker.service.inner.options.lease_seconds);
                if self.known.elapsed() >= lease {
                    self.stop = Some(Stop::Lost);
                }
            }
        }
    }
}

impl Watched {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Progress { stage, fraction, remaining_seconds, .. } => {
                // A stage that an earlier attempt finished is said to be done at once; that does not take us back.
                if self.progress.is_none_or(|p| (stage, fraction) >= (p.stage, p.fraction)) {
                    if self.progress.is_none_or(|p| stage != p.stage) {
                        self.begun.push((stage, SystemTime::now()));
                    }
                    // `as` saturates: what is longer than anybody lives is that.
                    let seconds_left = remaining_seconds.map(|seconds| seconds.ceil() as u64);
                    let percent = percent(stage, fraction);
                    self.progress = Some(Progress { stage, fraction, percent, seconds_left });
                }
            }
            Event::Warning { warning, .. } => self.warnings.push(warning),
        }
    }
}

/// `percent_complete`: training is the first 95 parts, the files the next four; the last is published, not reached.
fn percent(stage: Stage, fraction: f32) -> Option<u8> {
    let fraction = fraction.clamp(0.0, 1.0);
    match stage {
        Stage::Train => Some((95.0 * fraction) as u8),
        Stage::Export => Some(95 + (4.0 * fraction) as u8),
        _ => None,
    }
}

/// The warnings that were heard and are not in the outcome are added to it.
fn with_warnings(mut outcome: Outcome, heard: Vec<Warning>) -> Outcome {
    for warning in heard {
        if !outcome.warnings.contains(&warning) {
            outcome.warnings.push(warning);
        }
    }
    outcome
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Error::new(
        ErrorKind::Internal,
        format!("the reconstruction broke down: {}", text.unwrap_or("no reason given")),
    )
}

/// Lets this thread, and the programs that it starts, run when nobody else wants to.
#[cfg(target_os = "linux")]
fn lower_priority(niceness: u8) {
    if niceness == 0 {
        return;
    }
    // SAFETY: plain system calls; both concern the calling thread only. Not being allowed to is no harm.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, i32::from(niceness.min(19)));
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
    }
}

/// Elsewhere such calls concern the whole process, and with it whoever holds the engine: its priority stays.
#[cfg(not(target_os = "linux"))]
fn lower_priority(_niceness: u8) {}
