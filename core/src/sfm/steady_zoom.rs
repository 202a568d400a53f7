//! A focal length that changes steadily from the first frame to the last, which one camera for all frames denies.

use nalgebra::Vector2;

use super::bundle_adjustment::{BundleOptions, adjust_with_readout};
use super::map::{Keypoints, Map};
use crate::control::Control;
use crate::error::Result;

/// Steps of the adjustment at most: it begins at the minimum without a zoom, which poses have bent to.
const STEPS: usize = 40;

/// Adjustments at most, each about the zoom that the one before found: the first takes keypoints to move evenly with it.
const ROUNDS: usize = 2;
/// By so many pixels that may be wrong at a corner of the picture before there is another one: a tenth of the noise of a keypoint or
/// less. Chosen by hand.
const LINEAR: f64 = 0.02;

/// A map of frames whose focal length changes.
pub(crate) struct Zoomed {
    /// With the mean of the focal lengths.
    pub(crate) map: Map,
    /// The keypoints as the mean focal length would have shown them.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// Logarithm of the last focal length over the first.
    pub(crate) change: f64,
}

/// The steady zoom that explains the capture best: one more unknown of the adjustment, while poses and points take up what
/// they may. Images are in the order of time.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn fit_steady_zoom(
    map: &Map,
    keypoints: &Keypoints,
    bundle: &BundleOptions,
    control: &Control,
) -> Result<Zoomed> {
    let mut bundle = bundle.clone();
    bundle.stopping.max_iterations = STEPS;
    let half_diagonal = 0.5 * f64::from(map.camera.width).hypot(f64::from(map.camera.height));
    let mut zoomed = Zoomed { map: map.clone(), keypoints: keypoints.to_vec(), change: 0.0 };
    for _ in 0..ROUNDS {
        let slopes = zoom_slopes(map, &zoomed.keypoints);
        let step = adjust_with_readout(&mut zoomed.map, &zoomed.keypoints, &[&slopes], &bundle, control)?;
        zoomed.change += step.first().copied().unwrap_or(0.0);
        let (centre, change) = (map.camera.principal_point(), zoomed.change);
        zoomed.keypoints = by_part(map, keypoints, |part, off| centre + f64::exp(-change * part) * off);
        // The second order of what moves a corner at either end of the capture.
        if 0.5 * (0.5 * change).powi(2) * half_diagonal < LINEAR {
            break;
        }
    }
    Ok(zoomed)
}

/// How keypoints move for each unit of the logarithm of the last focal length over the first.
pub(crate) fn zoom_slopes(map: &Map, keypoints: &Keypoints) -> Vec<Vec<Vector2<f64>>> {
    by_part(map, keypoints, |part, off| -part * off)
}

/// For every keypoint what follows from the part of the capture it is in (-0.5 at its start, 0.5 at its end) and its place
/// about the principal point.
fn by_part(
    map: &Map,
    keypoints: &Keypoints,
    of: impl Fn(f64, Vector2<f64>) -> Vector2<f64>,
) -> Vec<Vec<Vector2<f64>>> {
    let centre = map.camera.principal_point();
    let last = keypoints.len().saturating_sub(1).max(1);
    let of_image = |(image, own): (usize, &Vec<Vector2<f64>>)| {
        let part = image as f64 / last as f64 - 0.5;
        own.iter().map(|pixel| of(part, pixel - centre)).collect()
    };
    keypoints.iter().enumerate().map(of_image).collect()
}
