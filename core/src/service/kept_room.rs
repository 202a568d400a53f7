//! For which waiting jobs this machine has kept room, and for how long: not for ever. That is noted in a file of the folder, so that all
//! its processes count the same hours.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout;
use crate::database::Abilities;
use crate::error::{Error, Result};
use crate::file_lock::FileLock;
use crate::files::{read_at_most, rename};
use crate::job::JobId;

/// How many jobs are remembered. Of more, the one for which room was kept longest ago is forgotten.
const REMEMBERED: usize = 100;
/// A job for which no room was kept for this long, microseconds, begins anew when it is kept again: it was away in between, or first.
const PAUSE: i64 = 3600 * 1_000_000;
/// So often at most it is noted that room is still kept, microseconds: each worker of a machine asks once a minute, and each note waits for the disk.
const AGAIN: i64 = 60 * 1_000_000;
/// More bytes than the file ever has.
const MOST_BYTES: u64 = 1 << 20;

/// Jobs for which others were passed over that would have fitted.
pub(super) struct KeptRoom {
    path: PathBuf,
    boot: String,
}

/// What the file holds.
#[derive(Default, Serialize, Deserialize)]
struct Noted {
    /// The run of the machine by whose clock of leases the times are.
    boot: String,
    jobs: HashMap<JobId, Kept>,
}

/// When room was kept for a job, the first time and the last: microseconds by the clock of leases.
#[derive(Serialize, Deserialize)]
struct Kept {
    since: i64,
    last: i64,
}

impl Kept {
    /// Whether that was long enough.
    fn is_given_up(&self) -> bool {
        self.last.saturating_sub(self.since) >= Abilities::KEEP_ROOM_FOR_SECONDS.cast_signed() * 1_000_000
    }
}

impl KeptRoom {
    /// What was noted in the folder of a service, in this run of the machine.
    pub(super) fn of(folder: &Path, boot: &str) -> Self {
        Self { path: folder.join(layout::KEPT_ROOM), boot: boot.to_owned() }
    }

    /// What is noted. A file of an earlier run of the machine says nothing, nor does one that cannot be read.
    fn noted(&self) -> HashMap<JobId, Kept> {
        let bytes = read_at_most(&self.path, MOST_BYTES).ok().flatten().unwrap_or_default();
        let noted: Noted = serde_json::from_slice(&bytes).unwrap_or_default();
        if noted.boot == self.boot { noted.jobs } else { HashMap::new() }
    }

    /// Changes what is noted, while no other process does.
    fn change(&self, change: impl FnOnce(&mut HashMap<JobId, Kept>)) -> Result<()> {
        // Not the file itself: each change replaces it.
        let lock = self.path.with_extension("lock");
        let _lock = FileLock::wait(FileLock::open(&lock)?).map_err(|e| Error::io("lock", &lock, e))?;
        let mut jobs = self.noted();
        change(&mut jobs);
        let noted = Noted { boot: self.boot.clone(), jobs };
        let text = serde_json::to_vec(&noted).map_err(|e| Error::io("write", &self.path, e.into()))?;
        // Always the same name, as only who has the lock writes: what a killed process left is written over.
        let part = self.path.with_extension("part");
        let mut file = File::create(&part).map_err(|e| Error::io("create", &part, e))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(|e| Error::io("write", &part, e))?;
        rename(&part, &self.path)
    }

    /// Notes that room is kept for the job, at `now` by the clock of leases.
    ///
    /// # Errors
    /// The system's; then nothing is noted.
    pub(super) fn note(&self, job: JobId, now: i64) -> Result<()> {
        let is_new = |kept: &Kept| now.saturating_sub(kept.last) < AGAIN && now >= kept.last;
        if self.noted().get(&job).is_some_and(is_new) {
            return Ok(());
        }
        self.change(|jobs| {
            let kept = jobs.entry(job).or_insert(Kept { since: now, last: now });
            if !kept.is_given_up() && now.saturating_sub(kept.last) > PAUSE {
                kept.since = now;
            }
            kept.last = now;
            if jobs.len() > REMEMBERED
                && let Some(oldest) = jobs.iter().min_by_key(|(_, kept)| kept.last).map(|(job, _)| *job)
            {
                jobs.remove(&oldest);
            }
        })
    }

    /// The jobs for which room was kept for so long that there is none for them on this machine, whatever was reckoned.
    pub(super) fn given_up(&self) -> Vec<JobId> {
        self.noted().iter().filter(|(_, kept)| kept.is_given_up()).map(|(job, _)| *job).collect()
    }

    /// Whether room is kept for the job, or was; none if it is not known, false if it was given up.
    pub(super) fn is_kept(&self, job: JobId) -> Option<bool> {
        self.noted().get(&job).map(|kept| !kept.is_given_up())
    }

    /// Forgets a job that was taken: should it come back to the queue, it begins anew.
    ///
    /// # Errors
    /// The system's; then it is still known.
    pub(super) fn forget(&self, job: JobId) -> Result<()> {
        if !self.noted().contains_key(&job) {
            return Ok(());
        }
        self.change(|jobs| {
            jobs.remove(&job);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000;

    #[test]
    fn a_job_is_given_up_when_room_was_kept_for_it_for_half_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let (room, job) = (KeptRoom::of(folder.path(), "boot"), JobId::random());
        // It was the first for a while, then others were; that does not count.
        room.note(job, 0).unwrap();
        for hour in 10..22 {
            room.note(job, hour * HOUR).unwrap();
            assert_eq!((room.given_up(), room.is_kept(job)), (vec![], Some(true)), "{hour}");
        }
        room.note(job, 22 * HOUR).unwrap();
        assert_eq!((room.given_up(), room.is_kept(job)), (vec![job], Some(false)));
        // And stays so until it is taken.
        room.note(job, 48 * HOUR).unwrap();
        assert_eq!(room.given_up(), [job]);
        room.forget(job).unwrap();
        assert_eq!((room.given_up(), room.is_kept(job)), (vec![], None));
    }

    #[test]
    fn processes_of_one_machine_count_the_same_hours() {
        let folder = tempfile::tempdir().unwrap();
        let processes = [(); 2].map(|()| KeptRoom::of(folder.path(), "boot"));
        let [first, second] = &processes;
        let job = JobId::random();
        for hour in 0..=12 {
            processes[hour % 2].note(job, hour as i64 * HOUR).unwrap();
        }
        assert_eq!((first.given_up(), second.given_up()), (vec![job], vec![job]));
        second.forget(job).unwrap();
        assert_eq!(first.is_kept(job), None);
        // After the machine was started anew its clock is another one.
        first.note(job, 0).unwrap();
        assert_eq!(KeptRoom::of(folder.path(), "later").is_kept(job), None);
    }

    #[test]
    fn no_more_jobs_are_remembered_than_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let room = KeptRoom::of(folder.path(), "boot");
        let jobs: Vec<JobId> = (0..=REMEMBERED).map(|_| JobId::random()).collect();
        let (last, before) = jobs.split_last().unwrap();
        room.change(|all| {
            all.extend((0..).zip(before).map(|(now, job)| (*job, Kept { since: now, last: now })));
        })
        .unwrap();
        room.note(*last, 1000).unwrap();
        assert_eq!(room.is_kept(jobs[0]), None);
        assert!(jobs[1..].iter().all(|job| room.is_kept(*job) == Some(true)));
    }
}
