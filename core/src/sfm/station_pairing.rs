//! Which sides of panoramas to match with which.
//!
//! Stations are paired as frames of a video are (`pairing.rs`): all with all if they are few, else each with some that
//! follow it and with those that look alike. What of two panoramas shows the same, their sides' likeness tells
//! (`vlad.rs`): the camera may have turned meanwhile, so it need not be sides of one name.

use std::collections::BTreeSet;

use super::features::Features;
use super::pairing::{PairingOptions, exhaustive_pairs, sequential_pairs};
use super::rig::Rig;
use super::vlad::similarities;

/// Sides of the other station that each side is matched with: what it shows lies on two of them at least where the camera
/// has turned. Chosen by hand.
const SIDES: usize = 2;
/// Stations that are all paired with all, at most: each pair of them is a dozen of images.
const EXHAUSTIVE: usize = 15;
/// Stations of loop pairs are at least this far from each other, in the order of the path.
const LOOP_SPACING: usize = 3;

/// The pairs of images (first < second) to match, sorted and unique; none are of one station.
pub(super) fn station_pairs(
    features: &[Features],
    rig: &Rig,
    sequential: bool,
    options: &PairingOptions,
) -> Vec<(u32, u32)> {
    let images = features.len();
    let similarities = similarities(features);
    let like = |a: usize, b: usize| similarities[a * images + b];
    let mut stations: BTreeSet<(u32, u32)> = BTreeSet::new();
    let count = rig.stations();
    if count <= EXHAUSTIVE {
        stations.extend(exhaustive_pairs(count));
    } else {
        let window = if sequential { options.offsets.iter().copied().max().unwrap_or(0) } else { 0 };
        if sequential {
            stations.extend(sequential_pairs(count, &options.offsets));
        }
        let wanted = if sequential { options.loop_pairs } else { options.retrieval_pairs };
        let spacing = if sequential { LOOP_SPACING } else { 1 };
        for a in 0..count {
            let likeness = |b: usize| {
                let best = |i: usize| rig.images_of(b).map(|j| like(i, j)).fold(f32::MIN, f32::max);
                rig.images_of(a).map(best).sum::<f32>()
            };
            let far = (0..count).filter(|&b| b != a && b.abs_diff(a) > window as usize);
            let mut others: Vec<(f32, usize)> = far.map(|b| (likeness(b), b)).collect();
            others.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
            let mut chosen: Vec<usize> = Vec::new();
            for (_, b) in others {
                if chosen.len() == wanted {
                    break;
                }
                if chosen.iter().all(|&c| c.abs_diff(b) >= spacing) {
                    chosen.push(b);
                    stations.insert((a.min(b) as u32, a.max(b) as u32));
                }
            }
        }
    }
    let mut pairs = BTreeSet::new();
    for (a, b) in stations {
        let (a, b) = (a as usize, b as usize);
        for (own, other) in [(a, b), (b, a)] {
            for i in rig.images_of(own) {
                let mut sides: Vec<usize> = rig.images_of(other).collect();
                sides.sort_by(|&x, &y| like(i, y).total_cmp(&like(i, x)).then(x.cmp(&y)));
                pairs.extend(sides.iter().take(SIDES).map(|&j| (i.min(j) as u32, i.max(j) as u32)));
            }
        }
    }
    pairs.into_iter().collect()
}
