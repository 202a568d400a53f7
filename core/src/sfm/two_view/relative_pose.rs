//! The relative pose of a pair whose cameras are calibrated.

use nalgebra::{Matrix3, Vector3};
use rayon::prelude::*;

use super::essential::{essential_from_pose, five_point_essential, poses_from_essential};
use super::ransac::{Problem, lo_ransac};
use super::refine::{refine_essential, refine_pose};
use super::score::{PointPairs, Sampson, Score, inlier_rows, msac};
use super::verify::{check_matches, sampled, some_inliers};
use super::{TwoViewConfig, TwoViewGeometry, TwoViewOptions, Views};
use crate::camera::{Camera, Pose};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::sfm::matching::PairMatches;

/// Estimates the relative poses of all pairs that [`super::verify_pairs`] did not find degenerate, from all their matches, in parallel.
/// `geometries` belongs to `pairs`, element by element; so does the result. The cameras of `views` must be calibrated now; their
/// distortion is removed.
///
/// Inliers are counted anew: Sampson error below `max_calibrated_error`, in front of both cameras, away from the epipoles.
///
/// # Errors
/// `Cancelled`; `InvalidArgument` if the lists do not belong together or name what does not exist.
pub fn estimate_relative_poses(
    views: &Views,
    pairs: &[PairMatches],
    geometries: &[TwoViewGeometry],
    options: &TwoViewOptions,
    control: &Control,
) -> Result<Vec<TwoViewGeometry>> {
    check_matches(views, pairs)?;
    let belong = |(p, g): (&PairMatches, &TwoViewGeometry)| p.first == g.first && p.second == g.second;
    if pairs.len() != geometries.len() || !pairs.iter().zip(geometries).all(belong) {
        return Err(Error::argument("the verified geometries are not those of these pairs, in their order"));
    }
    pairs
        .par_iter()
        .zip(geometries)
        .map(|(pair, geometry)| {
            control.check()?;
            Ok(match geometry.config {
                TwoViewConfig::Degenerate => TwoViewGeometry::degenerate(pair.first, pair.second),
                _ => estimate_relative_pose(views, pair, geometry, options),
            })
        })
        .collect()
}

fn estimate_relative_pose(
    views: &Views,
    pair: &PairMatches,
    verified: &TwoViewGeometry,
    options: &TwoViewOptions,
) -> TwoViewGeometry {
    let failed = TwoViewGeometry::degenerate(pair.first, pair.second);
    let cameras = [views.camera(pair.first), views.camera(pair.second)];
    let points = PointPairs::new(pair.matches.iter().map(|&[a, b]| {
        let a = cameras[0].unproject(&views.pixel(pair.first, a));
        let b = cameras[1].unproject(&views.pixel(pair.second, b));
        [a.x, a.y, b.x, b.y]
    }));
    let pixel = 0.5 * (1.0 / cameras[0].mean_focal() + 1.0 / cameras[1].mean_focal());
    let threshold = options.max_calibrated_error * pixel;

    let problem = EssentialProblem { points: &points, threshold };
    // The verified fundamental matrix is a good first guess: with it RANSAC mostly needs its minimum of samples.
    let guess = verified
        .fundamental
        .map(|f| calibration_matrix(cameras[1]).transpose() * f * calibration_matrix(cameras[0]));
    let guess = guess.and_then(|e| poses_from_essential(&e)).map(|[pose, ..]| essential_from_pose(&pose));
    let seed = options.seed_of(pair.first, pair.second, 5);
    let found = lo_ransac(&problem, &options.stopping(), seed, guess.as_slice());
    let Some((essential, _)) = found else { return failed };
    let Some(pose) = choose_pose(&essential, &points, threshold) else { return failed };

    // The last refinement, on all matches that may still become inliers.
    let rows = inlier_rows(&points, &Sampson::new(&essential), 4.0 * threshold * threshold);
    let near = PointPairs::new(rows.into_iter().map(|i| points.row(i)));
    let pose = refine_pose(&pose, &near, 0.5 * threshold, 20);
    if !pose.is_finite() {
        return failed;
    }

    let essential = essential_from_pose(&pose);
    let rays = TwoRays::new(&pose, threshold, options.min_epipole_angle);
    let mut parallax = Vec::new();
    let mut inliers = Vec::new();
    for i in inlier_rows(&points, &Sampson::new(&essential), threshold * threshold) {
        if let Some(angle) = rays.plausible_parallax(points.row(i)) {
            parallax.push(angle);
            inliers.push(pair.matches[i]);
        }
    }
    if inliers.len() < options.min_inliers
        || (inliers.len() as f64) < options.min_inlier_ratio * points.len() as f64
    {
        return failed;
    }
    let middle = parallax.len() / 2;
    let (_, median, _) = parallax.select_nth_unstable_by(middle, f64::total_cmp);
    let inverse = |camera| calibration_matrix(camera).try_inverse();
    TwoViewGeometry {
        config: if verified.config == TwoViewConfig::PlanarOrPanoramic {
            TwoViewConfig::PlanarOrPanoramic
        } else {
            TwoViewConfig::Calibrated
        },
        fundamental: match (inverse(cameras[0]), inverse(cameras[1])) {
            (Some(k1), Some(k2)) => Some((k2.transpose() * essential * k1).normalize()),
            _ => None,
        },
        homography: verified.homography,
        homography_inliers: verified.homography_inliers,
        second_from_first: Some(pose),
        median_parallax: *median,
        inliers,
        ..failed
    }
}

/// The matrix that maps the plane z = 1 to pixels, without distortion.
fn calibration_matrix(camera: &Camera) -> Matrix3<f64> {
    let ((fx, fy), c) = (camera.focal(), camera.principal_point());
    Matrix3::new(fx, 0.0, c.x, 0.0, fy, c.y, 0.0, 0.0, 1.0)
}

/// The pose of an essential matrix with the most inliers in front of both cameras.
fn choose_pose(essential: &Matrix3<f64>, points: &PointPairs, threshold: f64) -> Option<Pose> {
    let rows = inlier_rows(points, &Sampson::new(essential), threshold * threshold);
    let votes = |pose: &Pose| {
        let rays = TwoRays::new(pose, 0.0, 0.0);
        rows.iter().filter(|&&i| rays.plausible_parallax(points.row(i)).is_some()).count()
    };
    poses_from_essential(essential)?.into_iter().max_by_key(votes)
}

/// Two rays of a match under a relative pose.
struct TwoRays {
    rotation: Matrix3<f64>,
    direction: Vector3<f64>,
    /// Parallax (radians) that noise can make.
    noise: f64,
    /// Cosine of the smallest angle from an epipole.
    epipole_cosine: f64,
}

impl TwoRays {
    fn new(pose: &Pose, noise: f64, min_epipole_angle: f64) -> Self {
        Self {
            rotation: pose.rotation_matrix(),
            direction: pose.translation.normalize(),
            noise,
            epipole_cosine: min_epipole_angle.cos(),
        }
    }

    /// The angle between the two rays of a match (points of the planes z = 1) if they meet in front of both cameras, or are parallel up to
    /// noise, and are not close to an epipole.
    fn plausible_parallax(&self, [x1, y1, x2, y2]: [f64; 4]) -> Option<f64> {
        let a = (self.rotation * Vector3::new(x1, y1, 1.0)).normalize();
        let b = Vector3::new(x2, y2, 1.0).normalize();
        let t = &self.direction;
        let (cosine, sine) = (a.dot(&b), a.cross(&b).norm());
        let angle = sine.atan2(cosine);
        let (at, bt) = (a.dot(t), b.dot(t));
        if self.epipole_cosine < 1.0 && at.abs().max(bt.abs()) > self.epipole_cosine {
            return None;
        }
        // λ1 a + t = λ2 b in least squares; both numerators have the sign of the depth.
        let in_front = cosine * bt - at > 0.0 && bt - cosine * at > 0.0;
        (in_front || angle < self.noise).then_some(angle)
    }
}

struct EssentialProblem<'a> {
    points: &'a PointPairs,
    threshold: f64,
}

impl Problem for EssentialProblem<'_> {
    type Model = Matrix3<f64>;
    const SAMPLE: usize = 5;

    fn len(&self) -> usize {
        self.points.len()
    }

    fn solve(&self, sample: &[usize], models: &mut Vec<Matrix3<f64>>) {
        let (x1, x2) = sampled::<5>(self.points, sample);
        five_point_essential(&x1, &x2, models);
    }

    fn score(&self, model: &Matrix3<f64>, limit: f64) -> Score {
        msac(self.points, &Sampson::new(model), self.threshold * self.threshold, limit)
    }

    fn refine(&self, model: &Matrix3<f64>) -> Option<Matrix3<f64>> {
        let near = some_inliers(self.points, model, 2.0 * self.threshold);
        refine_essential(model, &near, 0.5 * self.threshold, 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::two_view::synthetic::{Pair, PairKind};
    use crate::sfm::two_view::verify_pairs;

    fn estimate(pair: &Pair) -> TwoViewGeometry {
        let options = TwoViewOptions::default();
        let (views, pairs) = (pair.views(), std::slice::from_ref(&pair.matches));
        let verified = verify_pairs(&views, pairs, &options, &Control::new()).unwrap();
        estimate_relative_poses(&views, pairs, &verified, &options, &Control::new()).unwrap().remove(0)
    }

    #[test]
    fn poses_are_found_among_outliers_whatever_the_motion() {
        for (kind, rotation, direction) in [
            (PairKind::General, 0.2, 1.5),
            (PairKind::Orbit, 0.3, 2.0),
            (PairKind::Forward, 0.1, 1.5),
            (PairKind::Planar, 0.3, 2.0),
        ] {
            for seed in 0..10 {
                let pair = Pair::new(kind, seed, 400, 0.3, 0.5);
                let geometry = estimate(&pair);
                let pose = geometry.second_from_first.unwrap();
                let turn = pose.rotation.angle_to(&pair.pose.rotation).to_degrees();
                let cosine = pose.translation.dot(&pair.pose.translation.normalize());
                let off = cosine.clamp(-1.0, 1.0).acos().to_degrees();
                // A plane has a second, equally good explanation (Longuet-Higgins, 1986).
                let ambiguous = matches!(kind, PairKind::Planar);
                assert!(ambiguous || turn < rotation && off < direction, "{kind:?} {seed}: {turn}° {off}°");
                let error = pair.median_epipolar_error(&geometry.fundamental.unwrap());
                assert!(error < 0.4, "{kind:?} {seed}: {error} pixels");
                let (recall, error) = pair.recall_and_error(&geometry.inliers);
                assert!(
                    recall > if ambiguous { 0.5 } else { 0.95 } && error < 0.03,
                    "{kind:?} {seed}: {recall} found, {error} wrong"
                );
                assert!(geometry.median_parallax > 0.015, "{}", geometry.median_parallax);
            }
        }
    }

    #[test]
    fn a_turn_keeps_its_rotation_and_shows_no_parallax() {
        for seed in 0..10 {
            let pair = Pair::new(PairKind::Rotation, seed, 400, 0.3, 0.5);
            let geometry = estimate(&pair);
            assert_eq!(geometry.config, TwoViewConfig::PlanarOrPanoramic);
            let turn =
                geometry.second_from_first.unwrap().rotation.angle_to(&pair.pose.rotation).to_degrees();
            assert!(turn < 0.3, "{seed}: {turn}°");
            assert!(geometry.median_parallax < 0.003, "{}", geometry.median_parallax);
        }
    }

    #[test]
    fn lists_that_do_not_belong_together_are_refused() {
        let pair = Pair::new(PairKind::General, 0, 50, 0.0, 0.5);
        let pairs = std::slice::from_ref(&pair.matches);
        let result =
            estimate_relative_poses(&pair.views(), pairs, &[], &TwoViewOptions::default(), &Control::new());
        assert!(result.is_err());
    }
}
