//! A vocabulary of descriptors: words that every descriptor is near to one of. It is learnt from the pictures at hand,
//! so there is no file to ship.

use rayon::prelude::*;

use super::nearest::nearest;
use crate::random::Random;
use crate::sfm::features::Descriptor;

/// Components of a descriptor.
const DIMENSIONS: usize = 128;
/// Descriptors that a vocabulary is learnt from at most.
const TRAINING_SIZE: usize = 32_768;
/// Rounds of k-means.
const ROUNDS: usize = 10;

/// At most `count` words, learnt from some of `descriptors`, of which there are `total`: fewer if there are fewer
/// descriptors. Spherical k-means: descriptors all have one length, so words of that length make the largest dot product
/// the nearest word, and the search for matches serves here too.
pub(crate) fn learn_vocabulary<'a>(
    descriptors: impl Iterator<Item = &'a Descriptor>,
    total: usize,
    count: usize,
) -> Vec<Descriptor> {
    let sample: Vec<Descriptor> =
        descriptors.step_by(total.div_ceil(TRAINING_SIZE).max(1)).copied().collect();
    // Distinct random members to start from (a partial Fisher-Yates shuffle).
    let mut random = Random::new(0);
    let mut order: Vec<usize> = (0..sample.len()).collect();
    let count = count.min(sample.len());
    for i in 0..count {
        let j = i + random.below(sample.len() - i);
        order.swap(i, j);
    }
    let mut words: Vec<Descriptor> = order[..count].iter().map(|&i| sample[i]).collect();
    for _ in 0..ROUNDS {
        let mut sums = vec![[0u64; DIMENSIONS]; words.len()];
        for (descriptor, &word) in sample.iter().zip(&assign(&sample, &words)) {
            for (sum, &value) in sums[word as usize].iter_mut().zip(descriptor) {
                *sum += u64::from(value);
            }
        }
        for (word, sum) in words.iter_mut().zip(&sums) {
            let length = sum.iter().map(|&s| (s as f64).powi(2)).sum::<f64>().sqrt();
            // A word that lost all its members stays where it is.
            if length > 0.0 {
                *word = sum.map(|s| (512.0 * s as f64 / length).round().min(255.0) as u8);
            }
        }
    }
    words
}

/// The nearest word of each descriptor.
fn assign(descriptors: &[Descriptor], words: &[Descriptor]) -> Vec<u32> {
    descriptors.par_chunks(2048).flat_map_iter(|chunk| nearest(chunk, words).0.index).collect()
}
