//! How many files go out at once, in all and to each network: what is read of each waits in memory until its client takes it.

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};

use super::error::ApiError;
use super::network::network;
use super::shares::{Share, Shares};

/// The most in all: 768 MiB, if nobody takes any.
const MOST: usize = 4096;
/// The most to one network, and besides no more than a quarter of what others leave: the fewer places are left, the more networks it
/// takes to fill them.
const MOST_OF_ONE: usize = 1024;

/// The files that go out of this process.
#[derive(Default)]
pub(crate) struct Downloads(Shares<IpAddr>);

impl Downloads {
    /// Begins to send a file to `client`; it holds its place until that is dropped.
    ///
    /// # Errors
    /// 503 if there are too many in all, 429 if this network has too many.
    pub(crate) fn begin(&self, client: IpAddr) -> Result<Share<IpAddr>, ApiError> {
        self.0.take(network(client), |all, own| {
            let free = MOST.saturating_sub(all);
            if free == 0 {
                return Err(ApiError::busy());
            }
            if own >= MOST_OF_ONE.min(((free + own) / 4).max(1)) {
                let text = format!("{own} downloads run already");
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_downloads", text)
                    .with_header(RETRY_AFTER, HeaderValue::from_static("5")));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// As many places as `client` gets, and the answer to its next request.
    fn take_all(downloads: &Downloads, client: IpAddr) -> (Vec<Share<IpAddr>>, ApiError) {
        let mut taken = Vec::new();
        loop {
            match downloads.begin(client) {
                Ok(place) => taken.push(place),
                Err(refused) => return (taken, refused),
            }
        }
    }

    #[test]
    fn rule_91_few_networks_cannot_have_all_places() {
        let downloads = Downloads::default();
        let mut running = Vec::new();
        for number in 0..10 {
            let (taken, refused) = take_all(&downloads, client(number));
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{number}");
            assert!(refused.headers.contains_key(RETRY_AFTER));
            // Whoever is alone has all that one may have.
            assert!(number > 0 || taken.len() == MOST_OF_ONE, "{}", taken.len());
            running.extend(taken);
        }
        // A quarter of what is left each: after ten, the eleventh still has its files.
        let left = MOST - running.len();
        assert!((200..400).contains(&left), "{left}");
        let (taken, _) = take_all(&downloads, client(10));
        assert!(taken.len() >= left / 5, "{} of {left}", taken.len());
        drop((taken, running));
        assert_eq!(downloads.0.holders(), 0);
    }

    #[test]
    fn rule_91_there_are_so_many_places_and_no_more() {
        let downloads = Downloads::default();
        let mut running = Vec::new();
        // The last places go one by one.
        let full = (0..=u8::MAX).find_map(|number| {
            let (taken, refused) = take_all(&downloads, client(number));
            running.extend(taken);
            (refused.status == StatusCode::SERVICE_UNAVAILABLE).then_some(refused)
        });
        assert!(full.unwrap().headers.contains_key(RETRY_AFTER));
        assert_eq!(running.len(), MOST);
        running.pop();
        assert!(downloads.begin(IpAddr::from([198, 51, 100, 1])).is_ok());
    }
}
