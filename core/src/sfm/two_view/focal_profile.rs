//! How well each of several focal lengths explains a pair, and which relative pose it gives.

use nalgebra::{Matrix3, Vector3};

use super::cheirality::ChiralSampson;
use super::essential::poses_from_essential;
use super::refine::{RelativePose, refine_pose};
use super::score::{PointPairs, Residual};
use super::{TwoViewGeometry, Views};

/// Residual in pixels at which a match loses its influence: above the noise of features, below
/// [`super::TwoViewOptions::max_error`].
const SCALE: f64 = 1.0;
/// Steps of the minimisation at most. Chosen by hand.
const ITERATIONS: usize = 20;

/// A pair, ready to be profiled. Both images come from one camera.
pub(crate) struct FocalProfile {
    /// Pixels from the principal point.
    rows: Vec<[f64; 4]>,
    /// Of such pixels.
    fundamental: Matrix3<f64>,
}

/// The best relative pose for one focal length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProfilePoint {
    /// Sum over the matches in squared pixels under the loss of Geman and McClure; infinite if there is no pose.
    pub(crate) cost: f64,
    /// `None` if there is none.
    pub(crate) pose: Option<RelativePose>,
}

impl FocalProfile {
    /// From at most `matches` inliers of a pair with a fundamental matrix; `None` without one.
    pub(crate) fn new(views: &Views, geometry: &TwoViewGeometry, matches: usize) -> Option<Self> {
        let centre = views.camera(geometry.first).principal_point();
        let step = geometry.inliers.len().div_ceil(matches).max(1);
        let rows = geometry.inliers.iter().step_by(step).map(|&[a, b]| {
            let (a, b) = (views.pixel(geometry.first, a), views.pixel(geometry.second, b));
            [a.x - centre.x, a.y - centre.y, b.x - centre.x, b.y - centre.y]
        });
        let shift = Matrix3::new(1.0, 0.0, centre.x, 0.0, 1.0, centre.y, 0.0, 0.0, 1.0);
        Some(Self { rows: rows.collect(), fundamental: shift.transpose() * geometry.fundamental? * shift })
    }

    /// One point for each of the `focals` (pixels). Refinement begins with the essential matrix nearest to the
    /// fundamental one, and with the pose of the focal length before: close to its minimum a profile must be smooth.
    pub(crate) fn at(&self, focals: &[f64]) -> Vec<ProfilePoint> {
        let mut last = None;
        let mut point = |&focal: &f64| {
            let points = PointPairs::new(self.rows.iter().map(|r| r.map(|v| v / focal)));
            let scale = SCALE / focal;
            let cost = |pose: &RelativePose| robust_cost(&points, pose, scale);
            let k = Matrix3::from_diagonal(&Vector3::new(focal, focal, 1.0));
            let nearest = poses_from_essential(&(k * self.fundamental * k))
                .into_iter()
                .flatten()
                .map(|pose| RelativePose::of(&pose))
                .min_by(|a, b| cost(a).total_cmp(&cost(b)));
            let best = nearest
                .into_iter()
                .chain(last)
                .map(|start| refine_pose(&start, &points, scale, ITERATIONS).0)
                .map(|pose| (cost(&pose), pose))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            last = best.map(|(_, pose)| pose);
            ProfilePoint { cost: best.map_or(f64::INFINITY, |(cost, _)| cost * focal * focal), pose: last }
        };
        focals.iter().map(&mut point).collect()
    }
}

/// Sum of the errors under the loss; matches that the cameras cannot have seen cost as much as outliers.
fn robust_cost(points: &PointPairs, pose: &RelativePose, scale: f64) -> f64 {
    let residual = ChiralSampson::new(pose, 2.0 * scale);
    let s2 = scale * scale;
    let loss = |squared: f64| if squared.is_finite() { squared * s2 / (s2 + squared) } else { s2 };
    points.rows().map(|row| loss(residual.squared(row))).sum()
}
