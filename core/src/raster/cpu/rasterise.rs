//! Blends the picture, tile by tile, front to back.
//!
//! A tile is 16 blocks of 4x4 pixels, and a lane is a pixel of a block: most splats are small, and of the pixels of a
//! square more lie in an ellipse than of those of a row. The splats of a tile are taken by the batch. First it is found,
//! with a lane per block, which blocks each of them reaches; then the blocks are blended one after the other, whose
//! pixels stay in registers. So no branch waits for an alpha.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, Row, each};
use super::project::{Camera, LOG2_ALPHA_MIN, Projected, Projection};
use super::real::Real;
use super::scalar::Scalar;
use super::sort::TileLists;
use crate::error::{Error, ErrorKind, Result};
use crate::raster::{ALPHA_MAX, Rendering, TILE, TRANSMITTANCE_MIN};

/// How much further than the pixels a block as a whole is looked for (in log2 of alpha), for the rounding of both.
const BLOCK_SLACK: f64 = 1e-3;
/// How many places of a list ahead a splat is fetched into the cache.
pub(super) const AHEAD: usize = 8;
/// Pixels of a side of a block.
const SIDE: usize = 4;
/// Blocks of a tile, row by row; so are the pixels of a block.
pub(super) const BLOCKS: usize = 16;

/// Rows of a tile; its columns are the [`LANES`].
pub(super) const ROWS: usize = TILE as usize;

/// Splats that are blended block by block, at most: one for each bit of a number.
const BATCH: usize = u64::BITS as usize;

/// One value per pixel of a tile, row by row of the picture.
pub(super) type TilePlane<T> = [Row<T>; ROWS];

/// The blended pixels of a tile, and what the way back needs.
#[derive(Debug, Clone)]
pub(super) struct TilePixels<T> {
    /// Without the background.
    pub(super) rgb: [TilePlane<T>; 3],
    /// What is left for the background.
    pub(super) transmittance: TilePlane<T>,
    /// By place in the list, as far as it was visited: the blocks in which the splat was blended, as bits.
    pub(super) reached: Vec<u16>,
    /// (place in the list, block * [`LANES`] + pixel of the block) where a pixel stopped before the splat at that place;
    /// by place.
    pub(super) stops: Vec<(u32, u8)>,
}

impl<T: Scalar> Default for TilePixels<T> {
    fn default() -> Self {
        let zero = [Row::default(); ROWS];
        Self { rgb: [zero; 3], transmittance: zero, reached: Vec::new(), stops: Vec::new() }
    }
}

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct Picture<T> {
    pub(super) tiles: Vec<TilePixels<T>>,
    pub(super) background: [T; 3],
    camera: Option<Camera<T>>,
}

/// Centre of a tile's first pixel.
#[inline(always)]
pub(super) fn tile_origin<T: Scalar>(camera: &Camera<T>, tile: usize) -> [T; 2] {
    let (x, y) = (tile as u32 % camera.tiles_x, tile as u32 / camera.tiles_x);
    [T::of(f64::from(x * TILE) + 0.5), T::of(f64::from(y * TILE) + 0.5)]
}

/// Per block of the tile the pixels that lie in the picture, as bits.
pub(super) fn inside<T>(camera: &Camera<T>, tile: usize) -> [u16; BLOCKS] {
    let (x, y) = (tile as u32 % camera.tiles_x, tile as u32 / camera.tiles_x);
    let columns = (camera.width - x * TILE).min(TILE) as usize;
    let rows = (camera.height - y * TILE).min(TILE) as usize;
    let mut bits = [0; BLOCKS];
    for (block, bits) in bits.iter_mut().enumerate() {
        for pixel in 0..LANES {
            let (x, y) = (block % SIDE * SIDE + pixel % SIDE, block / SIDE * SIDE + pixel / SIDE);
            *bits |= u16::from(x < columns && y < rows) << pixel;
        }
    }
    bits
}

/// From rows to blocks, and from blocks to rows: a block has four pixels of each of four rows.
#[inline(always)]
pub(super) fn regroup<V: Lanes>(plane: &[Row<V::T>; BLOCKS]) -> [Row<V::T>; BLOCKS] {
    let mut out = [Row::default(); BLOCKS];
    for first in (0..BLOCKS).step_by(SIDE) {
        let quarters = V::regroup(each!(k in 4 => V::load(&plane[first + k])));
        for k in 0..SIDE {
            quarters[k].store(&mut out[first + k]);
        }
    }
    out
}

impl<T: Scalar> Picture<T> {
    pub(super) fn run(
        &mut self,
        isa: Isa,
        projection: &Projection<T>,
        lists: &TileLists<T>,
        background: [f32; 3],
    ) -> Result<()> {
        let camera = projection.camera()?;
        self.camera = Some(camera);
        self.background = background.map(T::of_f32);
        self.tiles.resize_with(camera.tiles(), TilePixels::default);
        self.tiles.par_iter_mut().enumerate().for_each(|(tile, pixels)| {
            let list = lists.tile(tile);
            let open = inside(&camera, tile);
            let origin = tile_origin(&camera, tile);
            let projected = &projection.projected;
            T::run(isa, BlendTile { list, projected, origin, open, pixels });
        });
        Ok(())
    }

    /// The picture row by row over the background.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if there is none.
    pub(super) fn rendering(&self) -> Result<Rendering> {
        let camera = self
            .camera
            .ok_or_else(|| Error::new(ErrorKind::Internal, "no picture was rasterised to be read"))?;
        let (width, height) = (camera.width as usize, camera.height as usize);
        let mut rgba = vec![[0f32; 4]; width * height];
        rgba.par_chunks_mut(width).enumerate().for_each(|(y, out)| {
            for (x, out) in out.iter_mut().enumerate() {
                let tile = &self.tiles[y / ROWS * camera.tiles_x as usize + x / LANES];
                let (row, lane) = (y % ROWS, x % LANES);
                let left = tile.transmittance[row][lane];
                for channel in 0..3 {
                    out[channel] = (tile.rgb[channel][row][lane] + left * self.background[channel]).f32();
                }
                out[3] = (T::of(1.0) - left).f32();
            }
        });
        Ok(Rendering { width: camera.width, height: camera.height, rgba })
    }
}

/// x and y of each block's first pixel in its tile, and of the pixels of each block.
pub(super) struct Places<V: Lanes> {
    block: [V; 2],
    pixels: [[Row<V::T>; BLOCKS]; 2],
}

impl<V: Lanes> Places<V> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let mut block = [[V::T::default(); BLOCKS]; 2];
        let mut pixels = [[Row::default(); BLOCKS]; 2];
        for b in 0..BLOCKS {
            let first = [b % SIDE * SIDE, b / SIDE * SIDE];
            for k in 0..2 {
                block[k][b] = V::T::from_i32(first[k] as i32);
                for pixel in 0..LANES {
                    pixels[k][b][pixel] = V::T::from_i32((first[k] + [pixel % SIDE, pixel / SIDE][k]) as i32);
                }
            }
        }
        Self { block: each!(k in 2 => V::load(&block[k])), pixels }
    }
}

/// A splat as the pixels of one tile see it: alpha is `2^(peak - t² - squeeze dy²)`, where t is the sheared distance of
/// the Cholesky form (see [`Projected`]) and dy how far a pixel is below the splat's centre.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Footprint<T> {
    skew_x: T,
    skew_y: T,
    /// t and dy of the tile's first pixel.
    shear: T,
    dy: T,
    squeeze: T,
    peak: T,
    rgb: [T; 3],
}

impl<T: Real> Footprint<T> {
    #[inline(always)]
    pub(super) fn new(s: &Projected<T>, origin: [T; 2]) -> Self {
        let &Projected { skew_x, skew_y, squeeze, log2_opacity, rgb, .. } = s;
        let (dx, dy) = (origin[0] - s.u, origin[1] - s.v);
        Self { skew_x, skew_y, shear: skew_x * dx + skew_y * dy, dy, squeeze, peak: log2_opacity, rgb }
    }

    /// The blocks in which alpha reaches the least value somewhere between the pixels of their corners, as bits.
    #[inline(always)]
    fn blocks<V: Lanes<T = T>>(&self, s: &Projected<T>, origin: [T; 2], places: &Places<V>) -> u16 {
        let (skew_x, skew_y, squeeze) =
            (V::splat(self.skew_x), V::splat(self.skew_y), V::splat(self.squeeze));
        let zero = V::zero();
        let side = V::of((SIDE - 1) as f64);
        // t² + squeeze dy² is convex, and 0 at the centre: over a rectangle it is least at the centre if that is inside,
        // else on one of the two sides that face the centre.
        let (left, top) =
            (places.block[0] + V::splat(origin[0] - s.u), places.block[1] + V::splat(origin[1] - s.v));
        let (right, bottom) = (left + side, top + side);
        let (near_x, near_y) = (zero.min(right).max(left), zero.min(bottom).max(top));
        // Along the side above or below the centre t runs over an interval.
        let shift = near_y * skew_y;
        let nearest = left.fma(skew_x, shift).max(zero - right.fma(skew_x, shift)).max(zero);
        let along_x = nearest.fma(nearest, near_y * near_y * squeeze);
        // Along the side left or right of it dy is best where the derivative vanishes.
        let [xx, xy, _] = s.covariance;
        let best = (near_x * V::splat(xy / xx)).min(bottom).max(top);
        let t = near_x.fma(skew_x, best * skew_y);
        let along_y = t.fma(t, best * best * squeeze);
        let least = V::splat(self.peak - T::of(LOG2_ALPHA_MIN - BLOCK_SLACK));
        V::bits(least.ge(along_x.min(along_y)))
    }
}

/// A [`Footprint`] in all lanes.
pub(super) struct Spread<V> {
    skew_x: V,
    skew_y: V,
    shear: V,
    dy: V,
    squeeze: V,
    peak: V,
    pub(super) rgb: [V; 3],
    threshold: V,
}

impl<V: Lanes> Spread<V> {
    #[inline(always)]
    pub(super) fn new(f: &Footprint<V::T>) -> Self {
        Self {
            skew_x: V::splat(f.skew_x),
            skew_y: V::splat(f.skew_y),
            shear: V::splat(f.shear),
            dy: V::splat(f.dy),
            squeeze: V::splat(f.squeeze),
            peak: V::splat(f.peak),
            rgb: each!(c in 3 => V::splat(f.rgb[c])),
            threshold: V::of(LOG2_ALPHA_MIN),
        }
    }

    /// Of the pixels of a block: log2 of alpha, where it is not below the least alpha, t and dy.
    #[inline(always)]
    pub(super) fn exponent(&self, places: &Places<V>, block: usize) -> (V, V::Mask, V, V) {
        let (x, y) = (V::load(&places.pixels[0][block]), V::load(&places.pixels[1][block]));
        let t = x.fma(self.skew_x, y.fma(self.skew_y, self.shear));
        let dy = y + self.dy;
        let exponent = t.fnma(t, dy.fnma(dy * self.squeeze, self.peak));
        (exponent, exponent.ge(self.threshold), t, dy)
    }
}

/// Bit i of `out[j]` is bit j of `rows[i]`.
#[inline(always)]
fn transpose(mut rows: [u16; 16]) -> [u16; 16] {
    // Hacker's Delight, 7-3: squares off the diagonal change places, from the largest to the smallest.
    let mut width = 8;
    let mut mask = 0x00ffu16;
    while width != 0 {
        for i in 0..16 {
            if i & width == 0 {
                let swap = (rows[i] >> width ^ rows[i + width]) & mask;
                rows[i + width] ^= swap;
                rows[i] ^= swap << width;
            }
        }
        width /= 2;
        mask ^= mask << width;
    }
    rows
}

struct BlendTile<'a, T> {
    list: &'a [AtomicU32],
    projected: &'a [Projected<T>],
    origin: [T; 2],
    open: [u16; BLOCKS],
    pixels: &'a mut TilePixels<T>,
}

impl<T: Scalar> Kernel<T> for BlendTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { list, projected, origin, mut open, pixels } = self;
        let mut rgb_planes = [[Row::default(); BLOCKS]; 3];
        let mut transmittance = [Row([T::of(1.0); LANES]); BLOCKS];
        pixels.reached.clear();
        // A pixel stops once. (In an array: a call, as a vector makes to grow, would drive the pixels out of registers.)
        let mut stops = [(0u32, 0u8); BLOCKS * LANES];
        let mut stopped = 0;
        let places = Places::<V>::new();
        let (alpha_max, least) = (V::of(ALPHA_MAX), V::of(TRANSMITTANCE_MIN));
        let mut footprints = [Footprint::default(); BATCH];
        for (batch, splats) in list.chunks(BATCH).enumerate() {
            let first = batch * BATCH;
            // By block: the splats that reach it, as bits.
            let mut reaching = [0u64; BLOCKS];
            for (part, splats) in splats.chunks(LANES).enumerate() {
                let mut blocks = [0u16; LANES];
                for (k, splat) in splats.iter().enumerate() {
                    if let Some(ahead) = list.get(first + part * LANES + k + AHEAD) {
                        V::prefetch(&projected[ahead.load(Relaxed) as usize]);
                    }
                    let s = &projected[splat.load(Relaxed) as usize];
                    let footprint = Footprint::new(s, origin);
                    blocks[k] = footprint.blocks(s, origin, &places);
                    footprints[part * LANES + k] = footprint;
                }
                let splats = transpose(blocks);
                for block in 0..BLOCKS {
                    reaching[block] |= u64::from(splats[block]) << (part * LANES);
                }
            }
            let mut reached = [0u16; BATCH];
            for block in 0..BLOCKS {
                if open[block] == 0 {
                    continue;
                }
                let mut transmitted = V::load(&transmittance[block]);
                let mut rgb = each!(c in 3 => V::load(&rgb_planes[c][block]));
                let mut bits = reaching[block];
                while bits != 0 {
                    let k = bits.trailing_zeros() as usize % BATCH;
                    bits &= bits - 1;
                    let splat = Spread::<V>::new(&footprints[k]);
                    let (exponent, inside, ..) = splat.exponent(&places, block);
                    let active = V::bits(inside) & open[block];
                    reached[k] |= u16::from(active != 0) << block;
                    let alpha = exponent.exp2().min(alpha_max).keep(V::from_bits(active));
                    let mut weight = transmitted * alpha;
                    let mut after = transmitted - weight;
                    // Closed pixels keep a transmittance that may be above the least, and alpha is 0 there.
                    let stopping = active & !V::bits(after.ge(least));
                    if stopping != 0 {
                        open[block] &= !stopping;
                        let mut pixel = stopping;
                        while pixel != 0 {
                            let number = (block * LANES) as u8 + pixel.trailing_zeros() as u8;
                            stops[stopped] = ((first + k) as u32, number);
                            stopped += 1;
                            pixel &= pixel - 1;
                        }
                        weight = weight.keep(V::from_bits(active & !stopping));
                        after = transmitted - weight;
                        if open[block] == 0 {
                            bits = 0;
                        }
                    }
                    transmitted = after;
                    rgb = each!(c in 3 => weight.fma(splat.rgb[c], rgb[c]));
                }
                transmitted.store(&mut transmittance[block]);
                for channel in 0..3 {
                    rgb[channel].store(&mut rgb_planes[channel][block]);
                }
            }
            pixels.reached.extend_from_slice(&reached[..splats.len()]);
            if open.iter().all(|&pixels| pixels == 0) {
                break;
            }
        }
        pixels.stops.clear();
        pixels.stops.extend_from_slice(&stops[..stopped]);
        pixels.stops.sort_unstable();
        pixels.transmittance = regroup::<V>(&transmittance);
        pixels.rgb = each!(c in 3 => regroup::<V>(&rgb_planes[c]));
    }
}
