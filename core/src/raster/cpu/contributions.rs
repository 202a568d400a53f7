//! What every splat is good for in a picture, and whether it lies in front of the surfaces: for who looks for Gaussians that
//! hang in free space.
//!
//! The surface of a pixel is where half of its light is gone (the median depth). Two walks through the list of a tile,
//! front to back: the first finds the surfaces and the colours, the second adds up what each splat has of them. As on the way
//! back through the blending there is one record for each (tile, splat), and every splat adds up its records in the order of its
//! pairs: the same bits for any number of threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::intersect::Pairs;
use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, Row, each};
use super::project::{Camera, Projected, Projection};
use super::rasterise::{
    BLOCKS, Footprint, Picture, Places, ROWS, Spread, TilePixels, inside, regroup, tile_origin,
};
use super::scalar::Scalar;
use super::sort::TileLists;
use crate::error::Result;
use crate::raster::{ALPHA_MAX, NEAR};

/// Pixels that let more light than this through show nothing that could be called a surface.
const EMPTY: f64 = 0.9;

/// Nothing behind a splat is divided by less than this transmittance, at which pixels stop.
const LEAST: f64 = 1e-4;

/// What a splat contributes to a picture.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Contribution {
    /// Number of the splat.
    pub(crate) index: u32,
    /// Its blend weight (alpha times transmittance) summed over the pixels.
    pub(crate) weight: f32,
    /// That of the pixels in which it lies in front of the surface.
    pub(crate) in_front: f32,
    /// The largest blend weight that it has in a pixel.
    pub(crate) largest: f32,
    /// By how much the squared error, summed over pixels and channels, would rise without it: negative where the picture is
    /// better without it.
    pub(crate) rise: f32,
}

/// A picture to compare with, row by row, and what counts as in front of a surface: what is nearer to the camera than `nearer`
/// times (0 to 1) its depth.
pub(super) struct Measure<'a> {
    pub(super) truth: &'a [[f32; 3]],
    pub(super) nearer: f64,
}

/// What the visible splats contribute to `picture`, which was rasterised over black. Where a pixel shows nothing, all is in
/// front.
pub(super) fn contributions<T: Scalar>(
    isa: Isa,
    projection: &Projection<T>,
    pairs: &Pairs,
    lists: &TileLists<T>,
    picture: &Picture<T>,
    measure: &Measure<'_>,
) -> Result<Vec<Contribution>> {
    let camera = projection.camera()?;
    let mut sums = vec![Sums::default(); pairs.tiles.len()];
    let mut rest = sums.as_mut_slice();
    let mut tiles = Vec::with_capacity(camera.tiles());
    for tile in 0..camera.tiles() {
        let (sums, after) = rest.split_at_mut(lists.tile(tile).len());
        rest = after;
        tiles.push(sums);
    }
    tiles.into_par_iter().enumerate().for_each(|(tile, sums)| {
        let kernel = MeasureTile {
            list: lists.tile(tile),
            projected: &projection.projected,
            origin: tile_origin(&camera, tile),
            inside: inside(&camera, tile),
            pixels: &picture.tiles[tile],
            truth: planes(&camera, tile, measure.truth),
            nearer: measure.nearer,
            sums,
        };
        T::run(isa, kernel);
    });
    let contribution = |(k, &index): (usize, &u32)| {
        let (mut weight, mut in_front, mut largest, mut rise) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        for pair in pairs.first[k] as usize..pairs.first[k + 1] as usize {
            let sums = &sums[lists.position[pair].load(Relaxed) as usize];
            weight += sums.weight.f64();
            in_front += sums.in_front.f64();
            largest = largest.max(sums.largest.f64());
            rise += sums.rise.f64();
        }
        let [weight, in_front, largest, rise] = [weight, in_front, largest, rise].map(|v| v as f32);
        Contribution { index, weight, in_front, largest, rise }
    };
    Ok(projection.visible.par_iter().enumerate().map(contribution).collect())
}

/// Of a tile and a splat; the fields are those of [`Contribution`].
#[derive(Clone, Copy, Default)]
struct Sums<T> {
    weight: T,
    in_front: T,
    largest: T,
    rise: T,
}

/// What of a picture belongs to a tile, channel by channel; zero outside.
fn planes<T: Scalar>(camera: &Camera<T>, tile: usize, picture: &[[f32; 3]]) -> [[Row<T>; ROWS]; 3] {
    let (width, height) = (camera.width as usize, camera.height as usize);
    let (tile_x, tile_y) = (tile % camera.tiles_x as usize, tile / camera.tiles_x as usize);
    let (x0, y0) = (tile_x * LANES, tile_y * ROWS);
    let mut planes = [[Row::default(); ROWS]; 3];
    for y in y0..(y0 + ROWS).min(height) {
        for x in x0..(x0 + LANES).min(width) {
            for (channel, plane) in planes.iter_mut().enumerate() {
                plane[y - y0][x - x0] = T::of_f32(picture[y * width + x][channel]);
            }
        }
    }
    planes
}

struct MeasureTile<'a, T> {
    list: &'a [AtomicU32],
    projected: &'a [Projected<T>],
    origin: [T; 2],
    inside: [u16; BLOCKS],
    pixels: &'a TilePixels<T>,
    truth: [[Row<T>; ROWS]; 3],
    nearer: f64,
    sums: &'a mut [Sums<T>],
}

/// What the walks know of the pixels of a block.
#[derive(Clone, Copy, Default)]
struct BlockState<T> {
    transmittance: Row<T>,
    /// Inverse depth of the surface; 0 = none.
    surface: Row<T>,
    /// Depth of the last splat so far.
    deepest: Row<T>,
    /// Of all splats in the first walk; of the present one and those behind it in the second.
    rgb: [Row<T>; 3],
    /// Rendered less true colour.
    error: [Row<T>; 3],
}

impl<T: Scalar> Kernel<T> for MeasureTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { list, projected, origin, inside, pixels, truth, nearer, sums } = self;
        let (zero, one, half) = (V::zero(), V::of(1.0), V::of(0.5));
        let (alpha_max, least) = (V::of(ALPHA_MAX), V::of(LEAST));
        let places = Places::<V>::new();
        let mut blocks_of = [BlockState::<V::T>::default(); BLOCKS];
        blocks_of.iter_mut().for_each(|state| one.store(&mut state.transmittance));
        // Pixels that stop do so at a transmittance of 1e-4: what comes behind weighs nothing here.
        for (splat, &reached) in list.iter().zip(&pixels.reached) {
            let s = &projected[splat.load(Relaxed) as usize];
            let splat = Spread::<V>::new(&Footprint::new(s, origin));
            let depth = V::splat(s.depth);
            let inverse = V::splat(T::of(1.0) / s.depth);
            let mut blocks = reached;
            while blocks != 0 {
                let block = blocks.trailing_zeros() as usize % BLOCKS;
                blocks &= blocks - 1;
                let (exponent, active, ..) = splat.exponent(&places, block);
                let alpha = exponent.exp2().min(alpha_max).keep(active);
                let state = &mut blocks_of[block];
                let before = V::load(&state.transmittance);
                let weight = before * alpha;
                let after = before - weight;
                after.store(&mut state.transmittance);
                // The list goes from near to far: the first that leaves no more than half has the largest inverse depth.
                V::load(&state.surface).max(inverse.keep(half.ge(after))).store(&mut state.surface);
                V::load(&state.deepest).max(depth.keep(active)).store(&mut state.deepest);
                for channel in 0..3 {
                    let rgb = weight.fma(splat.rgb[channel], V::load(&state.rgb[channel]));
                    rgb.store(&mut state.rgb[channel]);
                }
            }
        }
        let truth = each!(c in 3 => regroup::<V>(&truth[c]));
        for (block, state) in blocks_of.iter_mut().enumerate() {
            // What lets more than half of the light through, but not all, has its surface where the last splat is.
            let left = V::load(&state.transmittance);
            let deepest = V::load(&state.deepest);
            let seen = V::from_bits(V::bits(V::of(EMPTY).ge(left)) & V::bits(deepest.ge(V::of(NEAR))));
            let last = (one / deepest.max(V::of(NEAR))).keep(seen);
            V::load(&state.surface).max(last).store(&mut state.surface);
            one.store(&mut state.transmittance);
            for channel in 0..3 {
                let error = V::load(&state.rgb[channel]) - V::load(&truth[channel][block]);
                error.store(&mut state.error[channel]);
            }
        }
        let nearer = V::of(nearer);
        for (place, sums) in sums.iter_mut().enumerate() {
            *sums = Sums::default();
            let Some(&reached) = pixels.reached.get(place) else { continue };
            let s = &projected[list[place].load(Relaxed) as usize];
            let splat = Spread::<V>::new(&Footprint::new(s, origin));
            let inverse = nearer * V::splat(T::of(1.0) / s.depth);
            let (mut weights, mut fronts, mut largest, mut rise) = (zero, zero, zero, zero);
            let mut blocks = reached;
            while blocks != 0 {
                let block = blocks.trailing_zeros() as usize % BLOCKS;
                blocks &= blocks - 1;
                let (exponent, active, ..) = splat.exponent(&places, block);
                let active = V::from_bits(V::bits(active) & inside[block]);
                let alpha = exponent.exp2().min(alpha_max).keep(active);
                let state = &mut blocks_of[block];
                let before = V::load(&state.transmittance);
                let weight = before * alpha;
                let after = before - weight;
                after.store(&mut state.transmittance);
                weights = weights + weight;
                largest = largest.max(weight);
                fronts = fronts + weight.keep(inverse.ge(V::load(&state.surface)));
                // Without the splat what is behind it shows through where it was.
                let through = weight * after.max(least).inverse();
                for channel in 0..3 {
                    let behind = weight.fnma(splat.rgb[channel], V::load(&state.rgb[channel]));
                    behind.store(&mut state.rgb[channel]);
                    let change = weight.fnma(splat.rgb[channel], through * behind);
                    let error = V::load(&state.error[channel]);
                    rise = change.fma(change + error + error, rise);
                }
            }
            let largest = largest.array().into_iter().fold(T::default(), T::max);
            *sums = Sums { weight: weights.sum(), in_front: fronts.sum(), largest, rise: rise.sum() };
        }
    }
}
