//! How many files go out at once, in all and to each network: what is read of each waits in memory until its client takes it.

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};

use super::error::ApiError;
use super::network::network;
use super::shares::{Share, Shares};

/// The most in all: 768 MiB, if nobody takes any.
const MOST: usize = 4096;
/// The most to one network.
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
            if own >= MOST_OF_ONE {
                let text = format!("{MOST_OF_ONE} downloads run already");
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_downloads", text)
                    .with_header(RETRY_AFTER, HeaderValue::from_static("5")));
            }
            if all >= MOST { Err(ApiError::busy()) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_91_one_network_cannot_have_all_places() {
        let downloads = Downloads::default();
        let client = |number: u8| IpAddr::from([192, 0, 2, number]);
        let mut running = Vec::new();
        for number in 0..4 {
            for _ in 0..MOST_OF_ONE {
                running.push(downloads.begin(client(number)).ok().unwrap());
            }
            let refused = downloads.begin(client(number)).err().unwrap();
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
            assert!(refused.headers.contains_key(RETRY_AFTER));
        }
        assert_eq!(downloads.begin(client(4)).err().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        running.pop();
        drop(downloads.begin(client(4)).ok().unwrap());
        drop(running);
        assert_eq!(downloads.0.holders(), 0);
    }
}
