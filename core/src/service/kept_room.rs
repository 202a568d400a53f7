//! For which waiting jobs this process has kept room on its machine, and for how long: not for ever.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::database::Abilities;
use crate::job::JobId;

/// How many jobs are remembered. Of more, the one for which room was kept longest ago is forgotten.
const REMEMBERED: usize = 100;
/// A job for which no room was kept for this long, microseconds, begins anew when it is kept again: it was away in between, or first.
const PAUSE: i64 = 3600 * 1_000_000;

/// Jobs for which others were passed over that would have fitted. Times are microseconds by the clock of leases.
#[derive(Default)]
pub(super) struct KeptRoom(Mutex<HashMap<JobId, Kept>>);

/// When room was kept for a job, the first time and the last.
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
    /// Notes that room is kept for the job.
    pub(super) fn note(&self, job: JobId, now: i64) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    }

    /// The jobs for which room was kept for so long that there is none for them on this machine, whatever was reckoned.
    pub(super) fn given_up(&self) -> Vec<JobId> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.iter().filter(|(_, kept)| kept.is_given_up()).map(|(job, _)| *job).collect()
    }

    /// Whether room is kept for the job, or was; none if it is not known, false if it was given up.
    pub(super) fn is_kept(&self, job: JobId) -> Option<bool> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.get(&job).map(|kept| !kept.is_given_up())
    }

    /// Forgets a job that was taken: should it come back to the queue, it begins anew.
    pub(super) fn forget(&self, job: JobId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000;

    #[test]
    fn a_job_is_given_up_when_room_was_kept_for_it_for_half_a_day() {
        let (room, job) = (KeptRoom::default(), JobId::random());
        // It was the first for a while, then others were; that does not count.
        room.note(job, 0);
        for hour in 10..22 {
            room.note(job, hour * HOUR);
            assert_eq!((room.given_up(), room.is_kept(job)), (vec![], Some(true)), "{hour}");
        }
        room.note(job, 22 * HOUR);
        assert_eq!((room.given_up(), room.is_kept(job)), (vec![job], Some(false)));
        // And stays so until it is taken.
        room.note(job, 48 * HOUR);
        assert_eq!(room.given_up(), [job]);
        room.forget(job);
        assert_eq!((room.given_up(), room.is_kept(job)), (vec![], None));
    }

    #[test]
    fn no_more_jobs_are_remembered_than_may_be() {
        let room = KeptRoom::default();
        let jobs: Vec<JobId> = (0..=REMEMBERED).map(|_| JobId::random()).collect();
        for (now, job) in (0..).zip(&jobs) {
            room.note(*job, now);
        }
        assert_eq!(room.is_kept(jobs[0]), None);
        assert!(jobs[1..].iter().all(|job| room.is_kept(*job) == Some(true)));
    }
}
