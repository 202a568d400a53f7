//! Blends the picture, tile by tile, front to back.
//!
//! A lane is a pixel of a row of the tile. For each splat only the rows that it reaches are visited (found for all rows
//! at once, with a lane per row), and those only while a pixel of the row is open.

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

/// How much further than the pixels a row as a whole is looked for (in log2 of alpha), for the rounding of both.
const ROW_SLACK: f64 = 1e-3;

/// Rows of a tile; its columns are the [`LANES`].
pub(super) const ROWS: usize = TILE as usize;

/// How many places of a list ahead a splat is fetched into the cache.
pub(super) const AHEAD: usize = 3;

/// One value per pixel of a tile.
pub(super) type TilePlane<T> = [Row<T>; ROWS];

/// The blended pixels of a tile, and what the way back needs.
#[derive(Debug, Clone)]
pub(super) struct TilePixels<T> {
    /// Without the background.
    pub(super) rgb: [TilePlane<T>; 3],
    /// What is left for the background.
    pub(super) transmittance: TilePlane<T>,
    /// Length of the part of the tile's list that was visited.
    pub(super) visited: u32,
    /// (place in the list, pixel) where a pixel stopped before the splat at that place; by place.
    pub(super) stops: Vec<(u32, u8)>,
}

impl<T: Scalar> Default for TilePixels<T> {
    fn default() -> Self {
        let zero = [Row::default(); ROWS];
        Self { rgb: [zero; 3], transmittance: zero, visited: 0, stops: Vec::new() }
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

/// Per row of the tile the pixels that lie in the picture, as bits.
pub(super) fn inside<T>(camera: &Camera<T>, tile: usize) -> [u16; ROWS] {
    let (x, y) = (tile as u32 % camera.tiles_x, tile as u32 / camera.tiles_x);
    let columns = (camera.width - x * TILE).min(TILE);
    let rows = (camera.height - y * TILE).min(TILE) as usize;
    let mut bits = [0; ROWS];
    bits[..rows].fill(((1u32 << columns) - 1) as u16);
    bits
}

impl<T: Scalar> Picture<T> {
    pub(super) fn run(
        &mut self,
        isa: Isa,
        projection: &Projection<T>,
        lists: &TileLists,
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

/// A splat as the pixels of one tile see it.
pub(super) struct Footprint<V: Lanes> {
    sheared: V,
    threshold: V,
    /// By row: how far its pixels are below the splat's centre.
    pub(super) dy: [V::T; ROWS],
    shear: [V::T; ROWS],
    peak: [V::T; ROWS],
    /// The rows in which alpha reaches the least value somewhere between the first and the last pixel, as bits.
    pub(super) rows: u16,
}

impl<V: Lanes> Footprint<V> {
    /// `counting` is 0, 1, 2, ... 15.
    #[inline(always)]
    pub(super) fn new(s: &Projected<V::T>, origin: [V::T; 2], counting: V) -> Self {
        let dx = counting + V::splat(origin[0] - s.u);
        // Here a lane is a row.
        let dy = counting + V::splat(origin[1] - s.v);
        let shear = dy * V::splat(s.skew_y);
        let peak = (dy * dy).fnma(V::splat(s.squeeze), V::splat(s.log2_opacity));
        let left = (origin[0] - s.u) * s.skew_x;
        let right = left + V::T::from_i32(LANES as i32 - 1) * s.skew_x;
        let nearest = (shear + V::splat(left)).max(V::splat(-right) - shear).max(V::zero());
        let rows = nearest.fnma(nearest, peak).ge(V::of(LOG2_ALPHA_MIN - ROW_SLACK));
        Self {
            sheared: dx * V::splat(s.skew_x),
            threshold: V::of(LOG2_ALPHA_MIN),
            dy: dy.array(),
            shear: shear.array(),
            peak: peak.array(),
            rows: V::bits(rows),
        }
    }

    /// log2 of alpha in a row, where it is not below the least alpha, and the sheared distance of the Cholesky form
    /// (see [`Projected`]).
    #[inline(always)]
    pub(super) fn exponent(&self, row: usize) -> (V, V::Mask, V) {
        let t = self.sheared + V::splat(self.shear[row]);
        let exponent = t.fnma(t, V::splat(self.peak[row]));
        (exponent, exponent.ge(self.threshold), t)
    }
}

/// 0, 1, 2, ... 15.
#[inline(always)]
pub(super) fn counting<V: Lanes>() -> V {
    let mut values = [V::T::default(); LANES];
    for (i, value) in values.iter_mut().enumerate() {
        *value = V::T::from_i32(i as i32);
    }
    V::load(&values)
}

struct BlendTile<'a, T> {
    list: &'a [AtomicU32],
    projected: &'a [Projected<T>],
    origin: [T; 2],
    open: [u16; ROWS],
    pixels: &'a mut TilePixels<T>,
}

impl<T: Scalar> Kernel<T> for BlendTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { list, projected, origin, mut open, pixels } = self;
        let zero = [Row::default(); ROWS];
        pixels.rgb = [zero; 3];
        pixels.transmittance = [Row([T::of(1.0); LANES]); ROWS];
        pixels.stops.clear();
        let counting = counting::<V>();
        let (alpha_max, least) = (V::of(ALPHA_MAX), V::of(TRANSMITTANCE_MIN));
        let mut visited = list.len();
        let mut open_rows: u16 = 0;
        for row in 0..ROWS {
            open_rows |= u16::from(open[row] != 0) << row;
        }
        for (place, splat) in list.iter().enumerate() {
            if let Some(ahead) = list.get(place + AHEAD) {
                V::prefetch(&projected[ahead.load(Relaxed) as usize]);
            }
            let s = &projected[splat.load(Relaxed) as usize];
            let footprint = Footprint::new(s, origin, counting);
            let rgb = each!(c in 3 => V::splat(s.rgb[c]));
            let mut rows = footprint.rows & open_rows;
            while rows != 0 {
                let row = rows.trailing_zeros() as usize;
                rows &= rows - 1;
                let (exponent, inside, _) = footprint.exponent(row);
                let active = V::bits(inside) & open[row];
                if active == 0 {
                    continue;
                }
                let active_mask = V::from_bits(active);
                let alpha = exponent.exp2().min(alpha_max).keep(active_mask);
                let before = V::load(&pixels.transmittance[row]);
                let mut weight = before * alpha;
                let mut after = before - weight;
                // Closed pixels keep a transmittance that may be above the least, and alpha is 0 there.
                let stopping = active & !V::bits(after.ge(least));
                if stopping != 0 {
                    open[row] &= !stopping;
                    open_rows &= !(u16::from(open[row] == 0) << row);
                    let mut bits = stopping;
                    while bits != 0 {
                        pixels.stops.push((place as u32, (row * LANES) as u8 + bits.trailing_zeros() as u8));
                        bits &= bits - 1;
                    }
                    weight = weight.keep(V::from_bits(active & !stopping));
                    after = before - weight;
                }
                after.store(&mut pixels.transmittance[row]);
                for channel in 0..3 {
                    let plane = &mut pixels.rgb[channel][row];
                    weight.fma(rgb[channel], V::load(plane)).store(plane);
                }
            }
            if open_rows == 0 {
                visited = place + 1;
                break;
            }
        }
        pixels.visited = visited as u32;
    }
}
