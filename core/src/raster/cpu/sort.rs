//! Orders the pairs by tile, then depth, then number of the splat.
//!
//! The visible splats are radix-sorted by depth; walking them in that order and dropping every pair into the bucket of
//! its tile leaves each bucket sorted. The walk is cut into a fixed number of pieces that know in advance where in the
//! buckets they write, so it runs in parallel and always gives the same lists.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::intersect::Pairs;
use super::project::Projection;
use super::scalar::Scalar;
use crate::error::Result;

/// Pieces of the walk.
const PIECES: usize = 8;
/// Bits that one round of the radix sort looks at.
const DIGIT: u32 = 11;

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct TileLists {
    /// Splats, tile by tile. (Atomic only because disjoint parts are written in parallel.)
    pub(super) splats: Vec<AtomicU32>,
    /// `splats[starts[t]..starts[t + 1]]` are those of tile t, front to back.
    pub(super) starts: Vec<u32>,
    /// Where in `splats` each pair is.
    pub(super) position: Vec<AtomicU32>,
    order: Vec<(u64, u32)>,
    scratch: Vec<(u64, u32)>,
}

impl TileLists {
    /// The splats of a tile, front to back.
    pub(super) fn tile(&self, tile: usize) -> &[AtomicU32] {
        &self.splats[self.starts[tile] as usize..self.starts[tile + 1] as usize]
    }

    pub(super) fn run<T: Scalar>(&mut self, projection: &Projection<T>, pairs: &Pairs) -> Result<()> {
        let tiles = projection.camera()?.tiles();
        let visible = &projection.visible;
        let pair_count = pairs.tiles.len();
        self.splats.resize_with(pair_count, Default::default);
        self.position.resize_with(pair_count, Default::default);
        self.order.clear();
        self.order.extend(
            visible
                .iter()
                .enumerate()
                .map(|(i, &splat)| (projection.projected[splat as usize].depth.depth_key(), i as u32)),
        );
        radix_sort(&mut self.order, &mut self.scratch, T::KEY_BITS);

        let range = |i: u32| pairs.first[i as usize] as usize..pairs.first[i as usize + 1] as usize;
        let piece = self.order.len().div_ceil(PIECES).max(1);
        let mut cursors: Vec<Vec<u32>> = self
            .order
            .par_chunks(piece)
            .map(|order| {
                let mut counts = vec![0u32; tiles];
                for &(_, i) in order {
                    for &tile in &pairs.tiles[range(i)] {
                        counts[tile as usize] += 1;
                    }
                }
                counts
            })
            .collect();
        self.starts.clear();
        self.starts.push(0);
        let mut end = 0;
        for tile in 0..tiles {
            for cursor in &mut cursors {
                let count = cursor[tile];
                cursor[tile] = end;
                end += count;
            }
            self.starts.push(end);
        }
        let (splats, position) = (&self.splats, &self.position);
        self.order.par_chunks(piece).zip(cursors.par_iter_mut()).for_each(|(order, cursor)| {
            for &(_, i) in order {
                let splat = visible[i as usize];
                for pair in range(i) {
                    let slot = &mut cursor[pairs.tiles[pair] as usize];
                    splats[*slot as usize].store(splat, Relaxed);
                    position[pair].store(*slot, Relaxed);
                    *slot += 1;
                }
            }
        });
        Ok(())
    }
}

/// Stable least-significant-digit radix sort by the first member.
fn radix_sort(items: &mut Vec<(u64, u32)>, scratch: &mut Vec<(u64, u32)>, key_bits: u32) {
    scratch.resize(items.len(), (0, 0));
    let mask = (1u64 << DIGIT) - 1;
    for shift in (0..key_bits).step_by(DIGIT as usize) {
        let mut counts = [0u32; 1 << DIGIT];
        for &(key, _) in items.iter() {
            counts[(key >> shift & mask) as usize] += 1;
        }
        if counts.iter().any(|&c| c as usize == items.len()) {
            continue; // all have the same digit here
        }
        let mut end = 0;
        for count in &mut counts {
            end += std::mem::replace(count, end);
        }
        for &item in items.iter() {
            let slot = &mut counts[(item.0 >> shift & mask) as usize];
            scratch[*slot as usize] = item;
            *slot += 1;
        }
        std::mem::swap(items, scratch);
    }
}
