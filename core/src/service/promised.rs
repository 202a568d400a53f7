//! Space on the disk that is promised.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::job::{BlobName, UserId};

/// What a promise is for: an upload, and whose it is. All that is promised for one upload counts together.
pub(super) type Transfer = (UserId, BlobName);

/// What is promised in this process and not written yet.
#[derive(Default)]
pub(super) struct Promised(Mutex<Promises>);

/// Bytes, by what they are for.
#[derive(Default)]
pub(super) struct Promises(HashMap<Transfer, u64>);

impl Promised {
    /// A poisoned lock is fine: a number cannot be left half changed.
    pub(super) fn all(&self) -> MutexGuard<'_, Promises> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promises {
    /// Bytes that are promised to whom `counts` says.
    pub(super) fn bytes(&self, counts: impl Fn(&Transfer) -> bool) -> u64 {
        let counted = self.0.iter().filter(|(transfer, _)| counts(transfer));
        counted.fold(0, |all: u64, (_, bytes)| all.saturating_add(*bytes))
    }

    pub(super) fn add(&mut self, transfer: Transfer, bytes: u64) {
        if bytes > 0 {
            let promised = self.0.entry(transfer).or_default();
            *promised = promised.saturating_add(bytes);
        }
    }

    pub(super) fn take_back(&mut self, transfer: &Transfer, bytes: u64) {
        if let Some(promised) = self.0.get_mut(transfer) {
            *promised = promised.saturating_sub(bytes);
            if *promised == 0 {
                self.0.remove(transfer);
            }
        }
    }
}
