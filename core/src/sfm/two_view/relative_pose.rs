//! The relative pose of a pair whose cameras are calibrated.

use nalgebra::Matrix3;
use rayon::prelude::*;

use super::cheirality::{ChiralSampson, TwoRays};
use super::essential::{five_point_essential, poses_from_essential, relative_poses_of_essential};
use super::homography::relative_poses_of_homography;
use super::ransac::{Problem, lo_ransac};
use super::refine::{RelativePose, refine_pose};
use super::score::{PointPairs, Residual, Score, inlier_rows, msac};
use super::verify::{check_matches, sampled, some_rows};
use super::{TwoViewConfig, TwoViewGeometry, TwoViewOptions, Views};
use crate::camera::Camera;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::sfm::matching::PairMatches;

/// Samples drawn at least where the verified pair gives a pose to begin with. Chosen by hand.
const MIN_ITERATIONS_WITH_A_GUESS: usize = 10;
/// Confidence of the search then: the guess itself was found with all that is asked for. Chosen by hand.
const CONFIDENCE_WITH_A_GUESS: f64 = 0.99;

/// Estimates the relative poses of all pairs that [`super::verify_pairs`] did not find degenerate, from all their
/// matches, in parallel. `geometries` belongs to `pairs`, element by element; so does the result. The cameras of
/// `views` must be calibrated now; their distortion is removed.
///
/// Inliers are counted anew: Sampson error below `max_calibrated_error`, in front of both cameras, away from the
/// epipoles.
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
    let mut guesses: Vec<RelativePose> = guess
        .and_then(|e| poses_from_essential(&e))
        .map(|poses| poses.iter().map(RelativePose::of).collect())
        .unwrap_or_default();
    // Before a plane, and where there is no parallax, five points do not tell the pose; the homography does.
    if let (Some(h), Some(inverse)) = (verified.homography, calibration_matrix(cameras[1]).try_inverse()) {
        guesses.extend(relative_poses_of_homography(&(inverse * h * calibration_matrix(cameras[0]))));
    }
    let seed = options.seed_of(pair.first, pair.second, 5);
    let mut stopping = options.stopping();
    if !guesses.is_empty() {
        stopping.min_iterations = MIN_ITERATIONS_WITH_A_GUESS;
        stopping.confidence = stopping.confidence.min(CONFIDENCE_WITH_A_GUESS);
    }
    let Some((pose, _)) = lo_ransac(&problem, &stopping, seed, &guesses) else { return failed };

    // The last refinement, on all matches that may still become inliers.
    let rows = problem.inliers(&pose, 2.0 * threshold);
    let near = PointPairs::new(rows.into_iter().map(|i| points.row(i)));
    let (pose, _) = refine_pose(&pose, &near, 0.5 * threshold, 20);
    if !pose.pose().is_finite() {
        return failed;
    }

    let rays = TwoRays::new(&pose, threshold, options.min_epipole_angle);
    let mut parallax = Vec::new();
    let mut inliers = Vec::new();
    for i in problem.inliers(&pose, threshold) {
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
            (Some(k1), Some(k2)) => Some((k2.transpose() * pose.essential() * k1).normalize()),
            _ => None,
        },
        homography: verified.homography,
        homography_inliers: verified.homography_inliers,
        second_from_first: Some(pose.pose()),
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

struct EssentialProblem<'a> {
    points: &'a PointPairs,
    threshold: f64,
}

impl EssentialProblem<'_> {
    /// Rows with an error below `threshold` in front of both cameras. Noise along the epipolar line, which parallax is
    /// measured along, is what it is across.
    fn inliers(&self, pose: &RelativePose, threshold: f64) -> Vec<usize> {
        inlier_rows(self.points, &ChiralSampson::new(pose, threshold), threshold * threshold)
    }
}

impl Problem for EssentialProblem<'_> {
    type Model = RelativePose;
    const SAMPLE: usize = 5;

    fn len(&self) -> usize {
        self.points.len()
    }

    fn solve(&self, sample: &[usize], models: &mut Vec<RelativePose>) {
        let (x1, x2) = sampled::<5>(self.points, sample);
        let mut essentials = Vec::with_capacity(10);
        five_point_essential(&x1, &x2, &mut essentials);
        // The residuals of the sample are zero: what remains of the test is whether the cameras can have seen it.
        let seen = |pose: &RelativePose| {
            let residual = ChiralSampson::new(pose, self.threshold);
            sample.iter().all(|&i| residual.squared(self.points.row(i)).is_finite())
        };
        models.extend(essentials.iter().flat_map(relative_poses_of_essential).filter(seen));
    }

    fn score(&self, model: &RelativePose, limit: f64) -> Score {
        let residual = ChiralSampson::new(model, self.threshold);
        msac(self.points, &residual, self.threshold * self.threshold, limit)
    }

    fn refine(&self, model: &RelativePose) -> Option<RelativePose> {
        let near = some_rows(self.points, self.inliers(model, 2.0 * self.threshold));
        let (refined, cost) = refine_pose(model, &near, 0.5 * self.threshold, 8);
        cost.is_finite().then_some(refined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::random::Random;
    use crate::sfm::features::Keypoint;
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

    /// `count` more matches that agree with one epipolar geometry but lie behind the cameras, every second one.
    fn add_impossible_matches(pair: &mut Pair, count: usize) {
        let mut random = Random::new(5);
        let pose = Pose {
            rotation: nalgebra::UnitQuaternion::from_euler_angles(0.05, -0.2, 0.1),
            translation: nalgebra::Vector3::new(-0.6, 0.7, 0.3).normalize(),
        };
        let wanted = pair.matches.matches.len() + count;
        while pair.matches.matches.len() < wanted {
            let k = pair.matches.matches.len();
            let pixel = nalgebra::Vector2::new(1000.0 * random.uniform(), 800.0 * random.uniform());
            let depth = (2.0 + 4.0 * random.uniform()) * if k.is_multiple_of(2) { 1.0 } else { -1.0 };
            let seen = pose.transform(&(pair.camera.ray(&pixel) / pair.camera.ray(&pixel).z * depth));
            let other = pair.camera.principal_point() + 900.0 * seen.xy() / seen.z;
            if other.x < 0.0 || other.x > 1000.0 || other.y < 0.0 || other.y > 800.0 {
                continue;
            }
            for (f, p) in pair.features.iter_mut().zip([pixel, other]) {
                f.keypoints.push(Keypoint { x: p.x as f32, y: p.y as f32, scale: 2.0, orientation: 0.0 });
            }
            // Anywhere among the others: the best come first.
            let place = random.below(k + 1);
            pair.matches.matches.insert(place, [k as u32; 2]);
        }
    }

    #[test]
    fn matches_behind_the_cameras_do_not_count() {
        for seed in 0..10 {
            let mut pair = Pair::new(PairKind::General, seed, 200, 0.0, 0.5);
            // More matches agree with the wrong geometry than with the right one, but only half of them can have been
            // seen.
            add_impossible_matches(&mut pair, 300);
            let geometry = estimate(&pair);
            let pose = geometry.second_from_first.unwrap();
            let turn = pose.rotation.angle_to(&pair.pose.rotation).to_degrees();
            assert!(turn < 0.5, "{seed}: {turn}°");
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
