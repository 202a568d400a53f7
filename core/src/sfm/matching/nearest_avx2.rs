//! The neighbour search with AVX2.
//!
//! As with AVX-512 (`nearest_avx512.rs`), with components widened to 16 bits, because products of bytes would saturate: a vector holds
//! two components of as many columns as it has lanes.

use std::arch::x86_64::*;
use std::ops::Range;

use super::neighbours::{Found, Nearest, set_bits};
use super::packed::Packed;
use crate::sfm::features::Descriptor;

/// Columns per vector of 256 bits.
const LANES: usize = 8;
/// 8 sums, 2 vectors of columns, a broadcast and a product fit the 16 registers.
pub(super) const TILE_ROWS: usize = 4;
const TILE_VECTORS: usize = 2;
const TILE_COLUMNS: usize = LANES * TILE_VECTORS;
/// Groups of two components of a descriptor.
const PAIRS: usize = 64;

/// Columns for [`compare`] and [`all_products`].
pub(super) fn pack_words<'a>(
    columns: &[Descriptor],
    cells: impl Iterator<Item = &'a [u32]>,
) -> Packed<[i16; 16]> {
    Packed::new(cells, |cell, packed| pack_pairs(columns, cell, packed))
}

/// A tile has as many vectors as it needs, [`TILE_VECTORS`] at most; vector (tile, k, v) holds components 2k and 2k+1 of the columns of
/// vector v of a tile. The last one is filled up with columns of zeros.
fn pack_pairs(columns: &[Descriptor], order: &[u32], packed: &mut Vec<[i16; 16]>) {
    let first = packed.len();
    packed.resize(first + order.len().div_ceil(LANES) * PAIRS, [0; 16]);
    let tiles = packed[first..].chunks_mut(TILE_VECTORS * PAIRS);
    for (order, packed) in order.chunks(TILE_COLUMNS).zip(tiles) {
        let vectors = packed.len() / PAIRS;
        for (j, &column) in order.iter().enumerate() {
            let (v, lane) = (j / LANES, j % LANES);
            for (k, components) in columns[column as usize].as_chunks::<2>().0.iter().enumerate() {
                packed[k * vectors + v][2 * lane..][..2].copy_from_slice(&components.map(i16::from));
            }
        }
    }
}

/// Rows of a tile.
struct TileRows {
    /// Their numbers; the last tile repeats the last row, whose products are computed and not looked at.
    numbers: [usize; TILE_ROWS],
    descriptors: [[i16; 128]; TILE_ROWS],
    count: usize,
}

impl TileRows {
    /// The first rows, up to [`TILE_ROWS`] of at least one.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn first_of(rows: &[u32], descriptors: &[Descriptor]) -> Self {
        let count = rows.len().min(TILE_ROWS);
        let numbers = std::array::from_fn(|r| rows[r.min(count - 1)] as usize);
        Self { numbers, descriptors: numbers.map(|i| descriptors[i].map(i16::from)), count }
    }
}

/// Compares rows with the columns of a cell.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn compare(
    found: &mut Found,
    descriptors: &[Descriptor],
    rows: &[u32],
    places: Range<usize>,
    packed: &[[i16; 16]],
) {
    let (of_rows, of_columns) = (&mut found.of_rows, &mut found.of_columns);
    for start in (0..rows.len()).step_by(TILE_ROWS) {
        let rows = &rows[start..];
        // They lie all over the descriptors, which are larger than the caches.
        for &next in rows.iter().skip(TILE_ROWS).take(TILE_ROWS) {
            let next = descriptors[next as usize].as_ptr().cast();
            // SAFETY: a descriptor is as long as two lines of a cache, and none is read here.
            unsafe {
                _mm_prefetch(next, _MM_HINT_T0);
                _mm_prefetch(next.add(64), _MM_HINT_T0);
            }
        }
        let tile_rows = TileRows::first_of(rows, descriptors);
        for (tile, columns) in packed.chunks(TILE_VECTORS * PAIRS).enumerate() {
            let first = places.start + tile * TILE_COLUMNS;
            match columns.len() / PAIRS {
                1 => compare_tile::<1>(&tile_rows, columns, first..places.end, of_rows, of_columns),
                _ => compare_tile::<2>(&tile_rows, columns, first..places.end, of_rows, of_columns),
            }
        }
    }
}

/// Dot products of rows with `V` vectors of columns.
#[target_feature(enable = "avx2")]
#[inline]
fn products<const V: usize>(
    rows: &[[i16; 128]; TILE_ROWS],
    columns: &[[i16; 16]],
) -> [[__m256i; V]; TILE_ROWS] {
    assert_eq!(columns.len(), V * PAIRS);
    let mut sums = [[_mm256_setzero_si256(); V]; TILE_ROWS];
    for k in 0..PAIRS {
        // SAFETY: `columns` has a group of V vectors for each pair of components that a row has.
        unsafe {
            let vectors: [__m256i; V] =
                std::array::from_fn(|v| _mm256_loadu_si256(columns.as_ptr().add(k * V + v).cast()));
            for r in 0..TILE_ROWS {
                let row = _mm256_set1_epi32(rows[r].as_ptr().add(2 * k).cast::<i32>().read_unaligned());
                for v in 0..V {
                    sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(row, vectors[v]));
                }
            }
        }
    }
    sums
}

/// Compares rows with `V` vectors of columns, whose places begin with `places`.
#[target_feature(enable = "avx2")]
#[inline]
fn compare_tile<const V: usize>(
    rows: &TileRows,
    columns: &[[i16; 16]],
    places: Range<usize>,
    of_rows: &mut Nearest,
    of_columns: &mut Nearest,
) {
    let sums = products::<V>(&rows.descriptors, columns);
    for v in 0..V {
        // The lanes that are not there are places of other cells, or beyond the last one.
        let lanes = places.start + v * LANES..places.start + (v + 1) * LANES;
        let is_there = first_lanes(places.end - lanes.start);
        let bests = of_columns.best[lanes.clone()].as_mut_ptr().cast();
        let seconds = of_columns.second[lanes.clone()].as_mut_ptr().cast();
        let indices = of_columns.index[lanes.clone()].as_mut_ptr().cast();
        // SAFETY: each is the beginning of as many values as a vector has.
        let [mut best, mut second, mut index] =
            unsafe { [bests, seconds, indices].map(|values: *mut __m256i| _mm256_loadu_si256(values)) };
        for r in 0..rows.count {
            let i = rows.numbers[r];
            let dots = _mm256_blendv_epi8(_mm256_set1_epi32(i32::MIN), sums[r][v], is_there);
            // `Nearest::update` of all columns at once.
            let better = _mm256_cmpgt_epi32(dots, best);
            second = _mm256_max_epi32(second, _mm256_min_epi32(best, dots));
            best = _mm256_max_epi32(best, dots);
            index = _mm256_blendv_epi8(index, _mm256_set1_epi32(i as i32), better);
            let better_row = _mm256_cmpgt_epi32(dots, _mm256_set1_epi32(of_rows.second[i]));
            let better_row = _mm256_movemask_ps(_mm256_castsi256_ps(better_row));
            if better_row != 0 {
                let mut values = [0i32; LANES];
                // SAFETY: `values` has the size of a vector.
                unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), dots) };
                for lane in set_bits(better_row as u16) {
                    of_rows.update(i, values[lane], (lanes.start + lane) as u32);
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_si256(bests, best);
            _mm256_storeu_si256(seconds, second);
            _mm256_storeu_si256(indices, index);
        }
    }
}

/// All bits of the first `count` lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn first_lanes(count: usize) -> __m256i {
    let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(LANES) as i32), numbers)
}

/// The dot products of each of some rows (their numbers; [`TILE_ROWS`] at most, and at least one) with all columns of one cell, of
/// which there are `count`.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn all_products(
    descriptors: &[Descriptor],
    rows: &[u32],
    packed: &[[i16; 16]],
    count: usize,
    out: &mut [Vec<i32>; TILE_ROWS],
) {
    let rows = TileRows::first_of(rows, descriptors);
    for out in out.iter_mut() {
        out.clear();
    }
    for columns in packed.chunks(TILE_VECTORS * PAIRS) {
        match columns.len() / PAIRS {
            1 => append(&products::<1>(&rows.descriptors, columns), out),
            _ => append(&products::<2>(&rows.descriptors, columns), out),
        }
    }
    for out in out {
        out.truncate(count);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn append<const V: usize>(sums: &[[__m256i; V]; TILE_ROWS], out: &mut [Vec<i32>; TILE_ROWS]) {
    for (sums, out) in sums.iter().zip(out) {
        for sum in sums {
            let mut values = [0i32; LANES];
            // SAFETY: `values` has the size of a vector.
            unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), *sum) };
            out.extend_from_slice(&values);
        }
    }
}
