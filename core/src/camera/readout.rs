//! In which order and how fast a sensor is read, and how the camera moves meanwhile.

use std::collections::BTreeMap;

use nalgebra::{Vector2, Vector3};
use serde::{Deserialize, Serialize};

use super::Camera;

/// Where the readout of a picture goes, as the frames are stored (upright).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadoutDirection {
    /// From the top row to the bottom row: a phone or camera held level.
    Down,
    /// From the bottom row to the top row: held upside down.
    Up,
    /// From the left column to the right column: a phone held upright.
    Right,
    /// From the right column to the left column: a phone held upright, the other way.
    Left,
}

impl ReadoutDirection {
    /// The other direction along the same axis.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
            Self::Right => Self::Left,
            Self::Left => Self::Right,
        }
    }
}

/// A readout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Readout {
    /// Seconds from the first line to the last one; negative only while it is estimated.
    pub seconds: f64,
    /// Where it goes.
    pub direction: ReadoutDirection,
}

impl Readout {
    /// The same readout with a time that is not negative.
    pub(crate) fn forward(&self) -> Self {
        match self.seconds < 0.0 {
            true => Self { seconds: -self.seconds, direction: self.direction.reversed() },
            false => *self,
        }
    }

    /// When `pixel` is read, in readout times after the middle of the picture: -1/2 to 1/2 inside of it.
    pub fn phase(&self, pixel: &Vector2<f64>, camera: &Camera) -> f64 {
        let (x, y) = (pixel.x / f64::from(camera.width) - 0.5, pixel.y / f64::from(camera.height) - 0.5);
        match self.direction {
            ReadoutDirection::Down => y,
            ReadoutDirection::Up => -y,
            ReadoutDirection::Right => x,
            ReadoutDirection::Left => -x,
        }
    }
}

/// How a camera moves at the moment of a picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineMotion {
    /// Angular velocity in camera axes, radians per second: after a time `t` the rotation is `exp(t turn) R`.
    pub turn: Vector3<f64>,
    /// Velocity of the centre in camera axes, units of the world per second.
    pub velocity: Vector3<f64>,
}

/// The rolling shutter of a capture: its poses are those of the middle lines.
#[derive(Debug, Clone, PartialEq)]
pub struct RollingShutter {
    /// How pictures are read.
    pub readout: Readout,
    /// By image id. Who is not in it did not move.
    pub motions: BTreeMap<u32, LineMotion>,
}
