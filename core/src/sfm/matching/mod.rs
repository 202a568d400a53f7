//! Feature matches between two images.
//!
//! In: the features of images and which pairs to compare. Out: for each pair the mutual nearest neighbours that pass
//! the ratio test, the most distinctive first. [`match_pair`] searches exhaustively and exactly; [`match_pairs`] only
//! where neighbours are likely (`cells.rs`). `nearest.rs` has the kernels of both.

mod cells;
pub(crate) mod nearest;
#[cfg(target_arch = "x86_64")]
mod nearest_avx2;
#[cfg(target_arch = "x86_64")]
mod nearest_avx512;
#[cfg(target_arch = "aarch64")]
mod nearest_neon;
mod neighbours;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod packed;
pub(crate) mod vocabulary;

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use serde::Serialize;

use self::cells::{Cells, Words, nearest_in_cells};
use self::nearest::nearest;
use self::neighbours::Nearest;
use super::features::Features;
use crate::control::Control;
use crate::defaults::with_defaults;
use crate::error::{Error, Result};
use crate::stage::Stage;

/// Candidate matches of the pair (first, second) with first < second.
#[derive(Debug, Clone, PartialEq)]
pub struct PairMatches {
    /// Index of the first image.
    pub first: u32,
    /// Index of the second image.
    pub second: u32,
    /// (keypoint of the first, keypoint of the second), best (lowest ratio of distances) first. No keypoint twice.
    pub matches: Vec<[u32; 2]>,
}

with_defaults! {
    /// Which neighbours count as matches. Distances are between descriptors scaled to length 1. The defaults are
    /// COLMAP's.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct MatchOptions {
        /// Largest ratio of the distances to the nearest and to the second nearest neighbour, in both directions.
        pub max_ratio: f32 = 0.8,
        /// Largest distance to the nearest neighbour.
        pub max_distance: f32 = 0.7,
    }
}

/// Pairs of one second image that are matched in one go: more would leave processors without work at the end.
const PAIRS_OF_A_TASK: usize = 8;

/// Squared length of a descriptor, up to its rounding.
const SQUARED_LENGTH: f32 = 512.0 * 512.0;

/// Matches two images: (keypoint of `a`, keypoint of `b`), lowest ratio first. Exact and deterministic; on the calling
/// thread.
pub fn match_pair(a: &Features, b: &Features, options: &MatchOptions) -> Vec<[u32; 2]> {
    let (rows, columns) = nearest(&a.descriptors, &b.descriptors);
    matches(&rows, &columns, options)
}

/// The matches among neighbours, lowest ratio first.
fn matches(rows: &Nearest, columns: &Nearest, options: &MatchOptions) -> Vec<[u32; 2]> {
    let mut matches: Vec<(f32, [u32; 2])> = Vec::new();
    for (i, &j) in rows.index.iter().enumerate().filter(|&(_, &j)| j != u32::MAX) {
        if columns.index[j as usize] != i as u32 {
            continue;
        }
        let distance = distance(rows.best[i]);
        let ratio = ratio(rows, i).max(ratio(columns, j as usize));
        if distance <= options.max_distance && ratio <= options.max_ratio {
            matches.push((ratio, [i as u32, j]));
        }
    }
    matches.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    matches.into_iter().map(|(_, pair)| pair).collect()
}

/// Distance of unit descriptors with this dot product.
fn distance(dot: i32) -> f32 {
    (2.0 - 2.0 * dot as f32 / SQUARED_LENGTH).max(0.0).sqrt()
}

/// Distance to the nearest over that to the second nearest; 0 if there is no second one, 1 if both are at no distance.
fn ratio(nearest: &Nearest, i: usize) -> f32 {
    if nearest.second[i] < 0 {
        return 0.0;
    }
    let second = distance(nearest.second[i]);
    if second > 0.0 { distance(nearest.best[i]) / second } else { 1.0 }
}

/// Matches all `pairs` of images, in parallel; the result has their order. A few of the matches of [`match_pair`] are
/// missing, and a few are there that it finds ambiguous. Progress is reported as the step "match" from 0 to 1.
///
/// # Errors
/// `InvalidArgument` if a pair is not (first < second < number of images); `Cancelled`.
pub fn match_pairs(
    features: &[Features],
    pairs: &[(u32, u32)],
    options: &MatchOptions,
    control: &Control,
) -> Result<Vec<PairMatches>> {
    if let Some((first, second)) = pairs.iter().find(|(a, b)| a >= b || *b as usize >= features.len()) {
        return Err(Error::argument(format!(
            "cannot match images {first} and {second} of {}: a pair is first < second, both counted from 0",
            features.len()
        )));
    }
    let cells = Cells::of_all(features, &Words::of(features));
    let done = AtomicUsize::new(0);
    // The columns of an image are laid out once for some of its pairs.
    let mut by_second: Vec<usize> = (0..pairs.len()).collect();
    by_second.sort_by_key(|&pair| pairs[pair].1);
    let tasks: Vec<&[usize]> = by_second
        .chunk_by(|&a, &b| pairs[a].1 == pairs[b].1)
        .flat_map(|pairs| pairs.chunks(PAIRS_OF_A_TASK))
        .collect();
    let found: Vec<Vec<(usize, PairMatches)>> = tasks
        .into_par_iter()
        .map(|task| {
            let second = pairs[task[0]].1;
            let columns = cells[second as usize].columns(&features[second as usize].descriptors);
            task.iter()
                .map(|&pair| {
                    control.check()?;
                    let first = pairs[pair].0;
                    let rows = (&features[first as usize].descriptors[..], &cells[first as usize]);
                    let (rows, columns) = nearest_in_cells(rows, &columns);
                    let matches = matches(&rows, &columns, options);
                    let done = 1 + done.fetch_add(1, Ordering::Relaxed);
                    if done.is_multiple_of(16) || done == pairs.len() {
                        control.progress(Stage::Sfm, "matching", done as f32 / pairs.len() as f32);
                    }
                    Ok((pair, PairMatches { first, second, matches }))
                })
                .collect()
        })
        .collect::<Result<_>>()?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    found.sort_by_key(|(pair, _)| *pair);
    Ok(found.into_iter().map(|(_, matches)| matches).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::CancelToken;
    use crate::error::ErrorKind;
    use crate::random::Random;
    use crate::sfm::features::{Descriptor, Keypoint};

    /// Descriptors of length 512 with random directions.
    fn features(count: usize, seed: u64) -> Features {
        let mut random = Random::new(seed);
        let descriptors: Vec<Descriptor> = (0..count)
            .map(|_| {
                let values: Vec<f64> = (0..128).map(|_| random.normal().abs()).collect();
                let length = values.iter().map(|v| v * v).sum::<f64>().sqrt();
                std::array::from_fn(|k| (512.0 * values[k] / length).round().min(255.0) as u8)
            })
            .collect();
        let keypoint = Keypoint { x: 0.0, y: 0.0, scale: 1.0, orientation: 0.0 };
        Features { keypoints: vec![keypoint; count], descriptors }
    }

    #[test]
    fn a_shuffled_noisy_copy_is_found_and_sorted_by_ratio() {
        let a = features(300, 5);
        let mut b = features(200, 6);
        let mut random = Random::new(9);
        for i in 0..150 {
            b.descriptors[199 - i] =
                a.descriptors[2 * i].map(|v| (f64::from(v) + 4.0 * random.normal()).clamp(0.0, 255.0) as u8);
        }
        let matches = match_pair(&a, &b, &MatchOptions::default());
        assert_eq!(matches.len(), 150);
        assert!(matches.iter().all(|&[i, j]| i % 2 == 0 && j == 199 - i / 2));
        let (rows, columns) = nearest(&a.descriptors, &b.descriptors);
        let ratios: Vec<f32> =
            matches.iter().map(|&[i, j]| ratio(&rows, i as usize).max(ratio(&columns, j as usize))).collect();
        assert!(ratios.is_sorted());
        let swapped = match_pair(&b, &a, &MatchOptions::default());
        assert!(swapped.iter().all(|&[j, i]| matches.contains(&[i, j])) && swapped.len() == 150);
    }

    #[test]
    fn images_with_many_features_are_matched_nearly_as_exhaustively() {
        let mut all = [features(2300, 5), features(2300, 6)];
        for i in 0..1500 {
            all[1].descriptors[2299 - i] = all[0].descriptors[i];
        }
        let found = match_pairs(&all, &[(0, 1)], &MatchOptions::default(), &Control::new()).unwrap();
        let exact = match_pair(&all[0], &all[1], &MatchOptions::default());
        assert_eq!(exact.len(), 1500);
        assert!(
            found[0].matches.len() >= 1500 && found[0].matches.len() < 1600,
            "{}",
            found[0].matches.len()
        );
        assert!(exact.iter().all(|m| found[0].matches.contains(m)));
    }

    #[test]
    fn an_ambiguous_match_is_dropped() {
        let a = features(50, 5);
        let mut b = a.clone();
        b.descriptors.push(a.descriptors[7]);
        b.keypoints.push(a.keypoints[7]);
        let matches = match_pair(&a, &b, &MatchOptions::default());
        assert_eq!(matches.len(), 49);
        assert!(!matches.iter().any(|&[i, _]| i == 7));
        assert_eq!(match_pair(&a, &Features::default(), &MatchOptions::default()), Vec::<[u32; 2]>::new());
        assert_eq!(match_pair(&Features::default(), &a, &MatchOptions::default()), Vec::<[u32; 2]>::new());
    }

    #[test]
    fn pairs_are_checked_and_can_be_cancelled() {
        let all = [features(20, 1), features(20, 1), features(20, 2)];
        let options = MatchOptions::default();
        let found = match_pairs(&all, &[(0, 1), (1, 2)], &options, &Control::new()).unwrap();
        assert_eq!((found[0].first, found[0].second, found[0].matches.len()), (0, 1, 20));
        assert_eq!((found[1].first, found[1].second), (1, 2));
        for wrong in [(1, 1), (2, 1), (0, 3)] {
            let error = match_pairs(&all, &[wrong], &options, &Control::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        let cancel = CancelToken::new();
        cancel.cancel();
        let control = Control::new().with_cancel(cancel);
        let error = match_pairs(&all, &[(0, 1)], &options, &control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}
