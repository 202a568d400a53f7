//! Orders the pairs by tile, then depth, then number of the splat.
//!
//! The visible splats are radix-sorted by depth; walking them in that order and dropping every pair into the bucket of
//! its tile leaves each bucket sorted. The walk is cut into pieces that know in advance where in the
//! buckets they write, so it runs in parallel and always gives the same lists.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::intersect::Pairs;
use super::isa::Isa;
use super::lanes::{Kernel, Lanes};
use super::project::Projection;
use super::scalar::Scalar;
use crate::error::Result;

/// How many splats ahead what is needed of one is fetched: where its pairs begin, and half as many ahead its pairs.
const AHEAD: usize = 16;
/// Bits that one round of the radix sort looks at.
const DIGIT: u32 = 11;

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct TileLists<T: Scalar> {
    /// Splats, tile by tile. (Atomic only because disjoint parts are written in parallel.)
    pub(super) splats: Vec<AtomicU32>,
    /// `splats[starts[t]..starts[t + 1]]` are those of tile t, front to back.
    pub(super) starts: Vec<u32>,
    /// Where in `splats` each pair is.
    pub(super) position: Vec<AtomicU32>,
    order: Vec<(T::Key, u32)>,
    scratch: Vec<(T::Key, u32)>,
}

impl<T: Scalar> TileLists<T> {
    /// The splats of a tile, front to back.
    pub(super) fn tile(&self, tile: usize) -> &[AtomicU32] {
        &self.splats[self.starts[tile] as usize..self.starts[tile + 1] as usize]
    }

    pub(super) fn run(&mut self, isa: Isa, projection: &Projection<T>, pairs: &Pairs) -> Result<()> {
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
        radix_sort(&mut self.order, &mut self.scratch);

        let piece = self.order.len().div_ceil(rayon::current_num_threads()).max(1);
        let mut cursors: Vec<Vec<u32>> = self
            .order
            .par_chunks(piece)
            .map(|order| {
                let mut counts = vec![0u32; tiles];
                T::run(isa, CountPiece { order, pairs, counts: &mut counts });
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
            T::run(isa, FillPiece { order, pairs, visible, cursor, splats, position });
        });
        Ok(())
    }
}

/// Fetches what will be needed of a splat further on in the order.
#[inline(always)]
fn fetch<V: Lanes, K>(order: &[(K, u32)], k: usize, pairs: &Pairs) {
    if let Some((_, ahead)) = order.get(k + AHEAD) {
        V::prefetch(&pairs.first[*ahead as usize]);
    }
    if let Some((_, ahead)) = order.get(k + AHEAD / 2)
        && let Some(tile) = pairs.tiles.get(pairs.first[*ahead as usize] as usize)
    {
        V::prefetch(tile);
    }
}

/// The pairs of the i-th visible splat.
#[inline(always)]
fn pairs_of(pairs: &Pairs, i: u32) -> Range<usize> {
    pairs.first[i as usize] as usize..pairs.first[i as usize + 1] as usize
}

/// Counts the pairs of each tile.
struct CountPiece<'a, K> {
    order: &'a [(K, u32)],
    pairs: &'a Pairs,
    counts: &'a mut [u32],
}

impl<T: Scalar> Kernel<T> for CountPiece<'_, T::Key> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        for (k, &(_, i)) in self.order.iter().enumerate() {
            fetch::<V, _>(self.order, k, self.pairs);
            for &tile in &self.pairs.tiles[pairs_of(self.pairs, i)] {
                self.counts[tile as usize] += 1;
            }
        }
    }
}

/// Drops the pairs into the buckets of their tiles.
struct FillPiece<'a, K> {
    order: &'a [(K, u32)],
    pairs: &'a Pairs,
    visible: &'a [u32],
    /// By tile: where the next one goes.
    cursor: &'a mut [u32],
    splats: &'a [AtomicU32],
    position: &'a [AtomicU32],
}

impl<T: Scalar> Kernel<T> for FillPiece<'_, T::Key> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        for (k, &(_, i)) in self.order.iter().enumerate() {
            fetch::<V, _>(self.order, k, self.pairs);
            let splat = self.visible[i as usize];
            for pair in pairs_of(self.pairs, i) {
                let slot = &mut self.cursor[self.pairs.tiles[pair] as usize];
                self.splats[*slot as usize].store(splat, Relaxed);
                self.position[pair].store(*slot, Relaxed);
                *slot += 1;
            }
        }
    }
}

/// Stable least-significant-digit radix sort by the first member.
fn radix_sort<K: Copy + Default + Into<u64>>(items: &mut Vec<(K, u32)>, scratch: &mut Vec<(K, u32)>) {
    scratch.resize(items.len(), (K::default(), 0));
    let mask = (1u64 << DIGIT) - 1;
    for shift in (0..8 * size_of::<K>() as u32).step_by(DIGIT as usize) {
        let digit = |key: K| (key.into() >> shift & mask) as usize;
        let mut counts = [0u32; 1 << DIGIT];
        for &(key, _) in items.iter() {
            counts[digit(key)] += 1;
        }
        if counts.iter().any(|&c| c as usize == items.len()) {
            continue; // all have the same digit here
        }
        let mut end = 0;
        for count in &mut counts {
            end += std::mem::replace(count, end);
        }
        for &item in items.iter() {
            let slot = &mut counts[digit(item.0)];
            scratch[*slot as usize] = item;
            *slot += 1;
        }
        std::mem::swap(items, scratch);
    }
}
