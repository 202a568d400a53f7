//! How a job ends for a worker: its scene is published, it fails, goes back to the queue, or is not the worker's any more.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::super::Service;
use super::super::fault::Fault;
use super::super::job_changes::{JobChange, JobEvent, tell};
use super::super::machine::Filler;
use super::super::missing_videos;
use super::super::runner::Outcome;
use super::super::video_file::{NoRoomForInput, UnreadableVideo, copy_in};
use super::super::workspace::JobWorkspace;
use super::Worker;
use super::hold::Hold;
use super::priority::lower_priority;
use super::storing::LOOK_AT_STORING;
use crate::control::CancelToken;
use crate::database::{Claim, Lease, LeaseState, Publication, Return, Returned};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::{ArtifactKind, Failure, Job, JobId, JobStatus, UserId};
use crate::storage::BlobKey;

/// So many attempts at most are not held against a job whose input has no room on a machine's disk: with the rests between them
/// another machine has 16 hours and more to take it.
const ATTEMPTS_FOR_OTHERS: u32 = 1000;

impl Worker<'_> {
    /// Stores the files, then makes them those of the job.
    pub(in crate::service) fn publish(
        &self,
        lease: &Lease,
        workspace: JobWorkspace,
        outcome: Outcome,
    ) -> Result<()> {
        let inner = &self.service.inner;
        failpoints::pass("worker.reconstructed")
            .map_err(|e| Error::io("publish", Path::new("the scene"), e))?;
        self.log(&workspace, "the scene is done");
        let mut files = outcome.files;
        files.push((ArtifactKind::Log, workspace.log_path()));
        let (mut state, artifacts) = self.store(lease, &files)?;
        if state == LeaseState::Held {
            let is_there = |wanted: &ArtifactKind| artifacts.iter().any(|(kind, _)| kind == wanted);
            if ![ArtifactKind::Ply, ArtifactKind::Spz].iter().all(is_there) {
                return Err(Error::new(ErrorKind::Internal, "the reconstruction left no scene"));
            }
            failpoints::pass("worker.artifacts_stored")
                .map_err(|e| Error::io("publish", Path::new("the scene"), e))?;
            let publication = Publication { artifacts, camera: outcome.camera, warnings: outcome.warnings };
            state = inner.database.publish(lease, &publication)?;
        }
        match state {
            LeaseState::Held => {
                inner.changes.notify();
                self.tell(lease, JobEvent::Finished);
                failpoints::pass("worker.published")
                    .map_err(|e| Error::io("clean up", Path::new("the job"), e))?;
                self.clean_up(lease, workspace);
                Ok(())
            }
            LeaseState::Deleted | LeaseState::Lost => {
                self.service.remove_artifacts(lease.job, |attempt| attempt == lease.attempt)?;
                self.leave(lease, Some(workspace))
            }
        }
    }

    /// Stores files of the job. That may take longer than a lease lasts, so signs of life are given meanwhile; once the job is
    /// not this worker's any more, no further file is begun.
    fn store(
        &self,
        lease: &Lease,
        files: &[(ArtifactKind, PathBuf)],
    ) -> Result<(LeaseState, Vec<(ArtifactKind, u64)>)> {
        let (storage, niceness) = (&self.service.inner.storage, self.options.niceness);
        let stop = CancelToken::new();
        let put_all = || {
            lower_priority(niceness);
            let mut stored = Vec::new();
            for (kind, path) in files {
                if stop.is_cancelled() {
                    break;
                }
                let key = BlobKey::Artifact { job: lease.job, attempt: lease.attempt, kind: *kind };
                stored.push((*kind, storage.put_file(&key, path)?.size));
            }
            Ok(stored)
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("publication".into())
                .spawn_scoped(scope, put_all)
                .map_err(|e| Error::new(ErrorKind::Io, "a thread cannot be started").caused_by(e))?;
            let mut hold = Hold::new(self.service, lease);
            let mut state = LeaseState::Held;
            while !thread.is_finished() {
                std::thread::sleep(LOOK_AT_STORING);
                // What was deleted stays so, and what is lost does not come back.
                match hold.look() {
                    LeaseState::Held => {}
                    gone => {
                        state = gone;
                        stop.cancel();
                    }
                }
            }
            let stored = thread
                .join()
                .map_err(|_| Error::new(ErrorKind::Internal, "storing the files of the job broke down"))??;
            Ok((state, stored))
        })
    }

    /// Writes down why there is no scene: nothing is held against the job if its machine cannot work now, and it has more
    /// attempts if that may end otherwise. `workspace` is none if it could not be entered.
    ///
    /// # Errors
    /// What keeps the machine from working, after the job was given back.
    pub(in crate::service) fn fail(
        &mut self,
        claim: &Claim,
        workspace: Option<JobWorkspace>,
        error: &Error,
    ) -> Result<()> {
        let fault = match error.kind() {
            // A file that the worker has made, or brings along, as the user's is there.
            ErrorKind::NotFound if self.has_video(claim) => Fault::Machine,
            kind => Fault::of(kind),
        };
        self.fail_by(fault, claim, workspace, error)
    }

    /// Whether the storage has the video of the job, as far as can be told.
    fn has_video(&self, claim: &Claim) -> bool {
        let key = BlobKey::Video { name: claim.request.blob_name, version: claim.video_version };
        !matches!(self.service.inner.storage.metadata(&key), Ok(None))
    }

    /// The same, when it is known whose fault it is.
    pub(super) fn fail_by(
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
        // Before anything else, as another attempt would go on with it.
        if error.source().is_some_and(|cause| cause.is::<UnreadableVideo>())
            && let Some(workspace) = &workspace
        {
            self.begin_anew(lease, workspace, "the video could not be read as it came");
        }
        // Also what looks like a fault of the job may be the machine's: a program that is missing, a file that cannot be read.
        let mut proof = self.machine.prove();
        let is_full = |error: &Error| error.kind() == ErrorKind::DiskFull;
        if is_full(error)
            && proof.as_ref().is_err_and(is_full)
            && let Some(workspace) = &workspace
            && self.fills_the_disk(workspace)
        {
            if self.has_cleared(lease, workspace) {
                proof = self.machine.prove();
            } else {
                self.machine.note_filler(lease.job, claim.user);
            }
        }
        if let Err(trouble) = proof {
            if let Some(workspace) = &workspace {
                self.log(workspace, "this machine cannot work now; the job goes back to the queue");
            }
            drop(workspace);
            self.give_back(lease)?;
            return Err(trouble);
        }
        // Its weights are gone or damaged: the job is for another machine, and others can be worked on here.
        let may_be_weights =
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFile | ErrorKind::Io);
        if may_be_weights && claim.request.remove_background && !self.runner.can_make_masks() {
            if let Some(workspace) = &workspace {
                self.log(workspace, "this machine cannot make masks now; the job goes back to the queue");
            }
            drop(workspace);
            self.give_back(lease)?;
            return Err(Error::new(error.kind(), failure.message));
        }
        // The scene may be published though it was not heard of: then the log of this attempt is the job's, and stays as it is.
        if inner.database.lease_state(lease)? == LeaseState::Lost {
            return self.leave(lease, workspace);
        }
        if error.kind() == ErrorKind::InvalidFile
            && let Some(workspace) = &workspace
        {
            self.begin_anew(lease, workspace, "a file of the work is damaged");
            // It may be stored as it is.
            self.remove_later(|service| service.remove_checkpoints(lease.job));
        }
        let (fault, failure) = self.with_missing_video(fault, failure, claim, error);
        let key = BlobKey::Artifact { job: lease.job, attempt: lease.attempt, kind: ArtifactKind::Log };
        // Without a log, if that cannot be stored.
        let store = |w: &JobWorkspace| self.store(lease, &[(ArtifactKind::Log, w.log_path())]).ok();
        let log_size = workspace.as_ref().and_then(store).and_then(|(_, stored)| Some(stored.first()?.1));
        let returned = match fault {
            Fault::Job => match inner.database.fail(lease, &failure, log_size)? {
                LeaseState::Held => {
                    self.tell(lease, JobEvent::Failed { code: &failure.code });
                    Returned::Failed
                }
                LeaseState::Deleted | LeaseState::Lost => Returned::Gone,
            },
            Fault::Program => self.release(lease, Return::Crashed(&failure), log_size)?,
            Fault::Machine if self.may_fit_elsewhere(lease, error) => {
                self.release(lease, Return::Occupied, log_size)?
            }
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
                self.leave(lease, workspace)?;
            }
        }
        Ok(())
    }

    /// Removes what the job has left in its workspace, as it is not to be gone on with.
    fn begin_anew(&self, lease: &Lease, workspace: &JobWorkspace, why: &str) {
        self.log(workspace, &format!("{why}; what the job has left is removed"));
        if let Err(error) = workspace.clear() {
            log::warn!("job {}: {error:?}", lease.job);
        }
    }

    /// Whether the disk would have enough room without what the job has left on it.
    fn fills_the_disk(&self, workspace: &JobWorkspace) -> bool {
        let (inner, least) = (&self.service.inner, self.service.inner.options.min_free_bytes);
        let free = inner.workspaces.free_space().ok().flatten();
        // Where the storage's own disk is the full one, nothing that is removed here makes room there.
        let of_storage = inner.storage.free_space().ok().flatten();
        if of_storage.is_some_and(|free| free < least) && free.is_some_and(|free| free >= least) {
            return false;
        }
        free.is_some_and(|free| free.saturating_add(workspace.bytes()) >= least)
    }

    /// Removes what the job has left on a full disk, if another machine could go on from where it is: else no job could be worked on here
    /// any more, and the next machine would fare the same with this one. Says whether that was done.
    fn has_cleared(&self, lease: &Lease, workspace: &JobWorkspace) -> bool {
        let is_stored = || self.service.is_stored(lease.job, &workspace.pipeline_folder());
        // Where it is not known, it stays.
        if !self.service.inner.has_other_machines || !is_stored().unwrap_or(false) {
            return false;
        }
        self.log(workspace, "the disk is full: what the job has left on it is removed");
        if let Err(error) = workspace.clear() {
            log::warn!("job {}: {error:?}", lease.job);
        }
        true
    }

    /// Makes room on a disk that a job has filled which waits now: at once if it has ended meanwhile, and after a day by removing what it
    /// has left, with which it fails where there is no other machine. Says whether that was done.
    pub(super) fn has_made_room(&mut self) -> Result<bool> {
        let Some((Filler { job, user, .. }, is_long)) = self.machine.filler() else {
            if let Some((job, user)) = self.filler_of_others()? {
                self.machine.note_filler(job, user);
            }
            return Ok(false);
        };
        let inner = &self.service.inner;
        if self.service.remove_leftovers(job)? {
            self.machine.forget_filler();
            return Ok(true);
        }
        let waits =
            inner.database.job(user, job)?.is_some_and(|it| matches!(it.status, JobStatus::Queued { .. }));
        // Of many machines another may work on it.
        if !is_long || !(waits || inner.has_other_machines) {
            return Ok(false);
        }
        // Whatever comes of it: at the next look another job may be the one.
        self.machine.forget_filler();
        let workspace = inner.workspaces.enter(job)?.filter(|workspace| self.fills_the_disk(workspace));
        let Some(workspace) = workspace else { return Ok(false) };
        if inner.has_other_machines {
            log::warn!("job {job} has kept the disk full for a day: what it has left there is removed");
            workspace.clear()?;
            self.log(&workspace, "the disk was full for a day: what the job has left on it is removed");
            return Ok(true);
        }
        log::warn!("job {job} has kept the disk full for a day: it fails, and its workspace is removed");
        // First of all: without room nothing can be written about the job either.
        workspace.clear()?;
        let message = "the server's disk was full for a day, and this job had filled it".to_owned();
        let failure = Failure { code: ErrorKind::DiskFull.slug().to_owned(), message };
        inner.database.cancel_job(user, job, &failure)?;
        inner.changes.notify();
        let (worker, what) = (Some(self.options.name.as_str()), JobEvent::Failed { code: &failure.code });
        tell(&JobChange { job, user: Some(user), attempt: None, worker, what, when: SystemTime::now() });
        self.log(&workspace, &format!("failed: {}: {}", failure.code, failure.message));
        drop(workspace);
        self.remove_later(|service| service.remove_leftovers(job).map(drop));
        Ok(true)
    }

    /// A waiting job whose workspace fills the disk, where this worker has filled it with none: a worker before a restart may have.
    fn filler_of_others(&self) -> Result<Option<(JobId, UserId)>> {
        let inner = &self.service.inner;
        // The storage's disk may be the full one.
        if inner.workspaces.free_space()?.is_none_or(|free| free >= inner.options.min_free_bytes) {
            return Ok(None);
        }
        let fills = |job: &JobId| {
            let entered = inner.workspaces.enter(*job).ok().flatten();
            entered.is_some_and(|workspace| self.fills_the_disk(&workspace))
        };
        let filling: Vec<JobId> = inner.workspaces.list()?.into_iter().filter(fills).collect();
        if filling.is_empty() {
            return Ok(None);
        }
        let waits =
            |job: &Job| matches!(job.status, JobStatus::Queued { .. }) && filling.contains(&job.job_id);
        Ok(inner.database.all_jobs()?.into_iter().find(waits).map(|job| (job.job_id, job.details.owner)))
    }

    /// Whether all that is wrong is that the input of the job has no room on this machine's disk, and another machine may have it.
    fn may_fit_elsewhere(&self, lease: &Lease, error: &Error) -> bool {
        self.service.inner.has_other_machines
            && lease.attempt <= ATTEMPTS_FOR_OTHERS
            && error.source().is_some_and(|cause| cause.is::<NoRoomForInput>())
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

    /// Puts the job back into the queue; nothing is held against it. One that was deleted is removed, so its workspace must have been left.
    pub(super) fn give_back(&self, lease: &Lease) -> Result<()> {
        if self.release(lease, Return::Unharmed, None)? == Returned::Gone {
            self.remove_later(|service| service.remove_deleted_job(lease.job));
        }
        Ok(())
    }

    pub(super) fn release(&self, lease: &Lease, why: Return<'_>, log_size: Option<u64>) -> Result<Returned> {
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
            // That this worker has left it is told when it has.
            Returned::Gone => {}
        }
        Ok(returned)
    }

    /// Tells of a change of the job at hand.
    pub(super) fn tell(&self, lease: &Lease, what: JobEvent<'_>) {
        self.tell_at(SystemTime::now(), lease, what);
    }

    /// Tells of a change of the job at hand that was made at `when`.
    pub(super) fn tell_at(&self, when: SystemTime, lease: &Lease, what: JobEvent<'_>) {
        if what.ends_attempt() {
            self.is_end_told.store(true, Ordering::Relaxed);
        }
        let user = *self.user.lock().unwrap_or_else(PoisonError::into_inner);
        let (attempt, worker) = (Some(lease.attempt), Some(self.options.name.as_str()));
        tell(&JobChange { job: lease.job, user, attempt, worker, what, when });
    }

    /// Removes what a job that has ended does not need: its workspace, what earlier attempts stored and what others would have
    /// gone on with. What cannot be removed now is swept later.
    fn clean_up(&self, lease: &Lease, workspace: JobWorkspace) {
        let of_earlier = match lease.attempt {
            // There was none.
            1 => Ok(()),
            own => self.service.remove_artifacts(lease.job, |attempt| attempt < own),
        };
        let removed = of_earlier
            .and_then(|()| self.service.remove_checkpoints(lease.job))
            .and_then(|()| workspace.remove());
        if let Err(error) = removed {
            log::warn!("job {}: {error:?}", lease.job);
        }
    }

    /// Leaves a job that is not this worker's any more, and its files too if nobody needs them. `workspace` is none if it was left before.
    pub(in crate::service) fn leave(&self, lease: &Lease, workspace: Option<JobWorkspace>) -> Result<()> {
        drop(workspace);
        self.give_back(lease)?;
        self.remove_later(|service| service.remove_leftovers(lease.job).map(drop));
        Ok(())
    }

    /// Removes what nobody needs. If that cannot be now, maintenance does it: it is no reason not to work.
    pub(super) fn remove_later(&self, remove: impl FnOnce(&Service) -> Result<()>) {
        if let Err(error) = remove(self.service) {
            log::warn!("worker {}: {error:?}", self.options.name);
        }
    }

    pub(super) fn log(&self, workspace: &JobWorkspace, line: &str) {
        workspace.log(self.service.inner.clock.now(), line);
    }
}
