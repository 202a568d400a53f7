//! Who adds to the end of which upload: one at a time in this process.
//!
//! Whoever comes later is believed, because a sender that was cut off asks again before the server has noticed that its first
//! transfer is dead: that one is asked to end, and what it has brought is stored before the other begins. Of several that come
//! meanwhile only the latest waits, for the same reason, and because each that waits holds a thread: however often somebody asks
//! for one upload, that takes no more than one.

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
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Default)]
struct Turns {
    at_work: HashMap<BlobName, Turn>,
    /// How many have ever asked: the number of the next one.
    asked: u64,
}

struct Turn {
    superseded: CancelToken,
    /// The number of the latest that wants to follow, or of the one at work if nobody does.
    latest: u64,
}

/// The one that may add to an upload, until this is dropped.
pub(super) struct Sender {
    senders: Arc<Senders>,
    name: BlobName,
    /// Raised when another one wants to go on with the upload.
    pub(super) superseded: CancelToken,
}

impl Senders {
    /// Asks whoever is at the upload to end, and takes its place; nothing if it does not end in time, or if somebody else comes
    /// before it has.
    pub(super) fn take(self: &Arc<Self>, name: BlobName) -> Option<Sender> {
        self.take_within(name, PATIENCE)
    }

    fn take_within(self: &Arc<Self>, name: BlobName, patience: Duration) -> Option<Sender> {
        let end = Instant::now() + patience;
        // A poisoned lock is fine: nothing that is done under it can leave the map half changed.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let number = turns.asked;
        turns.asked += 1;
        while let Some(earlier) = turns.at_work.get_mut(&name) {
            if earlier.latest > number {
                return None;
            }
            if earlier.latest < number {
                earlier.latest = number;
                earlier.superseded.cancel();
                // Whoever has waited until now gives way.
                self.changed.notify_all();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            turns = self.changed.wait_timeout(turns, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let superseded = CancelToken::new();
        turns.at_work.insert(name, Turn { superseded: superseded.clone(), latest: number });
        drop(turns);
        Some(Sender { senders: Arc::clone(self), name, superseded })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.senders.turns.lock().unwrap_or_else(PoisonError::into_inner).at_work.remove(&self.name);
        self.senders.changed.notify_all();
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
        assert!(senders.turns.lock().unwrap().at_work.is_empty());
    }

    #[test]
    fn only_the_latest_waits() {
        let senders = Arc::new(Senders::default());
        let name = BlobName::random(VideoExtension::Mp4);
        let first = senders.take(name).unwrap();
        std::thread::scope(|scope| {
            let began = Instant::now();
            let asked = |count| {
                while senders.turns.lock().unwrap().asked < count {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            let waiting: Vec<_> = (2..40)
                .map(|number| {
                    let waits = scope.spawn(|| senders.take_within(name, Duration::from_secs(60)));
                    asked(number);
                    waits
                })
                .collect();
            // All but the last have gone, though the first is still at work.
            while waiting.iter().filter(|waits| !waits.is_finished()).count() > 1 {
                assert!(began.elapsed() < Duration::from_secs(30), "they wait");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(first.superseded.is_cancelled());
            drop(first);
            let taken: Vec<bool> = waiting.into_iter().map(|waits| waits.join().unwrap().is_some()).collect();
            assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
            assert_eq!(taken.last(), Some(&true));
        });
    }
}
