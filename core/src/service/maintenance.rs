//! What has to be done from time to time: take jobs back from dead workers, finish deletions, collect what nobody needs.
//!
//! Everything here can be cut off at any point and done again, by any process and by several at once. A file is removed
//! only if its name is one of ours, and either its row says that nobody needs it or there is no row for it any more.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Service;
use super::job_changes::{JobEvent, tell_of};
use super::needed::{ORPHAN_AGE, is_needed};
use super::workspace;
use crate::database::{DeletedJob, FileOwner, Reclaimed, Upload};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ArtifactKind, BlobName, JobId, VideoExtension};
use crate::storage::{BlobKey, BlobKind};

/// What maintenance did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MaintenanceReport {
    /// Jobs that a dead worker held and that wait again.
    pub requeued_jobs: u64,
    /// Jobs that failed because their workers died too often.
    pub failed_jobs: u64,
    /// Jobs whose files and rows were removed.
    pub deleted_jobs: u64,
    /// Uploads that were removed.
    pub deleted_uploads: u64,
    /// Files without a row that were removed.
    pub orphans: u64,
}

/// Counts for an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Rows.
    #[serde(flatten)]
    pub rows: crate::database::Statistics,
    /// Bytes that can still be stored, if that is known.
    pub free_bytes: Option<u64>,
}

/// After so many failures in a row of what is far away it is asked whether they are of the way there, or of single files.
pub(super) const AWAY: u32 = 2;
/// So long at most an opening takes for what earlier processes left: whoever opens waits for it.
const OPENING: Duration = Duration::from_secs(5);

/// What database and storage answer when something fails again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    All,
    /// An account of a store, say, that may not delete.
    AllButDeletions,
    None,
}

/// Things that are done one after the other, and do not keep each other from it when one fails.
struct EachByItself<'a> {
    service: &'a Service,
    done: u64,
    failed: Option<Error>,
    in_a_row: u32,
    /// What is at the other end of a network does not answer: each would take as long as is waited for that, so the rest is left for
    /// the next time.
    is_away: bool,
    /// It answers, and deletes nothing.
    deletes_nothing: bool,
    /// Somebody waits for the end, until then at most: what is left then is left for the next time, and after [`AWAY`] failures nothing
    /// more is asked.
    until: Option<Instant>,
}

impl EachByItself<'_> {
    /// Does one, which says whether there was anything to do.
    fn is_done(&mut self, what: &str, work: impl FnOnce() -> Result<bool>) {
        if self.is_away || self.until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        match work() {
            Ok(done) => {
                self.in_a_row = 0;
                self.done += u64::from(done);
            }
            Err(error) => {
                log::warn!("cannot {what} now, it is tried again later: {error:?}");
                let may_be_away = self.service.inner.has_other_machines && error.kind() == ErrorKind::Io;
                self.in_a_row = if may_be_away { self.in_a_row + 1 } else { 0 };
                if self.in_a_row >= AWAY {
                    self.in_a_row = 0;
                    let answers = if self.until.is_some() { Answers::None } else { self.service.answers() };
                    self.is_away = answers != Answers::All;
                    self.deletes_nothing = answers == Answers::AllButDeletions;
                }
                self.failed.get_or_insert(error);
            }
        }
    }

    /// How many were done, or the first failure.
    fn result(self) -> Result<u64> {
        self.failed.map_or(Ok(self.done), Err)
    }
}

impl Service {
    /// Does what is to be done; call it every minute. One process is enough, more do no harm. What fails keeps nothing else from
    /// being done.
    ///
    /// # Errors
    /// The first failure of the disk or the database; what could not be done is tried again by the next call.
    pub fn maintain(&self) -> Result<MaintenanceReport> {
        self.inner.host.check()?;
        let flushed = self.flush_last_used();
        // Those that were deleted go with all others that were.
        let reclaimed = self.take_back().and_then(|reclaimed| self.tidy_after(&reclaimed));
        let removed = self.remove_deleted();
        self.inner.rates.forget_idle(self.inner.clock.lease_micros());
        self.inner.tries.forget_idle(self.inner.clock.lease_micros());
        let forgotten = self.inner.database.forget_expired_accesses().and(self.forget_deliveries());
        let is_due = self.inner.sweeps.are_due(ORPHAN_AGE);
        let missing = if is_due { self.look_for_waiting_videos() } else { Ok(0) };
        let swept = match is_due {
            true => {
                let swept = self.sweep(ORPHAN_AGE);
                // Where the rows are not those of the files, nothing changes within a minute, and to look costs a list of all of them.
                if swept.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict) {
                    self.inner.sweeps.note();
                }
                swept
            }
            false => self.tidy_folder(ORPHAN_AGE),
        };
        // Last, as it waits for a storage that is away.
        self.compare_again();
        flushed?;
        forgotten?;
        missing?;
        let (deleted_jobs, deleted_uploads) = removed?;
        Ok(MaintenanceReport { deleted_jobs, deleted_uploads, orphans: swept?, ..reclaimed? })
    }

    /// Counts for an operator.
    ///
    /// # Errors
    /// The database's.
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics {
            rows: self.inner.database.statistics()?,
            free_bytes: self.inner.storage.free_space()?,
        })
    }

    /// Checks the whole database for damage; the answer lists what is wrong, and is empty if nothing is. Takes long.
    ///
    /// # Errors
    /// The database's.
    pub fn integrity_check(&self) -> Result<Vec<String>> {
        self.inner.database.integrity_check()
    }

    /// Takes up what earlier processes left. What cannot be done now is done by [`Service::maintain`]: a folder opens also on a
    /// full disk or with a file that cannot be removed, since space can only be freed through it; and soon, since users wait for it.
    pub(super) fn recover(&self) {
        self.recover_until(Instant::now() + OPENING);
    }

    pub(super) fn recover_until(&self, until: Instant) {
        let hurried = EachByItself { until: Some(until), ..self.each_by_itself() };
        let reclaimed = self.take_back().and_then(|reclaimed| self.tidy_after(&reclaimed));
        for failed in [reclaimed.err(), self.remove_all_deleted(hurried).err()].into_iter().flatten() {
            log::error!("what an earlier process left: {failed:?}");
        }
    }

    /// Takes jobs back from workers that are dead, and removes those that were deleted meanwhile: whoever does that from time to time
    /// has seen them running, and may come late or not at all. What cannot be removed now is left to it.
    pub(super) fn reclaim(&self) -> Result<MaintenanceReport> {
        let reclaimed = self.take_back()?;
        let mut each = self.each_by_itself();
        for job in &reclaimed.deleted {
            each.is_done("delete a job", || self.remove_deleted_job(*job).map(|()| true));
        }
        self.tidy_after(&reclaimed)
    }

    /// Takes jobs back from workers that are dead.
    fn take_back(&self) -> Result<Reclaimed> {
        let inner = &self.inner;
        let alive = |owner: &str| match inner.has_other_machines {
            true => !inner.process.has_died(owner),
            false => inner.process.is_alive(owner),
        };
        let reclaimed = inner.database.reclaim(&alive, &inner.options.patience())?;
        if reclaimed.queued.len() + reclaimed.failed.len() > 0 {
            inner.changes.notify();
        }
        reclaimed.queued.iter().for_each(|job| tell_of(*job, JobEvent::GivenBack { why: "worker_gone" }));
        // What a job fails with whose workers died over it again and again.
        reclaimed.failed.iter().for_each(|job| tell_of(*job, JobEvent::Failed { code: "crashed" }));
        Ok(reclaimed)
    }

    /// Removes what jobs have left that failed with their workers.
    fn tidy_after(&self, reclaimed: &Reclaimed) -> Result<MaintenanceReport> {
        for job in &reclaimed.failed {
            self.remove_leftovers(*job)?;
        }
        let (queued, failed) = (reclaimed.queued.len() as u64, reclaimed.failed.len() as u64);
        Ok(MaintenanceReport { requeued_jobs: queued, failed_jobs: failed, ..Default::default() })
    }

    /// Removes the files, and then the rows, of deleted jobs that no worker is at, and of uploads that nobody wants.
    /// Returns how many of each.
    pub(super) fn remove_deleted(&self) -> Result<(u64, u64)> {
        self.remove_all_deleted(self.each_by_itself())
    }

    fn remove_all_deleted(&self, mut each: EachByItself<'_>) -> Result<(u64, u64)> {
        for deleted in self.inner.database.deleted_jobs()? {
            each.is_done("delete a job", || self.remove_job(&deleted));
        }
        let jobs = std::mem::take(&mut each.done);
        for upload in self.unwanted_uploads()? {
            each.is_done("delete an upload", || self.remove_upload(&upload.name).map(|()| true));
        }
        let uploads = each.result()?;
        Ok((jobs, uploads))
    }

    /// The same for one job, and for its upload: who deletes a job does not wait for the files of others.
    pub(super) fn remove_deleted_job(&self, job: JobId) -> Result<()> {
        let deleted = self.inner.database.deleted_jobs()?.into_iter().find(|deleted| deleted.job == job);
        let Some(deleted) = deleted else { return Ok(()) };
        if self.remove_job(&deleted)?
            && self.unwanted_uploads()?.iter().any(|upload| upload.name == deleted.blob_name)
        {
            self.remove_upload(&deleted.blob_name)?;
        }
        Ok(())
    }

    /// Uploads that nobody wants: those of deleted jobs, and those whose time is over.
    fn unwanted_uploads(&self) -> Result<Vec<Upload>> {
        self.inner.database.expire_uploads(self.limits().upload_retention_hours * 3600)
    }

    pub(super) fn remove_upload(&self, name: &BlobName) -> Result<()> {
        // Also what is left of a transfer whose row could not be written.
        for key in self.inner.storage.list_upload(name)? {
            self.inner.storage.delete(&key)?;
        }
        self.inner.database.forget_upload(name)
    }

    fn each_by_itself(&self) -> EachByItself<'_> {
        EachByItself {
            service: self,
            done: 0,
            failed: None,
            in_a_row: 0,
            is_away: false,
            deletes_nothing: false,
            until: None,
        }
    }

    /// Whether storage and database answer a question to which the answer is no, and the storage deletes what is not there: one that
    /// answers no deletion would be waited for with each file. The first that fails is enough, as each may take that long.
    fn answers(&self) -> Answers {
        let name = BlobName::random(VideoExtension::Mp4);
        let key = BlobKey::Incoming { name };
        if self.inner.storage.metadata(&key).is_err() || self.inner.database.upload(&name).is_err() {
            return Answers::None;
        }
        match self.inner.storage.delete(&key) {
            Ok(()) => Answers::All,
            Err(_) => Answers::AllButDeletions,
        }
    }

    /// Removes the files, and then the row, of a deleted job; says whether that could be.
    fn remove_job(&self, deleted: &DeletedJob) -> Result<bool> {
        // One that was never taken up has none.
        let remove_artifacts = || match deleted.attempt {
            0 => Ok(()),
            _ => self.remove_artifacts(deleted.job, |_| true),
        };
        // What was published goes at once: an address that was given out leads nowhere from now on.
        remove_artifacts()?;
        // A worker that was fenced off may still be about to notice.
        if !self.inner.workspaces.remove(deleted.job)? {
            return Ok(false);
        }
        // What that worker stored meanwhile.
        remove_artifacts()?;
        self.remove_checkpoints(deleted.job)?;
        self.inner.database.forget_job(deleted.job).map(|()| true)
    }

    /// Removes what attempts at the job have stored, those that `is_of` says yes to. It is listed, not tried one by one: there may be a
    /// thousand attempts, of which most have left nothing. What comes later is swept, once no row names it.
    pub(super) fn remove_artifacts(&self, job: JobId, is_of: impl Fn(u32) -> bool) -> Result<()> {
        for key in self.inner.storage.artifacts(job)? {
            if matches!(key, BlobKey::Artifact { attempt, .. } if is_of(attempt)) {
                self.inner.storage.delete(&key)?;
            }
        }
        Ok(())
    }

    /// Removes what was stored so that another machine could go on with the job. A folder of one machine never has such.
    pub(super) fn remove_checkpoints(&self, job: JobId) -> Result<()> {
        if self.inner.has_other_machines {
            for (key, _) in self.inner.storage.checkpoints(job)? {
                self.inner.storage.delete(&key)?;
            }
        }
        Ok(())
    }

    /// Removes the workspace of a job that has ended or is gone, if nobody is in it, and what was stored to go on with it. A log that
    /// its worker could not store any more is stored before.
    pub(super) fn remove_leftovers(&self, job: JobId) -> Result<bool> {
        match self.inner.database.file_owner(job)? {
            FileOwner::Unfinished => Ok(false),
            FileOwner::Nobody | FileOwner::Ended(_) => {
                self.remove_checkpoints(job)?;
                self.inner.workspaces.remove_after(job, |log| self.keep_log(job, log))
            }
        }
    }

    /// Stores the log of a job that failed because its workers died, and so could not do it themselves: it is all that tells why.
    fn keep_log(&self, job: JobId, log: &Path) -> Result<()> {
        let inner = &self.inner;
        let Some(attempt) = inner.database.attempt_without_log(job)? else { return Ok(()) };
        // Of many machines several may have one; that of the last attempt is the job's.
        if inner.has_other_machines && !workspace::is_log_of(log, attempt)? {
            return Ok(());
        }
        let size =
            inner.storage.put_file(&BlobKey::Artifact { job, attempt, kind: ArtifactKind::Log }, log)?.size;
        // That of a job which is deleted in this moment is an orphan, which is swept.
        inner.database.add_log(job, attempt, size).map(drop)
    }

    /// Looks through the whole storage for what no row names and nobody has touched for `age`; says how much was removed.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] where files are stored and there is no user, or the storage is another service's, [`ErrorKind::Io`] where
    /// none is there that rows name: then nothing is removed.
    pub(super) fn sweep(&self, age: Duration) -> Result<u64> {
        let inner = &self.inner;
        self.refuse_files_of_others()?;
        let mut each = EachByItself { done: inner.storage.sweep_staged(age)?, ..self.each_by_itself() };
        for kind in BlobKind::ALL {
            for key in inner.storage.list(kind, age)? {
                each.is_done("remove a file", || match is_needed(inner.database.as_ref(), &key)? {
                    true => Ok(false),
                    false => inner.storage.delete(&key).map(|()| true),
                });
            }
            if each.is_away {
                // It was looked through as far as that is of use: where nothing can be deleted now, nothing can in a minute.
                if each.deletes_nothing {
                    inner.sweeps.note();
                }
                return each.result();
            }
        }
        // What cannot be removed is no reason to list all files every minute.
        inner.sweeps.note();
        self.sweep_machine(age, &mut each)?;
        each.result()
    }

    /// Files are stored for users. Where there are files and nobody whose they could be, the rows are not theirs: a database that was
    /// lost and made anew, or the address of another one. Where the storage has another id than the rows, or none of the files that
    /// they name, it is the storage that is another. To believe such rows would be the end of every file.
    fn refuse_files_of_others(&self) -> Result<()> {
        let inner = &self.inner;
        if !inner.database.users()?.is_empty() {
            return self.check_storage();
        }
        for kind in BlobKind::ALL {
            if let Some(file) = inner.storage.list(kind, Duration::ZERO)?.first() {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("files are stored ({file} is one) and the database knows no user: nothing is removed"),
                )
                .hint("see whether the database is the one to which these files belong, or bring it back from a backup"));
            }
        }
        Ok(())
    }

    /// Looks once an hour through this machine's own folder, where many machines share the rest: a machine that only works has no
    /// server that does it. What cannot be removed now keeps no worker from its work.
    pub(super) fn tidy_machine(&self) {
        if !self.inner.has_other_machines {
            return;
        }
        if let Err(error) = self.tidy_folder(ORPHAN_AGE) {
            log::warn!("what is left in {}: {error:?}", self.inner.folder.display());
        }
    }

    /// Looks through this machine's own folder for what nobody has touched for `age`, if that was not done within the hour; says how
    /// much was removed.
    pub(super) fn tidy_folder(&self, age: Duration) -> Result<u64> {
        let inner = &self.inner;
        if !inner.machine_sweeps.are_due(age) {
            return Ok(0);
        }
        let mut each = self.each_by_itself();
        // Rows without a user are not those of what lies here.
        if !inner.database.users()?.is_empty() {
            // What was never complete is nobody's, and needs no second thought as files without a row do, for which a process may not
            // live long enough. In a storage that many machines share it is left to their servers: workers come and go, and to look
            // there costs lists over the network.
            if !inner.has_other_machines {
                each.done += inner.storage.sweep_staged(age)?;
            }
            self.sweep_machine(age, &mut each)?;
        }
        inner.machine_sweeps.note();
        each.result()
    }

    /// Removes from this machine's own folder what killed processes left: workspaces of jobs that have ended, here or elsewhere,
    /// and locks.
    fn sweep_machine(&self, age: Duration, each: &mut EachByItself<'_>) -> Result<()> {
        let inner = &self.inner;
        for job in inner.workspaces.list()? {
            each.is_done("remove a workspace", || self.remove_leftovers(job));
        }
        inner.workspaces.sweep(age)?;
        // Where a process has no lock, it may be one of another machine, whose jobs are waited for until their leases end.
        inner.process.sweep(age, || match inner.has_other_machines {
            true => self.reclaim().map(drop),
            false => Ok(()),
        })
    }
}
