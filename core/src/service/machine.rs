//! Whether this machine can work: what is checked before a job is taken, and what keeps a worker waiting.

use std::collections::HashSet;
use std::io::Write;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::paused::PausedWorker;
use super::{ReconstructionDefaults, Runner, Service};
use crate::database::Abilities;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{JobId, UserId};
use crate::memory::Memory;
use crate::stage::Stage;
use crate::storage::{BlobKey, Reached};
use crate::train::TARGET_BYTES_MAX;

/// The first pause of a worker whose machine cannot work; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest: so much later than the end of the trouble work goes on at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a machine that proved to be in order is taken to be so.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// Bytes of memory that a Gaussian takes while it is trained on a processor: 768 for its values and their two moments, in records of
/// 64 bytes; 16 for what is gathered of it; about 140 for how a view shows it, and the gradient by that; and 724 for the copy that
/// becomes a checkpoint, or as much for the two copies by which floaters are sought, which are never there together. An eighth more
/// is for the pairs of splats and tiles, and for density control.
const BYTES_PER_GAUSSIAN: u64 = 2 * 4 * 59 * 4;
/// Bytes of memory that a reconstruction needs beside its Gaussians and the pictures: features, the program itself.
const BYTES_BESIDE: u64 = 512 << 20;
/// For so long, seconds, a machine does nothing because of what one job has left on its full disk, where no other machine could go on with
/// the job: a day, in which there can be room made for it. Then it needs more than the disk has.
const FULL_FOR_SECONDS: u64 = 24 * 3600;
/// Pictures of a job where their number is not named, as on a processor. For a graphics device there are more, but then the
/// Gaussians are in its memory.
const USUAL_PICTURES: u64 = 150;

impl Service {
    /// The workers that wait because the machine cannot work, by name, and why: those of all processes of the folder.
    pub fn paused_workers(&self) -> Vec<PausedWorker> {
        let mut all = self.inner.paused.list();
        for word in self.inner.process.told_by_others() {
            // Somebody may be writing it at this moment.
            all.extend(serde_json::from_str::<Vec<PausedWorker>>(&word).unwrap_or_default());
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Lets other processes know which workers of this one wait.
    fn tell_paused(&self) {
        let told = serde_json::to_string(&self.inner.paused.list())
            .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
            .and_then(|word| self.inner.process.tell(&word));
        if let Err(error) = told {
            log::warn!("other processes do not learn which workers wait: {error:?}");
        }
    }
}

/// What a worker knows of its machine.
pub(super) struct Machine<'a> {
    service: &'a Service,
    runner: &'a dyn Runner,
    worker: &'a str,
    /// When it last proved to be in order.
    good: Option<Instant>,
    pause: Duration,
    /// When it was last asked for jobs that are too large for it, and which were told of.
    asked: Option<Instant>,
    told: HashSet<JobId>,
    /// When it was last asked for which job room is kept.
    asked_for_kept: Option<Instant>,
    filler: Option<Filler>,
}

/// A waiting job that has filled the disk: without its workspace the machine could work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filler {
    pub(super) job: JobId,
    pub(super) user: UserId,
    /// Microseconds by the clock of leases.
    since: i64,
}

/// Bytes of memory that a job needs beside its Gaussians: all training pictures are there together (`train::Dataset::targets`), at three
/// bytes a pixel, and one more for a mask (`raster::Target`). They are reckoned as films mostly are, 16:9, with masks; without, that is
/// enough for 4:3 as well: three quarters of a square at three bytes are nine sixteenths at four. Squares, and masked pictures of 4:3,
/// take a third more, which there is room for where the features were ([`BYTES_BESIDE`]): those are gone when the training begins.
///
/// The sides of panoramas take 2.7 times as much, with masks 3.6: they are square, and twice as many. That a job has panoramas is known
/// when its video is read, which is after the job was taken.
fn beside(defaults: &ReconstructionDefaults) -> u64 {
    let side = u64::from(defaults.max_resolution.min(defaults.training_max_resolution));
    let pictures = defaults.max_frames.map_or(USUAL_PICTURES, |frames| frames as u64);
    BYTES_BESIDE + pictures.saturating_mul(4 * (side * side * 9 / 16)).min(TARGET_BYTES_MAX)
}

/// Tries whether the storage is that of the rows, and takes something.
///
/// # Errors
/// What keeps it from that.
pub(super) fn try_storage(service: &Service) -> Result<()> {
    service.check_storage()?;
    let inner = &service.inner;
    // Of a job that there never was: what stays of it where somebody is killed here is swept. The name is the same each time, as a
    // storage that takes and deletes nothing would else be filled.
    let reached = Reached::Finished(Stage::Frames);
    // One worker at a time: another would delete what is about to be made whole.
    let tried = inner.tried.lock().unwrap_or_else(PoisonError::into_inner);
    let key = BlobKey::Checkpoint { job: *tried, reached, version: 0 };
    let mut blob = inner.storage.create(&key)?;
    blob.write_all(b"try").map_err(|e| Error::io("write", &inner.folder, e))?;
    // A disk has it now. To a store it is sent with the commit, which may be refused to whom may read.
    if inner.has_other_machines {
        blob.commit()?;
        inner.storage.delete(&key)?;
    }
    Ok(())
}

impl<'a> Machine<'a> {
    pub(super) fn new(service: &'a Service, runner: &'a dyn Runner, worker: &'a str) -> Self {
        let (good, pause) = (None, FIRST_PAUSE);
        let (asked, asked_for_kept, told, filler) = (None, None, HashSet::new(), None);
        Self { service, runner, worker, good, pause, asked, told, asked_for_kept, filler }
    }

    /// What can be done here now. What costs next to nothing is looked at each time, the rest once a minute.
    ///
    /// # Errors
    /// What keeps the machine from all work.
    pub(super) fn abilities(&mut self) -> Result<Abilities<'static>> {
        self.free_space()?;
        if self.good.is_none_or(|good| good.elapsed() >= GOOD_FOR) {
            self.prove()?;
        }
        self.filler = None;
        // A job that has just begun takes little of what it will need: so what running jobs will need is held against all
        // memory, and what others use against the free.
        let memory = Memory::of_this_machine();
        let beside = beside(&self.service.inner.options.reconstruction);
        let max_gaussians = memory.free.saturating_sub(beside) / BYTES_PER_GAUSSIAN;
        Ok(Abilities {
            masks: self.runner.can_make_masks(),
            max_gaussians: max_gaussians.try_into().unwrap_or(u32::MAX),
            all_gaussians: memory.all / BYTES_PER_GAUSSIAN,
            beside: (beside / BYTES_PER_GAUSSIAN).try_into().unwrap_or(u32::MAX),
            given_up: &[],
        })
    }

    /// Notes for which job this machine keeps room, if that is why a worker has found nothing to do. Asks once a minute at most.
    pub(super) fn note_kept_room(&mut self, abilities: &Abilities<'_>) {
        if self.asked_for_kept.is_some_and(|asked| asked.elapsed() < GOOD_FOR) {
            return;
        }
        self.asked_for_kept = Some(Instant::now());
        let inner = &self.service.inner;
        match inner.database.kept_room(abilities) {
            Ok(None) => {}
            Ok(Some(job)) => {
                if let Err(error) = inner.kept_room.note(job, inner.clock.lease_micros()) {
                    log::warn!(
                        "worker {}: it is not noted that room is kept for {job}: {error:?}",
                        self.worker
                    );
                }
            }
            // What is wrong with the database is told elsewhere.
            Err(error) => log::debug!("worker {}: {error:?}", self.worker),
        }
    }

    /// Tells the log of a waiting job that all memory of this machine is too little for, or that waits in vain for what others have of
    /// it, once: it would wait without a word. Asks once a minute at most.
    pub(super) fn tell_of_too_large(&mut self, abilities: &Abilities<'_>) {
        if self.asked.is_some_and(|asked| asked.elapsed() < GOOD_FOR) {
            return;
        }
        self.asked = Some(Instant::now());
        match self.too_large(abilities) {
            Ok(None) => {}
            Ok(Some(told)) => log::warn!("worker {}: {told}", self.worker),
            // What is wrong with the database is told elsewhere.
            Err(error) => log::debug!("worker {}: {error:?}", self.worker),
        }
    }

    /// What is to be told of the largest waiting job, if it is too large for this machine, as it seems, and was not told of.
    fn too_large(&mut self, abilities: &Abilities<'_>) -> Result<Option<String>> {
        let inner = &self.service.inner;
        let Some((job, gaussians, submitted)) = inner.database.largest_waiting()? else { return Ok(None) };
        let needed = u64::from(gaussians) + u64::from(abilities.beside);
        let is_too_large = needed > abilities.all_gaussians;
        let longest = Abilities::KEEP_ROOM_AFTER_SECONDS + Abilities::KEEP_ROOM_FOR_SECONDS;
        let too_long_ago = inner.clock.now().minus_seconds(longest);
        let is_kept = inner.kept_room.is_kept(job);
        let waits_in_vain =
            submitted <= too_long_ago && gaussians > abilities.max_gaussians && is_kept != Some(true);
        if !(is_too_large || waits_in_vain) || !self.told.insert(job) {
            return Ok(None);
        }
        let gigabytes = |gaussians: u64| gaussians as f64 * BYTES_PER_GAUSSIAN as f64 / 1e9;
        let here = match is_too_large {
            true => format!("this one has {:.1} GB", gigabytes(abilities.all_gaussians)),
            false => {
                let free = u64::from(abilities.max_gaussians) + u64::from(abilities.beside);
                let hours = Abilities::KEEP_ROOM_FOR_SECONDS / 3600;
                let kept = match is_kept {
                    Some(_) => format!(", and room was kept for it for {hours} hours in vain"),
                    None => String::new(),
                };
                format!("here {:.1} GB are free{kept}", gigabytes(free))
            }
        };
        Ok(Some(format!(
            "the job {job} asks for {gaussians} Gaussians and waits for a machine with {:.1} GB of memory; {here} \
             (limits.max_gaussians bounds what may be asked for)",
            gigabytes(needed)
        )))
    }

    /// Tries out what every job needs: the disk, the device, the programs.
    ///
    /// # Errors
    /// The first that fails.
    pub(super) fn prove(&mut self) -> Result<()> {
        self.good = None;
        self.free_space()?;
        let inner = &self.service.inner;
        inner.workspaces.try_disk()?;
        try_storage(self.service)?;
        self.runner.check(&inner.options.reconstruction)?;
        self.good = Some(Instant::now());
        Ok(())
    }

    fn free_space(&self) -> Result<()> {
        let inner = &self.service.inner;
        let least = inner.options.min_free_bytes;
        // Where the work is done and where its results go, which may be two disks.
        for free in [inner.workspaces.free_space()?, inner.storage.free_space()?].into_iter().flatten() {
            if free < least {
                return Err(Error::new(
                    ErrorKind::DiskFull,
                    format!(
                        "the disk of {} has {free} bytes left, {least} must stay free",
                        inner.folder.display()
                    ),
                )
                .hint("free some space; work goes on by itself"));
            }
        }
        Ok(())
    }

    /// Notes that a job waits whose workspace fills the disk.
    pub(super) fn note_filler(&mut self, job: JobId, user: UserId) {
        let since = self.service.inner.clock.lease_micros();
        self.filler = Some(Filler { job, user, since });
    }

    /// Forgets it: another job may be the one.
    pub(super) fn forget_filler(&mut self) {
        self.filler = None;
    }

    /// The job that has filled the disk, and whether the machine has done nothing for long enough because of it.
    pub(super) fn filler(&self) -> Option<(Filler, bool)> {
        let filler = self.filler?;
        let full_for = self.service.inner.clock.lease_micros().saturating_sub(filler.since);
        Some((filler, full_for >= FULL_FOR_SECONDS.cast_signed() * 1_000_000))
    }

    /// Notes that `error` keeps the machine from work. Returns how long to wait before the next look.
    pub(super) fn pause(&mut self, error: &Error) -> Duration {
        self.good = None;
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        let paused = PausedWorker {
            name: self.worker.to_owned(),
            since: self.service.inner.clock.now(),
            code: error.kind().slug().to_owned(),
            message: error.to_string(),
        };
        self.service.inner.paused.with(|workers| {
            let known = workers.get(self.worker);
            // Once is enough for the log, until something else is wrong.
            if known.is_none_or(|known| known.message != paused.message) {
                log::error!("worker {} waits, the machine cannot work: {error:?}", self.worker);
            }
            let since = known.map_or(paused.since, |known| known.since);
            workers.insert(self.worker.to_owned(), PausedWorker { since, ..paused });
        });
        self.service.tell_paused();
        pause
    }

    /// Notes that the machine works again.
    pub(super) fn resume(&mut self) {
        self.pause = FIRST_PAUSE;
        if self.service.inner.paused.with(|workers| workers.remove(self.worker)).is_some() {
            log::info!("worker {} goes on", self.worker);
            self.service.tell_paused();
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if self.service.inner.paused.with(|workers| workers.remove(self.worker)).is_some() {
            self.service.tell_paused();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::{SmallScenes, World};
    use super::*;
    use crate::job::{BlobName, JobRequest, VideoExtension};

    #[test]
    fn pictures_are_reckoned_by_the_options_and_up_to_what_training_takes() {
        let usual = ReconstructionDefaults::default();
        assert_eq!(beside(&usual), (512 << 20) + 150 * 4 * 1600 * 900);
        let few =
            ReconstructionDefaults { max_frames: Some(20), training_max_resolution: 480, ..usual.clone() };
        assert_eq!(beside(&few), (512 << 20) + 20 * 4 * 480 * 270);
        let many = ReconstructionDefaults {
            max_frames: Some(5000),
            max_resolution: 8192,
            training_max_resolution: 16_384,
            ..usual
        };
        assert_eq!(beside(&many), (512 << 20) + (8 << 30));
    }

    #[test]
    fn a_usual_job_is_taken_by_a_machine_of_four_gigabytes() {
        let usual = JobRequest::new(BlobName::random(VideoExtension::Mp4));
        let needed = beside(&ReconstructionDefaults::default())
            + u64::from(usual.training_max_num_gaussians) * BYTES_PER_GAUSSIAN;
        // What its system leaves of them.
        assert!(needed < 3_400_000_000, "{needed}");
    }

    #[test]
    fn a_job_for_which_this_machine_is_too_small_is_told_of_once() {
        let w = World::new();
        let mut machine = Machine::new(&w.service, &SmallScenes, "w");
        let small = Abilities { all_gaussians: 1_500_000, beside: 600_000, ..Abilities::ALL };
        assert_eq!(machine.too_large(&small).unwrap(), None);
        let job = w.submit(w.anna);
        let enough = Abilities { all_gaussians: 1_600_000, ..small };
        assert_eq!(machine.too_large(&enough).unwrap(), None);
        let told = machine.too_large(&small).unwrap().unwrap();
        assert!(told.contains(&job.to_string()) && told.contains("with 3.0 GB"), "{told}");
        assert_eq!(machine.too_large(&small).unwrap(), None);
    }

    #[test]
    fn a_job_for_which_no_room_is_kept_any_more_is_told_of_once() {
        let w = World::new();
        let mut machine = Machine::new(&w.service, &SmallScenes, "w");
        w.submit(w.anna);
        let busy =
            Abilities { max_gaussians: 900_000, all_gaussians: 5_000_000, beside: 600_000, ..Abilities::ALL };
        w.clock.advance(13 * 3600 - 1);
        assert_eq!(machine.too_large(&busy).unwrap(), None);
        w.clock.advance(1);
        let free = Abilities { max_gaussians: 1_000_000, ..busy };
        assert_eq!(machine.too_large(&free).unwrap(), None, "others come first");
        let told = machine.too_large(&busy).unwrap().unwrap();
        assert!(told.contains("with 3.0 GB") && told.contains("2.8 GB are free"), "{told}");
        assert_eq!(machine.too_large(&busy).unwrap(), None);
    }

    #[test]
    fn room_is_kept_for_half_a_day_and_then_others_have_it_however_long_the_queue_was() {
        let w = World::new();
        let inner = &w.service.inner;
        let has = Abilities { all_gaussians: 5_000_000, beside: 500_000, ..Abilities::ALL };
        let submit = |gaussians: u32| {
            let request = JobRequest::new(w.upload(w.anna));
            let request = JobRequest { training_max_num_gaussians: gaussians, ..request };
            w.submit_with(request, w.anna, None).unwrap().body.job_id
        };
        // As a worker does that has looked more than a minute ago.
        let look = || {
            let given_up = inner.kept_room.given_up();
            let abilities = Abilities { given_up: &given_up, ..has };
            let claim = inner.database.claim("process", "w", 30, &abilities).unwrap();
            if claim.is_none() {
                Machine::new(&w.service, &SmallScenes, "w").note_kept_room(&abilities);
            }
            claim.map(|claim| claim.lease.job)
        };
        let running = submit(1_000_000);
        assert_eq!(look(), Some(running));
        let (large, small) = (submit(4_000_000), submit(1_000_000));
        // All that time other jobs came before it.
        w.clock.advance(48 * 3600);
        let mut machine = Machine::new(&w.service, &SmallScenes, "w");
        for _ in 0..24 {
            assert_eq!(look(), None);
            assert_eq!(machine.too_large(&Abilities { max_gaussians: 3_000_000, ..has }).unwrap(), None);
            w.clock.advance(1800);
        }
        assert_eq!(look(), None);
        assert_eq!(look(), Some(small));
        let told = machine.too_large(&Abilities { max_gaussians: 3_000_000, ..has }).unwrap().unwrap();
        assert!(told.contains(&large.to_string()) && told.contains("kept for it for 12 hours"), "{told}");
    }
}
