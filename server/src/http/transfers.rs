//! How many videos come in at once, in all and for each user: the slow ones of one user must not keep out those of all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use libreconstruct::job::UserId;

use super::error::ApiError;

/// The transfers that run in this process.
pub(crate) struct Transfers {
    most: usize,
    most_per_user: usize,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    all: usize,
    of: HashMap<UserId, usize>,
}

/// The place of one transfer, until it is dropped.
pub(crate) struct Transfer {
    transfers: Arc<Transfers>,
    user: UserId,
}

impl Transfers {
    /// `most` in all, `most_per_user` of one user; at least one each.
    pub(crate) fn new(most: usize, most_per_user: usize) -> Self {
        Self { most: most.max(1), most_per_user: most_per_user.max(1), running: Mutex::default() }
    }

    /// Begins a transfer for `user`.
    ///
    /// # Errors
    /// 503 if there are too many in all, 429 if the user has too many.
    pub(crate) fn begin(self: &Arc<Self>, user: UserId) -> Result<Transfer, ApiError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.of.get(&user).is_some_and(|own| *own >= self.most_per_user) {
            let text = format!("{} uploads run already", self.most_per_user);
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", text)
                .with_header(RETRY_AFTER, HeaderValue::from_static("5")));
        }
        if running.all >= self.most {
            return Err(ApiError::busy());
        }
        running.all += 1;
        *running.of.entry(user).or_default() += 1;
        Ok(Transfer { transfers: self.clone(), user })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut running = self.transfers.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.all -= 1;
        if let Some(own) = running.of.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                running.of.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_88_one_user_cannot_take_all_places() {
        let transfers = Arc::new(Transfers::new(3, 2));
        let (anna, eve, ben) = (UserId::random(), UserId::random(), UserId::random());
        let first = transfers.begin(anna).ok().unwrap();
        let _second = transfers.begin(anna).ok().unwrap();
        assert_eq!(transfers.begin(anna).err().unwrap().status, StatusCode::TOO_MANY_REQUESTS);
        let _third = transfers.begin(eve).ok().unwrap();
        assert_eq!(transfers.begin(ben).err().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        drop(transfers.begin(ben).ok().unwrap());
        drop(transfers.begin(anna).ok().unwrap());
        assert_eq!(transfers.running.lock().unwrap().of.len(), 2);
    }
}
