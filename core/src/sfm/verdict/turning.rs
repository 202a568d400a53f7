//! Whether a camera that only turned explains what was seen.
//!
//! The path of a camera that looks outwards from a small circle, before things that are all about as far away, looks like a turn on the
//! spot through another lens. So if the camera did turn on the spot, a focal length and a distortion that are a little wrong let it go on
//! a circle, with depths to match, and next to nothing contradicts. The other way round this does not work: where the camera
//! did move, things at different distances shift by different amounts, and no lens makes that of a turn.

use nalgebra::Vector3;
use rayon::prelude::*;

use crate::camera::Pose;
use crate::control::Control;
use crate::sfm::bundle_adjustment::{BundleOptions, PoseUnknowns, adjust};
use crate::sfm::map::{Keypoints, Map, MapPoint, Observation};
use crate::sfm::triangulation::Views;
use crate::statistics::quantile;

/// Errors are compared by what this share of the observations stays below. Of a camera that turned and then went on, most may be
/// explained by a turn.
const MOST: f64 = 0.9;

/// How many times as large as in `map` reprojection errors are if all cameras stand at one place, and turns, lens and the
/// directions of points are adjusted; `None` where nothing can be said.
pub(super) fn turning_excess(map: &Map, keypoints: &Keypoints, options: &BundleOptions) -> Option<f64> {
    let mut turning = map.clone();
    for pose in turning.poses.iter_mut() {
        *pose = pose.map(|pose| Pose::from_centre(pose.rotation, &Vector3::zeros()));
    }
    turning.points.par_iter_mut().for_each(|point| {
        let ray = |o: &Observation| {
            let image = o.image as usize;
            let ray = map.camera_of(image).ray(&keypoints[image][o.keypoint as usize]);
            map.poses[image].map(|pose| pose.rotation.inverse() * ray)
        };
        let sum: Vector3<f64> = point.track.iter().filter_map(ray).sum();
        point.xyz = sum.try_normalize(1e-9).unwrap_or(sum);
    });
    let options = BundleOptions { poses: PoseUnknowns::Rotations, ..options.clone() };
    // It cannot be cancelled, and has no other way to fail.
    adjust(&mut turning, keypoints, &options, &Control::new()).ok()?;
    let (turned, moved) = (largest_errors(&turning, keypoints)?, largest_errors(map, keypoints)?);
    Some(turned / moved.max(f64::MIN_POSITIVE)).filter(|excess| excess.is_finite())
}

/// The reprojection error, pixels, that [`MOST`] of the observations stay below.
fn largest_errors(map: &Map, keypoints: &Keypoints) -> Option<f64> {
    let views = Views::new(map, keypoints);
    let of_point = |point: &MapPoint| {
        let error = |o| views.squared_error(o, &point.xyz).sqrt();
        point.track.iter().map(error).collect::<Vec<f64>>()
    };
    let mut errors: Vec<f64> = map.points.par_iter().flat_map_iter(of_point).collect();
    quantile(&mut errors, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, RefineIntrinsics};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    fn options() -> BundleOptions {
        BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 30, tolerance: 1e-8 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: true, distortion: Some(0.05), principal_point: None },
            other_centres: Vec::new(),
        }
    }

    /// What is said of a camera that went on a circle of `radius` and looked outwards, if it is believed to have gone on one of
    /// `believed`.
    fn excess(radius: f64, believed: f64) -> f64 {
        let capture = Capture::look_around(16, radius, 3000, 0.2, 3);
        let mut map = capture.true_map_with_points();
        for (pose, true_pose) in map.poses.iter_mut().zip(&capture.poses) {
            *pose = Some(Pose::from_centre(true_pose.rotation, &(believed * true_pose.forward())));
        }
        if believed != radius {
            map.points.iter_mut().for_each(|point| point.xyz *= 4.0 / point.xyz.norm());
        }
        adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        turning_excess(&map, &capture.keypoints, &options()).unwrap()
    }

    #[test]
    fn a_circle_that_a_turn_explains_is_told_from_one_that_it_does_not() {
        let (imagined, walked) = (excess(0.0, 0.4), excess(0.2, 0.2));
        assert!(imagined < 1.3 && walked > 5.0, "{imagined} {walked}");
    }
}
