//! The neighbour search with AVX-512 VNNI.
//!
//! Columns are laid out so that one vector holds the same few components of as many columns as it has lanes, and the components
//! of a row are broadcast against it. A tile of dot products is computed in registers and then compared with the second best
//! of its rows: after the first few hundred descriptors almost no product is larger. The neighbours of columns are kept in lanes.

use std::arch::x86_64::*;
use std::ops::Range;

use super::neighbours::{Found, Nearest, set_bits};
use super::packed::{Packed, QUADS, pack_quads};
use crate::sfm::features::Descriptor;

/// Columns for [`compare_avx512_vnni`]: less 128, see [`corrections`].
pub(super) fn pack_bytes<'a>(
    columns: &[Descriptor],
    cells: impl Iterator<Item = &'a [u32]>,
) -> Packed<[u8; 64]> {
    Packed::new(cells, |cell, packed| pack_quads(columns, cell, TILE_VECTORS, 128, packed))
}

/// Columns per vector of 512 bits, one dot product of 32 bits each.
const LANES: usize = 16;
/// Rows and vectors of columns in a tile: 24 sums, 4 vectors of columns and one broadcast fit the 32 registers.
const TILE_ROWS: usize = 6;
const TILE_VECTORS: usize = 4;
const TILE_COLUMNS: usize = LANES * TILE_VECTORS;

/// Rows of a tile.
struct TileRows<'a> {
    /// Their numbers; the last tile repeats the last row, whose products are computed and not looked at.
    numbers: [usize; TILE_ROWS],
    descriptors: [&'a Descriptor; TILE_ROWS],
    count: usize,
    /// See [`corrections`].
    corrections: [i32; TILE_ROWS],
}

/// What is to be added to the products of each row: the instruction multiplies unsigned by signed bytes, so columns are
/// stored less 128, and 128 times the sum of the row is added back.
///
/// # Safety
/// The CPU has AVX512F, AVX512BW and AVX512VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn corrections(rows: &[Descriptor]) -> Vec<i32> {
    let mut corrections = Vec::with_capacity(rows.len());
    for row in rows {
        corrections.push(128 * sum_of_bytes(row));
    }
    corrections
}

/// # Safety
/// The CPU has AVX512F, AVX512BW and AVX512VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn compare_avx512_vnni(
    found: &mut Found,
    descriptors: &[Descriptor],
    rows: &[u32],
    corrections: &[i32],
    places: Range<usize>,
    packed: &[[u8; 64]],
) {
    let Some(&last_row) = rows.last() else { return };
    for chosen in rows.chunks(TILE_ROWS) {
        let numbers: [usize; TILE_ROWS] =
            std::array::from_fn(|r| *chosen.get(r).unwrap_or(&last_row) as usize);
        let tile_rows = TileRows {
            numbers,
            descriptors: numbers.map(|i| &descriptors[i]),
            count: chosen.len(),
            corrections: numbers.map(|i| corrections[i]),
        };
        for (tile, columns) in packed.chunks(TILE_VECTORS * QUADS).enumerate() {
            let first = places.start + tile * TILE_COLUMNS;
            let (of_rows, of_columns) = (&mut found.of_rows, &mut found.of_columns);
            match columns.len() / QUADS {
                1 => compare_tile::<1>(&tile_rows, columns, first..places.end, of_rows, of_columns),
                2 => compare_tile::<2>(&tile_rows, columns, first..places.end, of_rows, of_columns),
                3 => compare_tile::<3>(&tile_rows, columns, first..places.end, of_rows, of_columns),
                _ => compare_tile::<4>(&tile_rows, columns, first..places.end, of_rows, of_columns),
            }
        }
    }
}

/// Sum of the components.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn sum_of_bytes(row: &Descriptor) -> i32 {
    // SAFETY: a row has the size of two vectors.
    let [first, second] = [0, 64].map(|at| unsafe { _mm512_loadu_si512(row.as_ptr().add(at).cast()) });
    let ones = _mm512_set1_epi8(1);
    let sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, ones);
    _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(sums, second, ones))
}

/// Compares rows with `V` vectors of columns, whose places begin with `places`.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn compare_tile<const V: usize>(
    rows: &TileRows<'_>,
    columns: &[[u8; 64]],
    places: Range<usize>,
    of_rows: &mut Nearest,
    of_columns: &mut Nearest,
) {
    assert_eq!(columns.len(), V * QUADS);
    let mut sums = [[_mm512_setzero_si512(); V]; TILE_ROWS];
    for k in 0..QUADS {
        // SAFETY: `columns` has a group of V vectors for each of the groups of four bytes that a row has.
        unsafe {
            let vectors: [__m512i; V] =
                std::array::from_fn(|v| _mm512_loadu_si512(columns.as_ptr().add(k * V + v).cast()));
            for r in 0..TILE_ROWS {
                let row = rows.descriptors[r].as_ptr().add(4 * k).cast::<i32>().read_unaligned();
                let row = _mm512_set1_epi32(row);
                for v in 0..V {
                    sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], row, vectors[v]);
                }
            }
        }
    }
    for v in 0..V {
        let place = places.start + v * LANES;
        let count = LANES.min(places.end - place);
        let valid: __mmask16 = if count == LANES { !0 } else { (1 << count) - 1 };
        let bests = of_columns.best[place..place + count].as_mut_ptr();
        let seconds = of_columns.second[place..place + count].as_mut_ptr();
        let indices = of_columns.index[place..place + count].as_mut_ptr().cast::<i32>();
        // SAFETY: the mask keeps all loads within the columns.
        let [mut best, mut second, mut index] = unsafe {
            [bests, seconds, indices].map(|values| _mm512_maskz_loadu_epi32(valid, values.cast_const()))
        };
        for r in 0..rows.count {
            let i = rows.numbers[r];
            let dots = _mm512_add_epi32(sums[r][v], _mm512_set1_epi32(rows.corrections[r]));
            // `Nearest::update` of all columns at once. Those that are not there are as any others here.
            let better = _mm512_cmpgt_epi32_mask(dots, best);
            second = _mm512_max_epi32(second, _mm512_min_epi32(best, dots));
            best = _mm512_max_epi32(best, dots);
            index = _mm512_mask_mov_epi32(index, better, _mm512_set1_epi32(i as i32));
            let better_row = _mm512_mask_cmpgt_epi32_mask(valid, dots, _mm512_set1_epi32(of_rows.second[i]));
            if better_row != 0 {
                let mut values = [0i32; LANES];
                // SAFETY: `values` has the size of a vector.
                unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), dots) };
                for lane in set_bits(better_row) {
                    of_rows.update(i, values[lane], (place + lane) as u32);
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            _mm512_mask_storeu_epi32(bests, valid, best);
            _mm512_mask_storeu_epi32(seconds, valid, second);
            _mm512_mask_storeu_epi32(indices, valid, index);
        }
    }
}
