//! When the storage was last looked through for files without a row.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the whole storage is looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// The time of the last look, if there was one in this process.
#[derive(Default)]
pub(super) struct Sweeps(Mutex<Option<Instant>>);

impl Sweeps {
    /// Whether it is time to look again.
    pub(super) fn are_due(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|last| last.elapsed() >= SWEEP_EVERY)
    }

    /// Notes that the storage was looked through now.
    pub(super) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}
