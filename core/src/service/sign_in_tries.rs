//! Tries to sign in, counted by the name that is tried and by the address from which it is.

use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::tries::{Patience, Tries};

/// Tries from one address, behind which may be many people, that do not have to wait.
pub(super) const FREE_FROM_AN_ADDRESS: u32 = 30;
/// Tries of one name: five, then waits that grow to five minutes. Somebody who only wants to keep the user out must go on with it,
/// and gets 288 guesses a day for it.
const OF_A_NAME: Patience =
    Patience { free: 5, longest: Duration::from_secs(300), memory: Duration::from_secs(3600) };
/// Tries from one address.
const OF_AN_ADDRESS: Patience = Patience {
    free: FREE_FROM_AN_ADDRESS,
    longest: Duration::from_secs(300),
    memory: Duration::from_secs(900),
};

/// What has been tried, in this process.
pub(super) struct SignInTries {
    /// By the SHA-256 of a name, so that long ones cost no memory.
    names: Tries<[u8; 32]>,
    addresses: Tries<IpAddr>,
}

impl Default for SignInTries {
    fn default() -> Self {
        Self { names: Tries::new(OF_A_NAME), addresses: Tries::new(OF_AN_ADDRESS) }
    }
}

impl SignInTries {
    /// Counts a try at the time `now`, microseconds of a clock that only grows, or says how long it has to wait.
    pub(super) fn begin(&self, name: &str, from: IpAddr, now: i64) -> Result<(), Duration> {
        self.addresses.begin(from, now)?;
        self.names.begin(hash(name), now)
    }

    /// Counts a try that names nobody.
    pub(super) fn begin_from(&self, from: IpAddr, now: i64) -> Result<(), Duration> {
        self.addresses.begin(from, now)
    }

    /// Such a try was none: who made it may be signed in.
    pub(super) fn succeeded_from(&self, from: IpAddr) {
        self.addresses.take_back(&from);
    }

    /// The tries of the name are forgotten. Of those from the address only this one is: behind it others may sign in, and others guess.
    pub(super) fn succeeded(&self, name: &str, from: IpAddr) {
        self.names.succeed(&hash(name));
        self.addresses.take_back(&from);
    }

    /// Forgets who has not tried for long.
    pub(super) fn forget_idle(&self, now: i64) {
        self.names.forget_idle(now);
        self.addresses.forget_idle(now);
    }
}

fn hash(name: &str) -> [u8; 32] {
    Sha256::digest(name).into()
}
