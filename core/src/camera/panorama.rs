//! Panoramas: pictures of all directions from one place, and the sides of the cube into which they are cut.
//!
//! A panorama here is equirectangular: columns are longitudes, rows are latitudes, the middle is the front. Its axes are
//! those of a camera that looks there: +x right, +y down, +z to the front. A side is what a pinhole camera with a picture
//! angle of 90 degrees sees from the same place; the six together see every direction once.

use nalgebra::{UnitQuaternion, Vector3};
use serde::{Deserialize, Serialize};
use std::f64::consts::{FRAC_PI_2, PI};

use super::{Camera, CameraModel};

/// A side of the cube around the place of a panorama.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The middle of the panorama.
    Front,
    /// A quarter turn to the right of it.
    Right,
    /// Behind.
    Back,
    /// A quarter turn to the left.
    Left,
    /// Above; the front is at the lower edge.
    Up,
    /// Below; the front is at the upper edge.
    Down,
}

impl Side {
    /// All sides, in the order in which their pictures are stored.
    pub const ALL: [Self; 6] = [Self::Front, Self::Right, Self::Back, Self::Left, Self::Up, Self::Down];

    /// The name in file names and descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Right => "right",
            Self::Back => "back",
            Self::Left => "left",
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// The rotation from the panorama's axes to those of the camera that sees this side.
    pub fn side_from_panorama(self) -> UnitQuaternion<f64> {
        let (axis, angle) = match self {
            Self::Front => return UnitQuaternion::identity(),
            Self::Right => (Vector3::y_axis(), -FRAC_PI_2),
            Self::Back => (Vector3::y_axis(), PI),
            Self::Left => (Vector3::y_axis(), FRAC_PI_2),
            Self::Up => (Vector3::x_axis(), -FRAC_PI_2),
            Self::Down => (Vector3::x_axis(), FRAC_PI_2),
        };
        UnitQuaternion::from_axis_angle(&axis, angle)
    }
}

/// The camera that sees a side in a picture of `size` x `size` pixels.
pub fn side_camera(size: u32) -> Camera {
    Camera::from_focal(CameraModel::SimplePinhole, 0.5 * f64::from(size), size, size)
}

/// Where a panorama shows a `direction` (its axes, any length but 0): share of its width from the left edge, and of its
/// height from the upper one, 0 to 1.
pub fn place_in_panorama(direction: &Vector3<f64>) -> [f64; 2] {
    let longitude = direction.x.atan2(direction.z);
    let latitude = direction.y.atan2(direction.x.hypot(direction.z));
    [0.5 + longitude / (2.0 * PI), 0.5 + latitude / PI]
}

/// The direction (unit length, the panorama's axes) that is seen at a place in a panorama, the inverse of
/// [`place_in_panorama`].
pub fn direction_in_panorama(place: [f64; 2]) -> Vector3<f64> {
    let (longitude, latitude) = ((place[0] - 0.5) * 2.0 * PI, (place[1] - 0.5) * PI);
    Vector3::new(latitude.cos() * longitude.sin(), latitude.sin(), latitude.cos() * longitude.cos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::Vector2;

    #[test]
    fn sides_look_where_their_names_say() {
        let seen = |side: Side, at: [f64; 3]| side.side_from_panorama() * Vector3::from(at);
        let middle = Vector3::z();
        for (side, at) in Side::ALL.iter().zip([
            [0.0, 0.0, 1.0],
            [1.0, 0.0, 0.0],
            [0.0, 0.0, -1.0],
            [-1.0, 0.0, 0.0],
            [0.0, -1.0, 0.0],
            [0.0, 1.0, 0.0],
        ]) {
            assert!((seen(*side, at) - middle).norm() < 1e-12, "{side:?}");
        }
        // The sides around are upright; the front is at the lower edge of the one above, at the upper edge of the one below.
        for side in [Side::Front, Side::Right, Side::Back, Side::Left] {
            assert!((seen(side, [0.0, 1.0, 0.0]) - Vector3::y()).norm() < 1e-12, "{side:?}");
        }
        assert!((seen(Side::Up, [0.0, 0.0, 1.0]) - Vector3::y()).norm() < 1e-12);
        assert!((seen(Side::Down, [0.0, 0.0, 1.0]) + Vector3::y()).norm() < 1e-12);
    }

    #[test]
    fn every_direction_is_seen_by_one_side_and_lies_where_it_is_looked_for() {
        let camera = side_camera(64);
        for k in 0..500 {
            let place = [(f64::from(k) * 0.754_877).fract(), (f64::from(k) * 0.569_840).fract()];
            let direction = direction_in_panorama(place);
            let back = place_in_panorama(&(3.0 * direction));
            assert!((0..2).all(|i| (place[i] - back[i]).abs() < 1e-9), "{place:?} {back:?}");
            let inside = |p: &Vector2<f64>| p.iter().all(|v| (0.0..64.0).contains(v));
            let seen = Side::ALL
                .iter()
                .filter_map(|s| camera.project(&(s.side_from_panorama() * direction)))
                .filter(inside)
                .count();
            assert_eq!(seen, 1, "{place:?}");
        }
    }
}
