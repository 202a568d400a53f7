//! The search for neighbours where they are likely: an inverted file (Sivic & Zisserman, "Video Google", ICCV 2003;
//! Jégou et al., "Product quantization for nearest neighbor search", PAMI 2011).
//!
//! The descriptors of an image lie in cells, one for each word of a vocabulary. A descriptor of another image is
//! compared with those in the cells of its nearest words only: a fraction of the products. A true match is nearly always
//! in one of them; of its second nearest neighbour now and then only the next one is found, which makes the ratio test a
//! little more lenient.

use rayon::prelude::*;

use super::nearest::{Columns, Search};
#[cfg(target_arch = "x86_64")]
use super::nearest_avx2::{self, TILE_ROWS};
use super::neighbours::Nearest;
#[cfg(target_arch = "x86_64")]
use super::packed::Packed;
use super::vocabulary::learn_vocabulary;
use crate::sfm::features::{Descriptor, Features};

/// Words of a vocabulary at least and at most.
const WORDS: [usize; 2] = [64, 256];
/// Descriptors of a picture for each word: smaller cells leave lanes of the kernels empty.
const DESCRIPTORS_PER_WORD: usize = 32;

/// How many words a vocabulary has for pictures with so many descriptors each.
fn word_count(descriptors_per_picture: usize) -> usize {
    (descriptors_per_picture / DESCRIPTORS_PER_WORD).clamp(WORDS[0], WORDS[1])
}

/// In the cells of how many of so many words neighbours are sought: 6 of 64, 12 of 256. On the captures that were
/// measured with 5, 6 or 8 of 64, AUC@3 of the poses is at most 0.2 below that of the exhaustive search, and with more words
/// in this measure as many matches are found (`docs/cost.md`).
fn probes(words: usize) -> usize {
    ((0.75 * (words as f64).sqrt()).round() as usize).min(words)
}

/// The words that cells are of.
pub(super) struct Words {
    words: Vec<Descriptor>,
    /// In the cells of how many of these the neighbours of a descriptor are sought.
    probes: usize,
    /// The words, laid out.
    #[cfg(target_arch = "x86_64")]
    packed: Option<Packed<[i16; 16]>>,
}

impl Words {
    /// Those that suit the descriptors of some pictures.
    pub(super) fn of(features: &[Features]) -> Self {
        let total: usize = features.iter().map(|f| f.descriptors.len()).sum();
        let count = word_count(total / features.len().max(1));
        let words = learn_vocabulary(features.iter().flat_map(|f| &f.descriptors), total, count);
        let probes = probes(words.len());
        Self::new(words, probes)
    }

    /// # Panics
    /// If they are more than [`WORDS`] allows.
    fn new(words: Vec<Descriptor>, probes: usize) -> Self {
        assert!(words.len() <= WORDS[1], "{} words", words.len());
        #[cfg(target_arch = "x86_64")]
        let packed = is_x86_feature_detected!("avx2").then(|| {
            let all: Vec<u32> = (0..words.len() as u32).collect();
            nearest_avx2::pack_words(&words, std::iter::once(&all[..]))
        });
        Self {
            words,
            probes,
            #[cfg(target_arch = "x86_64")]
            packed,
        }
    }

    /// Calls `each` with the number of every descriptor and its dot products with all words.
    fn products(&self, descriptors: &[Descriptor], mut each: impl FnMut(u32, &[i32])) {
        #[cfg(target_arch = "x86_64")]
        if let Some(packed) = &self.packed {
            let mut out: [Vec<i32>; TILE_ROWS] = Default::default();
            let numbers: Vec<u32> = (0..descriptors.len() as u32).collect();
            for rows in numbers.chunks(TILE_ROWS) {
                // SAFETY: the processor has the instructions, or the words were not laid out.
                unsafe {
                    nearest_avx2::all_products(descriptors, rows, packed.of(0), self.words.len(), &mut out);
                }
                rows.iter().zip(&out).for_each(|(&row, products)| each(row, products));
            }
            return;
        }
        let mut out = Vec::with_capacity(self.words.len());
        for (number, descriptor) in (0..).zip(descriptors) {
            products(descriptor, &self.words, &mut out);
            each(number, &out);
        }
    }
}

/// The descriptors of an image, by the words of a vocabulary.
pub(super) struct Cells {
    /// The descriptors in the order of their nearest word.
    order: Vec<u32>,
    /// Those of word `w` are `order[start[w]..start[w + 1]]`.
    start: Vec<usize>,
    /// By word, the descriptors that have it among the nearest that are searched, but not as the nearest.
    seekers: Vec<Vec<u32>>,
}

impl Cells {
    /// Of every picture.
    pub(super) fn of_all(features: &[Features], words: &Words) -> Vec<Self> {
        features.par_iter().map(|f| Self::new(&f.descriptors, words)).collect()
    }

    fn new(descriptors: &[Descriptor], words: &Words) -> Self {
        let count = words.words.len();
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut seekers: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut ranks: Vec<u32> = Vec::with_capacity(count);
        words.products(descriptors, |i, products| {
            ranks.clear();
            ranks.extend(products.iter().zip(0..).map(|(&product, word)| rank(product, word)));
            let last = words.probes - 1;
            ranks.select_nth_unstable(last);
            let near = &ranks[..=last];
            let nearest = near.iter().copied().min().map(word_of);
            for word in near.iter().copied().map(word_of) {
                let cells = if Some(word) == nearest { &mut members } else { &mut seekers };
                cells[word].push(i);
            }
        });
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

/// What sorts words by how near they are, the nearest first, and of those that are as near the first one. A product of two descriptors
/// has 23 bits at most, and there are at most 256 words.
fn rank(product: i32, word: u32) -> u32 {
    !((product as u32) << 8 | (255 - word))
}

/// The word of a [`rank`].
fn word_of(rank: u32) -> usize {
    (255 - (!rank & 255)) as usize
}

/// The dot products of a descriptor with each of the words.
fn products(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<i32>) {
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        // SAFETY: the processor has the instructions.
        return unsafe { products_dot_product(descriptor, words, out) };
    }
    products_any(descriptor, words, out);
}

/// The compiler makes the instruction of it that adds up four products of bytes.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn products_dot_product(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<i32>) {
    products_any(descriptor, words, out);
}

#[inline(always)]
fn products_any(descriptor: &Descriptor, words: &[Descriptor], out: &mut Vec<i32>) {
    out.clear();
    for word in words {
        let mut sum = 0;
        for k in 0..word.len() {
            sum += i32::from(descriptor[k]) * i32::from(word[k]);
        }
        out.push(sum);
    }
}

/// Neighbours of each of the `rows` in the `columns`, and of each column in the rows, among those pairs in which the
/// column is in the cell of a word that is near to the row. Both have cells of one vocabulary.
pub(super) fn nearest_in_cells(
    (rows, row_cells): (&[Descriptor], &Cells),
    columns: &Columns<'_>,
) -> (Nearest, Nearest) {
    let mut search = Search::new(rows, columns);
    // Neighbours are mostly in the cell of the nearest word. After it few products are larger than those that were found.
    for (cell, own) in row_cells.start.windows(2).enumerate() {
        search.compare(&row_cells.order[own[0]..own[1]], cell);
    }
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
        let words = Words::new(learn_vocabulary(a.iter().chain(&b), a.len() + b.len(), 6), 6);
        let (rows, columns) = (Cells::new(&a, &words), Cells::new(&b, &words));
        let (of_rows, of_columns) = nearest_in_cells((&a, &rows), &columns.columns(&b));
        let (all_rows, all_columns) = nearest(&a, &b);
        assert_eq!((of_rows.best, of_rows.second), (all_rows.best, all_rows.second));
        assert_eq!((of_columns.best, of_columns.second), (all_columns.best, all_columns.second));
    }

    #[test]
    fn nearly_all_true_neighbours_are_found() {
        let [a, b] = seen_twice(3000);
        let features =
            [&a, &b].map(|descriptors| Features { keypoints: Vec::new(), descriptors: descriptors.clone() });
        let words = Words::of(&features);
        assert_eq!((words.words.len(), words.probes), (93, 7));
        let (rows, columns) = (Cells::new(&a, &words), Cells::new(&b, &words));
        let (of_rows, of_columns) = nearest_in_cells((&a, &rows), &columns.columns(&b));
        let found = |of: &Nearest| of.index.iter().zip(0..).filter(|&(&j, i)| j == i).count();
        assert!(
            found(&of_rows) > 2900 && found(&of_columns) > 2900,
            "{} {}",
            found(&of_rows),
            found(&of_columns)
        );
        let size = |cells: &Cells, word: usize| cells.start[word + 1] - cells.start[word];
        let compared: usize =
            (0..93).map(|w| (size(&rows, w) + rows.seekers[w].len()) * size(&columns, w)).sum();
        assert!(compared < 3000 * 3000 / 8, "{compared}");
    }

    #[test]
    fn a_descriptor_is_in_the_cell_of_its_nearest_word_and_seeks_in_those_of_the_next() {
        let [a, mut b] = seen_twice(99);
        // Of words that are as near the first counts.
        b[17] = b[5];
        let cells = Cells::new(&a, &Words::new(b.clone(), 4));
        let mut products = Vec::new();
        for (i, descriptor) in (0..).zip(&a) {
            super::products(descriptor, &b, &mut products);
            let mut words: Vec<usize> = (0..b.len()).collect();
            words.sort_by_key(|&word| (-products[word], word));
            assert!(cells.order[cells.start[words[0]]..cells.start[words[0] + 1]].contains(&i));
            let seeks = |word: usize| cells.seekers[word].contains(&i);
            assert!((0..b.len()).all(|word| seeks(word) == words[1..4].contains(&word)), "{i}");
        }
        assert_eq!(cells.order.len(), a.len());
        for (product, word) in [(0, 0), (8_323_200, 0), (8_323_200, 255), (77, 200)] {
            assert_eq!(word_of(rank(product, word)), word as usize);
        }
    }

    #[test]
    fn nothing_has_no_neighbours() {
        let [a, _] = seen_twice(30);
        let words = Words::new(learn_vocabulary(a.iter(), a.len(), 64), 5);
        let (some, none) = (Cells::new(&a, &words), Cells::new(&[], &words));
        let (of_rows, of_columns) = nearest_in_cells((&a, &some), &none.columns(&[]));
        assert!(of_rows.index.iter().all(|&j| j == u32::MAX) && of_columns.index.is_empty());
        assert!(Cells::new(&[], &Words::of(&[])).order.is_empty());
    }
}
