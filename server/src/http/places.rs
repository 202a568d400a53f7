//! How many connections there are, in all and from each network: no few of them may take the places of all others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::network::network;

/// The connections of this process.
#[derive(Clone)]
pub(crate) struct Places(Arc<Inner>);

struct Inner {
    most: usize,
    /// Of one network; 0 is no limit.
    most_per_network: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

/// The place of one connection, until it is dropped.
pub(crate) struct Place {
    places: Places,
    network: IpAddr,
}

impl Places {
    pub(crate) fn new(most: usize, most_per_network: usize) -> Self {
        Self(Arc::new(Inner { most: most.max(1), most_per_network, taken: Mutex::default() }))
    }

    /// Takes a place for a connection from `address`; nothing if there is none for it. A network may have so many as are
    /// allowed, and besides no more than a quarter of the places that are free: the fewer are left, the more networks it
    /// takes to fill them. For a proxy, which speaks for many, only the number of all places counts.
    pub(crate) fn enter(&self, address: IpAddr, is_proxy: bool) -> Option<Place> {
        let network = network(address);
        let inner = &self.0;
        let mut taken = inner.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by.get(&network).copied().unwrap_or(0);
        let free = inner.most.saturating_sub(taken.all);
        let has_share = is_proxy || inner.most_per_network == 0;
        let share = if has_share { usize::MAX } else { inner.most_per_network.min((free + own) / 4).max(1) };
        if free == 0 || own >= share {
            return None;
        }
        taken.all += 1;
        taken.by.insert(network, own + 1);
        Some(Place { places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(own) = taken.by.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                taken.by.remove(&self.network);
            }
        }
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
        assert_eq!(places.0.taken.lock().unwrap().by.len(), 1);
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
