//! How far off the poses are by the spread of the adjustment, once the whole world may be moved, turned and scaled.

use nalgebra::{Matrix3, SymmetricEigen, UnitQuaternion, Vector3};

use crate::sfm::bundle_adjustment::{
    BundleOptions, Clustering, Draw, centre_responses, extra_response, pose_draws,
};
use crate::sfm::map::{Keypoints, Map};

/// Errors of one clustering.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ClusterSpread {
    /// Root mean square over frames and draws, degrees.
    pub(super) rotation: f64,
    /// Root mean square over frames and draws, share of the radius.
    pub(super) position: f64,
    /// Of the focal length, as a share of it.
    pub(super) focal: f64,
    /// By registered frame: rotation (degrees) and place (share of the radius).
    pub(super) frames: Vec<(f64, f64)>,
}

/// Directions in which a path has less than this share of its extent do not tell a turn of the world about them.
const STRAIGHT: f64 = 1e-6;

/// Centres of the registered images, their mean taken off; and the root of their mean square.
pub(super) fn path(map: &Map) -> (Vec<Vector3<f64>>, f64) {
    let mut centres: Vec<Vector3<f64>> = map.poses.iter().flatten().map(|p| p.centre()).collect();
    let count = centres.len().max(1) as f64;
    let mean = centres.iter().sum::<Vector3<f64>>() / count;
    centres.iter_mut().for_each(|c| *c -= mean);
    let radius = (centres.iter().map(|c| c.norm_squared()).sum::<f64>() / count).sqrt();
    (centres, radius)
}

/// By clustering, in the order of [`Clustering::ALL`]; `None` where the adjustment says nothing.
pub(super) fn spreads(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
) -> Option<Vec<ClusterSpread>> {
    let frame = WorldFrame::new(map)?;
    let draws = pose_draws(map, keypoints, options)?;
    debug_assert_eq!(draws.len(), Clustering::ALL.len());
    Some(draws.iter().map(|draws| frame.spread(draws)).collect())
}

/// What a principal point does that is off by `pixels` to the right and downwards, either way, if it is free in
/// `options`; `None` where the adjustment says nothing. `camera` 0 is the one that made most images.
pub(super) fn centre_spread(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
    camera: usize,
    pixels: [f64; 2],
) -> Option<ClusterSpread> {
    let frame = WorldFrame::new(map)?;
    // The two add up, where draws are averaged.
    let pixels = pixels.map(|p| std::f64::consts::SQRT_2 * p);
    Some(frame.spread(&centre_responses(map, keypoints, options, camera, pixels)?))
}

/// What something else does that is off by 1 and moves keypoints by `slopes`; `None` where the adjustment says nothing.
pub(super) fn extra_spread(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
    slopes: &Keypoints,
) -> Option<ClusterSpread> {
    let frame = WorldFrame::new(map)?;
    Some(frame.spread(&[extra_response(map, keypoints, slopes, options)?]))
}

/// The registered cameras, against which draws are held.
struct WorldFrame {
    offsets: Vec<Vector3<f64>>,
    radius: f64,
    to_world: Vec<UnitQuaternion<f64>>,
}

impl WorldFrame {
    /// `None` for cameras that are all at one place.
    fn new(map: &Map) -> Option<Self> {
        let (offsets, radius) = path(map);
        let to_world = map.poses.iter().flatten().map(|p| p.rotation.inverse()).collect();
        (radius > 0.0).then_some(Self { offsets, radius, to_world })
    }

    /// Root mean squares over the draws, without what moves the whole world.
    fn spread(&self, draws: &[Draw]) -> ClusterSpread {
        let Self { offsets, radius, to_world } = self;
        let turning = World::new(offsets);
        let mut squares = vec![(0.0, 0.0); offsets.len()];
        let mut focal = 0.0;
        let share = 1.0 / draws.len().max(1) as f64;
        for draw in draws {
            let shifts = turning.taken_out(&draw.shifts);
            let turns: Vec<Vector3<f64>> =
                to_world.iter().zip(&draw.turns).map(|(to_world, turn)| to_world * turn).collect();
            let mean = turns.iter().sum::<Vector3<f64>>() / turns.len().max(1) as f64;
            for ((sum, turn), shift) in squares.iter_mut().zip(&turns).zip(&shifts) {
                sum.0 += share * (turn - mean).norm_squared();
                sum.1 += share * shift.norm_squared();
            }
            focal += share * draw.focal * draw.focal;
        }
        let frames: Vec<(f64, f64)> =
            squares.iter().map(|s| (s.0.sqrt().to_degrees().min(180.0), s.1.sqrt() / radius)).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| {
            (frames.iter().map(|f| of(f).powi(2)).sum::<f64>() / frames.len().max(1) as f64).sqrt()
        };
        ClusterSpread { rotation: mean(|f| f.0), position: mean(|f| f.1), focal: f64::sqrt(focal), frames }
    }
}

/// What a small motion of the whole world does to the centres.
struct World<'a> {
    offsets: &'a [Vector3<f64>],
    squares: f64,
    /// Inverse of the matrix that a turn meets; zero along an axis about which the path does not tell a turn.
    inverse: Matrix3<f64>,
}

impl<'a> World<'a> {
    fn new(offsets: &'a [Vector3<f64>]) -> Self {
        let squares: f64 = offsets.iter().map(|u| u.norm_squared()).sum();
        let inertia: Matrix3<f64> = offsets
            .iter()
            .map(|u| Matrix3::from_diagonal_element(u.norm_squared()) - u * u.transpose())
            .sum();
        let eigen = SymmetricEigen::new(inertia);
        let inverse = (0..3)
            .filter(|&k| eigen.eigenvalues[k] > STRAIGHT * squares)
            .map(|k| {
                eigen.eigenvectors.column(k) * eigen.eigenvectors.column(k).transpose() / eigen.eigenvalues[k]
            })
            .sum();
        Self { offsets, squares, inverse }
    }

    /// `shifts` without the motion of the world that explains most of them.
    fn taken_out(&self, shifts: &[Vector3<f64>]) -> Vec<Vector3<f64>> {
        let mean = shifts.iter().sum::<Vector3<f64>>() / shifts.len().max(1) as f64;
        let pairs = || self.offsets.iter().zip(shifts);
        let scale = pairs().map(|(u, d)| u.dot(&(d - mean))).sum::<f64>() / self.squares;
        let moment: Vector3<f64> = pairs().map(|(u, d)| u.cross(&(d - mean))).sum();
        let turn = self.inverse * moment;
        pairs().map(|(u, d)| d - mean - scale * u - turn.cross(u)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, PoseUnknowns, RefineIntrinsics, adjust};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn a_motion_of_the_world_is_no_error() {
        let offsets =
            [Vector3::new(1.0, 0.0, 0.0), Vector3::new(-1.0, 0.5, 0.0), Vector3::new(0.0, -0.5, 0.0)];
        let (turn, shift) = (Vector3::new(0.1, -0.2, 0.3), Vector3::new(1.0, 2.0, 3.0));
        let moved: Vec<_> = offsets.iter().map(|u| 0.3 * u + turn.cross(u) + shift).collect();
        assert!(World::new(&offsets).taken_out(&moved).iter().all(|d| d.norm() < 1e-12));
        // A straight path leaves nothing of a turn about itself, and does not divide by zero.
        let straight = [Vector3::x(), -Vector3::x()];
        let kept = World::new(&straight).taken_out(&[Vector3::y(), Vector3::y()]);
        assert!(kept.iter().all(|d| d.norm() < 1e-12));
    }

    #[test]
    fn the_spread_is_as_large_as_the_errors() {
        let options = BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 20, tolerance: 1e-8 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: true, distortion: Some(0.05), principal_point: None },
            other_centres: Vec::new(),
        };
        let (mut errors, mut said) = (0.0, 0.0);
        for seed in 0..8 {
            let capture = Capture::orbit(12, 300, 0.4, seed);
            let mut map = capture.true_map_with_points();
            adjust(&mut map, &capture.keypoints, &options, &Control::new()).unwrap();
            let (_, rotation) = capture.errors(&map);
            errors += rotation;
            said += spreads(&map, &capture.keypoints, &options).unwrap()[0].rotation;
        }
        assert!((0.4..2.5).contains(&(said / errors)), "said {said}, are {errors}");
    }
}
