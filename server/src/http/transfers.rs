//! How many videos come in at once, in all and for each user: the slow ones of one user must not keep out those of all others.

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use libreconstruct::job::UserId;

use super::error::ApiError;
use super::shares::{Share, Shares};

/// The transfers that run in this process.
pub(crate) struct Transfers {
    most: usize,
    most_per_user: usize,
    running: Shares<UserId>,
}

impl Transfers {
    /// `most` in all, `most_per_user` of one user; at least one each.
    pub(crate) fn new(most: usize, most_per_user: usize) -> Self {
        Self { most: most.max(1), most_per_user: most_per_user.max(1), running: Shares::default() }
    }

    /// Begins a transfer for `user`; it holds its place until that is dropped.
    ///
    /// # Errors
    /// 503 if there are too many in all, 429 if the user has too many.
    pub(crate) fn begin(&self, user: UserId) -> Result<Share<UserId>, ApiError> {
        self.running.take(user, |all, own| {
            if own >= self.most_per_user {
                let text = format!("{} uploads run already", self.most_per_user);
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", text)
                    .with_header(RETRY_AFTER, HeaderValue::from_static("5")));
            }
            if all >= self.most { Err(ApiError::busy()) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_88_one_user_cannot_take_all_places() {
        let transfers = Transfers::new(3, 2);
        let (anna, eve, ben) = (UserId::random(), UserId::random(), UserId::random());
        let first = transfers.begin(anna).ok().unwrap();
        let _second = transfers.begin(anna).ok().unwrap();
        assert_eq!(transfers.begin(anna).err().unwrap().status, StatusCode::TOO_MANY_REQUESTS);
        let _third = transfers.begin(eve).ok().unwrap();
        assert_eq!(transfers.begin(ben).err().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        drop(transfers.begin(ben).ok().unwrap());
        drop(transfers.begin(anna).ok().unwrap());
        assert_eq!(transfers.running.holders(), 2);
    }
}
