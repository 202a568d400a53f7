//! How many connections there are, in all and from each network: no few of them may take the places of all others.

use std::net::IpAddr;

use super::network::network;
use super::shares::{Share, Shares};

/// The connections of this process.
pub(crate) struct Places {
    most: usize,
    /// Of one network; 0 is no limit.
    most_per_network: usize,
    taken: Shares<IpAddr>,
}

/// The place of one connection.
pub(crate) type Place = Share<IpAddr>;

impl Places {
    pub(crate) fn new(most: usize, most_per_network: usize) -> Self {
        Self { most: most.max(1), most_per_network, taken: Shares::default() }
    }

    /// Takes a place for a connection from `address`; nothing if there is none for it. A network may have so many as are
    /// allowed, and besides no more than a quarter of the places that are free: the fewer are left, the more networks it
    /// takes to fill them. For a proxy, which speaks for many, only the number of all places counts.
    pub(crate) fn enter(&self, address: IpAddr, is_proxy: bool) -> Option<Place> {
        let refuse = |all: usize, own: usize| {
            let free = self.most.saturating_sub(all);
            let any = is_proxy || self.most_per_network == 0;
            let share = if any { usize::MAX } else { self.most_per_network.min((free + own) / 4).max(1) };
            if free == 0 || own >= share { Err(()) } else { Ok(()) }
        };
        self.taken.take(network(address), refuse).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_so_many_connections_and_no_more() {
        let places = Places::new(100, 2);
        let here = address("2001:db8::1");
        let first = places.enter(here, false).unwrap();
        let _second = places.enter(address("2001:db8::2"), false).unwrap();
        assert!(places.enter(here, false).is_none());
        assert!(places.enter(address("2001:db8:0:1::1"), false).is_some());
        let _proxied = places.enter(here, true).unwrap();
        drop(first);
        assert!(places.enter(here, false).is_none());
        assert_eq!(places.taken.holders(), 1);
    }

    #[test]
    fn few_networks_cannot_take_all_places() {
        let places = Places::new(1000, 1000);
        let mut held = Vec::new();
        for network in 0..10 {
            while let Some(place) = places.enter(address(&format!("192.0.2.{network}")), false) {
                held.push(place);
            }
        }
        // A quarter of what is left each: after ten, the eleventh still has its connections.
        let left = 1000 - held.len();
        assert!((50..100).contains(&left), "{left}");
        assert!(places.enter(address("198.51.100.1"), false).is_some());
    }

    #[test]
    fn when_all_places_are_taken_nobody_enters() {
        let places = Places::new(2, 0);
        let here = address("192.0.2.1");
        let (first, _second) = (places.enter(here, false).unwrap(), places.enter(here, true).unwrap());
        assert!(places.enter(address("192.0.2.2"), true).is_none());
        drop(first);
        assert!(places.enter(address("192.0.2.2"), false).is_some());
    }
}
