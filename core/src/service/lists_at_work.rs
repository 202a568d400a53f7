//! Lists of blocks that are being put together: of each upload one at a time in this process.
//!
//! A long video takes longer to put together than many a proxy waits for an answer (a minute, as a rule), and a client that is cut
//! off sends its list again. So the same list waits for the work that goes on, and the work goes on for a while after the last
//! client has left: else it would begin anew each time, and never end.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::control::CancelToken;
use crate::database::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, Timestamp};

/// So many seconds the work goes on for a client that has left: many times the minute that a proxy waits, as it may wait at another
/// server next, which does not see who waits here.
pub(super) const COMES_BACK_SECONDS: u64 = 600;
/// How often whoever waits looks whether its own client is still there.
const LOOK: Duration = Duration::from_millis(100);

/// The uploads whose blocks are being put together.
#[derive(Default)]
pub(super) struct ListsAtWork {
    at_work: Mutex<HashMap<BlobName, Work>>,
    ended: Condvar,
}

struct Work {
    /// Which list it is; none for blocks that no client has listed.
    list: Option<[u8; 32]>,
    /// Once the client that began it has left: when somebody was last there for whom it goes on.
    wanted_at: Option<Timestamp>,
}

/// The one list of an upload that is at work, until this is dropped.
pub(super) struct ListAtWork<'a> {
    lists: &'a ListsAtWork,
    name: BlobName,
}

impl ListsAtWork {
    /// Takes the upload for a list of the `client`, a token that is raised when it leaves. While the same list is at work, this waits
    /// until that has ended.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] while another list is at work, [`ErrorKind::Cancelled`] if the client has left.
    pub(super) fn hold(
        &self,
        name: BlobName,
        list: Option<[u8; 32]>,
        client: &CancelToken,
        clock: &dyn Clock,
    ) -> Result<ListAtWork<'_>> {
        let mut at_work = self.at_work();
        while let Some(work) = at_work.get_mut(&name) {
            if list.is_none() || work.list != list {
                return Err(Error::new(ErrorKind::Conflict, "The blocks are being put together")
                    .hint("send the list again in a few seconds: it is answered as the first was"));
            }
            if client.is_cancelled() {
                return Err(left());
            }
            if let Some(wanted_at) = &mut work.wanted_at {
                *wanted_at = clock.now();
            }
            at_work = self.ended.wait_timeout(at_work, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        if client.is_cancelled() {
            return Err(left());
        }
        at_work.insert(name, Work { list, wanted_at: None });
        drop(at_work);
        Ok(ListAtWork { lists: self, name })
    }

    /// A poisoned lock is fine: nothing that is done under it can leave the map half changed.
    fn at_work(&self) -> MutexGuard<'_, HashMap<BlobName, Work>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListAtWork<'_> {
    /// Whether somebody waits for the work, or may come back for it. `client` is the one that began it.
    pub(super) fn is_wanted(&self, client: &CancelToken, clock: &dyn Clock) -> bool {
        if !client.is_cancelled() {
            return true;
        }
        let now = clock.now();
        let mut at_work = self.lists.at_work();
        let Some(work) = at_work.get_mut(&self.name) else { return false };
        now < work.wanted_at.get_or_insert(now).plus_seconds(COMES_BACK_SECONDS)
    }
}

impl Drop for ListAtWork<'_> {
    fn drop(&mut self) {
        self.lists.at_work().remove(&self.name);
        self.lists.ended.notify_all();
    }
}

fn left() -> Error {
    Error::new(ErrorKind::Cancelled, "the client has left")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::ManualClock;
    use crate::job::VideoExtension;

    const LIST: Option<[u8; 32]> = Some([1; 32]);

    #[test]
    fn the_same_list_waits_and_another_does_not() {
        let (lists, clock) = (ListsAtWork::default(), ManualClock::new());
        let (name, here) = (BlobName::random(VideoExtension::Mp4), CancelToken::new());
        let first = lists.hold(name, LIST, &here, &clock).unwrap();
        for other in [Some([2; 32]), None] {
            let refused = lists.hold(name, other, &here, &clock).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Conflict);
        }
        let gone = CancelToken::new();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lists.hold(name, LIST, &here, &clock).map(drop));
            let leaves = scope.spawn(|| lists.hold(name, LIST, &gone, &clock).map(drop));
            gone.cancel();
            assert_eq!(leaves.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
            drop(first);
            waits.join().unwrap().unwrap();
        });
        // What no client has listed is nobody's to wait for.
        let unlisted = lists.hold(name, None, &here, &clock).unwrap();
        assert_eq!(lists.hold(name, None, &here, &clock).err().unwrap().kind(), ErrorKind::Conflict);
        drop(unlisted);
        assert!(lists.at_work().is_empty());
    }

    #[test]
    fn the_work_goes_on_for_a_while_after_its_client_has_left_and_for_whoever_comes_meanwhile() {
        let (lists, clock) = (ListsAtWork::default(), ManualClock::new());
        let (name, first) = (BlobName::random(VideoExtension::Mp4), CancelToken::new());
        let wait = COMES_BACK_SECONDS as i64;
        let held = lists.hold(name, LIST, &first, &clock).unwrap();
        clock.advance(10 * wait);
        assert!(held.is_wanted(&first, &clock));
        first.cancel();
        assert!(held.is_wanted(&first, &clock));
        clock.advance(wait - 1);
        assert!(held.is_wanted(&first, &clock));
        let here = CancelToken::new();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| lists.hold(name, LIST, &here, &clock).map(drop));
            let before = clock.now();
            while lists.at_work()[&name].wanted_at.unwrap() < before {
                std::thread::sleep(Duration::from_millis(1));
            }
            clock.advance(wait - 1);
            assert!(held.is_wanted(&first, &clock));
            here.cancel();
            assert_eq!(second.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        });
        clock.advance(wait);
        assert!(!held.is_wanted(&first, &clock));
        drop(held);
        // Who has left before it begins has nothing done.
        assert_eq!(lists.hold(name, LIST, &first, &clock).err().unwrap().kind(), ErrorKind::Cancelled);
        assert!(lists.at_work().is_empty());
    }
}
