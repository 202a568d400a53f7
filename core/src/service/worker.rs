//! Workers: take the first job of the queue, make its scene, publish it, take the next.
//!
//! A worker holds its job by a lease that it prolongs while it lives. Whatever it writes about the job names the lease; once
//! that is lost (the job was cancelled, or given to another because this one seemed dead) nothing can be written any more and
//! the work stops. A job may so be run more than once, but is published exactly once: its files are stored under the number of
//! the attempt and durable before one commit makes them those of the job.
//!
//! The calling thread watches; the work is done by a thread and a rayon pool of its own, at low priority, so that requests to
//! the same machine come first.

mod ending;
mod hold;
mod patience;
mod priority;
mod storing;
mod video_check;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::fault::Fault;
use super::handing_over::{HandingOver, Orders};
use super::job_changes::JobEvent;
use super::live_picture::LivePictures;
use super::machine::Machine;
use super::runner::{Outcome, Runner};
use super::taking_over::Takeover;
use super::worker_options::WorkerOptions;
use super::workspace::{JobWorkspace, first_line};
use super::{PipelineRunner, Service};
use crate::control::{CancelToken, Control, Warning};
use crate::database::{Abilities, Claim, Lease, LeaseState, Return, Returned};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::UserId;
use hold::WATCH;
use patience::Patience;
use priority::lower_priority;
use storing::Storing;
use video_check::VideoCheck;
use watch::{Stop, Watch, Watched, Watching};

/// How often an idle worker looks for jobs that another process submitted.
const IDLE_POLL: Duration = Duration::from_secs(1);
/// How long a busy worker waits for the end of the work before it looks around.
const LOOK: Duration = Duration::from_millis(100);
/// How long the previous worker of a job may take to leave its workspace.
const LEAVE: Duration = Duration::from_secs(60);
/// How long work may take to stop: it looks every second whether it is to. What does not look for so long (a driver that hangs) never
/// will.
const STUCK: Duration = Duration::from_secs(600);
/// How long after a file was found to be bad it is read again.
const SECOND_LOOK: Duration = Duration::from_millis(250);

impl Service {
    /// Works on jobs until `cancel` is raised or the options say so; when it is raised, the job at hand writes its checkpoint and
    /// goes back to the queue.
    /// Blocks; call it on a thread of its own, several times for several workers.
    ///
    /// # Errors
    /// If the worker cannot be set up. What fails later is written to the job or tried again: a worker does not end by itself, but
    /// one that waits for a job for a limited time ([`WorkerEnd`](super::WorkerEnd)) with what keeps its machine from working.
    pub fn run_worker(&self, options: &WorkerOptions, cancel: &CancelToken) -> Result<()> {
        let formats = self.inner.options.reconstruction.formats.clone();
        self.run_worker_with(options, cancel, &PipelineRunner::new(formats))
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
        let mut patience = Patience::new(options.end, Instant::now());
        while !cancel.is_cancelled() {
            self.tidy_machine();
            let mark = self.inner.changes.mark();
            let begun = Instant::now();
            match worker.work_once() {
                Ok(Worked::Nothing) => {
                    worker.machine.resume();
                    if patience.is_out(Instant::now()) {
                        break;
                    }
                    self.wait_for_work(mark, IDLE_POLL, cancel);
                }
                Ok(Worked::Done) => {
                    worker.machine.resume();
                    if options.end.is_after_one() {
                        break;
                    }
                    patience.has_worked(Instant::now());
                }
                // The disk is full, the device gone, the database busy: no reason to spoil the next job, and none to go, unless somebody
                // waits for this worker's end, and can begin one on another machine.
                Err(error) => {
                    // A job that was at work until then was no waiting; to try whether the machine can work is.
                    if worker.has_claimed {
                        patience.has_given_back(begun, Instant::now());
                    }
                    let rest = worker.machine.pause(&error);
                    if patience.is_out(Instant::now()) {
                        return Err(error);
                    }
                    pause(rest, cancel);
                }
            }
        }
        Ok(())
    }

    /// How many workers of this process have work that has not stopped ten minutes after it was told to (a graphics driver may hang).
    /// Their jobs are others' when their leases have run out, which they no longer prolong; such a worker takes no other job until its
    /// work has ended. Where its process has nothing else to do, that should be ended and started anew.
    pub fn stuck_workers(&self) -> usize {
        self.inner.stuck.load(Ordering::Relaxed)
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
    /// Whether the last look for a job found one.
    has_claimed: bool,
    /// Whose the job at hand is.
    user: Mutex<Option<UserId>>,
    /// Whether it was told how the attempt at hand has ended.
    is_end_told: AtomicBool,
    /// How long its work may take to stop.
    pub(super) stuck_after: Duration,
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
        Ok(Self {
            service,
            options,
            pool,
            runner,
            cancel,
            machine,
            has_claimed: false,
            user: Mutex::default(),
            is_end_told: AtomicBool::new(false),
            stuck_after: STUCK,
        })
    }

    /// Takes a job, if there is one that this machine can do, and sees it to its end.
    ///
    /// # Errors
    /// What keeps this machine from working. No job has lost anything by it.
    pub(super) fn work_once(&mut self) -> Result<Worked> {
        let inner = &self.service.inner;
        self.has_claimed = false;
        inner.host.check()?;
        self.service.reclaim()?;
        let given_up = inner.kept_room.given_up();
        let mut abilities = self.machine.abilities();
        if abilities.as_ref().is_err_and(|trouble| trouble.kind() == ErrorKind::DiskFull)
            && self.has_made_room()?
        {
            abilities = self.machine.abilities();
        }
        let abilities = Abilities { given_up: &given_up, ..abilities? };
        let (process, name) = (inner.process.id(), &self.options.name);
        let claim = inner.database.claim(process, name, inner.options.lease_seconds, &abilities)?;
        self.machine.tell_of_too_large(&abilities);
        let Some(claim) = claim else {
            self.machine.note_kept_room(&abilities);
            return Ok(Worked::Nothing);
        };
        self.has_claimed = true;
        if let Err(error) = inner.kept_room.forget(claim.lease.job) {
            log::warn!("worker {name}: it stays noted that room was kept for {}: {error:?}", claim.lease.job);
        }
        inner.changes.notify();
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim.user);
        self.is_end_told.store(false, Ordering::Relaxed);
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
        // Also who was cancelled, or has lost the lease, has ended for those who follow this worker.
        if !self.is_end_told.load(Ordering::Relaxed) {
            self.tell(&claim.lease, JobEvent::Left);
        }
        inner.changes.notify();
        done.map(|()| Worked::Done)
    }

    fn run(&mut self, claim: &Claim) -> Result<()> {
        let lease = &claim.lease;
        let Some(workspace) = self.enter(lease)? else { return Ok(()) };
        self.log(&workspace, &first_line(lease.attempt, &self.options.name));
        let (mut stop, mut result) = self.reconstruct(claim, &workspace)?;
        if let (None, Err(error)) = (stop, &result)
            && Fault::is_of_what_was_read(error.kind())
        {
            // Such a verdict is final, and a program that is just being replaced or a disk that fails for a moment leads to
            // the same: so it must be found twice. What is finished is not done again.
            self.log(&workspace, &format!("{}; it is looked at once more", error.kind().slug()));
            pause(SECOND_LOOK, self.cancel);
            // Of the archive they are unpacked anew, and held to the sums in it.
            workspace.forget_pictures()?;
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
            (Some(Stop::Deleted | Stop::Lost), _) => self.leave(lease, Some(workspace))?,
        }
        Ok(())
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
                        return Ok(None);
                    }
                    LeaseState::Lost => return Ok(None),
                }
            }
            if self.cancel.is_cancelled() || Instant::now() >= end {
                // Nobody's fault: the other one is still at it. It goes back, and is taken again after others.
                if self.release(lease, Return::Occupied, None)? == Returned::Gone {
                    self.remove_later(|service| service.remove_deleted_job(lease.job));
                }
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
        let tell = |when: SystemTime, what: JobEvent<'_>| self.tell_at(when, &claim.lease, what);
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
                    let file =
                        self.service.video_to_work_on(&name, version, workspace.folder(), &control)?;
                    let check = VideoCheck::new(
                        self.service,
                        (name, version),
                        file.clone(),
                        workspace.folder(),
                        &control,
                    );
                    let made = self.service.input_of(file, workspace.folder(), &control).and_then(|video| {
                        if let Some(handing_over) = handing_over {
                            let job = claim.lease.job;
                            let takeover = Takeover { job, folder: &folder, control: &control, log: &log };
                            handing_over.orders.begin(self.service.take_over(&takeover, &video, &options)?);
                        }
                        self.runner.run(&video, &folder, &options, &check.control())
                    });
                    check.judge(made)
                };
                let result = catch_unwind(AssertUnwindSafe(|| self.pool.install(run)));
                // The receiver is there until this is sent.
                let _ = done.send(result.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))));
            };
            std::thread::Builder::new()
                .name("worker".into())
                .spawn_scoped(scope, work)
                .map_err(|e| Error::new(ErrorKind::Io, "a thread cannot be started").caused_by(e))?;
            let mut watch = Watch::new(Watching {
                service: self.service,
                claim,
                watched: &watched,
                pictures: pictures.as_deref(),
                cancel: self.cancel,
                drain: self.options.drain,
                log: &log,
                tell: &tell,
            });
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
                    if watch.gives_up_after(self.stuck_after) {
                        inner.stuck.fetch_add(1, Ordering::Relaxed);
                        let (name, job) = (&self.options.name, claim.lease.job);
                        let seconds = self.stuck_after.as_secs();
                        let what = format!("its work has not stopped {seconds} s after it was told to");
                        log(&format!("{what}; the job is given up"));
                        log::error!(
                            "worker {name} gives job {job} up: {what}. Another worker gets the job when the lease has run out; this one \
                             takes no job until its process is started anew"
                        );
                    }
                }
            };
            if std::mem::take(&mut watch.is_given_up) {
                inner.stuck.fetch_sub(1, Ordering::Relaxed);
            }
            watch.tell_stages();
            if let Some(storing) = storing {
                let is_of_a_job_that_goes_back =
                    |error: &Error| matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DiskFull);
                let goes_back = result.as_ref().is_err_and(is_of_a_job_that_goes_back);
                storing.end(&mut watch, goes_back);
            }
            Ok((watch.stop, result))
        })
        .map(|(stop, result)| {
            let heard = std::mem::take(&mut *watched.lock().unwrap_or_else(PoisonError::into_inner));
            (stop, result.map(|outcome| with_warnings(outcome, heard.warnings)))
        })
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
