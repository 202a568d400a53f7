//! Points that become Gaussians.

use nalgebra::Vector3;

use crate::random::{Random, hash};

/// A point that becomes a Gaussian.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seed {
    /// World position.
    pub(crate) position: Vector3<f64>,
    /// sRGB, 0..1.
    pub(crate) rgb: [f32; 3],
}

/// Keeps `count` seeds, drawn evenly, in their order.
pub(crate) fn keep(seeds: &mut Vec<Seed>, count: usize, seed: u64) {
    let mut left = count.min(seeds.len());
    let mut from = seeds.len();
    let mut random = Random::new(hash(seed) ^ 0x5eed);
    // Selection sampling (Knuth, TAOCP 2, 3.4.2 S): every subset is as likely as any other.
    seeds.retain(|_| {
        let take = random.below(from) < left;
        from -= 1;
        left -= usize::from(take);
        take
    });
}
