//! How many blocks of an upload wait for their list, and how many bytes they have, without a look at all of them for each that
//! comes: there may be tens of thousands.
//!
//! It is known from the last look at all, and from what has come through this process since. What another server takes shows at the
//! next look: what is known holds for some seconds only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::job::{BlobName, Timestamp};

/// So many seconds after a look what is known holds.
pub(super) const HOLDS_SECONDS: u64 = 20;
/// So many seconds after a look it may be the reason to refuse a block. Then it is looked again, as blocks may be gone.
const NEW_SECONDS: u64 = 2;
/// Of so many uploads it is kept.
const MOST: usize = 4096;

/// Blocks of one upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) blocks: usize,
    pub(super) bytes: u64,
}

impl Waiting {
    /// With one block more, of this size.
    pub(super) fn with(self, size: u64) -> Self {
        Self { blocks: self.blocks.saturating_add(1), bytes: self.bytes.saturating_add(size) }
    }

    /// Without the block of this size, if there is one.
    pub(super) fn without(self, size: Option<u64>) -> Self {
        let Some(size) = size else { return self };
        Self { blocks: self.blocks.saturating_sub(1), bytes: self.bytes.saturating_sub(size) }
    }
}

/// What is known of an upload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) waiting: Waiting,
    /// When all were looked at.
    looked_at: Timestamp,
}

impl Known {
    /// Whether the last look is so recent that another one would say the same.
    pub(super) fn is_new(&self, now: Timestamp) -> bool {
        self.holds_for(NEW_SECONDS, now)
    }

    /// A clock that was set back says nothing of when the look was.
    fn holds_for(&self, seconds: u64, now: Timestamp) -> bool {
        self.looked_at <= now && now < self.looked_at.plus_seconds(seconds)
    }
}

/// What is known of the uploads to which blocks come.
#[derive(Default)]
pub(super) struct BlockCounts(Mutex<HashMap<BlobName, Known>>);

impl BlockCounts {
    /// What is known of an upload, if that still holds.
    pub(super) fn of(&self, name: &BlobName, now: Timestamp) -> Option<Known> {
        self.all().get(name).copied().filter(|known| known.holds_for(HOLDS_SECONDS, now))
    }

    /// Notes what a look at all blocks of an upload has found.
    pub(super) fn note(&self, name: &BlobName, waiting: Waiting, now: Timestamp) {
        let mut all = self.all();
        if all.len() >= MOST {
            all.retain(|_, known| known.holds_for(HOLDS_SECONDS, now));
        }
        if all.len() >= MOST {
            // To look again costs time and nothing else.
            all.clear();
        }
        all.insert(*name, Known { waiting, looked_at: now });
    }

    /// Notes what waits now that another block has come, if anything was known before.
    pub(super) fn update(&self, name: &BlobName, waiting: Waiting) {
        if let Some(known) = self.all().get_mut(name) {
            known.waiting = waiting;
        }
    }

    /// Forgets what has become doubtful.
    pub(super) fn forget(&self, name: &BlobName) {
        self.all().remove(name);
    }

    /// A poisoned lock is fine: nothing that is done under it can leave the map half changed.
    fn all(&self) -> MutexGuard<'_, HashMap<BlobName, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::VideoExtension;

    #[test]
    fn what_is_known_holds_for_a_while() {
        let counts = BlockCounts::default();
        let (name, then) = (BlobName::random(VideoExtension::Mp4), Timestamp::from_micros(0));
        let waiting = Waiting { blocks: 2, bytes: 10 };
        // Nothing comes of a change of what is not known.
        counts.update(&name, waiting);
        assert!(counts.of(&name, then).is_none());
        counts.note(&name, waiting, then);
        counts.update(&name, waiting.with(5).without(Some(3)).without(None));
        let later = |seconds| counts.of(&name, then.plus_seconds(seconds));
        assert_eq!(later(HOLDS_SECONDS - 1).unwrap().waiting, Waiting { blocks: 2, bytes: 12 });
        assert!(later(HOLDS_SECONDS).is_none() && counts.of(&name, then.minus_seconds(1)).is_none());
        let known = later(0).unwrap();
        assert!(known.is_new(then.plus_seconds(1)) && !known.is_new(then.plus_seconds(NEW_SECONDS)));
        counts.forget(&name);
        assert!(later(0).is_none());
    }

    #[test]
    fn it_is_kept_of_so_many_uploads_and_no_more() {
        let counts = BlockCounts::default();
        let then = Timestamp::from_micros(0);
        for _ in 0..2 * MOST + 1 {
            counts.note(&BlobName::random(VideoExtension::Mp4), Waiting::default(), then);
        }
        assert_eq!(counts.all().len(), 1);
    }
}
