//! What hides the object from single views: things that belong to the background and stand between a camera and the place at
//! which the cameras look, such as a bottle, a lamp or the back of a chair.

use nalgebra::Vector3;

use super::labelling::{LabelOptions, ObjectLabels, above_plane};
use super::quick_scene::QuickScene;
use super::support_plane::SupportPlane;
use super::views::SalientView;
use crate::camera::Gaze;
use crate::defaults::with_defaults;
use crate::error::Result;

with_defaults! {
    /// When a thing hides what is behind it. "The distance" is that of the cameras from the place at which they look
    /// ([`Gaze::distance`]). Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct OcclusionOptions {
        /// It is nearer to the camera than the focus by this, in units of the distance: what surrounds the object, or is behind
        /// it, shows that the object is not there.
        before: f64 = 0.2,
        /// It is farther from the camera than this, in units of the distance: Gaussians nearer than that float.
        nearest: f64 = 0.15,
        /// Pixels beside it that may show either.
        rim: usize = 2,
    }
}

/// By view and pixel: the depth (world units) from which on something before the object hides what is there; infinite where
/// nothing does. Empty for a view in which there is no such thing. `known` says by Gaussian how well (0 to 1) its depth is known.
///
/// # Errors
/// Those of the rasteriser.
pub(super) fn hidden_depths(
    scene: &QuickScene,
    labels: &ObjectLabels,
    known: &[f32],
    views: &[SalientView],
    gaze: &Gaze,
    plane: Option<&SupportPlane>,
    labelling: &LabelOptions,
    options: &OcclusionOptions,
) -> Result<Vec<Vec<f32>>> {
    // The ground hides nothing but what is below it. Where it is not known, it is below the place at which the cameras look.
    let stands = |place: &Vector3<f64>| match plane {
        Some(plane) if !plane.is_wall => above_plane(place, plane, gaze, labelling) >= 0.5,
        _ => (place - gaze.focus).dot(&gaze.up) > 0.0,
    };
    let background: Vec<f32> = (scene.centres.iter().zip(&labels.object).zip(known))
        .map(|((centre, object), known)| match object {
            Some(object) if stands(centre) => (1.0 - object) * known,
            _ => 0.0,
        })
        .collect();
    views.iter().map(|view| of_view(scene, &background, view, gaze, labelling, options)).collect()
}

/// The same of one view. `background` says by Gaussian how surely (0 to 1) it is a thing of the background.
fn of_view(
    scene: &QuickScene,
    background: &[f32],
    view: &SalientView,
    gaze: &Gaze,
    labelling: &LabelOptions,
    options: &OcclusionOptions,
) -> Result<Vec<f32>> {
    let depth = |place: &Vector3<f64>| view.camera.to_camera(place).z;
    let limit = depth(&gaze.focus) - options.before * gaze.distance;
    let range = options.nearest * gaze.distance..limit;
    let mut is_shown = false;
    let paint = |(background, centre): (&f32, &Vector3<f64>)| {
        let depth = depth(centre);
        if *background <= 0.0 || !range.contains(&depth) {
            return [0.0; 3];
        }
        is_shown |= view.shows(centre);
        [*background, background * (depth / limit) as f32, 0.0]
    };
    let paints: Vec<[f32; 3]> = background.iter().zip(&scene.centres).map(paint).collect();
    if !is_shown {
        return Ok(Vec::new());
    }
    let margin = labelling.depth_margin * gaze.distance;
    let mut painted = scene.painted(|i| paints[i])?;
    let hidden_from = |[weight, depth, ..]: &[f32; 4]| {
        let is_covered = f64::from(*weight) > labelling.opaque;
        if is_covered { (limit * f64::from(depth / weight) + margin) as f32 } else { f32::INFINITY }
    };
    let depths: Vec<f32> = painted.seen_by(&view.camera)?.iter().map(hidden_from).collect();
    let (width, _) = view.size();
    Ok(widened(&depths, width, options.rim))
}

/// By pixel: the least of the `depths` up to `radius` pixels away in either direction. Empty if none is finite.
fn widened(depths: &[f32], width: usize, radius: usize) -> Vec<f32> {
    if !depths.iter().any(|depth| depth.is_finite()) {
        return Vec::new();
    }
    let height = depths.len() / width.max(1);
    let mut widened = vec![f32::INFINITY; depths.len()];
    for (k, depth) in depths.iter().enumerate().filter(|(_, depth)| depth.is_finite()) {
        let (x, y) = (k % width, k / width);
        let columns = x.saturating_sub(radius)..(x + radius + 1).min(width);
        for row in y.saturating_sub(radius)..(y + radius + 1).min(height) {
            for nearest in &mut widened[row * width..][columns.clone()] {
                *nearest = nearest.min(*depth);
            }
        }
    }
    widened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_around_a_pixel_counts_and_nothing_beyond_the_borders() {
        let mut depths = vec![f32::INFINITY; 5 * 4];
        assert!(widened(&depths, 5, 1).is_empty());
        (depths[4], depths[2 * 5 + 3]) = (2.0, 1.0);
        let wide = widened(&depths, 5, 1);
        assert_eq!((wide[3], wide[4], wide[5 + 3], wide[5 + 4]), (2.0, 2.0, 1.0, 1.0));
        assert_eq!(wide.iter().filter(|d| d.is_finite()).count(), 11);
        assert!(wide[5].is_infinite() && wide[2].is_infinite());
    }
}
