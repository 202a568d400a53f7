//! Requests are counted against the rates of their users.

use super::Service;
use super::rates::Spent;
use crate::database::Rate;
use crate::job::UserId;

impl Service {
    /// Takes a token of the user's for one thing of the class of `rate`, which all servers of this service count together.
    pub fn spend(&self, user: UserId, rate: &Rate) -> Spent {
        let inner = &self.inner;
        if !inner.has_other_machines {
            return Spent::Alone;
        }
        inner.rates.spend(inner.database.as_ref(), inner.clock.lease_micros(), user, rate)
    }
}
