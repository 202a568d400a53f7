//! What is filmed, and what moves: the camera or the things before it.

use std::f64::consts::PI;

use libreconstruct::camera::Pose;
use nalgebra::{UnitQuaternion, Vector3};
use serde::{Deserialize, Serialize};

/// What happens before and with the camera. All but the first two are no captures to reconstruct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Staging {
    /// The camera goes around the table.
    #[default]
    Around,
    /// The camera goes sideways through the room and looks at a wall.
    Along,
    /// The camera stands, and what is on the table turns.
    Turned,
    /// The camera turns on the spot.
    OnTheSpot,
    /// The camera pans and closes in slowly on one flat photograph.
    Photograph,
}

/// How far from the table's middle the camera stands while the things on it turn, metres.
const STAND: f64 = 1.15;
/// Metres that the camera goes sideways for each degree of the arc.
const METRES_PER_DEGREE: f64 = 0.02;

/// Where the camera is, without the wobble of a hand; `part` is -0.5 at the start of the clip and 0.5 at its end, `arc`
/// in radians. `None` where the camera goes around the table.
pub(super) fn staged_pose(
    staging: Staging,
    part: f64,
    arc: f64,
    wobble: impl Fn(u64) -> f64,
) -> Option<Pose> {
    let up = Vector3::new(0.0, -1.0, 0.0);
    let (position, target) = match staging {
        Staging::Around => return None,
        Staging::Along => {
            let x = METRES_PER_DEGREE * arc.to_degrees() * part;
            let position =
                Vector3::new(x + 0.02 * wobble(0), -1.4 + 0.06 * (4.0 * part).sin() + 0.02 * wobble(1), -1.5);
            (position, position + Vector3::new(0.3 * part + 0.04 * wobble(2), 0.25 + 0.03 * wobble(3), 1.0))
        }
        Staging::Turned => (Vector3::new(-0.35, -1.25, -STAND), Vector3::new(0.0, -0.92, 0.0)),
        Staging::OnTheSpot => {
            let position = Vector3::new(0.2, -1.4, -0.9);
            let angle = arc * part;
            let ahead = Vector3::new(angle.sin(), 0.05 * wobble(3), angle.cos());
            (position, position + ahead)
        }
        Staging::Photograph => {
            // Parallel to the photograph, as a program pans and zooms over a picture.
            let position = Vector3::new(0.5 * part, -1.4 + 0.25 * part, -2.1 + 0.7 * part);
            (position, position + Vector3::z())
        }
    };
    Some(Pose::look_at(&position, &target, &up).unwrap_or_else(Pose::identity))
}

/// By how much the things on the table are turned, about the vertical through its middle.
pub(super) fn turn_of_things(staging: Staging, part: f64, arc: f64) -> Option<UnitQuaternion<f64>> {
    (staging == Staging::Turned)
        .then(|| UnitQuaternion::from_axis_angle(&Vector3::y_axis(), arc.clamp(-2.0 * PI, 2.0 * PI) * part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_captures_to_reconstruct_move_the_camera_through_depth() {
        let travel = |staging| {
            let at = |part| staged_pose(staging, part, 1.5, |_| 0.0).map(|p| p.centre());
            at(-0.5).zip(at(0.5)).map(|(a, b)| (b - a).norm())
        };
        assert_eq!(travel(Staging::Around), None);
        assert!(travel(Staging::Along).unwrap() > 1.0);
        // A pose is a rotation and a translation: its centre is rounded, and not alike by the sines of each machine.
        assert!(travel(Staging::Turned).unwrap() < 1e-12);
        assert!(travel(Staging::OnTheSpot).unwrap() < 1e-12);
        assert!(turn_of_things(Staging::Turned, 0.5, 1.0).unwrap().angle() > 0.49);
        assert!(turn_of_things(Staging::Along, 0.5, 1.0).is_none());
    }
}
