//! Which pictures to match with which.
//!
//! All with all if they are few. Else, in a video, each frame with some that follow it and with those elsewhere in the
//! video that look alike (loop closures); in an unordered set, each with those that look alike (`vlad.rs`) and with its
//! nearest neighbours by name, which in most folders are neighbours in time.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::defaults::with_defaults;

use super::features::Features;
use super::vlad::similarities;

with_defaults! {
    /// How pairs are chosen.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct PairingOptions {
        /// Of an unordered set: all pairs up to this many pictures.
        pub exhaustive_max: usize = 60,
        /// Of a video: all pairs up to this many frames. Their order tells more than that of pictures.
        pub exhaustive_frames: usize = 30,
        /// A frame is matched with those this far behind it.
        pub offsets: Vec<u32> = vec![1, 2, 3, 4, 6, 8, 12, 16, 24],
        /// In a video: pairs per frame with frames further away than the largest offset.
        pub loop_pairs: usize = 5,
        /// In an unordered set: pairs per picture.
        pub retrieval_pairs: usize = 25,
    }
}

/// Loop pairs of one frame lead to frames at least this far from each other: neighbours all look alike and say the
/// same.
const LOOP_SPACING: usize = 3;

/// In an unordered set a picture is matched with the next ones in the list up to this offset: few pairs beside those by
/// looks, and they are those that tell when a picture was taken for one that only looks alike.
const NAME_NEIGHBOURS: u32 = 4;

/// The pairs (first < second) to match, sorted and unique. `sequential`: the pictures are frames of a video in their
/// order.
pub fn candidate_pairs(features: &[Features], sequential: bool, options: &PairingOptions) -> Vec<(u32, u32)> {
    let n = features.len();
    if n <= if sequential { options.exhaustive_frames } else { options.exhaustive_max } {
        return exhaustive_pairs(n);
    }
    let mut pairs = BTreeSet::new();
    let (window, count, spacing) = if sequential {
        pairs.extend(sequential_pairs(n, &options.offsets));
        (options.offsets.iter().max().map_or(0, |&o| o as usize), options.loop_pairs, LOOP_SPACING)
    } else {
        let near: Vec<u32> = options.offsets.iter().copied().filter(|&o| o <= NAME_NEIGHBOURS).collect();
        pairs.extend(sequential_pairs(n, &near));
        (0, options.retrieval_pairs, 1)
    };
    if count > 0 {
        pairs.extend(similar_pairs(&similarities(features), n, window, count, spacing));
    }
    pairs.into_iter().collect()
}

/// All pairs of `n` pictures.
pub fn exhaustive_pairs(n: usize) -> Vec<(u32, u32)> {
    let n = n as u32;
    (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect()
}

/// Pairs of frames whose numbers differ by one of `offsets`, sorted.
pub fn sequential_pairs(n: usize, offsets: &[u32]) -> Vec<(u32, u32)> {
    let offsets: BTreeSet<u32> = offsets.iter().copied().filter(|&offset| offset > 0).collect();
    let pair = |i: u32, offset: u32| i.checked_add(offset).filter(|&j| (j as usize) < n).map(|j| (i, j));
    (0..n as u32).flat_map(|i| offsets.iter().filter_map(move |&offset| pair(i, offset))).collect()
}

/// For each picture the `count` most similar ones (`similarities` is `n × n`) further than `window` from it and at
/// least `spacing` apart.
fn similar_pairs(
    similarities: &[f32],
    n: usize,
    window: usize,
    count: usize,
    spacing: usize,
) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    for i in 0..n {
        let row = &similarities[i * n..][..n];
        let mut others: Vec<usize> = (0..n).filter(|&j| j.abs_diff(i) > window).collect();
        others.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        let mut chosen: Vec<usize> = Vec::with_capacity(count);
        for j in others {
            if chosen.len() == count {
                break;
            }
            if chosen.iter().all(|&other| other.abs_diff(j) >= spacing) {
                chosen.push(j);
                pairs.insert((i.min(j) as u32, i.max(j) as u32));
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::features::{Descriptor, Keypoint};

    #[test]
    fn few_pictures_are_paired_exhaustively() {
        let none = vec![Features::default(); 4];
        let pairs = candidate_pairs(&none, true, &PairingOptions::default());
        assert_eq!(pairs, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
        assert_eq!(candidate_pairs(&[], false, &PairingOptions::default()), []);
    }

    #[test]
    fn frames_are_paired_at_the_offsets() {
        assert_eq!(
            sequential_pairs(5, &[2, 1, 4, 0]),
            [(0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]
        );
        assert_eq!(sequential_pairs(0, &[1]), []);
    }

    /// Pictures on a circle: each sees the landmarks next to it, so the last ones see those of the first ones again.
    fn circle(pictures: usize, seen: usize) -> Vec<Features> {
        let mut random = Random::new(4);
        let per_place = 12;
        let landmarks: Vec<Descriptor> = (0..pictures * per_place)
            .map(|_| std::array::from_fn(|_| (random.normal().abs() * 40.0).min(255.0) as u8))
            .collect();
        (0..pictures)
            .map(|i| {
                let descriptors: Vec<Descriptor> = (0..seen * per_place)
                    .map(|k| {
                        let landmark = landmarks[(i * per_place + k) % landmarks.len()];
                        landmark.map(|v| (f64::from(v) + 3.0 * random.normal()).clamp(0.0, 255.0) as u8)
                    })
                    .collect();
                let keypoint = Keypoint { x: 1.0, y: 1.0, scale: 2.0, orientation: 0.0 };
                Features { keypoints: vec![keypoint; descriptors.len()], descriptors }
            })
            .collect()
    }

    #[test]
    fn a_loop_is_closed_and_neighbours_are_retrieved() {
        let n = 80;
        let features = circle(n, 16);
        let options = PairingOptions { exhaustive_frames: 10, loop_pairs: 2, ..Default::default() };
        let pairs = candidate_pairs(&features, true, &options);
        assert!(pairs.is_sorted() && pairs.windows(2).all(|w| w[0] != w[1]));
        assert!(pairs.iter().all(|&(i, j)| i < j && (j as usize) < n));
        // Picture 0 shares 15 of 16 places with the last one.
        for (first, second) in [(0, 79), (1, 79), (0, 78)] {
            assert!(pairs.contains(&(first, second)), "{first} {second}");
        }
        let options = PairingOptions { exhaustive_max: 10, retrieval_pairs: 8, ..Default::default() };
        let pairs = candidate_pairs(&features, false, &options);
        for i in 0..n as u32 {
            for offset in 1..=2 {
                let j = (i + offset) % n as u32;
                assert!(pairs.contains(&(i.min(j), i.max(j))), "{i} {j}");
            }
        }
        assert!((0..n as u32 - 1).all(|i| pairs.contains(&(i, i + 1))));
        assert!(pairs.len() <= (8 + 4) * n);
    }

    #[test]
    fn pictures_without_features_do_not_break_retrieval() {
        let mut features = vec![Features::default(); 12];
        let options = PairingOptions {
            exhaustive_max: 3,
            exhaustive_frames: 3,
            offsets: vec![1, 2],
            loop_pairs: 1,
            retrieval_pairs: 2,
        };
        assert!(candidate_pairs(&features, true, &options).len() >= 21);
        features[3] = circle(12, 2).remove(0);
        assert!(!candidate_pairs(&features, false, &options).is_empty());
    }
}
