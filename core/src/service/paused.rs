//! Which workers wait, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::job::Timestamp;

/// A worker that waits because its machine cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedWorker {
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
    /// What is wrong, as [`crate::ErrorKind::slug`] names it.
    pub code: String,
    /// The same for the operator; empty for a worker of another process, whose log has it.
    #[serde(skip)]
    pub message: String,
}

/// The workers of this process that wait.
#[derive(Default)]
pub(super) struct Paused(Mutex<BTreeMap<String, PausedWorker>>);

impl Paused {
    /// All of them, by name.
    pub(super) fn list(&self) -> Vec<PausedWorker> {
        self.with(|workers| workers.values().cloned().collect())
    }

    /// Reads or changes them, by their names.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, PausedWorker>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
