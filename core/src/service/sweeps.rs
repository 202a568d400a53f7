//! When the storage was last looked through for files without a row.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::failpoints;

/// How often the whole storage is looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// So much further than the time that passed may the clock have gone, as it does when it is set to a time server's.
const DRIFT: Duration = Duration::from_secs(60);

/// The time of the last look, or of that which stands for it; none if the first one is due.
pub(super) struct Sweeps(Mutex<State>);

struct State {
    last: Option<Instant>,
    /// The clock that ages of files are told by, beside one that nobody sets, at one moment.
    clocks: (SystemTime, Instant),
    /// The clock was set forward, so files look older than they are: nothing is swept until this.
    not_before: Option<Instant>,
}

impl Default for Sweeps {
    fn default() -> Self {
        let clocks = (SystemTime::now(), Instant::now());
        Self(Mutex::new(State { last: None, clocks, not_before: None }))
    }
}

impl Sweeps {
    /// The first look comes when others would come next: whoever has opened stored files beside the wrong rows has time to see it.
    pub(super) fn later() -> Self {
        let sweeps = Self::default();
        // Tests do not wait that long.
        if failpoints::pass("service.sweep_later").is_ok() {
            sweeps.note();
        }
        sweeps
    }

    /// Lets the next look be due.
    #[cfg(test)]
    pub(super) fn look_again(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last = None;
    }

    /// Whether it is time to look again for files that nobody has touched for `age`, and their ages can be believed.
    pub(super) fn are_due(&self, age: Duration) -> bool {
        self.are_due_at(age, (SystemTime::now(), Instant::now()))
    }

    fn are_due_at(&self, age: Duration, (clock, now): (SystemTime, Instant)) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(state.clocks.1);
        // A clock that was set back makes files younger: that does no harm.
        let told = clock.duration_since(state.clocks.0).unwrap_or_default();
        if told > passed + DRIFT {
            state.not_before = now.checked_add(age);
        }
        state.clocks = (clock, now);
        state.not_before.is_none_or(|moment| now >= moment)
            && state.last.is_none_or(|last| now.saturating_duration_since(last) >= SWEEP_EVERY)
    }

    /// Notes that the storage was looked through now.
    pub(super) fn note(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_swept_until_ages_can_be_believed_again() {
        let sweeps = Sweeps::default();
        let (clock, now) = sweeps.0.lock().unwrap().clocks;
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        assert!(sweeps.are_due_at(hour, (clock, now)));
        // Time passes, the clock is set a little and back.
        assert!(sweeps.are_due_at(hour, (clock + 2 * minute, now + minute)));
        assert!(sweeps.are_due_at(hour, (clock - hour, now + minute)));
        // What was written a second ago looks two hours old now.
        assert!(!sweeps.are_due_at(hour, (clock + hour, now + 2 * minute)));
        assert!(!sweeps.are_due_at(hour, (clock + 2 * hour - minute, now + hour)));
        assert!(sweeps.are_due_at(hour, (clock + 2 * hour, now + hour + 2 * minute)));
    }

    #[test]
    fn what_was_just_opened_is_looked_at_later() {
        let sweeps = Sweeps::later();
        let (clock, now) = sweeps.0.lock().unwrap().clocks;
        let almost = SWEEP_EVERY - DRIFT;
        assert!(!sweeps.are_due_at(SWEEP_EVERY, (clock, now)));
        assert!(!sweeps.are_due_at(SWEEP_EVERY, (clock + almost, now + almost)));
        assert!(sweeps.are_due_at(SWEEP_EVERY, (clock + 2 * SWEEP_EVERY, now + 2 * SWEEP_EVERY)));
    }

    #[test]
    fn it_is_looked_once_an_hour() {
        let sweeps = Sweeps::default();
        assert!(sweeps.are_due(SWEEP_EVERY));
        sweeps.note();
        assert!(!sweeps.are_due(SWEEP_EVERY));
        let (clock, now) = sweeps.0.lock().unwrap().clocks;
        assert!(sweeps.are_due_at(SWEEP_EVERY, (clock + 2 * SWEEP_EVERY, now + 2 * SWEEP_EVERY)));
    }
}
