//! Which matches of a pair agree with one epipolar geometry, while the focal lengths are unknown.

use std::sync::atomic::{AtomicUsize, Ordering};

use nalgebra::Matrix3;
use rayon::prelude::*;

use super::fundamental::{eight_point_fundamental, seven_point_fundamental};
use super::homography::{four_point_homography, least_squares_homography};
use super::ransac::{Problem, lo_ransac};
use super::refine::refine_fundamental;
use super::score::{PointPairs, Sampson, Score, Transfer, inlier_rows, msac};
use super::{TwoViewConfig, TwoViewGeometry, TwoViewOptions, Views};
use crate::camera::Camera;
use crate::control::Control;
use crate::error::Result;
use crate::sfm::matching::PairMatches;
use crate::stage::Stage;

/// Matches that take part in the refinement of an intermediate model: more make it slower but hardly better.
const REFINED_MATCHES: usize = 256;

/// Verifies all pairs, in parallel; the result has the order of `pairs`. Pairs that fail come back as
/// [`TwoViewConfig::Degenerate`].
///
/// # Errors
/// `Cancelled`; `InvalidArgument` for matches of keypoints or images that do not exist.
pub fn verify_pairs(
    views: &Views,
    pairs: &[PairMatches],
    options: &TwoViewOptions,
    control: &Control,
) -> Result<Vec<TwoViewGeometry>> {
    check_matches(views, pairs)?;
    let done = AtomicUsize::new(0);
    pairs
        .par_iter()
        .map(|pair| {
            control.check()?;
            let found = verify_pair(views, pair, options);
            let done = 1 + done.fetch_add(1, Ordering::Relaxed);
            if done.is_multiple_of(16) || done == pairs.len() {
                control.progress(Stage::Sfm, "two-view geometry", done as f32 / pairs.len() as f32);
            }
            Ok(found)
        })
        .collect()
}

/// Everything that later indexing relies on.
pub(super) fn check_matches(views: &Views, pairs: &[PairMatches]) -> Result<()> {
    use crate::error::Error;
    if views.camera_of.len() != views.features.len()
        || views.camera_of.iter().any(|&c| c >= views.cameras.len())
    {
        return Err(Error::argument(format!(
            "{} images with features name {} cameras of {}",
            views.features.len(),
            views.camera_of.len(),
            views.cameras.len()
        )));
    }
    for pair in pairs {
        let count = |image: u32| views.features.get(image as usize).map(|f| f.keypoints.len());
        let (Some(n1), Some(n2)) = (count(pair.first), count(pair.second)) else {
            return Err(Error::argument(format!(
                "the pair ({}, {}) names an image beyond the {} there are",
                pair.first,
                pair.second,
                views.features.len()
            )));
        };
        if pair.matches.iter().any(|m| m[0] as usize >= n1 || m[1] as usize >= n2) {
            return Err(Error::argument(format!(
                "a match of the pair ({}, {}) names a keypoint beyond the {n1} and {n2} there are",
                pair.first, pair.second
            )));
        }
    }
    Ok(())
}

/// Verifies one pair: a fundamental matrix and a homography by LO-RANSAC, and which of them explains the matches. The
/// indices of the pair must exist ([`verify_pairs`] checks that).
pub fn verify_pair(views: &Views, pair: &PairMatches, options: &TwoViewOptions) -> TwoViewGeometry {
    let mut geometry = TwoViewGeometry::degenerate(pair.first, pair.second);
    // Centred and scaled to about 1: in pixels the entries of F differ by six orders of magnitude.
    let units = [pair.first, pair.second].map(|image| ImageUnit::of(views.camera(image)));
    let points = PointPairs::new(pair.matches.iter().map(|&[a, b]| {
        let (a, b) = (views.pixel(pair.first, a), views.pixel(pair.second, b));
        let ([x1, y1], [x2, y2]) = (units[0].apply(a.x, a.y), units[1].apply(b.x, b.y));
        [x1, y1, x2, y2]
    }));
    let threshold = options.max_error * 0.5 * (1.0 / units[0].size + 1.0 / units[1].size);
    let stopping = options.stopping();

    let fundamental = FundamentalProblem { points: &points, threshold };
    let seed = options.seed_of(pair.first, pair.second, 7);
    let Some((f, _)) = lo_ransac(&fundamental, &stopping, seed, &[]) else { return geometry };
    let f = fundamental.polish(&f);
    let rows = inlier_rows(&points, &Sampson::new(&f), threshold * threshold);
    if rows.len() < options.min_inliers
        || (rows.len() as f64) < options.min_inlier_ratio * points.len() as f64
    {
        return geometry;
    }

    // The homography need only be found if it explains most of what the fundamental matrix explains.
    let homography = HomographyProblem { points: &points, threshold: options.max_error / units[1].size };
    let mut stopping = stopping;
    stopping.min_inlier_ratio = 0.5 * rows.len() as f64 / points.len() as f64;
    stopping.max_iterations = stopping.max_iterations.min(500);
    let seed = options.seed_of(pair.first, pair.second, 4);
    if let Some((h, score)) = lo_ransac(&homography, &stopping, seed, &[]) {
        geometry.homography_inliers = score.inliers;
        geometry.homography = units[1].matrix().try_inverse().map(|inverse| inverse * h * units[0].matrix());
    }
    let planar = geometry.homography_inliers as f64 > options.max_homography_ratio * rows.len() as f64;
    geometry.config = if planar { TwoViewConfig::PlanarOrPanoramic } else { TwoViewConfig::Uncalibrated };
    geometry.fundamental = Some((units[1].matrix().transpose() * f * units[0].matrix()).normalize());
    geometry.inliers = rows.into_iter().map(|i| pair.matches[i]).collect();
    geometry
}

/// Coordinates in which an image is about 2 wide, its principal point at 0.
struct ImageUnit {
    centre: [f64; 2],
    size: f64,
}

impl ImageUnit {
    fn of(camera: &Camera) -> Self {
        let centre = camera.principal_point();
        Self { centre: [centre.x, centre.y], size: 0.5 * f64::from(camera.width.max(camera.height).max(1)) }
    }

    fn apply(&self, x: f64, y: f64) -> [f64; 2] {
        [(x - self.centre[0]) / self.size, (y - self.centre[1]) / self.size]
    }

    fn matrix(&self) -> Matrix3<f64> {
        let s = 1.0 / self.size;
        Matrix3::new(s, 0.0, -s * self.centre[0], 0.0, s, -s * self.centre[1], 0.0, 0.0, 1.0)
    }
}

/// The rows of a sample, apart by image.
pub(super) fn sampled<const N: usize>(
    points: &PointPairs,
    sample: &[usize],
) -> ([[f64; 2]; N], [[f64; 2]; N]) {
    let rows: [[f64; 4]; N] = std::array::from_fn(|k| points.row(sample[k]));
    (rows.map(|r| [r[0], r[1]]), rows.map(|r| [r[2], r[3]]))
}

/// At most [`REFINED_MATCHES`] of the given rows, evenly spread over them.
pub(super) fn some_rows(points: &PointPairs, rows: Vec<usize>) -> PointPairs {
    let step = rows.len().div_ceil(REFINED_MATCHES).max(1);
    PointPairs::new(rows.into_iter().step_by(step).map(|i| points.row(i)))
}

struct FundamentalProblem<'a> {
    points: &'a PointPairs,
    threshold: f64,
}

impl FundamentalProblem<'_> {
    /// The last refinement, on all inliers.
    fn polish(&self, f: &Matrix3<f64>) -> Matrix3<f64> {
        let rows = inlier_rows(self.points, &Sampson::new(f), self.threshold * self.threshold);
        let inliers = PointPairs::new(rows.into_iter().map(|i| self.points.row(i)));
        refine_fundamental(f, &inliers, 0.5 * self.threshold, 20).unwrap_or(*f)
    }
}

impl Problem for FundamentalProblem<'_> {
    type Model = Matrix3<f64>;
    const SAMPLE: usize = 7;

    fn len(&self) -> usize {
        self.points.len()
    }

    fn solve(&self, sample: &[usize], models: &mut Vec<Matrix3<f64>>) {
        let (x1, x2) = sampled::<7>(self.points, sample);
        seven_point_fundamental(&x1, &x2, models);
    }

    fn score(&self, model: &Matrix3<f64>, limit: f64) -> Score {
        msac(self.points, &Sampson::new(model), self.threshold * self.threshold, limit)
    }

    fn refine(&self, model: &Matrix3<f64>) -> Option<Matrix3<f64>> {
        let rows = inlier_rows(self.points, &Sampson::new(model), self.threshold * self.threshold);
        let inliers = some_rows(self.points, rows);
        // Least squares leaves the neighbourhood of a sample's noise in one step; the robust refinement follows from
        // there.
        let start = eight_point_fundamental(inliers.rows())?;
        refine_fundamental(&start, &inliers, 0.5 * self.threshold, 6)
    }
}

struct HomographyProblem<'a> {
    points: &'a PointPairs,
    threshold: f64,
}

impl Problem for HomographyProblem<'_> {
    type Model = Matrix3<f64>;
    const SAMPLE: usize = 4;

    fn len(&self) -> usize {
        self.points.len()
    }

    fn solve(&self, sample: &[usize], models: &mut Vec<Matrix3<f64>>) {
        let (x1, x2) = sampled::<4>(self.points, sample);
        models.extend(four_point_homography(&x1, &x2));
    }

    fn score(&self, model: &Matrix3<f64>, limit: f64) -> Score {
        msac(self.points, &Transfer::new(model), self.threshold * self.threshold, limit)
    }

    fn refine(&self, model: &Matrix3<f64>) -> Option<Matrix3<f64>> {
        let rows = inlier_rows(self.points, &Transfer::new(model), self.threshold * self.threshold);
        least_squares_homography(rows.iter().map(|&i| self.points.row(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::two_view::synthetic::{Pair, PairKind};

    #[test]
    fn inliers_are_found_and_outliers_refused() {
        for kind in [PairKind::General, PairKind::Forward, PairKind::Orbit] {
            for seed in 0..10 {
                let pair = Pair::new(kind, seed, 400, 0.3, 0.5);
                let geometry = verify_pair(&pair.views(), &pair.matches, &TwoViewOptions::default());
                assert_eq!(geometry.config, TwoViewConfig::Uncalibrated, "{kind:?} {seed}");
                let (recall, error) = pair.recall_and_error(&geometry.inliers);
                assert!(recall > 0.98 && error < 0.05, "{kind:?} {seed}: {recall} found, {error} wrong");
                let f = geometry.fundamental.unwrap();
                let truth = pair.fundamental();
                // F is compared by what it does: the median error of the noise-free points.
                assert!(pair.median_epipolar_error(&f) < 0.6, "{kind:?} {seed}");
                assert!(pair.median_epipolar_error(&truth) < 1e-6);
            }
        }
    }

    #[test]
    fn planes_and_turns_are_told_from_depth() {
        for kind in [PairKind::Planar, PairKind::Rotation] {
            for seed in 0..10 {
                let pair = Pair::new(kind, seed, 400, 0.3, 0.5);
                let geometry = verify_pair(&pair.views(), &pair.matches, &TwoViewOptions::default());
                assert_eq!(geometry.config, TwoViewConfig::PlanarOrPanoramic, "{kind:?} {seed}");
                assert!(geometry.homography_inliers >= 225, "{}", geometry.homography_inliers);
            }
        }
    }

    #[test]
    fn noise_is_degenerate_and_the_result_does_not_depend_on_threads() {
        let noise = Pair::new(PairKind::General, 1, 100, 1.0, 0.5);
        let views = noise.views();
        let options = TwoViewOptions::default();
        assert_eq!(verify_pair(&views, &noise.matches, &options).config, TwoViewConfig::Degenerate);
        let empty = PairMatches { first: 0, second: 1, matches: Vec::new() };
        assert_eq!(verify_pair(&views, &empty, &options).config, TwoViewConfig::Degenerate);
        let wrong = PairMatches { first: 0, second: 1, matches: vec![[0, 100_000]] };
        assert!(verify_pairs(&views, &[wrong], &options, &Control::new()).is_err());
        let pair = Pair::new(PairKind::General, 2, 300, 0.5, 0.5);
        let pairs = vec![pair.matches.clone(); 6];
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| verify_pairs(&pair.views(), &pairs, &options, &Control::new())).unwrap()
        };
        assert_eq!(run(1), run(3));
    }
}
