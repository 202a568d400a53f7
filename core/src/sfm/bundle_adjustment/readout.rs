//! Bundle adjustment with the readout time of a rolling shutter among the shared unknowns.
//!
//! Keypoints come as a global shutter would have shown them if the readout time were what it is taken for, with how
//! they move as it grows; how the camera moves while a picture is read is given. The readout time is then a column of
//! the border like a parameter of the lens.

use nalgebra::Vector2;

use crate::control::Control;
use crate::error::Result;
use crate::sfm::levenberg_marquardt::minimise;
use crate::sfm::map::{Keypoints, Map};

use super::covariance::border_deviations;
use super::workspace::Workspace;
use super::{BundleOptions, EXTRA, Problem};

impl<'a> Problem<'a> {
    /// The problem with more shared unknowns: `slopes` say how each keypoint moves with each, pixels per unit, by image and
    /// keypoint. `None` without images or points, and where several cameras took the pictures: they have no one shutter.
    pub(super) fn with_extra(
        map: &Map,
        keypoints: &Keypoints,
        slopes: &[&[Vec<Vector2<f64>>]],
        options: &'a BundleOptions,
    ) -> Option<Self> {
        let extra = slopes.len().min(EXTRA);
        if !map.others.cameras.is_empty() {
            return None;
        }
        let mut problem = Self::with_room_for(extra, map, keypoints, options)?;
        problem.extra = extra;
        if extra == 0 {
            return Some(problem);
        }
        let mut all = vec![[[0.0; 2]; EXTRA]; problem.pixels.len()];
        // `new` ordered the observations of a point by image, as tracks are.
        let tracks = map.points.iter().flat_map(|p| &p.track);
        for (own, o) in all.iter_mut().zip(tracks) {
            for (slope, by_image) in own.iter_mut().zip(slopes) {
                let moves = by_image[o.image as usize][o.keypoint as usize];
                // Seen minus measured: the measured pixel moves.
                *slope = [-moves.x, -moves.y];
            }
        }
        problem.slopes = all;
        Some(problem)
    }
}

/// Adjusts `map` in place, with one or two more shared unknowns; returns their changes.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adjust_with_readout(
    map: &mut Map,
    keypoints: &Keypoints,
    slopes: &[&[Vec<Vector2<f64>>]],
    options: &BundleOptions,
    control: &Control,
) -> Result<Vec<f64>> {
    let Some(problem) = Problem::with_extra(map, keypoints, slopes, options) else {
        return Ok(vec![0.0; slopes.len()]);
    };
    let start = problem.state(map);
    let mut work = Workspace::new(&problem.structure, problem.border());
    let (state, _) = minimise(
        start,
        options.stopping,
        problem.reach(),
        control,
        |s| problem.cost(s),
        |s, damping| problem.step(s, damping, &mut work),
    )?;
    problem.store(&state, map);
    Ok(state.extra[..problem.extra].to_vec())
}

/// [`super::intrinsics_deviations`] with these unknowns beside them.
pub(crate) fn intrinsics_deviations_with(
    map: &Map,
    keypoints: &Keypoints,
    slopes: &[&[Vec<Vector2<f64>>]],
    options: &BundleOptions,
) -> Option<Vec<(usize, f64)>> {
    let problem = Problem::with_extra(map, keypoints, slopes, options)?;
    let deviations = border_deviations(&problem, &problem.state(map))?;
    Some(problem.intrinsics.free.iter().copied().zip(deviations).collect())
}

/// Standard deviations of these unknowns at the minimum `map`, in their order; see [`super::covariance`]. `None` where
/// the equations are singular.
pub(crate) fn readout_deviations(
    map: &Map,
    keypoints: &Keypoints,
    slopes: &[&[Vec<Vector2<f64>>]],
    options: &BundleOptions,
) -> Option<Vec<f64>> {
    let problem = Problem::with_extra(map, keypoints, slopes, options)?;
    let deviations = border_deviations(&problem, &problem.state(map))?;
    Some(deviations[problem.intrinsics.free.len()..].to_vec())
}
