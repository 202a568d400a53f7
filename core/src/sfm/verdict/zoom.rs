//! Whether the focal length changes within the capture, which one camera for all frames denies.

use nalgebra::{SMatrix, SVector};
use rayon::prelude::*;

use crate::control::Control;
use crate::sfm::bundle_adjustment::{BundleOptions, readout_deviations};
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::projection::{Extrinsics, Loss, Projector};
use crate::sfm::steady_zoom::{fit_steady_zoom, zoom_slopes};

/// A zoom that goes on steadily from the first frame to the last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SteadyZoom {
    /// Logarithm of the last focal length over the first.
    pub(super) change: f64,
    /// Its standard deviation.
    pub(super) deviation: f64,
}

/// The steady zoom that explains the capture best. Images are in the order of time. `None` where the equations are singular.
pub(super) fn steady_zoom(map: &Map, keypoints: &Keypoints, bundle: &BundleOptions) -> Option<SteadyZoom> {
    if map.poses.len() < 2 {
        return None;
    }
    // Without a control nothing cancels it.
    let zoomed = fit_steady_zoom(map, keypoints, bundle, &Control::new()).ok()?;
    let slopes = zoom_slopes(map, &zoomed.keypoints);
    let deviation = readout_deviations(&zoomed.map, &zoomed.keypoints, &[&slopes], bundle)?;
    Some(SteadyZoom { change: zoomed.change, deviation: *deviation.first()? })
}

/// Unknowns of a frame: its pose and the logarithm of its focal length.
const UNKNOWNS: usize = 7;
/// Fewer observations do not tell a zoom from a step forward.
const LEAST: usize = 15;

/// How much the frames' own focal lengths differ and keep to it from a frame to the next, as a share of the focal
/// length. Frame by frame they are noisy; the product of neighbours, whose noise has nothing in common, is not.
pub(super) fn zoom(map: &Map, keypoints: &Keypoints, loss: Loss) -> f64 {
    let own = own_focals(map, keypoints, loss);
    let count = own.len() as f64;
    if own.len() < 4 {
        return 0.0;
    }
    let mean = own.iter().sum::<f64>() / count;
    let products: f64 = own.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    (products / (count - 1.0)).max(0.0).sqrt()
}

/// The logarithm of each registered frame's focal length over that of the map, by one step of its own from the map.
fn own_focals(map: &Map, keypoints: &Keypoints, loss: Loss) -> Vec<f64> {
    let mut seen: Vec<Vec<(usize, u32)>> = vec![Vec::new(); map.poses.len()];
    for (p, point) in map.points.iter().enumerate() {
        point.track.iter().for_each(|o| seen[o.image as usize].push((p, o.keypoint)));
    }
    let of_image = |(image, seen): (usize, &Vec<(usize, u32)>)| {
        let pose = Extrinsics::from_pose(&map.poses[image]?);
        let camera = map.camera_of(image);
        let projector = Projector::new(camera);
        let focals = crate::sfm::bundle_adjustment::principal_point_index(camera.model);
        let focal = camera.mean_focal();
        let mut h = SMatrix::<f64, UNKNOWNS, UNKNOWNS>::zeros();
        let mut g = SVector::<f64, UNKNOWNS>::zeros();
        for &(p, k) in seen {
            let pixel = keypoints[image][k as usize].into();
            let Some(l) = projector.linearise(&pose, &map.points[p].xyz.into(), &pixel) else { continue };
            let weight = loss.at(l.residual[0].powi(2) + l.residual[1].powi(2)).1;
            for r in 0..2 {
                let (turn, q) = (&l.by_rotation[r], &l.by_point[r]);
                let by_focal: f64 = l.by_intrinsics[r][..focals].iter().sum::<f64>() * focal;
                let j = SVector::from([turn[0], turn[1], turn[2], -q[0], -q[1], -q[2], by_focal]);
                h += weight * j * j.transpose();
                g -= weight * l.residual[r] * j;
            }
        }
        let x = h.cholesky().filter(|_| seen.len() >= LEAST)?.solve(&g)[UNKNOWNS - 1];
        x.is_finite().then_some(x)
    };
    let all: Vec<Option<f64>> = seen.par_iter().enumerate().map(of_image).collect();
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel};
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, PoseUnknowns, RefineIntrinsics, adjust};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn a_zoom_is_told_from_noise() {
        let loss = Loss::Cauchy(1.0);
        let mut capture = Capture::walk(20, 1500, 0.3, 3);
        let map = capture.true_map_with_points();
        let still = zoom(&map, &capture.keypoints, loss);
        assert!(still < 2e-3, "{still}");
        let centre = map.camera.principal_point();
        for (i, image) in capture.keypoints.iter_mut().enumerate() {
            let grow = 1.0 + 0.002 * i as f64;
            image.iter_mut().for_each(|p| *p = centre + grow * (*p - centre));
        }
        // Evenly from 0 to 3.8 %: a standard deviation of 1.1 %.
        let zoomed = zoom(&map, &capture.keypoints, loss);
        assert!((0.006..0.016).contains(&zoomed), "{zoomed}");
    }

    #[test]
    fn every_lens_leaves_room_for_a_zoom() {
        for model in CameraModel::ALL {
            let capture = Capture::walk(12, 600, 0.3, 7);
            let mut map = capture.true_map_with_points();
            let Camera { width, height, .. } = map.camera;
            map.camera = Camera::from_focal(model, map.camera.mean_focal(), width, height);
            let bundle = BundleOptions {
                loss: Loss::Cauchy(1.0),
                noise: ASSUMED_NOISE,
                rest: 0.0,
                stopping: Stopping { max_iterations: 10, tolerance: 1e-6 },
                poses: PoseUnknowns::All,
                intrinsics: RefineIntrinsics {
                    focal: true,
                    distortion: Some(0.05),
                    principal_point: Some(10.0),
                },
                other_centres: Vec::new(),
            };
            let found = steady_zoom(&map, &capture.keypoints, &bundle).unwrap();
            assert!(found.change.abs() < 4.0 * found.deviation + 1e-3, "{model:?}: {found:?}");
        }
    }

    #[test]
    fn a_steady_zoom_is_found_though_poses_have_made_the_best_of_it() {
        let bundle = BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 30, tolerance: 1e-8 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: true, distortion: Some(0.05), principal_point: None },
            other_centres: Vec::new(),
        };
        for growth in [0.0, 0.06, -0.1] {
            let mut capture = Capture::walk(16, 1200, 0.3, 7);
            let mut map = capture.true_map_with_points();
            let centre = map.camera.principal_point();
            for (i, image) in capture.keypoints.iter_mut().enumerate() {
                let grow = f64::exp(growth * (i as f64 / 15.0 - 0.5));
                image.iter_mut().for_each(|p| *p = centre + grow * (*p - centre));
            }
            adjust(&mut map, &capture.keypoints, &bundle, &Control::new()).unwrap();
            let found = steady_zoom(&map, &capture.keypoints, &bundle).unwrap();
            let off = (found.change - growth).abs();
            assert!(off < 4.0 * found.deviation + 0.1 * growth.abs(), "{growth}: {found:?}");
            assert!((1e-5..1e-2).contains(&found.deviation), "{growth}: {found:?}");
        }
    }
}
