//! Retrieval: how alike pictures look, without matching them.
//!
//! Each picture becomes one vector, its VLAD (Jégou et al., CVPR 2010): the descriptors are assigned to the nearest of
//! 64 words, and for each word their differences from it are summed. The vocabulary is learnt from the pictures at
//! hand, so there is no file to ship. Called by [`super::pairing`].

use rayon::prelude::*;

use super::features::{Descriptor, Features};
use super::matching::nearest::nearest;
use crate::random::Random;

/// Words of the vocabulary.
const WORDS: usize = 64;
/// Dimensions of a descriptor.
const DIMENSIONS: usize = 128;
/// Descriptors of a picture that count: those of the largest scales, which reappear from further away.
const MAX_PER_PICTURE: usize = 1500;
/// Descriptors from which the vocabulary is learnt, over all pictures.
const TRAINING_SIZE: usize = 32_768;
/// Rounds of k-means.
const ROUNDS: usize = 10;

/// The dot products of all pairs of pictures' vectors, in [−1, 1], row by row: entry `i * n + j` is how alike `i` and
/// `j` look. A picture without features is like none (0).
pub(super) fn similarities(features: &[Features]) -> Vec<f32> {
    let n = features.len();
    let words = learn_vocabulary(features);
    let vectors: Vec<Vec<f32>> = features.par_iter().map(|features| vlad(features, &words)).collect();
    (0..n * n)
        .into_par_iter()
        .with_min_len(n)
        .map(|k| vectors[k / n].iter().zip(&vectors[k % n]).map(|(a, b)| a * b).sum())
        .collect()
}

/// The descriptors of a picture that count.
fn leading(features: &Features) -> &[Descriptor] {
    &features.descriptors[..features.descriptors.len().min(MAX_PER_PICTURE)]
}

/// Spherical k-means: descriptors all have one length, so words of that length make the largest dot product the nearest
/// word, and the search for matches serves here too. Fewer than [`WORDS`] words if there are fewer descriptors.
fn learn_vocabulary(features: &[Features]) -> Vec<Descriptor> {
    let total: usize = features.iter().map(|features| leading(features).len()).sum();
    let all = features.iter().flat_map(leading);
    let sample: Vec<Descriptor> = all.step_by(total.div_ceil(TRAINING_SIZE).max(1)).copied().collect();
    // Distinct random members to start from (a partial Fisher-Yates shuffle).
    let mut random = Random::new(0);
    let mut order: Vec<usize> = (0..sample.len()).collect();
    let count = WORDS.min(sample.len());
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

/// The vector of a picture: residuals summed per word, each word's part scaled to length 1 (Arandjelović & Zisserman,
/// CVPR 2013), signed square roots, length 1.
fn vlad(features: &Features, words: &[Descriptor]) -> Vec<f32> {
    let descriptors = leading(features);
    let mut vector = vec![0.0f32; words.len() * DIMENSIONS];
    if descriptors.is_empty() {
        return vector;
    }
    for (descriptor, word) in descriptors.iter().zip(nearest(descriptors, words).0.index) {
        let word = word as usize;
        let sums = &mut vector[word * DIMENSIONS..][..DIMENSIONS];
        for ((sum, &value), &centre) in sums.iter_mut().zip(descriptor).zip(&words[word]) {
            *sum += f32::from(value) - f32::from(centre);
        }
    }
    vector.chunks_exact_mut(DIMENSIONS).for_each(normalise);
    for value in &mut vector {
        *value = value.signum() * value.abs().sqrt();
    }
    normalise(&mut vector);
    vector
}

/// Scales to length 1, unless it is 0.
fn normalise(values: &mut [f32]) {
    let length = values.iter().map(|v| v * v).sum::<f32>().sqrt();
    if length > 0.0 {
        values.iter_mut().for_each(|v| *v /= length);
    }
}
