//! How many requests of one user wait for a change at once (rule 86 of docs/rest.md). Each reads a row twice a second for as long as
//! it waits and is counted by the rate limit once, so there must not be any number of them.

use std::sync::atomic::{AtomicBool, Ordering};

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use libreconstruct::job::UserId;

use super::error::ApiError;
use super::shares::{Share, Shares};

/// The most of one user.
const MOST: usize = 32;

/// The requests that wait in this process.
#[derive(Default)]
pub(crate) struct Waits {
    places: Shares<UserId>,
    have_ended: AtomicBool,
}

impl Waits {
    /// Begins to wait for `user`, until the answer is dropped.
    ///
    /// # Errors
    /// 429 if too many requests of the user wait already.
    pub(crate) fn begin(&self, user: UserId) -> Result<Share<UserId>, ApiError> {
        self.places.take(user, |_, own| {
            if own < MOST {
                return Ok(());
            }
            let text = format!("{MOST} requests wait for a change already");
            Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_waits", text)
                .with_header(RETRY_AFTER, HeaderValue::from_static("5")))
        })
    }

    /// All that wait are answered from now on: the server takes no more requests.
    pub(crate) fn end(&self) {
        self.have_ended.store(true, Ordering::Relaxed);
    }

    /// Whether nobody is to wait any more.
    pub(crate) fn have_ended(&self) -> bool {
        self.have_ended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_86_so_many_requests_of_a_user_wait_and_no_more() {
        let waits = Waits::default();
        let (anna, eve) = (UserId::random(), UserId::random());
        let mut waiting: Vec<_> = (0..MOST).map(|_| waits.begin(anna).ok().unwrap()).collect();
        let refused = waits.begin(anna).err().unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.headers.contains_key(RETRY_AFTER));
        drop(waits.begin(eve).ok().unwrap());
        waiting.pop();
        waiting.push(waits.begin(anna).ok().unwrap());
        drop(waiting);
        assert_eq!(waits.places.holders(), 0);
    }
}
