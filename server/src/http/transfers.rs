//! How many videos come in at once, in all and for each user: the slow ones of a few users must not keep out those of all others.

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

    /// Begins a transfer for `user`; it holds its place until that is dropped. A user may have so many as are allowed, and
    /// besides no more than a quarter of what all others leave, rounded up: the fewer are left, the more users it takes to
    /// fill them. Two are always allowed, as the web page sends two blocks of a video at once.
    ///
    /// # Errors
    /// 503 if there are too many in all, 429 if the user has too many.
    pub(crate) fn begin(&self, user: UserId) -> Result<Share<UserId>, ApiError> {
        self.running.take(user, |all, own| {
            let free = self.most.saturating_sub(all);
            if own < self.most_per_user && free == 0 {
                return Err(ApiError::busy());
            }
            let share = (free + own).div_ceil(4).max(2).min(self.most_per_user);
            if own >= share {
                let text = format!("{own} uploads run already");
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", text)
                    .with_header(RETRY_AFTER, HeaderValue::from_static("5")));
            }
            Ok(())
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

    #[test]
    fn rule_88_few_users_cannot_take_all_places() {
        let transfers = Transfers::new(64, 16);
        let mut held = Vec::new();
        let take_all = |held: &mut Vec<Share<UserId>>| {
            let (user, before) = (UserId::random(), held.len());
            while let Ok(transfer) = transfers.begin(user) {
                held.push(transfer);
            }
            (held.len() - before, transfers.begin(user).err().unwrap().status)
        };
        // One who is alone has what the limit of a user says.
        assert_eq!(take_all(&mut held), (16, StatusCode::TOO_MANY_REQUESTS));
        for most in [12, 9, 7, 5, 4, 3] {
            assert_eq!(take_all(&mut held), (most, StatusCode::TOO_MANY_REQUESTS));
        }
        // Each has two at once until none is left.
        for _ in 0..3 {
            assert_eq!(take_all(&mut held), (2, StatusCode::TOO_MANY_REQUESTS));
        }
        for most in [2, 0] {
            assert_eq!(take_all(&mut held), (most, StatusCode::SERVICE_UNAVAILABLE));
        }
        held.truncate(10);
        assert_eq!(take_all(&mut held), (14, StatusCode::TOO_MANY_REQUESTS));
    }
}
