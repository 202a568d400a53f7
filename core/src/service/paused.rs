//! Which workers wait, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::job::Timestamp;

/// A worker that waits because its machine cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PausedWorker {
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
    /// What is wrong, as [`crate::ErrorKind::slug`] names it.
    pub code: String,
    /// The same for the operator.
    #[serde(skip)]
    pub message: String,
}

/// The workers of this process that wait.
#[derive(Default)]
pub(super) struct Paused(Mutex<BTreeMap<String, PausedWorker>>);

impl Paused {
    /// Reads or changes them, by their names.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, PausedWorker>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
