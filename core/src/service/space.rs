//! Space on the disk: promised before bytes come, then kept.
//!
//! Every transfer holds a promise for what it has announced, or for the next piece if it announced nothing or goes on with an upload of
//! which something is stored. What is promised to one counts as used for all others of this process, so that many transfers at once
//! cannot take the bytes that must stay free. Other processes are seen by what they have written.
//!
//! What a user announces costs nothing until it comes: whoever sends one video may have all the room that it takes, and who sends
//! more of them at once a part of it, so that the announcements of one user leave room for those of all others.

use std::sync::Arc;

use super::Service;
use super::promised::{Promised, Transfer};
use crate::error::{Error, ErrorKind, Result};

/// What a transfer that did not announce its size asks for at a time, and how often one that did is looked at: other processes
/// write to the same disk.
const STEP: u64 = 16 << 20;
/// A user who sends several videos at once may have announced one part in so many of what others leave.
const SHARE: u64 = 4;

/// A promise; what was not used of it is given back when this is dropped.
pub(super) struct Reservation {
    space: Arc<Promised>,
    transfer: Transfer,
    /// Promised and not yet written.
    left: u64,
    /// Written since the disk was last looked at.
    unseen: u64,
}

impl Service {
    /// Promises room for `bytes` to a transfer, beside what must stay free.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`]; also if this is not the only video that its user sends, and they have announced too much together.
    pub(super) fn reserve(&self, transfer: Transfer, bytes: u64) -> Result<Reservation> {
        self.promise(transfer, bytes, true)
    }

    /// Makes sure that there is room for `bytes` of an upload of which something is stored already, and promises nothing: what else its
    /// user has announced since does not break it off.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn check_room_for(&self, transfer: Transfer, bytes: u64) -> Result<()> {
        self.promise(transfer, bytes, false).map(drop)
    }

    fn promise(&self, transfer: Transfer, bytes: u64, is_announced: bool) -> Result<Reservation> {
        let mut reservation = Reservation { space: self.inner.space.clone(), transfer, left: 0, unseen: 0 };
        reservation.extend(self, bytes, is_announced)?;
        Ok(reservation)
    }

    /// Makes sure that there is room for what is promised, and for what must stay free.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn check_space(&self) -> Result<()> {
        self.check_room(self.inner.space.all().bytes(|_| true)).map(drop)
    }

    /// Makes sure that there is room for `bytes` beside what must stay free. Returns how much there is, if that is known.
    fn check_room(&self, bytes: u64) -> Result<Option<u64>> {
        let must_stay = self.inner.options.min_free_bytes;
        let needed = bytes.saturating_add(must_stay);
        match self.inner.storage.free_space()? {
            Some(free) if free < needed => Err(no_space(format!(
                "{free} bytes are free; {needed} are needed for this transfer, the others and what must stay free"
            ))),
            free => Ok(free.map(|free| free.saturating_sub(must_stay))),
        }
    }
}

fn no_space(why: String) -> Error {
    Error::new(ErrorKind::DiskFull, why).hint("free some space on the disk of the service")
}

impl Reservation {
    /// Makes sure that `bytes` more may be written; call it before they are.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn cover(&mut self, service: &Service, bytes: u64) -> Result<()> {
        if self.left < bytes {
            return self.extend(service, (bytes - self.left).max(STEP), false);
        }
        if self.unseen >= STEP {
            self.extend(service, 0, false)?;
        }
        Ok(())
    }

    /// The same promise, for `bytes` at least.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn at_least(mut self, service: &Service, bytes: u64) -> Result<Self> {
        if self.left < bytes {
            self.extend(service, bytes - self.left, false)?;
        }
        Ok(self)
    }

    /// Takes over as much as there is of `bytes` that were promised to another of the same transfer.
    pub(super) fn take_over(&mut self, other: &mut Reservation, bytes: u64) {
        let bytes = bytes.min(other.left);
        other.left -= bytes;
        self.left += bytes;
    }

    /// Notes that `bytes` were written: now the disk itself counts them.
    pub(super) fn spend(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.unseen += bytes;
        self.space.all().take_back(&self.transfer, bytes);
    }

    /// Promises `more`. What `is_announced` is refused to who has announced too much already; what comes after that only for want of
    /// room, or a transfer that goes on would be broken off because another has begun.
    fn extend(&mut self, service: &Service, more: u64, is_announced: bool) -> Result<()> {
        self.unseen = 0;
        let mut promised = self.space.all();
        let all = promised.bytes(|_| true);
        let free = service.check_room(all.saturating_add(more))?;
        let (user, _) = self.transfer;
        let others = promised.bytes(|(other, _)| *other != user);
        let is_only = promised.bytes(|transfer| transfer.0 == user && *transfer != self.transfer) == 0;
        if let Some(free) = free
            && is_announced
            && more > 0
            && !is_only
        {
            let (share, own) = (free.saturating_sub(others) / SHARE, (all - others).saturating_add(more));
            if own > share {
                return Err(no_space(format!(
                    "the videos that one user sends at once may have {share} bytes of this disk; {own} are needed"
                )));
            }
        }
        promised.add(self.transfer, more);
        self.left = self.left.saturating_add(more);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.space.all().take_back(&self.transfer, self.left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServiceOptions;
    use super::super::test_world::World;
    use super::*;
    use crate::job::{BlobName, UserId};

    fn upload(user: UserId) -> Transfer {
        (user, BlobName::random("mp4".parse().unwrap()))
    }

    /// All that is promised.
    fn promised(world: &World) -> u64 {
        world.service.inner.space.all().bytes(|_| true)
    }

    #[test]
    fn what_is_promised_to_one_is_not_promised_to_another() {
        let world = World::new();
        let free = world.service.inner.storage.free_space().unwrap().unwrap();
        // Others use the disk too: leave them a quarter.
        let half = free / 8 * 3;
        let reserve = || world.service.reserve(upload(UserId::random()), half);
        let mut first = reserve().unwrap();
        let second = reserve().unwrap();
        assert_eq!(reserve().err().unwrap().kind(), ErrorKind::DiskFull);
        drop(second);
        let third = reserve().unwrap();
        // As if it were written: the test's disk does not become fuller by it.
        first.spend(half);
        let fourth = reserve().unwrap();
        drop((first, third, fourth));
        assert_eq!(promised(&world), 0);
    }

    #[test]
    fn rule_89_what_one_user_announces_leaves_room_for_others() {
        let world = World::with(ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() });
        let free = world.service.inner.storage.free_space().unwrap().unwrap();
        let tenth = free / 10;
        let first = upload(world.anna);
        // One video may have what there is, in several promises too.
        let half = world.service.reserve(first, 3 * tenth).unwrap();
        let other_half = world.service.reserve(first, 3 * tenth).unwrap();
        let more = |user| world.service.reserve(upload(user), tenth);
        assert_eq!(more(world.anna).err().unwrap().kind(), ErrorKind::DiskFull);
        let of_eve = more(world.eve).unwrap();
        // What comes without having been announced is not asked whose it is.
        let mut unknown = world.service.reserve(upload(world.anna), 0).unwrap();
        unknown.cover(&world.service, 1).unwrap();
        drop((half, other_half, unknown));
        // Of nine tenths that she leaves, two are less than a quarter, and three are more.
        let two = (more(world.anna).unwrap(), more(world.anna).unwrap());
        assert_eq!(more(world.anna).err().unwrap().kind(), ErrorKind::DiskFull);
        drop((of_eve, two));
        assert_eq!(promised(&world), 0);
    }

    #[test]
    fn a_transfer_of_unknown_size_asks_as_its_bytes_come() {
        let world = World::new();
        let mut unknown = world.service.reserve(upload(world.anna), 0).unwrap();
        assert_eq!(unknown.left, 0);
        unknown.cover(&world.service, 10).unwrap();
        assert_eq!(promised(&world), STEP);
        unknown.spend(10);
        unknown.cover(&world.service, STEP - 10).unwrap();
        assert_eq!(promised(&world), STEP - 10);
        unknown.cover(&world.service, STEP + 10).unwrap();
        assert_eq!(unknown.left, 2 * STEP - 10);
        drop(unknown);
        assert_eq!(promised(&world), 0);
    }

    #[test]
    fn what_must_stay_free_is_kept_from_transfers_that_run() {
        let world = World::with(ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() });
        let mut running = world.service.reserve(upload(world.anna), 2 * STEP).unwrap();
        running.cover(&world.service, STEP).unwrap();
        running.spend(STEP);
        // Another process fills the disk meanwhile: to this service it is as if more had to stay free.
        let strict =
            world.reopen_with(ServiceOptions { min_free_bytes: u64::MAX, ..ServiceOptions::default() });
        assert_eq!(running.cover(&strict, 1).unwrap_err().kind(), ErrorKind::DiskFull);
    }
}
