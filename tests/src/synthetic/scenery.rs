//! All that stands before the camera, built and lit once; several films may be made in it.

use std::sync::Arc;

use nalgebra::{UnitQuaternion, Vector3};

use super::CaptureOptions;
use super::house::{House, Seen};
use super::photograph::photograph;
use super::room::{Room, Subject};
use super::scene::Scene;
use super::staging::Staging;

/// Scenes of a capture.
pub struct Scenery {
    /// What stands; of a house nothing but its first room.
    standing: Scene,
    /// What turns, if anything does.
    turning: Option<Scene>,
    /// The rooms, if there are several.
    house: Option<House>,
}

impl Scenery {
    /// Builds and lights what `options` say: their seed, subject, table, neighbours, occluders, tags, staging, walls, twin and rooms
    /// decide.
    pub fn build(options: &CaptureOptions) -> Arc<Self> {
        let room = Room {
            seed: options.seed,
            tags: options.tags.clone(),
            subject: options.subject,
            table: options.table,
            neighbours: options.neighbours,
            occluders: options.occluders,
            plain_walls: options.plain_walls,
            twin: options.twin,
            turned: false,
            doors: Vec::new(),
        };
        let (standing, turning) = match options.staging {
            Staging::Photograph => (photograph(options.seed), None),
            Staging::Turned => {
                let (standing, turning) = room.build_apart();
                (standing, Some(turning))
            }
            _ => (room.build(), None),
        };
        let house = options.rooms.map(|rooms| House::new(options.seed, rooms));
        Arc::new(Self { standing, turning, house })
    }

    /// The rooms that can be seen from a place, if there are several.
    pub(super) fn rooms_seen_from(&self, position: &Vector3<f64>) -> Option<Seen> {
        Some(self.house.as_ref()?.seen_from(position))
    }

    pub(super) fn standing(&self) -> &Scene {
        &self.standing
    }

    /// Linear colour along a ray and whether it hits the subject, with what turns turned by `turn`.
    pub(super) fn look(
        &self,
        origin: &Vector3<f64>,
        direction: &Vector3<f64>,
        pixel_angle: f64,
        turn: Option<&UnitQuaternion<f64>>,
    ) -> (Vector3<f64>, Subject) {
        if let Some((turning, turn)) = self.turning.as_ref().zip(turn) {
            let (from, towards) = (turn.inverse() * origin, turn.inverse() * direction);
            if let Some((_, hit)) = turning.cast(&from, &towards, f64::MAX)
                && !self.standing.is_blocked(origin, direction, hit.distance)
            {
                return turning.look(&from, &towards, pixel_angle);
            }
        }
        self.standing.look(origin, direction, pixel_angle)
    }
}
