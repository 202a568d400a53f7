//! The neighbour search with AVX-512 VNNI and with AVX2.
//!
//! Both kernels lay the columns out so that one vector holds the same few components of as many columns as it has
//! lanes, and broadcast the components of a row against it. A tile of dot products is computed in registers and then
//! compared with the second best of its rows and of its columns: after the first few hundred descriptors almost no
//! product is larger, so that comparison is nearly all that the search adds to the products.

use std::arch::x86_64::*;

use super::neighbours::Nearest;
use crate::sfm::features::Descriptor;

/// Columns searched before the next ones are: 256 KiB of descriptors, which stay in the second-level cache.
const BLOCK: usize = 2048;

/// Columns per vector of 512 bits, one dot product of 32 bits each.
const LANES: usize = 16;
/// Rows and vectors of columns in a tile: 24 sums, 4 vectors of columns and one broadcast fit the 32 registers.
const TILE_ROWS: usize = 6;
const TILE_VECTORS: usize = 4;
const TILE_COLUMNS: usize = LANES * TILE_VECTORS;

/// # Safety
/// The CPU has AVX512F, AVX512BW and AVX512VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn nearest_avx512_vnni(rows: &[Descriptor], columns: &[Descriptor]) -> (Nearest, Nearest) {
    let (mut of_rows, mut of_columns) = (Nearest::new(rows.len()), Nearest::new(columns.len()));
    // The instruction multiplies unsigned by signed bytes, so columns are stored less 128 and 128 Σ row is added back.
    let corrections: Vec<i32> =
        rows.iter().map(|row| 128 * row.iter().map(|&v| i32::from(v)).sum::<i32>()).collect();
    let mut packed: Vec<[u8; 64]> = Vec::new();
    for (block, columns) in columns.chunks(BLOCK).enumerate() {
        let start = block * BLOCK;
        pack_bytes(columns, &mut packed);
        for first_row in (0..rows.len()).step_by(TILE_ROWS) {
            // The last tile repeats the last row; its products are computed and not looked at.
            let here: [&Descriptor; TILE_ROWS] =
                std::array::from_fn(|r| &rows[(first_row + r).min(rows.len() - 1)]);
            let row_count = TILE_ROWS.min(rows.len() - first_row);
            for (tile, tile_columns) in packed.chunks_exact(TILE_VECTORS * 32).enumerate() {
                let mut sums = [[_mm512_setzero_si512(); TILE_VECTORS]; TILE_ROWS];
                for k in 0..32 {
                    // SAFETY: `tile_columns` has 32 groups of TILE_VECTORS vectors, a row has 32 groups of four bytes.
                    unsafe {
                        let vectors: [__m512i; TILE_VECTORS] = std::array::from_fn(|v| {
                            _mm512_loadu_si512(tile_columns.as_ptr().add(k * TILE_VECTORS + v).cast())
                        });
                        for r in 0..TILE_ROWS {
                            let row =
                                _mm512_set1_epi32(here[r].as_ptr().add(4 * k).cast::<i32>().read_unaligned());
                            for v in 0..TILE_VECTORS {
                                sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], row, vectors[v]);
                            }
                        }
                    }
                }
                let first_column = start + tile * TILE_COLUMNS;
                for v in 0..TILE_VECTORS {
                    let column = first_column + v * LANES;
                    if column >= of_columns.best.len() {
                        break;
                    }
                    let count = LANES.min(of_columns.best.len() - column);
                    let valid: __mmask16 = if count == LANES { !0 } else { (1 << count) - 1 };
                    // SAFETY: the mask keeps the load within the columns.
                    let mut second =
                        unsafe { _mm512_maskz_loadu_epi32(valid, of_columns.second.as_ptr().add(column)) };
                    for r in 0..row_count {
                        let i = first_row + r;
                        let dots = _mm512_add_epi32(sums[r][v], _mm512_set1_epi32(corrections[i]));
                        let better_column = _mm512_mask_cmpgt_epi32_mask(valid, dots, second);
                        let better_row =
                            _mm512_mask_cmpgt_epi32_mask(valid, dots, _mm512_set1_epi32(of_rows.second[i]));
                        if better_column | better_row != 0 {
                            let mut values = [0i32; LANES];
                            // SAFETY: `values` has the size of a vector.
                            unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), dots) };
                            for lane in set_bits(better_row) {
                                of_rows.update(i, values[lane], (column + lane) as u32);
                            }
                            for lane in set_bits(better_column) {
                                of_columns.update(column + lane, values[lane], i as u32);
                            }
                            // SAFETY: as above.
                            second = unsafe {
                                _mm512_maskz_loadu_epi32(valid, of_columns.second.as_ptr().add(column))
                            };
                        }
                    }
                }
            }
        }
    }
    (of_rows, of_columns)
}

/// Positions of the bits that are set, rising.
fn set_bits(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 16).then_some(bit)
    })
}

/// Vector (tile, k, v) holds components 4k…4k+3, less 128, of the 16 columns of vector v of a tile. The last tile is
/// filled up with columns of zeros.
fn pack_bytes(columns: &[Descriptor], packed: &mut Vec<[u8; 64]>) {
    let tiles = columns.len().div_ceil(TILE_COLUMNS);
    packed.clear();
    packed.resize(tiles * 32 * TILE_VECTORS, [128; 64]);
    for (j, column) in columns.iter().enumerate() {
        let (tile, v, lane) = (j / TILE_COLUMNS, j / LANES % TILE_VECTORS, j % LANES);
        for (k, components) in column.chunks_exact(4).enumerate() {
            let vector = &mut packed[(tile * 32 + k) * TILE_VECTORS + v];
            for (to, from) in vector[4 * lane..4 * lane + 4].iter_mut().zip(components) {
                *to = from ^ 128;
            }
        }
    }
}

/// Columns per vector of 256 bits.
const LANES_256: usize = 8;
/// 8 sums, 2 vectors of columns, a broadcast and a product fit the 16 registers.
const TILE_ROWS_256: usize = 4;
const TILE_VECTORS_256: usize = 2;
const TILE_COLUMNS_256: usize = LANES_256 * TILE_VECTORS_256;

/// As [`nearest_avx512_vnni`], with components widened to 16 bits because products of bytes would saturate.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn nearest_avx2(rows: &[Descriptor], columns: &[Descriptor]) -> (Nearest, Nearest) {
    let (mut of_rows, mut of_columns) = (Nearest::new(rows.len()), Nearest::new(columns.len()));
    let mut packed: Vec<[i16; 16]> = Vec::new();
    for (block, columns) in columns.chunks(BLOCK / 2).enumerate() {
        let start = block * BLOCK / 2;
        pack_words(columns, &mut packed);
        for first_row in (0..rows.len()).step_by(TILE_ROWS_256) {
            let row_count = TILE_ROWS_256.min(rows.len() - first_row);
            let here: [[i16; 128]; TILE_ROWS_256] =
                std::array::from_fn(|r| rows[(first_row + r).min(rows.len() - 1)].map(i16::from));
            for (tile, tile_columns) in packed.chunks_exact(TILE_VECTORS_256 * 64).enumerate() {
                let mut sums = [[_mm256_setzero_si256(); TILE_VECTORS_256]; TILE_ROWS_256];
                for k in 0..64 {
                    // SAFETY: `tile_columns` has 64 groups of TILE_VECTORS_256 vectors, a row has 64 pairs of words.
                    unsafe {
                        let vectors: [__m256i; TILE_VECTORS_256] = std::array::from_fn(|v| {
                            _mm256_loadu_si256(tile_columns.as_ptr().add(k * TILE_VECTORS_256 + v).cast())
                        });
                        for r in 0..TILE_ROWS_256 {
                            let row =
                                _mm256_set1_epi32(here[r].as_ptr().add(2 * k).cast::<i32>().read_unaligned());
                            for v in 0..TILE_VECTORS_256 {
                                sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(row, vectors[v]));
                            }
                        }
                    }
                }
                let first_column = start + tile * TILE_COLUMNS_256;
                for v in 0..TILE_VECTORS_256 {
                    let column = first_column + v * LANES_256;
                    if column >= of_columns.best.len() {
                        break;
                    }
                    let count = LANES_256.min(of_columns.best.len() - column);
                    let valid: u32 = (1 << count) - 1;
                    let mut seconds = [i32::MAX; LANES_256];
                    seconds[..count].copy_from_slice(&of_columns.second[column..column + count]);
                    // SAFETY: `seconds` has the size of a vector.
                    let mut second = unsafe { _mm256_loadu_si256(seconds.as_ptr().cast()) };
                    for r in 0..row_count {
                        let (i, dots) = (first_row + r, sums[r][v]);
                        let better_column = mask_256(_mm256_cmpgt_epi32(dots, second)) & valid;
                        let row_second = _mm256_set1_epi32(of_rows.second[i]);
                        let better_row = mask_256(_mm256_cmpgt_epi32(dots, row_second)) & valid;
                        if better_column | better_row != 0 {
                            let mut values = [0i32; LANES_256];
                            // SAFETY: `values` has the size of a vector.
                            unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), dots) };
                            for lane in set_bits(better_row as u16) {
                                of_rows.update(i, values[lane], (column + lane) as u32);
                            }
                            for lane in set_bits(better_column as u16) {
                                of_columns.update(column + lane, values[lane], i as u32);
                                seconds[lane] = of_columns.second[column + lane];
                            }
                            // SAFETY: as above.
                            second = unsafe { _mm256_loadu_si256(seconds.as_ptr().cast()) };
                        }
                    }
                }
            }
        }
    }
    (of_rows, of_columns)
}

/// One bit per lane of a comparison.
#[target_feature(enable = "avx2")]
fn mask_256(comparison: __m256i) -> u32 {
    _mm256_movemask_ps(_mm256_castsi256_ps(comparison)) as u32
}

/// Vector (tile, k, v) holds components 2k and 2k+1 of the 8 columns of vector v of a tile.
fn pack_words(columns: &[Descriptor], packed: &mut Vec<[i16; 16]>) {
    let tiles = columns.len().div_ceil(TILE_COLUMNS_256);
    packed.clear();
    packed.resize(tiles * 64 * TILE_VECTORS_256, [0; 16]);
    for (j, column) in columns.iter().enumerate() {
        let (tile, v, lane) = (j / TILE_COLUMNS_256, j / LANES_256 % TILE_VECTORS_256, j % LANES_256);
        for (k, components) in column.chunks_exact(2).enumerate() {
            let vector = &mut packed[(tile * 64 + k) * TILE_VECTORS_256 + v];
            vector[2 * lane] = i16::from(components[0]);
            vector[2 * lane + 1] = i16::from(components[1]);
        }
    }
}
