//! What lies outside the object: points and splats that the masks of the views that see them do not show.

use image::GrayImage;
use nalgebra::Vector3;
use rayon::prelude::*;

use super::views::project;
use crate::control::Control;
use crate::error::Result;
use crate::masks::read_mask;
use crate::raster;
use crate::scene::Splats;
use crate::train::Dataset;

/// The part of the views that see a splat in whose masks it must be: the visual hull of the final masks, which a few wrong
/// ones must not carve.
const AGREEMENT: f64 = 0.85;
/// Masks are widened by this part of their long side: a splat at the very edge belongs to the object.
const MARGIN: f64 = 0.004;

/// The masks of a capture, for asking where the object is.
pub struct ObjectOutline {
    views: Vec<(raster::View, Vec<u64>)>,
}

impl ObjectOutline {
    /// Reads the masks of the training views of `dataset`. `None` if it has none.
    ///
    /// # Errors
    /// As reading masks; cancellation.
    pub fn of(dataset: &Dataset, control: &Control) -> Result<Option<Self>> {
        let masked = dataset.train.iter().map(|&i| &dataset.views[i]);
        let views: Vec<_> = masked
            .collect::<Vec<_>>()
            .into_par_iter()
            .filter_map(|view| view.mask.as_ref().map(|mask| (view.view, mask)))
            .map(|(view, path)| {
                control.check()?;
                Ok((view, bits(&read_mask(path)?)))
            })
            .collect::<Result<_>>()?;
        Ok((!views.is_empty()).then_some(Self { views }))
    }

    /// Whether nearly all views that see the point see it on the object.
    pub fn contains(&self, point: &Vector3<f64>) -> bool {
        let (mut seen, mut object) = (0u32, 0u32);
        for (view, bits) in &self.views {
            let Some((x, y, _)) = project(view, point) else { continue };
            let (width, height) = (f64::from(view.width), f64::from(view.height));
            if x >= 0.0 && y >= 0.0 && x < width && y < height {
                let pixel = y as usize * view.width as usize + x as usize;
                seen += 1;
                object += u32::from(bits.get(pixel / 64).is_some_and(|word| word >> (pixel % 64) & 1 == 1));
            }
        }
        seen > 0 && f64::from(object) >= AGREEMENT * f64::from(seen)
    }

    /// The splats whose centres are inside, and the opacity of those left out as a part of all.
    pub fn cut(&self, mut splats: Splats) -> (Splats, f64) {
        let inside: Vec<bool> =
            splats.means.par_iter().map(|m| self.contains(&Vector3::from(m.map(f64::from)))).collect();
        let opacity = |logit: &f32| 1.0 / (1.0 + f64::from(-logit).exp());
        let all: f64 = splats.opacities.iter().map(opacity).sum();
        let removed: f64 = splats
            .opacities
            .iter()
            .zip(&inside)
            .filter(|(_, inside)| !**inside)
            .map(|(o, _)| opacity(o))
            .sum();
        splats.retain(|i| inside[i]);
        (splats, removed / f64::max(all, 1e-12))
    }
}

/// One bit a pixel, row by row; object and a margin around it.
fn bits(mask: &GrayImage) -> Vec<u64> {
    let (width, height) = (mask.width() as usize, mask.height() as usize);
    let radius = ((MARGIN * width.max(height) as f64).round() as usize).max(1);
    let mut plane: Vec<f32> = mask.as_raw().iter().map(|v| f32::from(u8::from(*v > 127))).collect();
    super::guided_filter::box_mean(&mut plane, width, height, radius);
    let mut bits = vec![0u64; plane.len().div_ceil(64)];
    // One pixel of the window is far above the rounding of its running sum.
    let least = 0.5 / ((2 * radius + 1) * (2 * radius + 1)) as f32;
    for (k, value) in plane.iter().enumerate() {
        bits[k / 64] |= u64::from(*value > least) << (k % 64);
    }
    bits
}
