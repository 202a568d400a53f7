//! When keys were last used, written now and then rather than with each request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::database::JobDatabase;
use crate::error::Result;
use crate::job::Timestamp;

/// How old a noted use may be before it is written, seconds. The interface promises a minute.
const FLUSH_AFTER: u64 = 30;

/// Uses of keys that are not yet written to the database.
#[derive(Default)]
pub(super) struct LastUsed(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    used: HashMap<String, Timestamp>,
    /// The earliest use that is not written.
    since: Option<Timestamp>,
}

impl LastUsed {
    /// Notes a use; says whether it is time to write.
    pub(super) fn note(&self, prefix: &str, now: Timestamp) -> bool {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pending.used.get_mut(prefix) {
            Some(time) => *time = now,
            None => drop(pending.used.insert(prefix.to_owned(), now)),
        }
        let since = *pending.since.get_or_insert(now);
        // A clock that was set back must not put it off.
        now >= since.plus_seconds(FLUSH_AFTER) || now < since
    }

    /// Writes what is not yet written.
    pub(super) fn flush(&self, database: &dyn JobDatabase) -> Result<()> {
        let pending = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if pending.used.is_empty() {
            return Ok(());
        }
        let used: Vec<_> = pending.used.into_iter().collect();
        let written = database.touch_keys(&used);
        if written.is_err() {
            // Kept for the next try, but for keys that were used again meanwhile.
            let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for (prefix, time) in used {
                now.used.entry(prefix).or_insert(time);
            }
            now.since = now.since.min(pending.since).or(pending.since);
        }
        written
    }
}
