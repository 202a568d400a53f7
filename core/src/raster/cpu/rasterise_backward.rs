//! The way back through the blending: from the gradient by the picture to the gradient by the projected splats.
//!
//! Every tile walks its list back to front and writes one record of sums per (tile, splat), in the order of its list;
//! then every splat adds up its records in the order of its pairs. No atomics, and the same bits for any number of
//! threads. What density control wants to know is gathered on the way.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::intersect::Pairs;
use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, Row, each};
use super::loss::TileGradient;
use super::project::{CHUNK, Camera, Projected, Projection, projected_columns};
use super::rasterise::{
    AHEAD, BLOCKS, Footprint, Picture, Places, Spread, TilePixels, inside, regroup, tile_origin,
};
use super::scalar::Scalar;
use super::sort::TileLists;
use super::state::Gathered;
use crate::error::Result;
use crate::raster::ALPHA_MAX;

/// Sums over the pixels of a tile, with g = dL/d(ln alpha) (0 where alpha is at its cap), t the sheared distance and dy
/// the distance below the centre, and w the blend weight: w * dL/d(r, g, b); g; g t; g dy; g t²; g t dy; g dy²; w * colour
/// error. Moments of t and not of dx: along a needle dx and dy are large and nearly proportional, and what is to be
/// known is their small rest. The rest is zero: in single precision this
/// is one cache line.
type Sums<T> = Row<T>;

/// dL/d(mean.x, mean.y, covariance xx, xy, yy, opacity, r, g, b) of a visible splat; the rest is zero.
pub(super) type ProjectedGradient<T> = Row<T>;

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct ProjectedGradients<T> {
    /// One per visible splat.
    pub(super) splats: Vec<ProjectedGradient<T>>,
    sums: Vec<Sums<T>>,
}

impl<T: Scalar> ProjectedGradients<T> {
    pub(super) fn run(
        &mut self,
        isa: Isa,
        projection: &Projection<T>,
        pairs: &Pairs,
        lists: &TileLists<T>,
        picture: &Picture<T>,
        loss: &[TileGradient<T>],
        gathered: &mut [Gathered<T>],
    ) -> Result<()> {
        let camera = projection.camera()?;
        self.sums.resize(pairs.tiles.len(), Sums::default());
        let mut rest = self.sums.as_mut_slice();
        let mut tiles = Vec::with_capacity(camera.tiles());
        for tile in 0..camera.tiles() {
            let (sums, after) = rest.split_at_mut(lists.tile(tile).len());
            rest = after;
            tiles.push(sums);
        }
        tiles.into_par_iter().enumerate().for_each(|(tile, sums)| {
            let kernel = UnblendTile {
                list: lists.tile(tile),
                projected: &projection.projected,
                origin: tile_origin(&camera, tile),
                inside: inside(&camera, tile),
                background: picture.background,
                pixels: &picture.tiles[tile],
                gradient: &loss[tile],
                sums,
            };
            T::run(isa, kernel);
        });

        self.splats.resize(projection.visible.len(), Row::default());
        let mut rest = self.splats.as_mut_slice();
        let mut chunks = Vec::with_capacity(projection.chunk_starts.len());
        for (range, gathered) in projection.chunk_starts.windows(2).zip(gathered.chunks_mut(CHUNK)) {
            let (gradients, after) = rest.split_at_mut(range[1] - range[0]);
            rest = after;
            chunks.push((range[0], gradients, gathered));
        }
        let sums = &self.sums;
        chunks.into_par_iter().enumerate().for_each(|(chunk, (first, gradients, gathered))| {
            let visible = first..first + gradients.len();
            let kernel = AddUpChunk {
                camera: &camera,
                projected: &projection.projected,
                first_splat: chunk * CHUNK,
                splats: &projection.visible[visible.clone()],
                pairs: &pairs.first[visible.start..=visible.end],
                position: &lists.position,
                sums,
                gradients,
                gathered,
            };
            T::run(isa, kernel);
        });
        Ok(())
    }
}

/// Inverse of the 2D covariance: xx, xy, yy.
#[inline(always)]
pub(super) fn conic<T: Scalar>(s: &Projected<T>) -> [T; 3] {
    // skew_x², skew_x skew_y and skew_y² + squeeze are the conic times ½ log2(e).
    let k = T::of(2.0 * std::f64::consts::LN_2);
    [k * s.skew_x * s.skew_x, k * s.skew_x * s.skew_y, k * (s.skew_y * s.skew_y + s.squeeze)]
}

/// The gradients of 16 splats from their sums, one vector per entry.
#[inline(always)]
fn from_sums<V: Lanes>(s: &Projected<V>, sums: &[V; LANES]) -> [V; LANES] {
    let [r, g, b, o, t, y, tt, ty, yy, ..] = *sums;
    // The gradient of -ln alpha by the distance from the centre is (k skew_x t, k (skew_y t + squeeze dy)).
    let k = V::of(2.0 * std::f64::consts::LN_2);
    let (kx, ky, kq) = (k * s.skew_x, k * s.skew_y, k * s.squeeze);
    let half = V::of(0.5);
    let mut out = [V::zero(); LANES];
    out[..9].copy_from_slice(&[
        kx * t,
        ky * t + kq * y,
        half * kx * kx * tt,
        kx * (ky * tt + kq * ty),
        half * (ky * ky * tt + kq * kq * yy) + ky * kq * ty,
        o / s.opacity,
        r,
        g,
        b,
    ]);
    out
}

/// Adds up the records of a chunk's splats, sixteen at a time.
struct AddUpChunk<'a, T> {
    camera: &'a Camera<T>,
    projected: &'a [Projected<T>],
    first_splat: usize,
    /// Visible ones, and where their pairs begin; one more entry for the end.
    splats: &'a [u32],
    pairs: &'a [u32],
    position: &'a [AtomicU32],
    sums: &'a [Sums<T>],
    gradients: &'a mut [ProjectedGradient<T>],
    gathered: &'a mut [Gathered<T>],
}

impl<T: Scalar> Kernel<T> for AddUpChunk<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        // The records lie as the tiles do: far apart.
        const AHEAD: usize = 12;
        let (half, three) = (V::of(0.5), V::of(3.0));
        let [width, height] = [self.camera.width, self.camera.height].map(|size| T::of(f64::from(size)));
        let by_size = V::splat(T::of(1.0) / width.max(height));
        for (block, splats) in self.splats.chunks(LANES).enumerate() {
            let first = block * LANES;
            let mut totals = [V::zero(); LANES];
            for (lane, total) in totals.iter_mut().enumerate().take(splats.len()) {
                let k = first + lane;
                V::prefetch(&self.projected[splats[lane] as usize]);
                for pair in self.pairs[k] as usize..self.pairs[k + 1] as usize {
                    if let Some(ahead) = self.position.get(pair + AHEAD) {
                        V::prefetch(&self.sums[ahead.load(Relaxed) as usize]);
                    }
                    *total = *total + V::load(&self.sums[self.position[pair].load(Relaxed) as usize]);
                }
            }
            let totals = V::transpose(totals);
            let s = projected_columns::<V>(self.projected, splats);
            let gradient = from_sums(&s, &totals);
            let rows = V::transpose(gradient);
            // What density control wants to know.
            let (x, y) = (gradient[0] * V::splat(width), gradient[1] * V::splat(height));
            let norm = (half * x.fma(x, y * y).sqrt()).array();
            let error = totals[9].array();
            let [xx, xy, yy] = s.covariance;
            let (middle, difference) = (half * (xx + yy), half * (xx - yy));
            let long_axis = (middle + difference.fma(difference, xy * xy).sqrt()).sqrt();
            let radius = (three * long_axis * by_size).array();
            for (lane, &splat) in splats.iter().enumerate() {
                rows[lane].store(&mut self.gradients[first + lane]);
                let gathered = &mut self.gathered[splat as usize - self.first_splat];
                gathered.gradient += norm[lane];
                gathered.error += error[lane];
                gathered.visible += 1;
                gathered.radius = gathered.radius.max(radius[lane]);
            }
        }
    }
}

/// What the walk knows of the pixels of a block.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct BlockState<T> {
    /// Behind the present splat.
    transmittance: Row<T>,
    /// Sum over all that is behind of (weight * colour · dL/dcolour).
    behind: Row<T>,
    /// dL/dcolour.
    by_rgb: [Row<T>; 3],
    error: Row<T>,
}

struct UnblendTile<'a, T> {
    list: &'a [AtomicU32],
    projected: &'a [Projected<T>],
    origin: [T; 2],
    inside: [u16; BLOCKS],
    background: [T; 3],
    pixels: &'a TilePixels<T>,
    gradient: &'a TileGradient<T>,
    sums: &'a mut [Sums<T>],
}

impl<T: Scalar> Kernel<T> for UnblendTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { list, projected, origin, inside, background, pixels, gradient, sums } = self;
        let visited = pixels.reached.len();
        sums[visited..].fill(Sums::default());
        // Pixels that stopped open again when the walk passes the place where they did.
        let mut open = inside;
        for &(_, pixel) in &pixels.stops {
            open[usize::from(pixel) / LANES] &= !(1 << (usize::from(pixel) % LANES));
        }
        let mut stops = pixels.stops.iter().rev().peekable();
        // By block, so that what is needed together lies together.
        let mut blocks_of = [BlockState::<V::T>::default(); BLOCKS];
        let transmittance = regroup::<V>(&pixels.transmittance);
        let by_alpha = regroup::<V>(&gradient.alpha);
        let by_picture = each!(c in 3 => regroup::<V>(&gradient.rgb[c]));
        let errors = regroup::<V>(&gradient.error);
        for (block, state) in blocks_of.iter_mut().enumerate() {
            let mut by_alpha = V::zero() - V::load(&by_alpha[block]);
            for channel in 0..3 {
                by_alpha = V::load(&by_picture[channel][block]).fma(V::splat(background[channel]), by_alpha);
                state.by_rgb[channel] = by_picture[channel][block];
            }
            (by_alpha * V::load(&transmittance[block])).store(&mut state.behind);
            state.transmittance = transmittance[block];
            state.error = errors[block];
        }
        let places = Places::<V>::new();
        let (one, alpha_max) = (V::of(1.0), V::of(ALPHA_MAX));
        for place in (0..visited).rev() {
            while let Some(&(_, pixel)) = stops.next_if(|&&(stop, _)| stop as usize > place) {
                open[usize::from(pixel) / LANES] |= 1 << (usize::from(pixel) % LANES);
            }
            if let Some(ahead) = place.checked_sub(AHEAD) {
                V::prefetch(&projected[list[ahead].load(Relaxed) as usize]);
            }
            let s = &projected[list[place].load(Relaxed) as usize];
            let splat = Spread::<V>::new(&Footprint::new(s, origin));
            let mut by_rgb = [V::zero(); 3];
            let mut error = V::zero();
            let (mut by_log, mut by_t, mut by_y) = (V::zero(), V::zero(), V::zero());
            let (mut by_tt, mut by_ty, mut by_yy) = (V::zero(), V::zero(), V::zero());
            let mut blocks = pixels.reached[place];
            while blocks != 0 {
                let block = blocks.trailing_zeros() as usize % BLOCKS;
                blocks &= blocks - 1;
                let (exponent, inside, t, dy) = splat.exponent(&places, block);
                let active = V::bits(inside) & open[block];
                let raw = exponent.exp2();
                let alpha = raw.min(alpha_max).keep(V::from_bits(active));
                let inverse = (one - alpha).inverse();
                let state = &mut blocks_of[block];
                let before = V::load(&state.transmittance) * inverse;
                let weight = before * alpha;
                before.store(&mut state.transmittance);
                let v = each!(c in 3 => V::load(&state.by_rgb[c]));
                let along = v[0].fma(splat.rgb[0], v[1].fma(splat.rgb[1], v[2] * splat.rgb[2]));
                let rest = V::load(&state.behind);
                let by_alpha = rest.fnma(inverse, before * along);
                weight.fma(along, rest).store(&mut state.behind);
                let g = (alpha * by_alpha).keep(alpha_max.ge(raw));
                let (g_t, g_dy) = (g * t, g * dy);
                by_log = by_log + g;
                by_t = by_t + g_t;
                by_y = by_y + g_dy;
                by_tt = g_t.fma(t, by_tt);
                by_ty = g_t.fma(dy, by_ty);
                by_yy = g_dy.fma(dy, by_yy);
                for channel in 0..3 {
                    by_rgb[channel] = weight.fma(v[channel], by_rgb[channel]);
                }
                error = weight.fma(V::load(&state.error), error);
            }
            let [r, g, b] = by_rgb;
            let none = V::zero();
            let all =
                [r, g, b, by_log, by_t, by_y, by_tt, by_ty, by_yy, error, none, none, none, none, none, none];
            V::sums(all).store(&mut sums[place]);
        }
    }
}
