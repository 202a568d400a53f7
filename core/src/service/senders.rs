//! Who adds to the end of which upload: one at a time in this process.
//!
//! Whoever comes later is believed, because a sender that was cut off asks again before the server has noticed that its first
//! transfer is dead: that one is asked to end, and what it has brought is stored before the other begins.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::control::CancelToken;
use crate::job::BlobName;

/// How long the later one waits for the earlier one to store what it has.
const PATIENCE: Duration = Duration::from_secs(10);

/// The transfers that are at work.
#[derive(Default)]
pub(super) struct Senders {
    at_work: Mutex<HashMap<BlobName, CancelToken>>,
    one_ended: Condvar,
}

/// The one that may add to an upload, until this is dropped.
pub(super) struct Sender {
    senders: Arc<Senders>,
    name: BlobName,
    /// Raised when another one wants to go on with the upload.
    pub(super) superseded: CancelToken,
}

impl Senders {
    /// Asks whoever is at the upload to end, and takes its place; nothing if it does not end in time.
    pub(super) fn take(self: &Arc<Self>, name: BlobName) -> Option<Sender> {
        self.take_within(name, PATIENCE)
    }

    fn take_within(self: &Arc<Self>, name: BlobName, patience: Duration) -> Option<Sender> {
        let end = Instant::now() + patience;
        // A poisoned lock is fine: nothing that is done under it can leave the map half changed.
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(earlier) = at_work.get(&name) {
            earlier.cancel();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            at_work = self.one_ended.wait_timeout(at_work, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let superseded = CancelToken::new();
        at_work.insert(name, superseded.clone());
        drop(at_work);
        Some(Sender { senders: Arc::clone(self), name, superseded })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.senders.at_work.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        self.senders.one_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::VideoExtension;

    #[test]
    fn the_later_one_waits_for_the_earlier_one_which_is_asked_to_end() {
        let senders = Arc::new(Senders::default());
        let (name, other) = (BlobName::random(VideoExtension::Mp4), BlobName::random(VideoExtension::Mp4));
        let first = senders.take(name).unwrap();
        assert!(senders.take(other).is_some());
        assert!(!first.superseded.is_cancelled());
        assert!(senders.take_within(name, Duration::ZERO).is_none());
        assert!(first.superseded.is_cancelled());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| senders.take(name).unwrap());
            drop(first);
            assert!(!second.join().unwrap().superseded.is_cancelled());
        });
        assert!(senders.at_work.lock().unwrap().is_empty());
    }
}
