//! A house: rooms in two rows, with doors through which a person walks from each to the next, and back to the first.
//!
//! World: the room that the walk begins in is where the only room of other films is; the others follow along x, the second row
//! lies towards z.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use nalgebra::Vector3;

use super::room::{HALF, Room, Subject};
use super::scene::Scene;
use super::{SubjectKind, TableKind};

type Vec3 = Vector3<f64>;

/// From the middle of a room to that of the next.
const PITCH: f64 = 2.0 * HALF;
/// Rooms that a look may go through: one beyond the next is seen through two doors.
const SEEN: usize = 3;

/// Where a room is: its column and its row.
type Cell = (i32, i32);

/// The directions in which doors may lead.
const STEPS: [Cell; 4] = [(1, 0), (-1, 0), (0, 1), (0, -1)];

/// The rooms in the order in which they are walked through: along the first row and back along the second.
///
/// `rooms` is 1 or an even number ([`super::CaptureOptions`] sees to that).
pub(super) fn round(rooms: u32) -> Vec<Cell> {
    let columns = (rooms / 2).max(1) as i32;
    let there = (0..columns).map(|x| (x, 0));
    let back = (0..columns).rev().map(|x| (x, 1));
    if rooms == 1 { there.collect() } else { there.chain(back).collect() }
}

/// The middle of a room's floor.
pub(super) fn middle((column, row): Cell) -> Vec3 {
    Vec3::new(PITCH * f64::from(column), 0.0, PITCH * f64::from(row))
}

/// The rooms, each of which is built when it is looked into, and forgotten when the walk has gone on.
pub(super) struct House {
    seed: u64,
    round: Vec<Cell>,
    built: Mutex<BTreeMap<Cell, Arc<Scene>>>,
}

/// The rooms that can be seen from where a frame is taken.
pub(super) struct Seen(BTreeMap<Cell, Arc<Scene>>);

impl House {
    pub(super) fn new(seed: u64, rooms: u32) -> Self {
        Self { seed, round: round(rooms), built: Mutex::default() }
    }

    /// Whether a door leads from one room to another: those that follow each other in the round have one.
    fn has_door(&self, from: Cell, to: Cell) -> bool {
        let count = self.round.len();
        let follows = |k: usize| {
            let (a, b) = (self.round[k], self.round[(k + 1) % count]);
            (a, b) == (from, to) || (b, a) == (from, to)
        };
        count > 1 && (0..count).any(follows)
    }

    /// Where doors lead from a room.
    fn doors(&self, cell: Cell) -> Vec<Cell> {
        STEPS.into_iter().filter(|step| self.has_door(cell, (cell.0 + step.0, cell.1 + step.1))).collect()
    }

    /// Builds what can be seen from a place, and forgets all else.
    pub(super) fn seen_from(&self, position: &Vec3) -> Seen {
        let mut near = vec![cell_of(position)];
        for _ in 1..SEEN {
            for k in 0..near.len() {
                let (x, y) = near[k];
                for (dx, dy) in self.doors((x, y)) {
                    let next = (x + dx, y + dy);
                    if !near.contains(&next) {
                        near.push(next);
                    }
                }
            }
        }
        // Rooms are whole in it at any time: a thread that fails while it builds one has put nothing there.
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        built.retain(|cell, _| near.contains(cell));
        for cell in near {
            if let Some(number) = self.round.iter().position(|c| *c == cell) {
                built.entry(cell).or_insert_with(|| Arc::new(self.room(number).build()));
            }
        }
        Seen(built.clone())
    }

    /// Rooms differ in their textures, in what stands on the table, and every second one is turned by half a turn.
    fn room(&self, number: usize) -> Room {
        const SUBJECTS: [SubjectKind; 3] = [SubjectKind::StillLife, SubjectKind::Bricks, SubjectKind::Thin];
        const TABLES: [TableKind; 2] = [TableKind::Oak, TableKind::Cloth];
        Room {
            seed: self.seed * 1000 + number as u64,
            tags: None,
            subject: SUBJECTS[number % SUBJECTS.len()],
            table: TABLES[number / 2 % TABLES.len()],
            neighbours: number % 2 == 1,
            occluders: false,
            plain_walls: false,
            twin: false,
            turned: number % 2 == 1,
            doors: self.doors(self.round[number]),
        }
    }
}

impl Seen {
    /// As [`Scene::look`], through doors into the next rooms.
    pub(super) fn look(&self, origin: &Vec3, direction: &Vec3, pixel_angle: f64) -> (Vec3, Subject) {
        let mut cell = cell_of(origin);
        for _ in 0..SEEN {
            let Some(scene) = self.0.get(&cell) else { break };
            let from = origin - middle(cell);
            if let Some(seen) = scene.look_at(&from, direction, pixel_angle) {
                return seen;
            }
            // Out of this room, through the wall that comes first.
            let until = |from: f64, along: f64| {
                if along == 0.0 { f64::MAX } else { (HALF * along.signum() - from) / along }
            };
            let (x, z) = (until(from.x, direction.x), until(from.z, direction.z));
            match x < z {
                true => cell.0 += direction.x.signum() as i32,
                false => cell.1 += direction.z.signum() as i32,
            }
        }
        (Scene::DARK, Subject::No)
    }
}

fn cell_of(position: &Vec3) -> Cell {
    ((position.x / PITCH).round() as i32, (position.z / PITCH).round() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_goes_through_every_room_and_its_doors_lead_to_neighbours() {
        for rooms in [2u32, 4, 6, 20] {
            let house = House::new(1, rooms);
            assert_eq!(house.round.len() as u32, rooms);
            for k in 0..house.round.len() {
                let (a, b) = (house.round[k], house.round[(k + 1) % house.round.len()]);
                assert_eq!((a.0 - b.0).abs() + (a.1 - b.1).abs(), 1, "{rooms}: {a:?} {b:?}");
                assert!(house.doors(a).contains(&(b.0 - a.0, b.1 - a.1)));
            }
        }
        assert!(House::new(1, 1).doors((0, 0)).is_empty());
    }

    #[test]
    fn a_look_through_a_door_meets_the_next_room_and_one_beside_it_the_wall() {
        let house = House::new(3, 2);
        // From before the door, at eye height.
        let origin = Vec3::new(0.0, -1.4, HALF - 0.5);
        let seen = house.seen_from(&origin);
        assert_eq!(seen.0.len(), 2);
        let own = &seen.0[&(0, 0)];
        let towards = Vec3::new(0.05, 0.1, 1.0).normalize();
        assert!(own.cast(&origin, &towards, f64::MAX).is_none(), "the door is open");
        let (colour, _) = seen.look(&origin, &towards, 1e-3);
        assert_ne!(colour, Scene::DARK, "and the next room is behind it");
        let beside = Vec3::new(1.5, 0.1, 1.0).normalize();
        let hit = own.cast(&origin, &beside, f64::MAX).unwrap().1;
        assert!((origin + hit.distance * beside).z <= HALF + 1e-9);
        assert_eq!(seen.look(&origin, &beside, 1e-3), own.look(&origin, &beside, 1e-3));
    }
}
