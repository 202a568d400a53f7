//! Wakes whoever waits in this process when something in the database may have changed.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A counter of changes that can be waited for.
#[derive(Default)]
pub(super) struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    /// Take this before looking at the database, then wait with it: no change in between is missed.
    pub(super) fn mark(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something changed.
    pub(super) fn notify(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until something has changed since `mark`, at most `limit`.
    pub(super) fn wait_since(&self, mark: u64, limit: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // Either end of the wait is fine: the caller looks again.
        let _ = self.changed.wait_timeout_while(count, limit, |count| *count == mark);
    }
}
