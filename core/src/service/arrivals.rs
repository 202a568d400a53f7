//! Blocks of one upload arrive one after the other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::job::BlobName;

/// Makes the check of an upload's blocks and the arrival of another one a single step in this process.
#[derive(Default)]
pub(super) struct Arrivals([Mutex<()>; 16]);

impl Arrivals {
    /// Waits until nobody else is at the blocks of this upload.
    pub(super) fn lock(&self, name: &BlobName) -> MutexGuard<'_, ()> {
        let number = usize::from(name.id.as_bytes()[0]) % self.0.len();
        self.0[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
