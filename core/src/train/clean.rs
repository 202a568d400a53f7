//! Floaters: Gaussians that hang in free space, or are there for a single picture.
//!
//! From where the pictures were taken a floater looks right: it was fitted to them. Who leaves the path sees haze and
//! needles. Two things tell one from a part of a surface, and both are asked of all training views together:
//!
//! - Nearly all that views see of it lies well in front of their median depth, at which half of a pixel's light is gone. What
//!   belongs to a surface is seen there or behind it.
//! - Few views see it, and but for the one that gains most by it their pictures would be better without it.
//!
//! Density control moves such Gaussians to where they are needed, and the steps that are left close the gaps.

use super::dataset::Dataset;
use crate::control::Control;
use crate::error::Result;
use crate::raster::cpu::{Contribution, CpuRasteriser};
use crate::raster::{Rasteriser, load_for_viewing};
use crate::splats::Splats;

/// What is nearer to the camera than this part of the surface's depth is in front of it.
const NEARER: f64 = 0.9;
/// Of a floater more than this part of the blend weight (alpha times transmittance, over the pixels of all views) is in front.
const SHARE: f64 = 0.9;
/// A view sees what has a larger blend weight than this in one of its pixels.
const SEEN: f32 = 0.02;
/// So many views are few. Where many see a Gaussian, its use is not that of one of them by chance, and thousands of those that seem
/// to be of no use are together of great use.
const FEW: usize = 4;
/// Long side in pixels of the pictures in which this is measured, at most.
const SIDE: u32 = 400;
/// More views than this take time and find the same.
const MAX_VIEWS: usize = 200;

/// What shows through, as in the pictures of a scene that is not masked.
const BLACK: [f32; 3] = [0.0; 3];

/// What all views say of a Gaussian.
#[derive(Clone, Copy, Default)]
struct Sight {
    /// Blend weight, summed over pixels and views; and what of it is in front of the surfaces.
    weight: f64,
    in_front: f64,
    /// Views that see it.
    views: usize,
    /// Rise of the squared error without it, summed over the views; and of the view in which it is largest.
    rise: f64,
    largest_rise: f64,
}

impl Sight {
    fn add(&mut self, c: &Contribution) {
        self.weight += f64::from(c.weight);
        self.in_front += f64::from(c.in_front);
        self.views += usize::from(c.largest > SEEN);
        self.rise += f64::from(c.rise);
        self.largest_rise = self.largest_rise.max(f64::from(c.rise));
    }

    /// Whether it is a floater, if so many views are few.
    fn is_floater(&self, few: usize) -> bool {
        let in_front = self.in_front > SHARE * self.weight;
        in_front || (self.views <= few && self.rise - self.largest_rise < 0.0)
    }
}

/// The numbers of the floaters among `splats`, ascending, as the training views see them at `max_side` pixels at most, with
/// spherical harmonics up to `sh_degree`. On the processor; the same for any number of threads.
///
/// # Errors
/// What reading the pictures reports; `Cancelled`.
pub(super) fn floaters(
    splats: &Splats,
    dataset: &Dataset,
    (max_side, sh_degree): (Option<u32>, u32),
    control: &Control,
) -> Result<Vec<usize>> {
    let side = Some(max_side.map_or(SIDE, |side| side.min(SIDE)));
    let stride = dataset.train.len().div_ceil(MAX_VIEWS).max(1);
    let mut rasteriser = CpuRasteriser::<f32>::new();
    load_for_viewing(&mut rasteriser, splats)?;
    let mut sights = vec![Sight::default(); splats.len()];
    for &index in dataset.train.iter().step_by(stride) {
        control.check()?;
        let picture = dataset.picture(index, side)?;
        let mut truth = picture.over(BLACK);
        rasteriser.project(&dataset.view_at(index, side), sh_degree)?;
        rasteriser.intersect()?;
        rasteriser.sort()?;
        rasteriser.rasterise(BLACK)?;
        if let Some(hidden) = &picture.hidden {
            // What is there is not known: nothing counts as wrong, and so nothing as a floater, for what is seen there.
            let rendering = rasteriser.rendering()?;
            for ((truth, shown), hidden) in truth.iter_mut().zip(&rendering.rgba).zip(hidden) {
                if *hidden {
                    truth.copy_from_slice(&shown[..3]);
                }
            }
        }
        for contribution in rasteriser.contributions(&truth, NEARER)? {
            sights[contribution.index as usize].add(&contribution);
        }
    }
    let few = FEW.div_ceil(stride);
    Ok((0..splats.len()).filter(|&i| sights[i].is_floater(few)).collect())
}
