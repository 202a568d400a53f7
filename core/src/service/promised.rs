//! Space on the disk that is promised.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is promised in this process and not written yet, bytes.
#[derive(Default)]
pub(super) struct Promised(Mutex<u64>);

impl Promised {
    /// A poisoned lock is fine: a number cannot be left half changed.
    pub(super) fn bytes(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
