//! The idempotency keys of submissions that are being worked on (rule 47 of docs/rest.md). A client that sends a
//! request again before the first one was answered is told to wait, whether or not the first will succeed.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::job::UserId;

/// The keys in use in this process. If two processes take the same request at the same time, the database makes one job
/// of it, and both give the same answer.
#[derive(Default)]
pub(super) struct InProgress(Mutex<HashSet<(UserId, String)>>);

/// A key in use, until it is dropped.
pub(super) struct Held<'a> {
    keys: &'a InProgress,
    key: (UserId, String),
}

impl InProgress {
    /// Takes the key.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] while somebody has it.
    pub(super) fn hold(&self, user: UserId, key: &str) -> Result<Held<'_>> {
        let key = (user, key.to_owned());
        // A poisoned lock is fine: nothing that is done under it can leave the set half changed.
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "The first request with this Idempotency-Key is still being worked on",
            )
            .hint("send it again in a few seconds: it is answered as the first was"));
        }
        Ok(Held { keys: self, key })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
