//! What lies outside the object: points and splats that views see, but not within their masks.

use std::path::PathBuf;

use image::GrayImage;
use nalgebra::Vector3;
use rayon::prelude::*;

use crate::control::Control;
use crate::error::Result;
use crate::masks::{is_object, read_mask};
use crate::raster;
use crate::splats::Splats;
use crate::train::Dataset;

/// A splat is inside if it is within the masks of this part (0 to 1) of the views that see it. With all of them (the
/// visual hull) a few wrong masks would cut off what is there. Chosen by hand.
const AGREEMENT: f64 = 0.85;
/// A splat that fewer views see than this part (0 to 1) of all is outside: it is close to a camera, or beside most
/// pictures, and that one or two views see it within their masks says little. Chosen by hand.
const LEAST_SEEING: f64 = 0.1;
/// So many views are enough, however many there are. Chosen by hand.
const ENOUGH_SEEING: u32 = 5;
/// Masks are widened by this part of their long side: a splat at the very edge belongs to the object. Chosen by hand.
const MARGIN: f64 = 0.004;

/// A mask of a view, at whose size the camera is, and its [`bits`].
type Mask = (raster::View, Vec<u64>);

/// The masks of a capture, for asking where the object is.
pub struct ObjectOutline {
    /// By view: the mask of the object, and that of where something else hides it, if anything does.
    views: Vec<(Mask, Option<Mask>)>,
    /// Number of views that must see a point for it to be inside.
    least_seeing: u32,
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
            .filter_map(|view| view.mask.as_ref().map(|mask| (view, mask)))
            .map(|(view, path)| {
                control.check()?;
                let read = |path: &PathBuf| -> Result<Mask> {
                    let mask = read_mask(path)?;
                    // The mask may be smaller than the camera.
                    Ok((view.view.resized(mask.width(), mask.height()), bits(&mask)))
                };
                Ok((read(path)?, view.hidden.as_ref().map(read).transpose()?))
            })
            .collect::<Result<_>>()?;
        Ok((!views.is_empty()).then(|| Self::new(views)))
    }

    /// From views and the bits of their masks, row by row.
    fn new(views: Vec<(Mask, Option<Mask>)>) -> Self {
        let least_seeing =
            (LEAST_SEEING * views.len() as f64).ceil().clamp(1.0, f64::from(ENOUGH_SEEING)) as u32;
        Self { views, least_seeing }
    }

    /// Whether enough views see the point, and nearly all of them on the object. Those in which it is where something else hides the
    /// object do not see it.
    pub fn contains(&self, point: &Vector3<f64>) -> bool {
        let (mut seen, mut object) = (0u32, 0u32);
        for (mask, hidden) in &self.views {
            let Some(is_object) = is_in(mask, point) else { continue };
            let is_hidden = hidden.as_ref().is_some_and(|hidden| is_in(hidden, point) == Some(true));
            seen += u32::from(is_object || !is_hidden);
            object += u32::from(is_object);
        }
        seen >= self.least_seeing && f64::from(object) >= AGREEMENT * f64::from(seen)
    }

    /// The splats whose centres are inside, and the opacity of those left out as a part of all.
    pub fn cut(&self, mut splats: Splats) -> (Splats, f64) {
        let inside: Vec<bool> =
            splats.means.par_iter().map(|m| self.contains(&Vector3::from(m.as_dvec3().to_array()))).collect();
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

/// Whether the point is in the mask; `None` if the view does not show it.
fn is_in((view, bits): &Mask, point: &Vector3<f64>) -> Option<bool> {
    let pixel = view.project(point).and_then(|(x, y, _)| view.pixel(x, y))?;
    Some(bits.get(pixel / 64).is_some_and(|word| word >> (pixel % 64) & 1 == 1))
}

/// One bit a pixel, row by row: 1 in the mask and on a margin around it.
fn bits(mask: &GrayImage) -> Vec<u64> {
    let (width, height) = (mask.width() as usize, mask.height() as usize);
    let radius = ((MARGIN * width.max(height) as f64).round() as usize).max(1);
    let mut plane: Vec<f32> = mask.as_raw().iter().map(|v| f32::from(u8::from(is_object(*v)))).collect();
    super::guided_filter::box_mean(&mut plane, width, height, radius);
    let mut bits = vec![0u64; plane.len().div_ceil(64)];
    // One pixel of object in the window makes twice as much; rounding of the running sums makes far less.
    let least = 0.5 / ((2 * radius + 1) * (2 * radius + 1)) as f32;
    for (k, value) in plane.iter().enumerate() {
        bits[k / 64] |= u64::from(*value > least) << (k % 64);
    }
    bits
}

#[cfg(test)]
mod tests {
    use glam::{DMat3, dvec3};

    use super::*;

    /// Cameras side by side, 0.1 apart, that look along z; all of their pictures are object but for the right half of
    /// those `without`.
    fn outline(count: usize, without: usize) -> ObjectOutline {
        let view = |i: usize| {
            let camera = raster::View {
                rotation: DMat3::IDENTITY,
                translation: dvec3(-0.1 * i as f64, 0.0, 0.0),
                fx: 40.0,
                fy: 40.0,
                cx: 40.0,
                cy: 40.0,
                width: 80,
                height: 80,
            };
            let mask =
                GrayImage::from_fn(80, 80, |x, _| image::Luma([255 * u8::from(i >= without || x < 40)]));
            ((camera, bits(&mask)), None)
        };
        ObjectOutline::new((0..count).map(view).collect())
    }

    #[test]
    fn a_few_wrong_masks_carve_nothing() {
        let point = Vector3::new(2.5, 0.0, 10.0); // right of the middle in all views
        for (without, inside) in [(0, true), (3, true), (6, false)] {
            assert_eq!(outline(30, without).contains(&point), inside, "{without}");
        }
    }

    #[test]
    fn views_in_which_something_else_hides_the_object_do_not_contradict() {
        // A ball of radius 1, 16 cameras around it; in four of them next to each other another ball covers the left third of its
        // picture. In the others nothing is in front of it.
        let view = |i: usize, is_told: bool| {
            let camera = raster::View {
                rotation: DMat3::from_rotation_y(std::f64::consts::TAU * i as f64 / 16.0),
                translation: dvec3(0.0, 0.0, 5.0),
                fx: 80.0,
                fy: 80.0,
                cx: 40.0,
                cy: 40.0,
                width: 80,
                height: 80,
            };
            let within = |x: u32, y: u32, middle: f64, radius: f64| {
                (f64::from(x) + 0.5 - middle).hypot(f64::from(y) + 0.5 - 40.0) < radius
            };
            let ball = |x, y| within(x, y, 40.0, 16.3);
            let other = |x, y| i < 4 && within(x, y, 22.0, 14.0);
            let mask = |is_in: &dyn Fn(u32, u32) -> bool| {
                bits(&GrayImage::from_fn(80, 80, |x, y| image::Luma([255 * u8::from(is_in(x, y))])))
            };
            let object = (camera, mask(&|x, y| ball(x, y) && !other(x, y)));
            let hidden = (camera, mask(&|x, y| ball(x, y) && other(x, y)));
            (object, (i < 4 && is_told).then_some(hidden))
        };
        let outline = |is_told| ObjectOutline::new((0..16).map(|i| view(i, is_told)).collect());
        let (told, untold) = (outline(true), outline(false));
        // By how many views a place on the ball is not within their masks.
        let hidden = |point: &Vector3<f64>| {
            told.views.iter().filter(|(mask, _)| is_in(mask, point) == Some(false)).count()
        };
        let on_ball = (0..400).map(|k| {
            let (turn, height) = (2.4 * f64::from(k), f64::from(k) / 200.0 - 1.0);
            let across = (1.0 - height * height).max(0.0).sqrt();
            Vector3::new(across * turn.cos(), height, across * turn.sin())
        });
        let places: Vec<Vector3<f64>> = on_ball.filter(|place| hidden(place) >= 3).collect();
        assert!(places.len() > 10, "{}", places.len());
        assert!(places.iter().all(|place| told.contains(place)));
        assert!(!places.iter().any(|place| untold.contains(place)));
        // What is beside the object is so all the same.
        assert!(!told.contains(&Vector3::new(1.3, 0.0, 0.0)));
    }

    #[test]
    fn what_few_views_see_is_outside_though_they_see_it_on_the_object() {
        // Close before the first cameras: within the field of view (1 to both sides at the distance 1) of few.
        let seen_by = |count: u32| Vector3::new(0.1 * f64::from(count) - 1.05, 0.0, 1.0);
        for (views, least) in [(4, 1), (11, 2), (30, 3), (80, 5)] {
            let outline = outline(views, 0);
            assert!(outline.contains(&seen_by(least)), "{views} views, {least} see it");
            assert!(!outline.contains(&seen_by(least - 1)), "{views} views, {} see it", least - 1);
        }
    }
}
