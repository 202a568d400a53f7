//! What a job has reached goes to the storage beside the work, so that another machine can go on with it when this one is lost.
//!
//! A finished stage is stored as soon as the next one has begun; the state of the training every few minutes, counted from
//! when the last one was made, and once more when the worker is asked to end or its disk is full. The work never waits for it,
//! and no job fails by it: what cannot be stored now is tried again with the next.
//!
//! Who has lost the lease of the job without knowing it (its machine stood still, its network was gone) may still store what it
//! has, late, and that does no harm. It stores under a name that nobody else uses, so it replaces nothing. What it stores was
//! made of the same video by the same version: the one who takes it over compares its key with its own and could have made
//! it itself. And it removes only what it had listed before it learnt that the lease was still its own, so nothing that a later
//! attempt stored. What comes after the end of the job has no row any more and is swept.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::Service;
use super::archive::ArchiveWriter;
use super::secrets::random;
use super::taking_over::{STAGES, TakenOver};
use crate::control::CancelToken;
use crate::database::{Lease, LeaseState};
use crate::error::{Error, ErrorKind, Result};
use crate::job::JobId;
use crate::pipeline::{FinishedStage, TrainingState};
use crate::stage::Stage;
use crate::storage::{BlobKey, Reached, StagedBlob};

/// How often it is looked whether there is something to store.
const LOOK: Duration = Duration::from_millis(100);
/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// How many states of a training are kept: should the newest be damaged, there is another.
const STATES: usize = 2;
/// So many bytes are given to the storage at once, and looked between whether to go on.
const PIECE: usize = 1 << 20;

/// Where a worker's job is: what the thread that stores needs to know of it.
pub(super) struct HandingOver<'a> {
    pub(super) service: &'a Service,
    pub(super) lease: &'a Lease,
    /// The folder of the reconstruction.
    pub(super) folder: PathBuf,
    /// The stage that is being worked on; those before it are finished.
    pub(super) at_work_on: &'a (dyn Fn() -> Option<Stage> + Sync),
    /// Writes a line into the log of the job.
    pub(super) log: &'a (dyn Fn(&str) + Sync),
    pub(super) orders: Orders,
}

/// What the other threads of a worker want of the one that stores.
#[derive(Default)]
pub(super) struct Orders {
    order: Mutex<Order>,
    changed: Condvar,
    /// Raised when nothing more is to be stored, not even what is on its way.
    stopped: CancelToken,
}

#[derive(Default)]
enum Order {
    /// Nothing yet: it is not known what is stored already.
    #[default]
    Wait,
    /// This is stored.
    Begin(TakenOver),
    GoOn,
    /// The work has stopped, and another machine may go on with it: store how far it was, then end. With what is stored, if that was
    /// not heard of before.
    Last(Option<TakenOver>),
}

impl Orders {
    /// The work begins where `taken` ends.
    pub(super) fn begin(&self, taken: TakenOver) {
        self.give(Order::Begin(taken));
    }

    /// The work has stopped, and another machine may go on with it.
    pub(super) fn store_the_last(&self) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match std::mem::take(&mut *order) {
            Order::Begin(taken) | Order::Last(Some(taken)) => Some(taken),
            Order::Wait | Order::GoOn | Order::Last(None) => None,
        };
        *order = Order::Last(taken);
        self.changed.notify_all();
    }

    /// Nothing is to be stored any more.
    pub(super) fn stop(&self) {
        self.stopped.cancel();
        self.changed.notify_all();
    }

    fn give(&self, order: Order) {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = order;
        self.changed.notify_all();
    }

    /// The order now, after a moment or sooner if it changes.
    fn next(&self) -> Order {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(order, LOOK, |order| {
            matches!(order, Order::Wait | Order::GoOn) && !self.stopped.is_cancelled()
        });
        let (mut order, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &mut *order {
            Order::Wait => Order::Wait,
            Order::Last(taken) => Order::Last(taken.take()),
            Order::Begin(_) | Order::GoOn => std::mem::replace(&mut order, Order::GoOn),
        }
    }
}

/// What is stored of the job.
struct Stored {
    stages: BTreeSet<Stage>,
    /// States of the training, the newest last.
    states: Vec<BlobKey>,
    /// Steps of the newest.
    step: u32,
    /// When that was made, or training began here.
    since: Option<Instant>,
    /// After a failure: not before.
    not_before: Option<Instant>,
}

impl HandingOver<'_> {
    /// Stores what there is until it is told to end. For a thread of its own.
    pub(super) fn run(&self) {
        let mut stored: Option<Stored> = None;
        while !self.orders.stopped.is_cancelled() {
            let order = self.orders.next();
            let is_last = match order {
                Order::Wait => continue,
                Order::Begin(taken) => {
                    stored = Some(Stored::of(taken));
                    continue;
                }
                Order::GoOn => false,
                Order::Last(taken) => {
                    if let Some(taken) = taken {
                        stored = Some(Stored::of(taken));
                    }
                    true
                }
            };
            // Without it the work had not begun, and there is nothing new.
            let Some(stored) = &mut stored else { return };
            if is_last || stored.not_before.is_none_or(|moment| Instant::now() >= moment) {
                self.store_all(stored, is_last);
            }
            if is_last {
                return;
            }
        }
    }

    fn store_all(&self, stored: &mut Stored, is_last: bool) {
        let Some(now) = (self.at_work_on)() else { return };
        // Before the stages are stored, which may take a minute: the training goes on meanwhile.
        let since = (now == Stage::Train).then(|| *stored.since.get_or_insert_with(Instant::now));
        for stage in STAGES.into_iter().filter(|stage| *stage < now) {
            if !stored.stages.contains(&stage) {
                let what = self.store_stage(stage);
                if self.note(stored, &format!("the stage {stage}"), what) {
                    stored.stages.insert(stage);
                }
            }
        }
        let Some(since) = since else { return };
        let every = Duration::from_secs(self.service.inner.options.checkpoint_seconds);
        if is_last || since.elapsed() >= every {
            let what = self.store_state(stored, since);
            self.note(stored, "the state of the training", what);
        }
    }

    /// Writes down what was stored, or why it was not; says no if it has to be tried again.
    fn note(&self, stored: &mut Stored, what: &str, done: Result<Option<String>>) -> bool {
        match done {
            Ok(None) => true,
            Ok(Some(detail)) => {
                (self.log)(&format!("stored for other machines: {what} ({detail})"));
                true
            }
            Err(_) if self.orders.stopped.is_cancelled() => false,
            Err(error) => {
                let job = self.lease.job;
                log::warn!("job {job}: {what} could not be stored, it is tried again later: {error:?}");
                (self.log)(&format!(
                    "{what} could not be stored for other machines: {}",
                    error.kind().slug()
                ));
                stored.not_before = Some(Instant::now() + AGAIN);
                false
            }
        }
    }

    fn store_stage(&self, stage: Stage) -> Result<Option<String>> {
        let Some(finished) = FinishedStage::of(&self.folder, stage)? else { return Ok(None) };
        let size = finished.files.iter().map(|(_, size)| size).sum();
        let key = self.key(Reached::Finished(stage))?;
        if !self.may_store(size)? {
            return Ok(None);
        }
        self.store(&key, &finished.manifest, |archive| {
            for (number, (path, size)) in finished.files.iter().enumerate() {
                let name = finished.name(number);
                archive.append(&name, *size, std::fs::File::open(self.folder.join(path))?)?;
            }
            Ok(())
        })?;
        Ok(Some(format!("{size} bytes")))
    }

    /// Stores the newest state of the training, if it is newer than the one that is stored; that was made at `since`.
    fn store_state(&self, stored: &mut Stored, since: Instant) -> Result<Option<String>> {
        // The file is open now: what the training writes next takes its name, and leaves it as it is.
        let Some(state) = TrainingState::of(&self.folder)?.filter(|state| state.step > stored.step) else {
            return Ok(None);
        };
        let (step, size) = (state.step, state.size);
        let made = moment_of(state.file.metadata().and_then(|file| file.modified()).ok(), since);
        let key = self.key(Reached::Training { step })?;
        if !self.may_store(size)? {
            return Ok(None);
        }
        self.store(&key, state.poses.as_bytes(), |archive| {
            archive.append(Path::new("state"), size, state.file.take(size))
        })?;
        stored.step = step;
        // Not from now on: what was trained since then, before and during this upload, would be lost too.
        stored.since = Some(made);
        stored.states.push(key);
        stored.states = stored.states.split_off(stored.states.len().saturating_sub(STATES));
        self.remove_others(&stored.states)?;
        Ok(Some(format!("after {step} steps, {size} bytes")))
    }

    fn key(&self, reached: Reached) -> Result<BlobKey> {
        Ok(BlobKey::Checkpoint { job: self.lease.job, reached, version: u64::from_le_bytes(random()?) })
    }

    /// Whether the job is still this worker's, and there is space for so much of it.
    fn may_store(&self, size: u64) -> Result<bool> {
        let inner = &self.service.inner;
        if inner.database.lease_state(self.lease)? != LeaseState::Held {
            return Ok(false);
        }
        match inner.storage.free_space()? {
            Some(free) if free < inner.options.min_free_bytes.saturating_add(size) => {
                Err(Error::new(ErrorKind::DiskFull, format!("the storage has {free} bytes left")))
            }
            _ => Ok(true),
        }
    }

    fn store(
        &self,
        key: &BlobKey,
        about: &[u8],
        fill: impl FnOnce(&mut ArchiveWriter<BufWriter<Stoppable<'_>>>) -> io::Result<()>,
    ) -> Result<()> {
        let failed = |e: io::Error| Error::io("store", Path::new(&key.to_string()), e);
        let blob = self.service.inner.storage.create(key)?;
        let to = BufWriter::with_capacity(PIECE, Stoppable { blob, stopped: &self.orders.stopped });
        let mut archive = ArchiveWriter::begin(to, about).map_err(failed)?;
        fill(&mut archive).map_err(failed)?;
        let buffer = archive.finish().map_err(failed)?;
        let to = buffer.into_inner().map_err(|e| failed(e.into_error()))?;
        // What is committed after the job has ended would lie there for an hour.
        to.check().map_err(failed)?;
        to.blob.commit().map(drop)
    }

    /// Removes states of the training other than `kept`, if the job is still this worker's.
    fn remove_others(&self, kept: &[BlobKey]) -> Result<()> {
        let inner = &self.service.inner;
        // In this order: what comes after the list, when this worker may have lost the job, is not touched.
        let listed = inner.storage.checkpoints(self.lease.job)?;
        if inner.database.lease_state(self.lease)? != LeaseState::Held {
            return Ok(());
        }
        for (key, _) in listed {
            let is_state = matches!(key, BlobKey::Checkpoint { reached: Reached::Training { .. }, .. });
            if is_state && !kept.contains(&key) {
                inner.storage.delete(&key)?;
            }
        }
        Ok(())
    }
}

impl Service {
    /// Whether a job could be gone on with elsewhere from where it is in `folder`: all stages that are finished there are stored, and a
    /// state of the training that is as far.
    pub(super) fn is_stored(&self, job: JobId, folder: &Path) -> Result<bool> {
        let reached = |(key, _): (BlobKey, u64)| match key {
            BlobKey::Checkpoint { reached, .. } => Some(reached),
            _ => None,
        };
        let stored: Vec<Reached> =
            self.inner.storage.checkpoints(job)?.into_iter().filter_map(reached).collect();
        for stage in STAGES {
            if FinishedStage::of(folder, stage)?.is_some() && !stored.contains(&Reached::Finished(stage)) {
                return Ok(false);
            }
        }
        let Some(state) = TrainingState::of(folder)? else { return Ok(true) };
        Ok(stored.iter().any(|reached| match reached {
            Reached::Finished(stage) => *stage == Stage::Train,
            Reached::Training { step } => *step >= state.step,
        }))
    }
}

impl Stored {
    fn of(taken: TakenOver) -> Self {
        let (states, step) = match taken.state {
            Some((key, step)) => (vec![key], step),
            None => (Vec::new(), 0),
        };
        Self { stages: taken.stages.into_iter().collect(), states, step, since: None, not_before: None }
    }
}

/// When a file was written whose time is `written`: now if that is not known or lies ahead, and not before `earliest`, as
/// the clock of the system may have been set meanwhile.
fn moment_of(written: Option<SystemTime>, earliest: Instant) -> Instant {
    let age = written.and_then(|time| time.elapsed().ok()).unwrap_or_default();
    Instant::now().checked_sub(age).map_or(earliest, |moment| moment.max(earliest))
}

/// A blob whose writing ends when that is asked for.
struct Stoppable<'a> {
    blob: Box<dyn StagedBlob>,
    stopped: &'a CancelToken,
}

impl Stoppable<'_> {
    fn check(&self) -> io::Result<()> {
        match self.stopped.is_cancelled() {
            // Not `Interrupted`, after which a copy goes on.
            true => Err(io::Error::other("it is not needed any more")),
            false => Ok(()),
        }
    }
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.blob.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.blob.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ServiceOptions;
    use crate::train::TrainOptions;

    /// What docs/many-machines.md says.
    #[test]
    fn with_the_defaults_a_lost_machine_costs_at_most_five_minutes_of_training() {
        // Seconds from the moment at which a state is copied until its file is on the disk of the machine, and seen there.
        const WRITING: u64 = 15;
        // Seconds that it takes to the storage.
        const UPLOAD: u64 = 60;
        let every = ServiceOptions::default().checkpoint_seconds;
        let own = u64::from(TrainOptions::default().checkpoint_interval_seconds);
        // When one is due, there is a newer one than the last that was stored.
        assert!(own + WRITING <= every, "{own}, {every}");
        // Just before the next one has arrived, the stored one is the oldest.
        assert!(WRITING + every + UPLOAD <= 300, "{every}");
    }

    #[test]
    fn a_state_counts_from_when_it_was_made_and_not_from_when_it_was_stored() {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let written = |seconds| SystemTime::now().checked_sub(Duration::from_secs(seconds));
        let age = |moment: Instant| now.saturating_duration_since(moment).as_secs_f64().round();
        assert_eq!(age(moment_of(written(60), ago(300))), 60.0);
        // The clock was set ahead or back.
        assert_eq!(moment_of(written(3600), ago(300)), ago(300));
        assert_eq!(age(moment_of(SystemTime::now().checked_add(Duration::from_secs(60)), ago(300))), 0.0);
        assert_eq!(age(moment_of(None, ago(300))), 0.0);
    }

    #[test]
    fn the_last_order_takes_along_what_was_not_heard_of_before() {
        let orders = Orders::default();
        orders.begin(TakenOver::default());
        orders.store_the_last();
        assert!(matches!(orders.next(), Order::Last(Some(_))));
        assert!(matches!(orders.next(), Order::Last(None)));
    }
}
