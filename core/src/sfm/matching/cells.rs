//! The search for neighbours where they are likely: an inverted file (Sivic & Zisserman, "Video Google", ICCV 2003;
//! Jégou et al., "Product quantization for nearest neighbor search", PAMI 2011).
//!
//! The descriptors of an image lie in cells, one for each word of a vocabulary. A descriptor of another image is
//! compared with those in the cells of its nearest words only: a fraction of the products. A true match is nearly always
//! in one of them; of its second nearest neighbour now and then only the next one is found, which makes the ratio test a
//! little more lenient.

use super::nearest::{Columns, Search};
use super::neighbours::Nearest;
use crate::sfm::features::Descriptor;

/// Words of the vocabulary.
pub(super) const WORDS: usize = 64;
/// Words in whose cells the neighbours of a descriptor are sought. On the captures that were
/// measured with 5, 6 or 8, AUC@3 of the poses is at most 0.2 below that of the exhaustive search (`docs/cost.md`).
const PROBES: usize = 6;

/// The descriptors of an image, by the words of a vocabulary.
pub(super) struct Cells {
    /// The descriptors in the order of their nearest word.
    order: Vec<u32>,
    /// Those of word `w` are `order[start[w]..start[w + 1]]`.
    start: Vec<usize>,
    /// By word, the descriptors that have it among their [`PROBES`] nearest.
    seekers: Vec<Vec<u32>>,
}

impl Cells {
    pub(super) fn new(descriptors: &[Descriptor], words: &[Descriptor]) -> Self {
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); words.len()];
        let mut seekers: Vec<Vec<u32>> = vec![Vec::new(); words.len()];
        let mut ranked: Vec<(i32, usize)> = Vec::with_capacity(words.len());
        let near = |a: &(i32, usize), b: &(i32, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        for (i, descriptor) in (0..).zip(descriptors) {
            products(descriptor, words, &mut ranked);
            let last = PROBES.min(words.len()) - 1;
            ranked.select_nth_unstable_by(last, near);
            ranked[..=last].iter().for_each(|&(_, word)| seekers[word].push(i));
            let nearest = ranked[..=last].iter().copied().min_by(near);
            nearest.into_iter().for_each(|(_, word)| members[word].push(i));
        }
        let mut start = vec![0];
        start.extend(members.iter().scan(0, |sum, own| {
            *sum += own.len();
            Some(*sum)
        }));
        Self { order: members.concat(), start, seekers }
    }

    /// The descriptors, laid out for any number of searches.
    pub(super) fn columns<'a>(&'a self, descriptors: &'a [Descriptor]) -> Columns<'a> {
        Columns::new(descriptors, &self.order, &self.start)
    }
}

/// The dot product of a descriptor with each of the words, and its number.
fn products(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<(i32, usize)>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { products_avx2(descriptor, words, out) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        // SAFETY: the processor has the instructions.
        return unsafe { products_dot_product(descriptor, words, out) };
    }
    products_any(descriptor, words, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn products_avx2(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<(i32, usize)>) {
    products_any(descriptor, words, out);
}

/// The compiler makes the instruction of it that adds up four products of bytes.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn products_dot_product(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<(i32, usize)>) {
    products_any(descriptor, words, out);
}

#[inline(always)]
fn products_any(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<(i32, usize)>) {
    out.clear();
    for (number, word) in words.iter().enumerate() {
        let mut sum = 0;
        for k in 0..word.len() {
            sum += i32::from(descriptor[k]) * i32::from(word[k]);
        }
        out.push((sum, number));
    }
}

/// Neighbours of each of the `rows` in the `columns`, and of each column in the rows, among those pairs in which the
/// column is in the cell of a word that is near to the row. Both have cells of one vocabulary.
pub(super) fn nearest_in_cells(
    (rows, row_cells): (&[Descriptor], &Cells),
    columns: &Columns<'_>,
) -> (Nearest, Nearest) {
    let mut search = Search::new(rows, columns);
    for (cell, seekers) in row_cells.seekers.iter().enumerate() {
        search.compare(seekers, cell);
    }
    search.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::matching::nearest::nearest;
    use crate::sfm::matching::vocabulary::learn_vocabulary;

    fn descriptor(values: impl Iterator<Item = f64>) -> Descriptor {
        let values: Vec<f64> = values.map(|v| v.max(0.0)).collect();
        let length = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        std::array::from_fn(|k| (512.0 * values[k] / length).round().min(255.0) as u8)
    }

    /// Descriptors around a few dozen centres, as those of pictures are, and the same ones seen again with noise.
    fn seen_twice(count: usize) -> [Vec<Descriptor>; 2] {
        let mut random = Random::new(3);
        let centres: Vec<Vec<f64>> =
            (0..40).map(|_| (0..128).map(|_| 40.0 * random.normal().abs()).collect()).collect();
        let mut sets = [Vec::new(), Vec::new()];
        for i in 0..count {
            let own: Vec<f64> =
                centres[i % centres.len()].iter().map(|c| c + 25.0 * random.normal()).collect();
            for set in &mut sets {
                set.push(descriptor(
                    own.iter().map(|v| v + 5.0 * random.normal()).collect::<Vec<_>>().into_iter(),
                ));
            }
        }
        sets
    }

    #[test]
    fn with_no_more_words_than_are_tried_the_search_is_exact() {
        let [a, b] = seen_twice(300);
        let words = learn_vocabulary(a.iter().chain(&b), a.len() + b.len(), PROBES);
        let (rows, columns) = (Cells::new(&a, &words), Cells::new(&b, &words));
        let (of_rows, of_columns) = nearest_in_cells((&a, &rows), &columns.columns(&b));
        let (all_rows, all_columns) = nearest(&a, &b);
        assert_eq!((of_rows.best, of_rows.second), (all_rows.best, all_rows.second));
        assert_eq!((of_columns.best, of_columns.second), (all_columns.best, all_columns.second));
    }

    #[test]
    fn nearly_all_true_neighbours_are_found() {
        let [a, b] = seen_twice(3000);
        let words = learn_vocabulary(a.iter().chain(&b), a.len() + b.len(), WORDS);
        assert_eq!(words.len(), WORDS);
        let (rows, columns) = (Cells::new(&a, &words), Cells::new(&b, &words));
        let (of_rows, of_columns) = nearest_in_cells((&a, &rows), &columns.columns(&b));
        let found = |of: &Nearest| of.index.iter().zip(0..).filter(|&(&j, i)| j == i).count();
        assert!(
            found(&of_rows) > 2900 && found(&of_columns) > 2900,
            "{} {}",
            found(&of_rows),
            found(&of_columns)
        );
        let compared: usize =
            rows.seekers.iter().zip(columns.start.windows(2)).map(|(s, c)| s.len() * (c[1] - c[0])).sum();
        assert!(compared < 3000 * 3000 / 4, "{compared}");
    }

    #[test]
    fn nothing_has_no_neighbours() {
        let [a, _] = seen_twice(30);
        let words = learn_vocabulary(a.iter(), a.len(), WORDS);
        let (some, none) = (Cells::new(&a, &words), Cells::new(&[], &words));
        let (of_rows, of_columns) = nearest_in_cells((&a, &some), &none.columns(&[]));
        assert!(of_rows.index.iter().all(|&j| j == u32::MAX) && of_columns.index.is_empty());
        assert!(Cells::new(&[], &[]).order.is_empty());
    }
}
