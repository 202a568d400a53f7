//! Space on the disk: promised before bytes come, then kept.
//!
//! Every transfer holds a promise for what it has announced, or for the next piece if it announced nothing. What is promised
//! to one counts as used for all others of this process, so that many transfers at once cannot take the bytes that must stay
//! free. Other processes are seen by what they have written.

use std::sync::Arc;

use super::Service;
use super::promised::Promised;
use crate::error::{Error, ErrorKind, Result};

/// What a transfer that did not announce its size asks for at a time, and how often one that did is looked at: other processes
/// write to the same disk.
const STEP: u64 = 16 << 20;

/// A promise; what was not used of it is given back when this is dropped.
pub(super) struct Reservation {
    space: Arc<Promised>,
    /// Promised and not yet written.
    left: u64,
    /// Written since the disk was last looked at.
    unseen: u64,
}

impl Service {
    /// Promises room for `bytes` beside what must stay free.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let mut reservation = Reservation { space: self.inner.space.clone(), left: 0, unseen: 0 };
        reservation.extend(self, bytes)?;
        Ok(reservation)
    }
}

impl Reservation {
    /// Makes sure that `bytes` more may be written; call it before they are.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn cover(&mut self, service: &Service, bytes: u64) -> Result<()> {
        if self.left < bytes {
            return self.extend(service, (bytes - self.left).max(STEP));
        }
        if self.unseen >= STEP {
            self.extend(service, 0)?;
        }
        Ok(())
    }

    /// The same promise, for `bytes` at least.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`].
    pub(super) fn at_least(mut self, service: &Service, bytes: u64) -> Result<Self> {
        if self.left < bytes {
            self.extend(service, bytes - self.left)?;
        }
        Ok(self)
    }

    /// Takes over as much as there is of `bytes` that were promised to another.
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
        *self.space.bytes() -= bytes;
    }

    fn extend(&mut self, service: &Service, more: u64) -> Result<()> {
        self.unseen = 0;
        let mut promised = self.space.bytes();
        let needed = promised.saturating_add(more).saturating_add(service.inner.options.min_free_bytes);
        match service.inner.storage.free_space()? {
            Some(free) if free < needed => Err(Error::new(
                ErrorKind::DiskFull,
                format!("{free} bytes are free; {needed} are needed for this transfer, the others and what must stay free"),
            )
            .hint("free some space on the disk of the service")),
            _ => {
                *promised = promised.saturating_add(more);
                self.left = self.left.saturating_add(more);
                Ok(())
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.left);
        let mut promised = self.space.bytes();
        *promised = promised.saturating_sub(left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServiceOptions;
    use super::super::test_world::World;
    use super::*;

    #[test]
    fn what_is_promised_to_one_is_not_promised_to_another() {
        let world = World::new();
        let free = world.service.inner.storage.free_space().unwrap().unwrap();
        // Others use the disk too: leave them a quarter.
        let half = free / 8 * 3;
        let mut first = world.service.reserve(half).unwrap();
        let second = world.service.reserve(half).unwrap();
        assert_eq!(world.service.reserve(half).err().unwrap().kind(), ErrorKind::DiskFull);
        drop(second);
        let third = world.service.reserve(half).unwrap();
        // As if it were written: the test's disk does not become fuller by it.
        first.spend(half);
        let fourth = world.service.reserve(half).unwrap();
        drop((first, third, fourth));
        assert_eq!(*world.service.inner.space.bytes(), 0);
    }

    #[test]
    fn a_transfer_of_unknown_size_asks_as_its_bytes_come() {
        let world = World::new();
        let mut unknown = world.service.reserve(0).unwrap();
        assert_eq!(unknown.left, 0);
        unknown.cover(&world.service, 10).unwrap();
        assert_eq!(*world.service.inner.space.bytes(), STEP);
        unknown.spend(10);
        unknown.cover(&world.service, STEP - 10).unwrap();
        assert_eq!(*world.service.inner.space.bytes(), STEP - 10);
        unknown.cover(&world.service, STEP + 10).unwrap();
        assert_eq!(unknown.left, 2 * STEP - 10);
        drop(unknown);
        assert_eq!(*world.service.inner.space.bytes(), 0);
    }

    #[test]
    fn what_must_stay_free_is_kept_from_transfers_that_run() {
        let world = World::with(ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() });
        let mut running = world.service.reserve(2 * STEP).unwrap();
        running.cover(&world.service, STEP).unwrap();
        running.spend(STEP);
        // Another process fills the disk meanwhile: to this service it is as if more had to stay free.
        let strict =
            world.reopen_with(ServiceOptions { min_free_bytes: u64::MAX, ..ServiceOptions::default() });
        assert_eq!(running.cover(&strict, 1).unwrap_err().kind(), ErrorKind::DiskFull);
    }
}
