//! When keys were last used, written now and then rather than with each request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::database::JobDatabase;
use crate::error::Result;
use crate::job::Timestamp;

/// Uses of keys that are not yet written to the database.
#[derive(Default)]
pub(super) struct LastUsed(Mutex<HashMap<String, Timestamp>>);

impl LastUsed {
    /// Notes a use.
    pub(super) fn note(&self, prefix: &str, now: Timestamp) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(prefix) {
            Some(time) => *time = now,
            None => drop(used.insert(prefix.to_owned(), now)),
        }
    }

    /// Writes what is not yet written.
    pub(super) fn flush(&self, database: &dyn JobDatabase) -> Result<()> {
        let used = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if used.is_empty() {
            return Ok(());
        }
        let used: Vec<_> = used.into_iter().collect();
        let written = database.touch_keys(&used);
        if written.is_err() {
            // Kept for the next try, but for keys that were used again meanwhile.
            let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for (prefix, time) in used {
                now.entry(prefix).or_insert(time);
            }
        }
        written
    }
}
