//! Retrieval: how alike pictures look, without matching them.
//!
//! Each picture becomes one vector, its VLAD (Jégou et al., CVPR 2010): the descriptors are assigned to the nearest of
//! 64 words, and for each word their differences from it are summed. The vocabulary is learnt from the pictures at
//! hand, so there is no file to ship. Called by [`super::pairing`].

use rayon::prelude::*;

use super::features::{Descriptor, Features};
use super::matching::nearest::nearest;
use super::matching::vocabulary::learn_vocabulary;

/// Words of the vocabulary.
const WORDS: usize = 64;
/// Dimensions of a descriptor.
const DIMENSIONS: usize = 128;
/// Descriptors of a picture that count: those of the largest scales, which reappear from further away.
const MAX_PER_PICTURE: usize = 1500;

/// The dot products of all pairs of pictures' vectors, in [−1, 1], row by row: entry `i * n + j` is how alike `i` and
/// `j` look. A picture without features is like none (0).
pub(super) fn similarities(features: &[Features]) -> Vec<f32> {
    let total = features.iter().map(|features| leading(features).len()).sum();
    let words = learn_vocabulary(features.iter().flat_map(leading), total, WORDS);
    let vectors: Vec<Vec<f32>> = features.par_iter().map(|features| vlad(features, &words)).collect();
    dot_products(&vectors)
}

/// Vectors whose products with another one are summed side by side.
const LANES: usize = 16;
/// Vectors that are multiplied with these in one go.
const ROWS: usize = 4;

/// The dot products of all pairs of `vectors`, which have one length, row by row. The sums are those of the definition,
/// term after term: a sum does not depend on what is computed beside it. Their number grows with the square of the
/// pictures, so they are computed many at a time, and each pair once.
fn dot_products(vectors: &[Vec<f32>]) -> Vec<f32> {
    let n = vectors.len();
    let of_block: Vec<Vec<[f32; LANES]>> = vectors
        .par_chunks(LANES)
        .enumerate()
        .map(|(block, own)| {
            let length = own.first().map_or(0, Vec::len);
            let mut side_by_side = vec![[0.0; LANES]; length];
            for (lane, vector) in own.iter().enumerate() {
                side_by_side.iter_mut().zip(vector).for_each(|(out, value)| out[lane] = *value);
            }
            let last = n.min((block + 1) * LANES);
            vectors[..last].chunks(ROWS).flat_map(|rows| products(rows, &side_by_side)).collect()
        })
        .collect();
    let mut all = vec![0.0; n * n];
    for (block, products) in of_block.iter().enumerate() {
        for (i, lanes) in products.iter().enumerate() {
            for (j, &product) in (block * LANES..n).zip(lanes) {
                all[i * n + j] = product;
                all[j * n + i] = product;
            }
        }
    }
    all
}

/// The dot products of each of at most [`ROWS`] vectors with those that lie side by side.
fn products(rows: &[Vec<f32>], side_by_side: &[[f32; LANES]]) -> Vec<[f32; LANES]> {
    // As `sum` begins.
    let mut sums = [[-0.0; LANES]; ROWS];
    if let [a, b, c, d] = rows {
        let rows = a.iter().zip(b).zip(c).zip(d);
        for ((((a, b), c), d), lanes) in rows.zip(side_by_side) {
            for (sums, value) in sums.iter_mut().zip([a, b, c, d]) {
                sums.iter_mut().zip(lanes).for_each(|(sum, other)| *sum += value * other);
            }
        }
    } else {
        for (sums, row) in sums.iter_mut().zip(rows) {
            for (value, lanes) in row.iter().zip(side_by_side) {
                sums.iter_mut().zip(lanes).for_each(|(sum, other)| *sum += value * other);
            }
        }
    }
    sums[..rows.len()].to_vec()
}

/// The descriptors of a picture that count.
fn leading(features: &Features) -> &[Descriptor] {
    &features.descriptors[..features.descriptors.len().min(MAX_PER_PICTURE)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn products_side_by_side_are_the_same_numbers() {
        let mut random = Random::new(3);
        for n in [0, 1, 15, 37] {
            let mut vectors: Vec<Vec<f32>> =
                (0..n).map(|_| (0..300).map(|_| random.normal() as f32).collect()).collect();
            vectors.iter_mut().step_by(7).for_each(|v| v.fill(0.0));
            let all = dot_products(&vectors);
            assert_eq!(all.len(), n * n);
            for (k, product) in all.iter().enumerate() {
                let (a, b) = (&vectors[k / n], &vectors[k % n]);
                let expected: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                assert_eq!(product.to_bits(), expected.to_bits());
            }
        }
    }
}
