//! The neighbour search with the dot products of bytes that NEON has in the extension `dotprod`.
//!
//! As with AVX-512 a vector holds four components of as many columns as it has lanes. Of a row, a vector holds 16 components,
//! of which the instruction itself repeats four for all lanes. A tile of dot products is computed in registers; the neighbours of
//! columns are kept in lanes, and those of rows are looked at only where a product is larger than the second best of its row.
//! Both factors are without sign, so nothing is to be corrected.

use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

use super::neighbours::{Found, Nearest};
use super::packed::{Packed, QUADS, pack_quads};
use crate::sfm::features::Descriptor;

/// Columns per vector, one dot product of 32 bits each.
const LANES: usize = 4;
/// Bytes of a vector.
const BYTES: usize = 4 * LANES;
/// Rows and vectors of columns in a tile: 16 sums, 8 vectors of rows and 2 of columns fit the 32 registers. More rows rather
/// than more columns, because rows stay in the nearest cache.
const TILE_ROWS: usize = 8;
const TILE_VECTORS: usize = 2;
const TILE_COLUMNS: usize = LANES * TILE_VECTORS;

/// Columns for [`compare_dot_product`].
pub(super) fn pack_bytes<'a>(
    columns: &[Descriptor],
    cells: impl Iterator<Item = &'a [u32]>,
) -> Packed<[u8; BYTES]> {
    Packed::new(cells, |cell, packed| pack_quads(columns, cell, TILE_VECTORS, 0, packed))
}

/// Rows of a tile.
struct TileRows<'a> {
    /// Their numbers; the last tile repeats the last row, whose products are computed and not looked at.
    numbers: [usize; TILE_ROWS],
    descriptors: [&'a Descriptor; TILE_ROWS],
    count: usize,
    /// The second best of each row so far.
    seconds: [i32; TILE_ROWS],
}

/// # Safety
/// The CPU has the dot products.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn compare_dot_product(
    found: &mut Found,
    descriptors: &[Descriptor],
    rows: &[u32],
    places: Range<usize>,
    packed: &[[u8; BYTES]],
) {
    let Some(&last_row) = rows.last() else { return };
    let (of_rows, of_columns) = (&mut found.of_rows, &mut found.of_columns);
    for chosen in rows.chunks(TILE_ROWS) {
        let numbers: [usize; TILE_ROWS] =
            std::array::from_fn(|r| *chosen.get(r).unwrap_or(&last_row) as usize);
        let mut tile_rows = TileRows {
            numbers,
            descriptors: numbers.map(|i| &descriptors[i]),
            count: chosen.len(),
            seconds: numbers.map(|i| of_rows.second[i]),
        };
        for (tile, columns) in packed.chunks(TILE_VECTORS * QUADS).enumerate() {
            let first = places.start + tile * TILE_COLUMNS;
            match columns.len() / QUADS {
                1 => compare_tile::<1>(&mut tile_rows, columns, first..places.end, of_rows, of_columns),
                _ => compare_tile::<2>(&mut tile_rows, columns, first..places.end, of_rows, of_columns),
            }
        }
    }
}

/// Compares rows with `V` vectors of columns, whose places begin with `places`.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn compare_tile<const V: usize>(
    rows: &mut TileRows<'_>,
    columns: &[[u8; BYTES]],
    places: Range<usize>,
    of_rows: &mut Nearest,
    of_columns: &mut Nearest,
) {
    let mut sums = products::<V>(&rows.descriptors, columns);
    if rows.count < TILE_ROWS || places.len() < V * LANES {
        drop_missing(&mut sums, rows.count, places.len());
    }
    for v in 0..V {
        // The lanes that are not there are places of other cells, or beyond the last one.
        let lanes = places.start + v * LANES..places.start + (v + 1) * LANES;
        let bests = of_columns.best[lanes.clone()].as_mut_ptr();
        let seconds = of_columns.second[lanes.clone()].as_mut_ptr();
        let indices = of_columns.index[lanes].as_mut_ptr();
        // SAFETY: each is the beginning of as many values as a vector has.
        let (mut best, mut second, mut index) =
            unsafe { (vld1q_s32(bests), vld1q_s32(seconds), vld1q_u32(indices)) };
        for r in 0..TILE_ROWS {
            let dots = sums[r][v];
            // `Nearest::update` of all columns at once.
            let better = vcgtq_s32(dots, best);
            second = vmaxq_s32(second, vminq_s32(best, dots));
            best = vmaxq_s32(best, dots);
            index = vbslq_u32(better, vdupq_n_u32(rows.numbers[r] as u32), index);
        }
        // SAFETY: as above.
        unsafe {
            vst1q_s32(bests, best);
            vst1q_s32(seconds, second);
            vst1q_u32(indices, index);
        }
    }
    let largest = largest(&sums);
    // SAFETY: the second best are two vectors.
    let seconds = unsafe { [vld1q_s32(rows.seconds.as_ptr()), vld1q_s32(rows.seconds.as_ptr().add(LANES))] };
    let better = [0, 1].map(|half| vcgtq_s32(largest[half], seconds[half]));
    if vmaxvq_u32(vorrq_u32(better[0], better[1])) != 0 {
        let (mut dots, mut highest) = ([[[0; LANES]; V]; TILE_ROWS], [0; TILE_ROWS]);
        // SAFETY: each has the size of the vectors that are stored there.
        unsafe {
            for r in 0..TILE_ROWS {
                for v in 0..V {
                    vst1q_s32(dots[r][v].as_mut_ptr(), sums[r][v]);
                }
            }
            vst1q_s32(highest.as_mut_ptr(), largest[0]);
            vst1q_s32(highest.as_mut_ptr().add(LANES), largest[1]);
        }
        update_rows(rows, &dots, &highest, places.start, of_rows);
    }
}

/// Takes in the products with the columns from a place on, of the rows of which one is large enough.
#[inline(never)]
fn update_rows<const V: usize>(
    rows: &mut TileRows<'_>,
    dots: &[[[i32; LANES]; V]; TILE_ROWS],
    highest: &[i32; TILE_ROWS],
    first_place: usize,
    of_rows: &mut Nearest,
) {
    for r in 0..rows.count {
        if highest[r] > rows.seconds[r] {
            let i = rows.numbers[r];
            for (&dot, place) in dots[r].as_flattened().iter().zip(first_place as u32..) {
                of_rows.update(i, dot, place);
            }
            rows.seconds[r] = of_rows.second[i];
        }
    }
}

/// Makes the products less than any whose row or column is not there, so that they change nothing.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn drop_missing<const V: usize>(sums: &mut [[int32x4_t; V]; TILE_ROWS], rows: usize, columns: usize) {
    let numbers: [u32; LANES] = [0, 1, 2, 3];
    for v in 0..V {
        let first = (v * LANES) as u32;
        // SAFETY: they have the size of a vector.
        let numbers = vaddq_u32(unsafe { vld1q_u32(numbers.as_ptr()) }, vdupq_n_u32(first));
        // All bits of a lane: −1.
        let missing = vreinterpretq_s32_u32(vcgeq_u32(numbers, vdupq_n_u32(columns as u32)));
        for r in 0..TILE_ROWS {
            sums[r][v] = if r < rows { vorrq_s32(sums[r][v], missing) } else { vdupq_n_s32(-1) };
        }
    }
}

/// The largest product of each row.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn largest<const V: usize>(sums: &[[int32x4_t; V]; TILE_ROWS]) -> [int32x4_t; TILE_ROWS / LANES] {
    let by_lane = sums.map(|sums| {
        let mut largest = sums[0];
        for v in 1..V {
            largest = vmaxq_s32(largest, sums[v]);
        }
        largest
    });
    // Of neighbouring lanes, twice: four vectors become one.
    [0, LANES].map(|r| {
        let first = vpmaxq_s32(by_lane[r], by_lane[r + 1]);
        let last = vpmaxq_s32(by_lane[r + 2], by_lane[r + 3]);
        vpmaxq_s32(first, last)
    })
}

/// The dot products of rows with `V` vectors of columns.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn products<const V: usize>(
    rows: &[&Descriptor; TILE_ROWS],
    columns: &[[u8; BYTES]],
) -> [[int32x4_t; V]; TILE_ROWS] {
    assert_eq!(columns.len(), V * QUADS);
    let mut sums = [[vdupq_n_u32(0); V]; TILE_ROWS];
    // A vector of a row has four groups of four components.
    for (sixteen, columns) in columns.chunks_exact(4 * V).enumerate() {
        // SAFETY: a row has 8 vectors, as many as `columns` has chunks.
        let rows = rows.map(|row| unsafe { vld1q_u8(row.as_ptr().add(BYTES * sixteen)) });
        add_products::<0, V>(&mut sums, &rows, &columns[..V]);
        add_products::<1, V>(&mut sums, &rows, &columns[V..2 * V]);
        add_products::<2, V>(&mut sums, &rows, &columns[2 * V..3 * V]);
        add_products::<3, V>(&mut sums, &rows, &columns[3 * V..]);
    }
    // They are below 2³¹ by far.
    sums.map(|sums| sums.map(|sums| vreinterpretq_s32_u32(sums)))
}

/// Adds the products of group `QUAD` of the vectors of rows with the vectors of columns that hold that group.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn add_products<const QUAD: usize, const V: usize>(
    sums: &mut [[uint32x4_t; V]; TILE_ROWS],
    rows: &[uint8x16_t; TILE_ROWS],
    columns: &[[u8; BYTES]],
) {
    for v in 0..V {
        // SAFETY: it has the size of a vector.
        let column = unsafe { vld1q_u8(columns[v].as_ptr()) };
        for r in 0..TILE_ROWS {
            sums[r][v] = dot::<QUAD>(sums[r][v], column, rows[r]);
        }
    }
}

/// Adds to each lane the products of its four bytes with the four bytes of group `QUAD` of the row. Rust has a function for
/// that, but not in its stable versions (rust-lang/rust#117224).
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn dot<const QUAD: usize>(mut sums: uint32x4_t, columns: uint8x16_t, row: uint8x16_t) -> uint32x4_t {
    // SAFETY: the instruction computes with these registers and does nothing else; the caller has it.
    unsafe {
        asm!(
            "udot {sums:v}.4s, {columns:v}.16b, {row:v}.4b[{quad}]",
            sums = inout(vreg) sums,
            columns = in(vreg) columns,
            row = in(vreg) row,
            quad = const QUAD,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
