//! How long a worker waits for a job, or for its machine.

use std::time::{Duration, Instant};

use super::super::worker_options::WorkerEnd;

/// What a worker has waited since it last had something to do. Times are given by who asks.
#[derive(Debug)]
pub(super) struct Patience {
    /// How long it waits at most, if it does not wait for ever.
    limit: Option<Duration>,
    /// When the waiting began, later by the jobs that it had meanwhile.
    since: Instant,
    /// Whether a job was given back since one was last done.
    is_in_trouble: bool,
}

impl Patience {
    /// Of a worker that begins to wait.
    pub(super) fn new(end: WorkerEnd, now: Instant) -> Self {
        Self { limit: end.patience(), since: now, is_in_trouble: false }
    }

    /// Whether it has waited long enough.
    pub(super) fn is_out(&self, now: Instant) -> bool {
        self.limit.is_some_and(|limit| now.saturating_duration_since(self.since) >= limit)
    }

    /// A job was done.
    pub(super) fn has_worked(&mut self, now: Instant) {
        (self.since, self.is_in_trouble) = (now, false);
    }

    /// A job that was at work since `begun` was given back, because the machine could not go on. It ends the waiting for a job, and
    /// that for the machine begins; a machine that gives one job back after the other is waited for no longer than one that takes
    /// none.
    pub(super) fn has_given_back(&mut self, begun: Instant, now: Instant) {
        match self.is_in_trouble {
            true => self.since += now.saturating_duration_since(begun),
            false => self.since = now,
        }
        self.is_in_trouble = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_job_ends_the_waiting_for_one_also_if_the_machine_fails_under_it() {
        let begin = Instant::now();
        let at = |seconds: u32| begin + seconds * SECOND;
        let mut patience = Patience::new(WorkerEnd::Idle(60 * SECOND), begin);
        assert!(!patience.is_out(at(59)) && patience.is_out(at(60)));
        // After 55 seconds without one it had a job for 45.
        patience.has_given_back(at(55), at(100));
        assert!(!patience.is_out(at(159)) && patience.is_out(at(160)));
        // The next ones, after 30 seconds each, are given back too: what they took is no waiting, and the rest is.
        patience.has_given_back(at(130), at(140));
        patience.has_given_back(at(165), at(170));
        assert!(!patience.is_out(at(174)) && patience.is_out(at(175)));
        // One that was done ends it, and the next trouble begins anew.
        patience.has_worked(at(200));
        assert!(!patience.is_out(at(259)));
        patience.has_given_back(at(250), at(300));
        assert!(!patience.is_out(at(359)) && patience.is_out(at(360)));
    }

    #[test]
    fn who_has_no_limit_waits_for_ever() {
        let begin = Instant::now();
        for end in [WorkerEnd::Never, WorkerEnd::OneJob] {
            assert!(!Patience::new(end, begin).is_out(begin + 1_000_000 * SECOND));
        }
    }
}
