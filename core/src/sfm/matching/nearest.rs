//! Nearest and second nearest neighbours between two sets of descriptors, in both directions, from one sweep over dot
//! products: of all pairs of descriptors, which is exact, or of those that a caller chooses.
//!
//! For `n × m` descriptors that are `128 n m` multiply-adds of bytes, so the kernels are blocked like a matrix product:
//! a block of columns stays in the cache, a few rows against a few vectors of columns in registers, and the products
//! never reach memory. Descriptors have one length, so the largest dot product is the nearest neighbour.
//!
//! Every kernel gives the same integers: ties go to what is searched first.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::nearest_avx2::{self, pack_words};
#[cfg(target_arch = "x86_64")]
use super::nearest_avx512::{compare_avx512_vnni, corrections, pack_bytes};
#[cfg(target_arch = "aarch64")]
use super::nearest_neon::{compare_dot_product, pack_bytes};
use super::neighbours::{Found, Nearest};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::packed::Packed;
use crate::sfm::features::Descriptor;

/// Neighbours of each row in the columns, and of each column in the rows, from all of them.
pub(crate) fn nearest(rows: &[Descriptor], columns: &[Descriptor]) -> (Nearest, Nearest) {
    let (all_rows, order) = (numbers(rows.len()), numbers(columns.len()));
    let kernel = Kernel::fastest();
    let start: Vec<usize> = (0..columns.len()).step_by(kernel.block()).chain([columns.len()]).collect();
    let columns = Columns::with_kernel(kernel, columns, &order, &start);
    let mut search = Search::new(rows, &columns);
    for cell in 0..start.len() - 1 {
        search.compare(&all_rows, cell);
    }
    search.finish()
}

fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).collect()
}

/// How products are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    NeonDotProduct,
    Portable,
}

impl Kernel {
    /// The fastest that this processor has.
    fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni")
            {
                return Self::Avx512Vnni;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            return Self::NeonDotProduct;
        }
        Self::Portable
    }

    /// Columns that all rows are compared with before the next ones are: 256 KiB of descriptors that are laid out stay in the
    /// second-level cache, 16 KiB of those that are not in the first.
    fn block(self) -> usize {
        if self == Self::Portable { 128 } else { 2048 }
    }
}

/// Columns as a kernel wants them.
enum Layout {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Packed<[u8; 64]>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Packed<[i16; 16]>),
    #[cfg(target_arch = "aarch64")]
    NeonDotProduct(Packed<[u8; 16]>),
    Portable,
}

/// Columns that are searched cell by cell, laid out for that; for any number of searches.
pub(super) struct Columns<'a> {
    columns: &'a [Descriptor],
    /// The column at every place.
    order: &'a [u32],
    /// The places of cell c are `start[c]..start[c + 1]`.
    start: &'a [usize],
    layout: Layout,
}

impl<'a> Columns<'a> {
    /// `order` has every column once: they are searched in it.
    pub(super) fn new(columns: &'a [Descriptor], order: &'a [u32], start: &'a [usize]) -> Self {
        Self::with_kernel(Kernel::fastest(), columns, order, start)
    }

    fn with_kernel(kernel: Kernel, columns: &'a [Descriptor], order: &'a [u32], start: &'a [usize]) -> Self {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        let cells = start.windows(2).map(|places| &order[places[0]..places[1]]);
        let layout = match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Vnni => Layout::Avx512Vnni(pack_bytes(columns, cells)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => Layout::Avx2(pack_words(columns, cells)),
            #[cfg(target_arch = "aarch64")]
            Kernel::NeonDotProduct => Layout::NeonDotProduct(pack_bytes(columns, cells)),
            Kernel::Portable => Layout::Portable,
        };
        Self { columns, order, start, layout }
    }
}

/// A search under way.
pub(super) struct Search<'a> {
    columns: &'a Columns<'a>,
    rows: &'a [Descriptor],
    found: Found,
    /// What the kernel wants to know of every row.
    #[cfg(target_arch = "x86_64")]
    corrections: Vec<i32>,
}

impl<'a> Search<'a> {
    pub(super) fn new(rows: &'a [Descriptor], columns: &'a Columns<'a>) -> Self {
        Self {
            columns,
            rows,
            found: Found::new(rows.len(), columns.columns.len()),
            #[cfg(target_arch = "x86_64")]
            corrections: match columns.layout {
                // SAFETY: the processor has the instructions, or the kernel would not have been chosen.
                Layout::Avx512Vnni(_) => unsafe { corrections(rows) },
                _ => Vec::new(),
            },
        }
    }

    /// Compares these rows with the columns of a cell.
    pub(super) fn compare(&mut self, rows: &[u32], cell: usize) {
        let places = self.columns.start[cell]..self.columns.start[cell + 1];
        match &self.columns.layout {
            // SAFETY: the processor has the instructions, or the kernel would not have been chosen.
            #[cfg(target_arch = "x86_64")]
            Layout::Avx512Vnni(packed) => unsafe {
                let packed = packed.of(cell);
                compare_avx512_vnni(&mut self.found, self.rows, rows, &self.corrections, places, packed);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Layout::Avx2(packed) => unsafe {
                nearest_avx2::compare(&mut self.found, self.rows, rows, places, packed.of(cell));
            },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Layout::NeonDotProduct(packed) => unsafe {
                compare_dot_product(&mut self.found, self.rows, rows, places, packed.of(cell));
            },
            Layout::Portable => self.compare_portable(rows, places),
        }
    }

    /// The same with whatever vector instructions the compiler may assume.
    fn compare_portable(&mut self, rows: &[u32], places: Range<usize>) {
        let found = &mut self.found;
        for &i in rows {
            let row = &self.rows[i as usize];
            for place in places.clone() {
                let column = &self.columns.columns[self.columns.order[place] as usize];
                let dot = row.iter().zip(column).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
                found.of_rows.update(i as usize, dot, place as u32);
                found.of_columns.update(place, dot, i);
            }
        }
    }

    /// The neighbours of rows and columns, in the order of these.
    pub(super) fn finish(self) -> (Nearest, Nearest) {
        self.found.finish(self.columns.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn random_descriptors(count: usize, seed: u64) -> Vec<Descriptor> {
        let mut random = Random::new(seed);
        (0..count).map(|_| std::array::from_fn(|_| (random.next_u64() & 255) as u8)).collect()
    }

    fn kernels() -> Vec<Kernel> {
        let mut all = vec![Kernel::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Kernel::Avx2);
            }
            if Kernel::fastest() == Kernel::Avx512Vnni {
                all.push(Kernel::Avx512Vnni);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if Kernel::fastest() == Kernel::NeonDotProduct {
            all.push(Kernel::NeonDotProduct);
        }
        all
    }

    #[test]
    fn all_kernels_give_the_same_integers() {
        for (n, m) in [(0, 3), (3, 0), (1, 1), (5, 17), (64, 64), (130, 700), (1111, 333)] {
            let mut rows = random_descriptors(n, 1);
            let mut columns = random_descriptors(m, 2);
            // Extremes of the arithmetic, and ties.
            for set in [&mut rows, &mut columns] {
                for i in 0..set.len() / 3 {
                    set[i] = if i % 2 == 0 { [255; 128] } else { set[set.len() - 1 - i] };
                }
            }
            let order: Vec<u32> = (0..m as u32).rev().collect();
            let start = [0, m / 5, m / 5, m];
            let some: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 1).collect();
            let found = kernels().into_iter().map(|kernel| {
                let columns = Columns::with_kernel(kernel, &columns, &order, &start);
                let mut search = Search::new(&rows, &columns);
                search.compare(&some, 2);
                search.compare(&some, 1);
                search.compare(&some[some.len() / 2..], 0);
                (kernel, search.finish())
            });
            let found: Vec<_> = found.collect();
            assert!(found.iter().all(|f| f.1 == found[0].1), "{n} x {m}");
        }
    }

    #[test]
    fn the_two_nearest_are_found() {
        let (rows, columns) = (random_descriptors(20, 3), random_descriptors(30, 4));
        let (of_rows, of_columns) = nearest(&rows, &columns);
        let dot = |i: usize, j: usize| -> i32 {
            (0..128).map(|k| i32::from(rows[i][k]) * i32::from(columns[j][k])).sum()
        };
        for i in 0..20 {
            let mut dots: Vec<_> = (0..30).map(|j| (-dot(i, j), j as u32)).collect();
            dots.sort();
            assert_eq!((of_rows.best[i], of_rows.index[i]), (-dots[0].0, dots[0].1));
            assert_eq!(of_rows.second[i], -dots[1].0);
        }
        for j in 0..30 {
            let mut dots: Vec<_> = (0..20).map(|i| (-dot(i, j), i as u32)).collect();
            dots.sort();
            assert_eq!((of_columns.best[j], of_columns.index[j]), (-dots[0].0, dots[0].1));
            assert_eq!(of_columns.second[j], -dots[1].0);
        }
    }

    #[test]
    fn what_was_not_compared_has_no_neighbours() {
        let (rows, columns) = (random_descriptors(4, 3), random_descriptors(5, 4));
        let order = [4, 3, 2, 1, 0];
        let columns = Columns::new(&columns, &order, &[0, 2, 5]);
        let mut search = Search::new(&rows, &columns);
        search.compare(&[1, 3], 0);
        let (of_rows, of_columns) = search.finish();
        assert_eq!(
            of_rows.index.iter().map(|&j| j == u32::MAX).collect::<Vec<_>>(),
            [true, false, true, false]
        );
        assert!(of_rows.index.iter().all(|&j| [3, 4, u32::MAX].contains(&j)));
        assert!(of_columns.index[..3].iter().all(|&i| i == u32::MAX));
        assert!(of_columns.index[3..].iter().all(|&i| [1, 3].contains(&i)));
    }
}
