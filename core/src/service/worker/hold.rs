//! Signs of life of a worker that has a job in its hands, and what the database answers to them.

use std::time::{Duration, Instant};

use super::super::Service;
use crate::database::{Lease, LeaseState};
use crate::error::Result;

/// How often a busy worker asks whether its job was deleted or cancelled.
pub(super) const WATCH: Duration = Duration::from_millis(500);

/// A lease that is kept.
pub(super) struct Hold<'a> {
    service: &'a Service,
    lease: &'a Lease,
    looked: Instant,
    beat: Instant,
    /// When the database last knew that we live.
    known: Instant,
}

impl<'a> Hold<'a> {
    pub(super) fn new(service: &'a Service, lease: &'a Lease) -> Self {
        let now = Instant::now();
        Self { service, lease, looked: now, beat: now, known: now }
    }

    /// Tells the database that we live, or asks whether the job is still ours, when that is due. Call it several times a second.
    pub(super) fn look(&mut self) -> LeaseState {
        let database = &self.service.inner.database;
        let lease_seconds = self.service.inner.options.lease_seconds;
        if self.beat.elapsed() >= Duration::from_secs(lease_seconds) / 6 {
            self.beat = Instant::now();
            let beat = database.heartbeat(self.lease, lease_seconds);
            return self.hear(beat);
        }
        if self.looked.elapsed() >= WATCH {
            self.looked = Instant::now();
            if let Ok(state @ (LeaseState::Deleted | LeaseState::Lost)) = database.lease_state(self.lease) {
                return self.hear(Ok(state));
            }
        }
        LeaseState::Held
    }

    /// What an answer of the database means for the lease.
    pub(super) fn hear(&mut self, state: Result<LeaseState>) -> LeaseState {
        match state {
            Ok(LeaseState::Lost) => LeaseState::Lost,
            Ok(state) => {
                self.known = Instant::now();
                state
            }
            // It may pass; but once the lease has run out, another may be at it.
            Err(_) => {
                let lease = Duration::from_secs(self.service.inner.options.lease_seconds);
                if self.known.elapsed() >= lease { LeaseState::Lost } else { LeaseState::Held }
            }
        }
    }
}
