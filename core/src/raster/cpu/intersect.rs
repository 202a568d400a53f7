//! Emits the pairs (splat, tile) in which the splat's alpha can reach the least value: exactly, not by boxes.
//!
//! The region is an ellipse. Within one row of tiles its widest points are known in closed form, so every row of tiles
//! gives one interval of columns. The pairs of a splat are contiguous, splats ascending; a pair's position in that
//! order is its number.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::project::{CHUNK, Camera, Projected, Projection};
use super::scalar::Scalar;
use crate::error::{Error, ErrorKind, Result};
use crate::raster::TILE;

/// More pairs than this are refused: a billion splats over tiles is no scene but a fault in it.
const MAX_PAIRS: u64 = 1 << 30;

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Tile of each pair.
    pub(super) tiles: Vec<u32>,
    /// `tiles[first[i]..first[i + 1]]` are those of the i-th visible splat.
    pub(super) first: Vec<u32>,
    chunks: Vec<(Vec<u32>, Vec<u32>)>,
}

impl Pairs {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there are absurdly many.
    pub(super) fn run<T: Scalar>(&mut self, projection: &Projection<T>) -> Result<()> {
        let camera = projection.camera()?;
        let visible = &projection.visible;
        self.chunks.resize_with(visible.len().div_ceil(CHUNK), Default::default);
        let total = AtomicU64::new(0);
        self.chunks.par_iter_mut().zip(visible.par_chunks(CHUNK)).for_each(|((tiles, counts), splats)| {
            tiles.clear();
            counts.clear();
            let mut pairs = 0;
            for &splat in splats {
                let before = tiles.len();
                emit(&camera, &projection.projected[splat as usize], tiles);
                counts.push((tiles.len() - before) as u32);
                pairs = tiles.len() as u64;
                if total.load(Ordering::Relaxed) + pairs > MAX_PAIRS {
                    break;
                }
            }
            total.fetch_add(pairs, Ordering::Relaxed);
        });
        if total.into_inner() > MAX_PAIRS {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} visible splats cover more than {MAX_PAIRS} tiles", visible.len()),
            )
            .hint("the scene has far too many splats that fill the picture; render it smaller"));
        }
        self.tiles.clear();
        self.first.clear();
        self.first.push(0);
        let mut end = 0;
        for (tiles, counts) in &self.chunks {
            self.tiles.extend_from_slice(tiles);
            for &count in counts {
                end += count;
                self.first.push(end);
            }
        }
        Ok(())
    }
}

/// Appends the tiles that the splat reaches, row by row.
#[inline]
fn emit<T: Scalar>(camera: &Camera<T>, s: &Projected<T>, tiles: &mut Vec<u32>) {
    let (zero, half) = (T::default(), T::of(0.5));
    let tile = TILE as i32;
    let (width, height) = (camera.width as i32, camera.height as i32);
    // First and last pixel whose centre lies in an interval, clipped to the picture.
    let pixels = |low: T, high: T, size: i32| {
        (ceil(low - half).clamp(0, size), floor(high - half).clamp(-1, size - 1))
    };
    let (y0, y1) = pixels(s.v - s.reach_y, s.v + s.reach_y, height);
    if y0 > y1 {
        return;
    }
    let [xx, xy, _] = s.covariance;
    let inverse_skew = T::of(1.0) / s.skew_x;
    // log2(opacity / ALPHA_MIN) with the slack that the extents have.
    let reach = s.reach_y * s.reach_y * s.squeeze;
    // The rightmost point of the ellipse is that far below the centre, the leftmost that far above.
    let lean = s.reach_x * xy / xx;
    for row in y0 / tile..=y1 / tile {
        // Pixel centres of this row of tiles, relative to the splat and cut to the ellipse.
        let top = (T::from_i32(row * tile) + half - s.v).max(-s.reach_y).min(s.reach_y);
        let bottom = (T::from_i32(row * tile + tile - 1) + half - s.v).max(-s.reach_y).min(s.reach_y);
        let edge = |dy: T, side: T| {
            let root = (reach - s.squeeze * dy * dy).max(zero).sqrt();
            (side * root - s.skew_y * dy) * inverse_skew
        };
        let right = edge(lean.max(top).min(bottom), T::of(1.0));
        let left = edge((-lean).max(top).min(bottom), T::of(-1.0));
        let (x0, x1) = pixels(s.u + left, s.u + right, width);
        if x0 > x1 {
            continue;
        }
        for column in x0 / tile..=x1 / tile {
            tiles.push((row as u32) * camera.tiles_x + column as u32);
        }
    }
}

#[inline(always)]
fn floor<T: Scalar>(value: T) -> i32 {
    // A picture has at most 2^15 pixels a side: clamping far outside of it changes nothing and cannot overflow.
    let value = value.max(T::of(-1e6)).min(T::of(1e6));
    let truncated = value.to_i32();
    truncated - i32::from(T::from_i32(truncated) > value)
}

#[inline(always)]
fn ceil<T: Scalar>(value: T) -> i32 {
    -floor(-value)
}
