//! Which view a step trains on: every epoch goes through all of them in an order of its own.

use crate::random::{Random, hash};

/// The order of the training views.
#[derive(Debug)]
pub(super) struct ViewOrder {
    /// Number of the views.
    count: u32,
    seed: u64,
    /// Their order in the epoch `.0`, the last that was asked for.
    epoch: Option<(u32, Vec<u32>)>,
}

impl ViewOrder {
    /// That of `count` views, at least one.
    pub(super) fn new(count: u32, seed: u64) -> Self {
        Self { count, seed, epoch: None }
    }

    /// The view of a step; steps count from 1.
    pub(super) fn view_of(&mut self, step: u32) -> u32 {
        // Within the order, which has `count` places.
        let (epoch, place) = ((step - 1) / self.count, ((step - 1) % self.count) as usize);
        if let Some((of, order)) = &self.epoch
            && *of == epoch
        {
            return order[place];
        }
        let mut order: Vec<u32> = (0..self.count).collect();
        let mut random = Random::new(hash(self.seed ^ 0x0eb0) ^ u64::from(epoch));
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        let view = order[place];
        self.epoch = Some((epoch, order));
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_all_views_in_an_order_that_only_the_seed_decides() {
        let epochs = |seed| {
            let mut order = ViewOrder::new(7, seed);
            let views: Vec<u32> = (1..=21).map(|step| order.view_of(step)).collect();
            views.chunks(7).map(<[u32]>::to_vec).collect::<Vec<_>>()
        };
        let (one, other) = (epochs(1), epochs(2));
        for epoch in one.iter().chain(&other) {
            let mut all = epoch.clone();
            all.sort_unstable();
            assert_eq!(all, (0..7).collect::<Vec<u32>>());
        }
        assert!(one[0] != one[1] && one != other && one == epochs(1));
        // Who goes on in the middle of an epoch has the same.
        assert_eq!(ViewOrder::new(7, 1).view_of(18), one[2][3]);
    }
}
