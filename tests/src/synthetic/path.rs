//! How a person walks around a table with a phone.

use libreconstruct::camera::Pose;
use nalgebra::{UnitQuaternion, Vector3};

use super::CaptureOptions;
use super::rounds::Rounds;
use super::staging::{Staging, staged_pose};
use super::texture::uniform;

/// A continuous hand-held camera path.
pub(super) struct CameraPath {
    duration: f64,
    arc: f64,
    look_away: f64,
    scale: f64,
    staging: Staging,
    /// Through the rooms of a house, if there are several.
    rounds: Option<Rounds>,
    seed: u64,
}

/// Where the camera looks on its way around the table, but for the wobble.
const FOCUS: Vector3<f64> = Vector3::new(0.0, -0.86, 0.0);
/// How far the camera turns away from the table, and in which part of the clip.
const TURN: f64 = 100.0 * std::f64::consts::PI / 180.0;
const TURNING: f64 = 0.15;

impl CameraPath {
    pub(super) fn new(options: &CaptureOptions) -> Self {
        let duration = f64::from(options.frames.max(2) - 1) / options.frame_rate;
        let arc = options.arc_degrees.to_radians();
        Self {
            duration,
            arc,
            look_away: options.look_away,
            scale: options.path_scale,
            staging: options.staging,
            rounds: options.rooms.map(Rounds::new),
            seed: options.seed,
        }
    }

    /// A smooth wobble of about unit size: slow sway, the steps of the walk, the tremor of the hand.
    fn wobble(&self, channel: u64, time: f64) -> f64 {
        const PARTS: [(f64, f64); 4] = [(0.23, 0.6), (0.71, 0.3), (1.9, 0.22), (4.3, 0.06)];
        PARTS
            .iter()
            .enumerate()
            .map(|(k, (frequency, size))| {
                let key = channel * 16 + k as u64;
                let phase = std::f64::consts::TAU * uniform(self.seed + 77, key);
                let detune = 0.85 + 0.3 * uniform(self.seed + 78, key);
                size * (std::f64::consts::TAU * frequency * detune * time + phase).sin()
            })
            .sum()
    }

    /// Part of the clip at `time` seconds, -0.5 at its start and 0.5 at its end.
    pub(super) fn part(&self, time: f64) -> f64 {
        time / self.duration - 0.5
    }

    /// Radians of the walk.
    pub(super) fn arc(&self) -> f64 {
        self.arc
    }

    /// World-to-camera at `time` seconds.
    pub(super) fn pose(&self, time: f64) -> Pose {
        let part = self.part(time);
        if let Some(pose) = staged_pose(self.staging, part, self.arc, |channel| self.wobble(channel, time)) {
            return pose;
        }
        if let Some(rounds) = &self.rounds {
            return self.pose_on_rounds(rounds, time);
        }
        let angle = self.arc * part - 0.6;
        let radius = 1.62 + 0.16 * (2.1 * part + 0.4).sin() + 0.03 * self.wobble(0, time);
        let height = 1.42 + 0.14 * (5.0 * part).sin() + 0.025 * self.wobble(1, time);
        let position = Vector3::new(radius * angle.sin(), -height, -radius * angle.cos());
        let target = Vector3::new(
            0.07 * self.wobble(2, time),
            FOCUS.y + 0.05 * self.wobble(3, time),
            0.07 * self.wobble(4, time),
        );
        let target = match self.look_away {
            0.0 => target,
            away => {
                let turned = ((part + 0.5 - (1.0 - away)) / TURNING + 1.0).clamp(0.0, 1.0);
                let angle = TURN * turned * turned * (3.0 - 2.0 * turned);
                position + UnitQuaternion::from_axis_angle(&Vector3::y_axis(), angle) * (target - position)
            }
        };
        // Exactly what it was where the path is as wide as usual.
        let scaled = |place: Vector3<f64>| place + (self.scale - 1.0) * (place - FOCUS);
        self.held(&scaled(position), &scaled(target), time)
    }

    /// As a person holds the camera who goes through a house and looks a little down.
    fn pose_on_rounds(&self, rounds: &Rounds, time: f64) -> Pose {
        let (place, look) = rounds.at(self.part(time) + 0.5);
        let height = 1.42 + 0.04 * self.wobble(1, time);
        let sway = Vector3::new(0.03 * self.wobble(0, time), -height, 0.03 * self.wobble(6, time));
        let turned = look + 0.06 * self.wobble(2, time);
        let ahead = Vector3::new(turned.sin(), 0.22 + 0.05 * self.wobble(3, time), turned.cos());
        self.held(&(place + sway), &(place + sway + ahead), time)
    }

    /// From a place towards another, by a hand that does not hold it quite upright.
    fn held(&self, position: &Vector3<f64>, target: &Vector3<f64>, time: f64) -> Pose {
        // The room is 5 m wide and nobody looks straight down: the view is never along the vertical.
        let up = Vector3::new(0.0, -1.0, 0.0);
        let steady = Pose::look_at(position, target, &up).unwrap_or_else(Pose::identity);
        let roll = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), 0.025 * self.wobble(5, time));
        Pose::from_centre(roll * steady.rotation, position)
    }
}
