//! How many bytes of answers wait in memory for those who asked, in all, for each network and for each user. The bytes of files are
//! bounded by their number (`downloads`).

use std::net::IpAddr;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use libreconstruct::job::UserId;

use super::error::ApiError;
use super::network::network;
use super::shares::{Share, Shares};

/// The most in all, bytes.
const MOST: usize = 256 << 20;
/// The most for one network, and besides no more than a quarter of what others leave. Twice what one user may have: a user who takes
/// nothing does not keep answers from all others of a network.
const MOST_OF_NETWORK: usize = 64 << 20;
const MOST_OF_USER: usize = 32 << 20;
/// Answers of up to so many bytes are not counted: they take no more memory than their request does, and who is refused must be told so.
const SMALL: usize = 4 << 10;

/// The answers that wait in this process.
#[derive(Default)]
pub(crate) struct Bodies {
    of_networks: Shares<IpAddr>,
    of_users: Shares<UserId>,
}

/// For whom an answer is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker {
    pub(crate) address: IpAddr,
    /// Who that is, if it is known.
    pub(crate) user: Option<UserId>,
}

/// Memory for one answer, or for a part of one, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    _of_network: Share<IpAddr>,
    _of_user: Option<Share<UserId>>,
}

/// Bytes and the memory that they take.
struct Held {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// Finds room for `count` bytes. One answer has it however large it is.
    ///
    /// # Errors
    /// 503 if too much waits in all, 429 if too much waits for the user or its network.
    pub(crate) fn room(&self, taker: Taker, count: usize) -> Result<Room, ApiError> {
        let of_network = self.of_networks.take_many(network(taker.address), count, |all, own| {
            let free = MOST.saturating_sub(all);
            if all > 0 && count > free {
                return Err(ApiError::busy());
            }
            check(own, count, MOST_OF_NETWORK.min((free + own) / 4))
        })?;
        let take = |user| self.of_users.take_many(user, count, |_, own| check(own, count, MOST_OF_USER));
        Ok(Room { _of_network: of_network, _of_user: taker.user.map(take).transpose()? })
    }

    /// Counts these bytes until the last of them has left; very few bytes are not counted.
    ///
    /// # Errors
    /// As [`Bodies::room`].
    pub(crate) fn hold(&self, taker: Taker, bytes: Bytes) -> Result<Bytes, ApiError> {
        if bytes.len() <= SMALL { Ok(bytes) } else { Ok(self.room(taker, bytes.len())?.hold(bytes)) }
    }
}

impl Room {
    /// Takes the room for these bytes, until the last of them has left.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _room: self })
    }
}

fn check(own: usize, count: usize, most: usize) -> Result<(), ApiError> {
    if own == 0 || own.saturating_add(count) <= most {
        return Ok(());
    }
    let text = format!("Answers of {} MiB wait to be taken already", own >> 20);
    Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_answers", text)
        .with_header(RETRY_AFTER, HeaderValue::from_static("5")))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::http::body::ResponseBody;

    const MEBIBYTE: usize = 1 << 20;

    fn taker(number: u8, user: Option<UserId>) -> Taker {
        Taker { address: IpAddr::from([192, 0, 2, number]), user }
    }

    /// As much room, in mebibytes, as `taker` gets, and the answer to its next request.
    fn take_all(bodies: &Bodies, taker: Taker) -> (Vec<Room>, ApiError) {
        let mut taken = Vec::new();
        loop {
            match bodies.room(taker, MEBIBYTE) {
                Ok(room) => taken.push(room),
                Err(refused) => return (taken, refused),
            }
        }
    }

    #[test]
    fn rule_91_a_user_has_a_share_and_leaves_one_to_others_of_its_network() {
        let bodies = Bodies::default();
        let (anna, eve) = (UserId::random(), UserId::random());
        let (held, refused) = take_all(&bodies, taker(1, Some(anna)));
        assert_eq!((held.len(), refused.status), (32, StatusCode::TOO_MANY_REQUESTS));
        assert!(refused.headers.contains_key(RETRY_AFTER) && refused.message.contains("32 MiB"));
        // Wherever she is, and others are not refused.
        assert!(bodies.room(taker(2, Some(anna)), MEBIBYTE).is_err());
        assert_eq!(bodies.of_networks.holders(), 1);
        let (more, _) = take_all(&bodies, taker(1, Some(eve)));
        assert_eq!(more.len(), 32);
        assert!(
            bodies.room(taker(1, None), MEBIBYTE).is_err() && bodies.room(taker(2, None), MEBIBYTE).is_ok()
        );
        drop((held, more));
        assert_eq!((bodies.of_networks.holders(), bodies.of_users.holders()), (0, 0));
    }

    #[test]
    fn rule_91_few_networks_cannot_have_all_memory() {
        let bodies = Bodies::default();
        let mut held = Vec::new();
        for number in 0..8 {
            held.extend(take_all(&bodies, taker(number, None)).0);
        }
        assert!((150..240).contains(&held.len()), "{}", held.len());
        assert!(bodies.room(taker(100, None), MEBIBYTE).is_ok());
        // The last of it goes bit by bit.
        let full = (9..=u8::MAX).find_map(|number| {
            let (taken, refused) = take_all(&bodies, taker(number, None));
            held.extend(taken);
            (refused.status == StatusCode::SERVICE_UNAVAILABLE).then_some(refused)
        });
        assert!(full.unwrap().headers.contains_key(RETRY_AFTER));
        assert!(held.len() <= MOST / MEBIBYTE, "{}", held.len());
    }

    #[test]
    fn one_answer_is_given_however_large_it_is() {
        let bodies = Bodies::default();
        let anna = taker(1, Some(UserId::random()));
        let large = bodies.room(anna, 2 * MOST).unwrap();
        assert_eq!(bodies.room(anna, 1).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        drop(large);
        let _large = bodies.room(anna, 2 * MOST_OF_USER).unwrap();
        assert_eq!(bodies.room(anna, 1).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        // That is said all the same.
        assert_eq!(bodies.hold(anna, Bytes::from(vec![0; SMALL])).unwrap().len(), SMALL);
        assert!(bodies.hold(anna, Bytes::from(vec![0; SMALL + 1])).is_err());
    }

    #[tokio::test]
    async fn rule_91_an_answer_is_counted_until_its_last_piece_has_left() {
        let bodies = Bodies::default();
        let bytes: Vec<u8> = (0..200 << 10).map(|n| (n % 251) as u8).collect();
        let held = bodies.hold(taker(1, None), bytes.clone().into()).unwrap();
        let mut body = ResponseBody::Whole(held);
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert!(pieces.len() > 1 && pieces.concat() == bytes);
        while !pieces.is_empty() {
            assert_eq!(bodies.of_networks.holders(), 1);
            pieces.pop();
        }
        assert_eq!(bodies.of_networks.holders(), 0);
    }
}
