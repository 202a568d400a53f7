//! Which way is down: a hand-held camera is turned and tilted, but hardly rolled.

use nalgebra::{Matrix3, UnitQuaternion, Vector3};

use super::Pose;

/// How much the images' own down directions count against the rule that image rows are level. Small: they decide only
/// where the rows of all images are parallel and leave a choice.
const TILT_WEIGHT: f64 = 0.005;
/// A row that is this far from level (sine) counts half.
const ROLL: f64 = 0.1;

/// Gravity's direction in world coordinates (unit, downwards). Image rows of an upright camera are level whatever its
/// heading and tilt, so gravity is the direction orthogonal to the x axes of all cameras; the sign is that of the
/// images' downs. `None` without cameras, or if the cameras contradict each other.
pub(crate) fn gravity<'a>(poses: impl Iterator<Item = &'a Pose> + Clone) -> Option<Vector3<f64>> {
    let right = |p: &Pose| p.rotation.inverse() * Vector3::x();
    let down: Vector3<f64> = poses.clone().map(|p| -p.up()).sum();
    let mut gravity: Option<Vector3<f64>> = None;
    for _ in 0..10 {
        let mut m = Matrix3::zeros();
        for pose in poses.clone() {
            let r = right(pose);
            let weight = gravity.map_or(1.0, |g| 1.0 / (1.0 + (g.dot(&r) / ROLL).powi(2)));
            let d = -pose.up();
            m += weight * r * r.transpose() - TILT_WEIGHT * weight * d * d.transpose();
        }
        let eigen = m.symmetric_eigen();
        let found: Vector3<f64> = eigen.eigenvectors.column(eigen.eigenvalues.imin()).into();
        let side = found.dot(&down);
        if side == 0.0 || !found.iter().all(|v| v.is_finite()) {
            return None;
        }
        gravity = Some(found * side.signum());
    }
    gravity
}

/// The smallest rotation of the world that makes `down` the +y axis.
pub(crate) fn levelling(down: &Vector3<f64>) -> UnitQuaternion<f64> {
    UnitQuaternion::rotation_between(down, &Vector3::y())
        .unwrap_or_else(|| UnitQuaternion::from_axis_angle(&Vector3::x_axis(), std::f64::consts::PI))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Cameras on an arc that look down at the middle from `height`, with a little roll, in a turned world.
    fn arc(span: f64, height: f64, world: &UnitQuaternion<f64>) -> Vec<Pose> {
        let mut random = Random::new(3);
        (0..40)
            .map(|i| {
                let angle = span * f64::from(i) / 40.0;
                let position = Vector3::new(4.0 * angle.sin(), -height, -4.0 * angle.cos());
                let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
                let roll = UnitQuaternion::from_euler_angles(0.0, 0.0, 0.03 * random.normal());
                Pose { rotation: roll * pose.rotation, translation: roll * pose.translation }.in_moved_world(
                    1.0,
                    world,
                    &Vector3::zeros(),
                )
            })
            .collect()
    }

    #[test]
    fn a_tilted_orbit_is_levelled() {
        let world = UnitQuaternion::from_euler_angles(2.0, 0.4, -1.0);
        for (span, height) in [(6.0, 3.0), (1.5, 1.0), (1.0, -2.0)] {
            let poses = arc(span, height, &world);
            let down = gravity(poses.iter()).unwrap();
            let error = (levelling(&down) * down - Vector3::y()).norm();
            assert!(error < 1e-9);
            let angle = down.angle(&(world * Vector3::y())).to_degrees();
            assert!(angle < 3.0, "{angle} degrees at span {span}, height {height}");
        }
    }

    #[test]
    fn cameras_that_all_look_one_way_fall_back_to_their_own_down() {
        let poses = arc(0.0, 0.2, &UnitQuaternion::identity());
        let down = gravity(poses.iter()).unwrap();
        assert!(down.angle(&Vector3::y()).to_degrees() < 5.0);
    }

    #[test]
    fn upside_down_is_turned_by_half_a_turn() {
        assert!((levelling(&-Vector3::y()) * -Vector3::y() - Vector3::y()).norm() < 1e-12);
    }
}
