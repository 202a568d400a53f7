//! The way of a person who films a house: into each room, once around its table, and out by the next door.

use std::f64::consts::{PI, TAU};

use nalgebra::Vector3;

use super::house::{middle, round};
use super::room::HALF;

type Vec3 = Vector3<f64>;

/// How far from the middle of the room the way around its table is.
const RADIUS: f64 = 1.6;
/// From one sample of the way to the next, metres.
const STEP: f64 = 0.02;
/// Over how much of the way a corner is rounded, and a look turned: standard deviations, metres.
const ROUNDED: f64 = 0.25;
const TURNED: f64 = 0.6;

/// A closed way.
pub(super) struct Rounds {
    /// Where the person is, every [`STEP`].
    places: Vec<Vec3>,
    /// Where he looks: radians from +z towards +x.
    looks: Vec<f64>,
}

impl Rounds {
    /// Through a house of so many rooms.
    pub(super) fn new(rooms: u32) -> Self {
        let round = round(rooms);
        let count = round.len();
        let (mut places, mut looks) = (Vec::new(), Vec::new());
        for (k, &cell) in round.iter().enumerate() {
            let own = middle(cell);
            let towards = |other: usize| (middle(round[other % count]) - own) * (0.5 / HALF);
            let (from, to) = (towards(k + count - 1), towards(k + 1));
            let angle = |v: &Vec3| v.x.atan2(v.z);
            // Where there is no other room, only the way around the table.
            let (begin, turn, straight) = match count {
                1 => (PI, TAU, 0.0),
                _ => (angle(&from), TAU + (angle(&to) - angle(&from)).rem_euclid(TAU), HALF - RADIUS),
            };
            let mut add = |place: Vec3, look: f64| {
                places.push(own + place);
                looks.push(look);
            };
            for s in steps(straight) {
                add(from * (HALF - s), begin + PI);
            }
            for s in steps(RADIUS * turn) {
                let at = begin + s / RADIUS;
                add(RADIUS * Vec3::new(at.sin(), 0.0, at.cos()), at + PI);
            }
            for s in steps(straight) {
                add(to * (RADIUS + s), begin + turn);
            }
        }
        Self { places: smooth(&places, ROUNDED), looks: smooth_angles(&looks, TURNED) }
    }

    /// Where the person is and which way he looks (radians from +z towards +x) after a part of the way, 0 to 1; the height is 0.
    pub(super) fn at(&self, part: f64) -> (Vec3, f64) {
        let count = self.places.len();
        let at = part.clamp(0.0, 1.0) * count as f64;
        let (low, rest) = ((at as usize) % count, at.fract());
        let next = (low + 1) % count;
        let turn = between(self.looks[low], self.looks[next]);
        (self.places[low].lerp(&self.places[next], rest), self.looks[low] + rest * turn)
    }

    /// Metres of the way.
    #[cfg(test)]
    fn length(&self) -> f64 {
        STEP * self.places.len() as f64
    }
}

fn steps(length: f64) -> impl Iterator<Item = f64> {
    (0..(length / STEP) as usize).map(|k| k as f64 * STEP)
}

/// The angle from `a` to `b`, the short way.
fn between(a: f64, b: f64) -> f64 {
    (b - a + PI).rem_euclid(TAU) - PI
}

/// Weights of a Gaussian over the samples beside one.
fn weights(deviation: f64) -> Vec<f64> {
    let reach = (3.0 * deviation / STEP) as i64;
    (-reach..=reach).map(|k| (-0.5 * (k as f64 * STEP / deviation).powi(2)).exp()).collect()
}

/// Smooths what is closed.
fn smooth(values: &[Vec3], deviation: f64) -> Vec<Vec3> {
    let weights = weights(deviation);
    let (count, reach) = (values.len(), weights.len() / 2);
    let total: f64 = weights.iter().sum();
    let at = |i: usize, k: usize| values[(i + k + count * reach - reach) % count];
    let mean = |i: usize| weights.iter().enumerate().map(|(k, w)| *w * at(i, k)).sum::<Vec3>() / total;
    (0..count).map(mean).collect()
}

/// Smooths angles along what is closed; a look back is turned the way that the walk around the tables turns.
fn smooth_angles(values: &[f64], deviation: f64) -> Vec<f64> {
    let weights = weights(deviation);
    let (count, reach) = (values.len(), weights.len() / 2);
    let total: f64 = weights.iter().sum();
    // From one sample to the next; those of exactly half a turn are all taken the same way.
    let turns: Vec<f64> = (0..count)
        .map(|i| {
            let turn = between(values[i], values[(i + 1) % count]);
            if turn < -PI + 1e-6 { PI } else { turn }
        })
        .collect();
    (0..count)
        .map(|i| {
            let first = (i + count * reach - reach) % count;
            let (mut angle, mut sum) = (values[first], 0.0);
            for (k, w) in weights.iter().enumerate() {
                sum += w * angle;
                angle += turns[(first + k) % count];
            }
            sum / total
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_closed_goes_through_doors_and_not_through_walls() {
        for rooms in [1, 2, 6] {
            let way = Rounds::new(rooms);
            let count = (way.length() / 0.05) as usize;
            let mut crossed = 0;
            for k in 0..count {
                let (a, look) = way.at(k as f64 / count as f64);
                let (b, next) = way.at((k + 1) as f64 / count as f64);
                assert!((b - a).norm() < 0.08, "{rooms}: from {a} to {b}");
                assert!(between(look, next).abs() < 0.2, "{rooms}: {look} to {next}");
                let room = |p: &Vec3| [p.x, p.z].map(|v| (v / (2.0 * HALF)).round());
                let along = |v: f64| (v - 2.0 * HALF * (v / (2.0 * HALF)).round()).abs();
                if room(&a) != room(&b) {
                    crossed += 1;
                    assert!(along(b.x).min(along(b.z)) < 0.2, "{rooms}: through a wall at {b}");
                }
            }
            assert_eq!(crossed, if rooms == 1 { 0 } else { rooms }, "{rooms}");
        }
    }
}
