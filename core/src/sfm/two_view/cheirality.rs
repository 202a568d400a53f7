//! Which matches can have been seen by both cameras: those whose rays meet in front of them.
//!
//! An essential matrix alone cannot tell: its epipolar lines extend behind the cameras, and points there fit it as well
//! as points in front. Where all of a scene lies in front of both cameras (it does), a hypothesis that places matches
//! behind one of them is wrong about these matches, so they must not count for it.

use nalgebra::{Matrix3, Vector3};

use super::refine::RelativePose;
use super::score::Residual;

/// Sampson error of a relative pose for points of the planes z = 1; infinite for matches that the cameras cannot have
/// seen.
///
/// The rays of a match meet in front of both cameras, or are parallel up to noise: a point near infinity is as likely
/// beyond it as before it.
pub(crate) struct ChiralSampson {
    rotation: [f64; 9],
    direction: [f64; 3],
    squared_noise: f64,
}

impl ChiralSampson {
    /// `noise`: the angle (radians) that the noise of a match can make between its rays.
    pub(crate) fn new(pose: &RelativePose, noise: f64) -> Self {
        Self {
            rotation: std::array::from_fn(|k| pose.rotation[(k / 3, k % 3)]),
            direction: pose.direction.into(),
            squared_noise: noise * noise,
        }
    }
}

impl Residual<4> for ChiralSampson {
    #[inline(always)]
    fn squared(&self, [x1, y1, x2, y2]: [f64; 4]) -> f64 {
        let (r, t) = (&self.rotation, &self.direction);
        // The first ray in the axes of the second camera, and the epipolar lines E x1 = t × R x1 and Eᵀ x2 = Rᵀ (x2 ×
        // t).
        let a = [r[0] * x1 + r[1] * y1 + r[2], r[3] * x1 + r[4] * y1 + r[5], r[6] * x1 + r[7] * y1 + r[8]];
        let l = [t[1] * a[2] - t[2] * a[1], t[2] * a[0] - t[0] * a[2], t[0] * a[1] - t[1] * a[0]];
        let m = [y2 * t[2] - t[1], t[0] - x2 * t[2], x2 * t[1] - y2 * t[0]];
        let b0 = r[0] * m[0] + r[3] * m[1] + r[6] * m[2];
        let b1 = r[1] * m[0] + r[4] * m[1] + r[7] * m[2];
        let c = x2 * l[0] + y2 * l[1] + l[2];
        let squared = c * c / (l[0] * l[0] + l[1] * l[1] + b0 * b0 + b1 * b1);
        // λ1 a + t = λ2 b in least squares; both numerators have the sign of the depth.
        let aa = x1 * x1 + y1 * y1 + 1.0;
        let bb = x2 * x2 + y2 * y2 + 1.0;
        let ab = a[0] * x2 + a[1] * y2 + a[2];
        let at = a[0] * t[0] + a[1] * t[1] + a[2] * t[2];
        let bt = x2 * t[0] + y2 * t[1] + t[2];
        let in_front = (ab * bt - bb * at > 0.0) & (aa * bt - ab * at > 0.0);
        let parallel = (ab > 0.0) & (aa * bb - ab * ab < self.squared_noise * ab * ab);
        if in_front | parallel { squared } else { f64::INFINITY }
    }
}

/// Two rays of a match under a relative pose.
pub(super) struct TwoRays {
    rotation: Matrix3<f64>,
    direction: Vector3<f64>,
    /// Parallax (radians) that noise can make.
    noise: f64,
    /// Cosine of the smallest angle from an epipole.
    epipole_cosine: f64,
}

impl TwoRays {
    pub(super) fn new(pose: &RelativePose, noise: f64, min_epipole_angle: f64) -> Self {
        Self {
            rotation: pose.rotation,
            direction: pose.direction,
            noise,
            epipole_cosine: min_epipole_angle.cos(),
        }
    }

    /// The angle between the two rays of a match (points of the planes z = 1) if they are parallel up to noise, or meet
    /// in front of both cameras and are not close to an epipole.
    pub(super) fn plausible_parallax(&self, [x1, y1, x2, y2]: [f64; 4]) -> Option<f64> {
        let a = (self.rotation * Vector3::new(x1, y1, 1.0)).normalize();
        let b = Vector3::new(x2, y2, 1.0).normalize();
        let t = &self.direction;
        let (cosine, sine) = (a.dot(&b), a.cross(&b).norm());
        let angle = sine.atan2(cosine);
        if angle < self.noise {
            // The rotation alone explains both coordinates, wherever the epipole is: without a baseline it can be
            // anywhere.
            return Some(angle);
        }
        let (at, bt) = (a.dot(t), b.dot(t));
        // λ1 a + t = λ2 b in least squares; both numerators have the sign of the depth.
        let in_front = cosine * bt - at > 0.0 && bt - cosine * at > 0.0;
        (in_front && at.abs().max(bt.abs()) <= self.epipole_cosine).then_some(angle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::two_view::score::Sampson;
    use crate::sfm::two_view::synthetic::Scene;

    #[test]
    fn matches_in_front_have_their_sampson_error_and_those_behind_none() {
        for seed in 0..20 {
            let scene = Scene::random(seed, 50);
            let pose = RelativePose::of(&scene.pose);
            let sampson = Sampson::new(&pose.essential());
            let seen = ChiralSampson::new(&pose, 1e-3);
            // The same essential matrix with the other direction, and with a half turn about the baseline.
            let backwards = RelativePose { direction: -pose.direction, ..pose };
            let axis = nalgebra::Unit::new_normalize(pose.direction);
            let half_turn = nalgebra::Rotation3::from_axis_angle(&axis, std::f64::consts::PI).into_inner();
            let twisted = RelativePose { rotation: half_turn * pose.rotation, ..pose };
            for row in &scene.pairs {
                let noisy = [row[0], row[1] + 1e-3, row[2], row[3]];
                assert!((seen.squared(noisy) - sampson.squared(noisy)).abs() < 1e-12);
                for other in [backwards, twisted] {
                    assert!((other.essential().abs() - pose.essential().abs()).norm() < 1e-12);
                    assert_eq!(ChiralSampson::new(&other, 1e-3).squared(*row), f64::INFINITY);
                }
                assert!(TwoRays::new(&pose, 1e-3, 0.0).plausible_parallax(*row).is_some());
                assert!(TwoRays::new(&backwards, 1e-3, 0.0).plausible_parallax(*row).is_none());
            }
        }
    }

    #[test]
    fn matches_close_to_an_epipole_say_nothing_unless_they_stay_where_they_are() {
        let forward = RelativePose { rotation: Matrix3::identity(), direction: -Vector3::z() };
        let rays = TwoRays::new(&forward, 2e-3, 0.05);
        // 0.03 to 0.04 from the epipole, although it moves away from it as it should; then further out; then hardly
        // moved.
        assert_eq!(rays.plausible_parallax([0.03, 0.0, 0.04, 0.0]), None);
        assert!(rays.plausible_parallax([0.1, 0.0, 0.11, 0.0]).is_some());
        assert!(rays.plausible_parallax([0.03, 0.0, 0.031, 0.0]).is_some());
    }

    #[test]
    fn points_near_infinity_may_lie_beyond_it() {
        let scene = Scene::random(3, 50);
        let pose = RelativePose::of(&scene.pose);
        let residual = ChiralSampson::new(&pose, 2e-3);
        for point in &scene.points {
            // 4000 baselines away, moved along the epipolar line by 1e-3 towards either side.
            let a = pose.rotation * point.normalize() * 4000.0 + pose.direction;
            let epipole = pose.direction - a / a.z * pose.direction.z;
            for side in [-1e-3, 1e-3] {
                let b = a / a.z + side * epipole.normalize();
                let row = [point.x / point.z, point.y / point.z, b.x / b.z, b.y / b.z];
                assert!(residual.squared(row) < 1e-12, "{side}");
            }
        }
    }
}
