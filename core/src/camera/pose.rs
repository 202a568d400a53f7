//! A rigid world-to-camera transform.

use nalgebra::{Matrix3, Matrix4, Point3, Rotation3, UnitQuaternion, Vector3};

/// World-to-camera: `x_cam = rotation * x_world + translation`. Camera axes x right, y down, z forward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    /// Rotation from world axes to camera axes.
    pub rotation: UnitQuaternion<f64>,
    /// World origin in camera coordinates, in world units.
    pub translation: Vector3<f64>,
}

impl Pose {
    /// The camera at the world's origin, looking along +z.
    pub fn identity() -> Self {
        Self { rotation: UnitQuaternion::identity(), translation: Vector3::zeros() }
    }

    /// From a rotation matrix (must be orthonormal) and a translation.
    pub fn from_matrix(rotation: &Matrix3<f64>, translation: Vector3<f64>) -> Self {
        let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(*rotation));
        Self { rotation, translation }
    }

    /// The camera with this world-to-camera rotation whose centre is at `centre` (world).
    pub fn from_centre(rotation: UnitQuaternion<f64>, centre: &Vector3<f64>) -> Self {
        Self { rotation, translation: -(rotation * centre) }
    }

    /// The camera at `position` that looks at `target`, image up as close to `up` as it can be (all in world
    /// coordinates). `None` if the three do not define a direction (equal points, `up` along the view), or one so long that
    /// it cannot be computed.
    pub fn look_at(position: &Vector3<f64>, target: &Vector3<f64>, up: &Vector3<f64>) -> Option<Self> {
        let finite = |v: &Vector3<f64>| v.iter().all(|v| v.is_finite());
        let forward = (target - position).try_normalize(1e-12).filter(finite)?;
        let right = forward.cross(up).try_normalize(1e-9).filter(finite)?;
        let down = forward.cross(&right);
        let rotation = Matrix3::from_rows(&[right.transpose(), down.transpose(), forward.transpose()]);
        Some(Self::from_matrix(&rotation, -(rotation * position))).filter(Self::is_finite)
    }

    /// Rotation as a matrix (rows are the camera axes in world coordinates).
    pub fn rotation_matrix(&self) -> Matrix3<f64> {
        self.rotation.to_rotation_matrix().into_inner()
    }

    /// The camera centre in world coordinates.
    pub fn centre(&self) -> Vector3<f64> {
        -(self.rotation.inverse() * self.translation)
    }

    /// A world point in camera coordinates.
    pub fn transform(&self, world: &Vector3<f64>) -> Vector3<f64> {
        self.rotation * world + self.translation
    }

    /// The direction in which the camera looks (its +z), in world coordinates, unit length.
    pub fn forward(&self) -> Vector3<f64> {
        self.rotation.inverse() * Vector3::z()
    }

    /// The camera's image-up direction (its -y), in world coordinates, unit length.
    pub fn up(&self) -> Vector3<f64> {
        self.rotation.inverse() * -Vector3::y()
    }

    /// The pose of the upright picture, of which that of this pose is stored turned clockwise by so many quarter turns.
    #[must_use]
    pub(crate) fn turned_back(&self, quarter_turns: u8) -> Self {
        let angle = -f64::from(quarter_turns % 4) * std::f64::consts::FRAC_PI_2;
        let turn = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), angle);
        Self { rotation: turn * self.rotation, translation: turn * self.translation }
    }

    /// Camera-to-world.
    pub fn inverse(&self) -> Self {
        let rotation = self.rotation.inverse();
        Self { rotation, translation: -(rotation * self.translation) }
    }

    /// `self` after `first`: `x -> self(first(x))`. With `a = cam_a_from_world` and `b = cam_b_from_world`,
    /// `b.after(&a.inverse())` is `cam_b_from_cam_a`.
    pub fn after(&self, first: &Pose) -> Self {
        Self {
            rotation: self.rotation * first.rotation,
            translation: self.rotation * first.translation + self.translation,
        }
    }

    /// As a 4x4 matrix.
    pub fn to_matrix4(&self) -> Matrix4<f64> {
        let mut m = Matrix4::identity();
        m.fixed_view_mut::<3, 3>(0, 0).copy_from(&self.rotation_matrix());
        m.fixed_view_mut::<3, 1>(0, 3).copy_from(&self.translation);
        m
    }

    /// Whether every number is finite.
    pub fn is_finite(&self) -> bool {
        self.rotation.coords.iter().chain(self.translation.iter()).all(|v| v.is_finite())
    }

    /// The pose of the same camera after the *world* was moved by the similarity `x' = scale * rotation * x +
    /// translation`. The camera frame keeps its unit: depths grow by `scale`.
    #[must_use]
    pub fn in_moved_world(
        &self,
        scale: f64,
        rotation: &UnitQuaternion<f64>,
        translation: &Vector3<f64>,
    ) -> Self {
        let centre = scale * (rotation * self.centre()) + translation;
        Self::from_centre(self.rotation * rotation.inverse(), &centre)
    }
}

impl From<Pose> for nalgebra::Isometry3<f64> {
    fn from(pose: Pose) -> Self {
        nalgebra::Isometry3::from_parts(Point3::from(pose.translation).into(), pose.rotation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_at_sees_its_target_straight_ahead_and_upright() {
        let position = Vector3::new(1.0, -2.0, 3.0);
        let target = Vector3::new(4.0, 1.0, -1.0);
        let up = Vector3::new(0.0, -1.0, 0.0);
        let pose = Pose::look_at(&position, &target, &up).unwrap();
        let seen = pose.transform(&target);
        assert!(seen.x.abs() < 1e-12 && seen.y.abs() < 1e-12 && seen.z > 0.0);
        assert!((pose.centre() - position).norm() < 1e-12);
        assert!(pose.up().dot(&up) > 0.0);
        assert!((pose.rotation_matrix().determinant() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_picture_that_is_turned_back_shows_what_was_at_its_right_above() {
        let pose = Pose::look_at(&Vector3::new(1.0, 2.0, 3.0), &Vector3::zeros(), &-Vector3::y()).unwrap();
        let point = Vector3::new(0.3, -0.5, 0.2);
        let (seen, upright) = (pose.transform(&point), pose.turned_back(1).transform(&point));
        // Turned clockwise, what was at the top lies at the right.
        assert!((seen.x - -upright.y).abs() < 1e-12 && (seen.y - upright.x).abs() < 1e-12);
        assert!((seen.z - upright.z).abs() < 1e-12);
        assert!((pose.turned_back(1).turned_back(3).rotation.angle_to(&pose.rotation)) < 1e-7);
    }

    #[test]
    fn composition_and_inverse_agree_with_matrices() {
        let a = Pose::look_at(&Vector3::new(1.0, 2.0, 3.0), &Vector3::zeros(), &Vector3::z()).unwrap();
        let b = Pose::look_at(&Vector3::new(-1.0, 0.5, 2.0), &Vector3::x(), &Vector3::y()).unwrap();
        let relative = b.after(&a.inverse());
        let expected = b.to_matrix4() * a.to_matrix4().try_inverse().unwrap();
        assert!((relative.to_matrix4() - expected).norm() < 1e-12);
    }

    #[test]
    fn a_moved_world_projects_to_the_same_ray() {
        let pose = Pose::look_at(&Vector3::new(1.0, 2.0, 3.0), &Vector3::zeros(), &Vector3::z()).unwrap();
        let rotation = UnitQuaternion::from_euler_angles(0.3, -0.2, 1.0);
        let (scale, shift) = (2.5, Vector3::new(4.0, 5.0, 6.0));
        let point = Vector3::new(0.2, -0.4, 0.1);
        let moved = pose.in_moved_world(scale, &rotation, &shift);
        let seen = moved.transform(&(scale * (rotation * point) + shift));
        assert!((seen - scale * pose.transform(&point)).norm() < 1e-12);
    }
}
