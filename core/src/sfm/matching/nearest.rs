//! Exact nearest and second nearest neighbours between two sets of descriptors, in both directions, from one sweep over
//! all dot products.
//!
//! For `n × m` descriptors that are `128 n m` multiply-adds of bytes, so the kernels are blocked like a matrix product:
//! a block of columns stays in the cache, a few rows against a few vectors of columns in registers, and the products
//! never reach memory. Descriptors have one length, so the largest dot product is the nearest neighbour.
//!
//! Every kernel gives the same integers: ties go to the lower index.

use super::neighbours::Nearest;
use crate::sfm::features::Descriptor;

/// Neighbours of each row in the columns, and of each column in the rows.
pub(crate) fn nearest(rows: &[Descriptor], columns: &[Descriptor]) -> (Nearest, Nearest) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni")
        {
            // SAFETY: the CPU has the instructions.
            return unsafe { super::nearest_x86::nearest_avx512_vnni(rows, columns) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has the instructions.
            return unsafe { super::nearest_x86::nearest_avx2(rows, columns) };
        }
    }
    nearest_portable(rows, columns)
}

/// The same with whatever vector instructions the compiler may assume.
pub(super) fn nearest_portable(rows: &[Descriptor], columns: &[Descriptor]) -> (Nearest, Nearest) {
    /// 16 KiB of descriptors.
    const BLOCK: usize = 128;
    let (mut of_rows, mut of_columns) = (Nearest::new(rows.len()), Nearest::new(columns.len()));
    for (block, columns) in columns.chunks(BLOCK).enumerate() {
        for (i, row) in rows.iter().enumerate() {
            for (j, column) in columns.iter().enumerate() {
                let dot = row.iter().zip(column).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
                let j = block * BLOCK + j;
                of_rows.update(i, dot, j as u32);
                of_columns.update(j, dot, i as u32);
            }
        }
    }
    (of_rows, of_columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    pub(crate) fn random_descriptors(count: usize, seed: u64) -> Vec<Descriptor> {
        let mut random = Random::new(seed);
        (0..count).map(|_| std::array::from_fn(|_| (random.next_u64() & 255) as u8)).collect()
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
            let expected = nearest_portable(&rows, &columns);
            assert_eq!(nearest(&rows, &columns), expected, "{n} x {m}");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                let found = unsafe { crate::sfm::matching::nearest_x86::nearest_avx2(&rows, &columns) };
                assert_eq!(found, expected, "avx2, {n} x {m}");
            }
        }
    }

    #[test]
    fn the_portable_kernel_finds_the_two_nearest() {
        let (rows, columns) = (random_descriptors(20, 3), random_descriptors(30, 4));
        let (of_rows, of_columns) = nearest_portable(&rows, &columns);
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
}
