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
pub(crate) struct Place {
    share: Share<IpAddr>,
    bounds: Bounds,
}

/// How many places there are for those who ask for one.
#[derive(Clone, Copy)]
struct Bounds {
    most: usize,
    /// Of one network, if that counts.
    most_per_network: Option<usize>,
}

impl Bounds {
    /// Places that are free, and how many a network may have that has `own`, where `all` are taken.
    fn left(self, all: usize, own: usize) -> (usize, usize) {
        let free = self.most.saturating_sub(all);
        let of_network = |most: usize| most.min((free + own) / 4).max(1);
        (free, self.most_per_network.map_or(usize::MAX, of_network))
    }
}

impl Places {
    pub(crate) fn new(most: usize, most_per_network: usize) -> Self {
        Self { most: most.max(1), most_per_network, taken: Shares::default() }
    }

    /// Takes a place for a connection from `address`; nothing if there is none for it. A network may have so many as are
    /// allowed, and besides no more than a quarter of the places that are free: the fewer are left, the more networks it
    /// takes to fill them. For a proxy, which speaks for many, only the number of all places counts.
    pub(crate) fn enter(&self, address: IpAddr, is_proxy: bool) -> Option<Place> {
        let any = is_proxy || self.most_per_network == 0;
        let bounds = Bounds { most: self.most, most_per_network: (!any).then_some(self.most_per_network) };
        let refuse = |all: usize, own: usize| {
            let (free, share) = bounds.left(all, own);
            if free == 0 || own >= share { Err(()) } else { Ok(()) }
        };
        let share = self.taken.take(network(address), refuse).ok()?;
        Some(Place { share, bounds })
    }
}

impl Place {
    /// Whether others will soon look for it: more than half of all places are taken, or of those that its network may have.
    pub(crate) fn is_scarce(&self) -> bool {
        let (all, own) = self.share.taken();
        let (_, of_network) = self.bounds.left(all, own);
        all > self.bounds.most / 2 || own > of_network / 2
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
    fn rule_91_places_are_scarce_when_more_than_half_of_them_are_taken() {
        let places = Places::new(1000, 100);
        let mut held = Vec::new();
        for number in 1..=60 {
            held.push(places.enter(address("192.0.2.1"), false).unwrap());
            assert_eq!(held.iter().all(Place::is_scarce), number > 50, "{number}");
        }
        // Not those of others, nor those of a proxy however many it has.
        let other = places.enter(address("192.0.2.2"), false).unwrap();
        assert!(!other.is_scarce());
        for number in 62..=600 {
            held.push(places.enter(address("198.51.100.1"), true).unwrap());
            assert_eq!(other.is_scarce(), number > 500, "{number}");
            assert_eq!(held.last().unwrap().is_scarce(), number > 500, "{number}");
        }
        drop(held);
        assert!(!other.is_scarce());
        // Of few places a network may have a quarter.
        let places = Places::new(16, 100);
        let mut held: Vec<_> = (0..2).map(|_| places.enter(address("192.0.2.1"), false).unwrap()).collect();
        assert!(!held[0].is_scarce());
        held.push(places.enter(address("192.0.2.1"), false).unwrap());
        assert!(held[0].is_scarce());
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
