//! Which way is down: a hand-held camera is turned and tilted, but hardly rolled.

use nalgebra::{Matrix3, UnitQuaternion, Vector3};

use super::Pose;

/// How much the images' own down directions count against the rule that image rows are level. Small: they decide only
/// where the rows of all images are parallel and leave a choice.
const TILT_WEIGHT: f64 = 0.005;
/// A row that is this far from level (sine) counts half.
const ROLL: f64 = 0.1;
/// How much the tilt of a picture that must be turned for a direction speaks for it, where that of an upright one counts 1.
/// Below 0: where all rows are parallel, down the picture and across it are level alike, and most pictures are upright.
const TURNED: f64 = -0.2;
/// The same for a direction by which the world is level to a hair: nobody but who knew of the turns has levelled it so.
const TURNED_AS_KNOWN: f64 = 0.98;
/// That hair, radians.
const LEVELLED: f64 = 0.002;
/// So many pictures at most name directions to try.
const SEEDS: usize = 24;
/// So many pictures at most are asked about each.
const HEARD: usize = 64;

/// Gravity's direction in world coordinates (unit, downwards); the poses are those of upright pictures. Image rows of an
/// upright camera are level whatever its heading and tilt, so gravity is the direction orthogonal to the x axes of all
/// cameras; the sign is that of the images' downs. `None` without cameras, or if the cameras contradict each other.
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

/// The same where pictures may be stored on their side, and nothing says which. Of the directions near that which the world
/// would have if it were level, and near those that rows and columns of some pictures name, the one that fits most pictures
/// as they are or after some quarter turns.
pub(crate) fn gravity_of_turned(poses: &[Pose], level: &Vector3<f64>) -> Option<Vector3<f64>> {
    let some = |most: usize| poses.iter().copied().step_by(poses.len().div_ceil(most).max(1));
    let heard: Vec<Pose> = some(HEARD).collect();
    let mut best = (f64::INFINITY, None);
    let mut ask = |down: Vector3<f64>, turned: f64| {
        let misfit = heard.iter().map(|pose| misfit(pose, &down, turned)).sum();
        if misfit < best.0 - 1e-6 {
            best = (misfit, Some(down));
        }
    };
    if let Some(down) = refined(poses, *level, 1) {
        ask(down, if down.angle(level) < LEVELLED { TURNED_AS_KNOWN } else { TURNED });
    }
    let axes = |p: Pose| {
        [Vector3::y(), Vector3::x(), -Vector3::x(), -Vector3::y()].map(|axis| p.rotation.inverse() * axis)
    };
    for seed in gravity(poses.iter()).into_iter().chain(some(SEEDS).flat_map(axes)) {
        if let Some(down) = refined(&heard, seed, 3) {
            ask(down, TURNED);
        }
    }
    refined(poses, best.1?, 1)
}

/// The gravity of the poses turned so that each is as upright as it can be for `down`; again for that, so many times.
fn refined(poses: &[Pose], mut down: Vector3<f64>, times: usize) -> Option<Vector3<f64>> {
    for _ in 0..times {
        let upright: Vec<Pose> = poses.iter().map(|p| p.turned_back(turns_for(p, &down))).collect();
        down = gravity(upright.iter())?;
    }
    Some(down)
}

/// The quarter turns that a picture was stored with if this is down.
fn turns_for(pose: &Pose, down: &Vector3<f64>) -> u8 {
    let seen = pose.rotation * down;
    match (seen.x.abs() > seen.y.abs(), seen.x > 0.0, seen.y >= 0.0) {
        (false, _, true) => 0,
        (true, false, _) => 1,
        (false, _, false) => 2,
        (true, true, _) => 3,
    }
}

/// How badly `down` fits a picture, by the rule of [`gravity`]: the less the better.
fn misfit(pose: &Pose, down: &Vector3<f64>, turned: f64) -> f64 {
    let turns = turns_for(pose, down);
    let seen = pose.turned_back(turns).rotation * down;
    let (roll, tilt) = ((seen.x / ROLL).powi(2), (seen.y / ROLL).powi(2));
    (roll - TILT_WEIGHT * tilt * if turns == 0 { 1.0 } else { turned }) / (1.0 + roll)
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

    /// Of the front of a statue, some of the pictures on end, to the one side or the other, stored as the sensor saw
    /// them; with their quarter turns.
    fn front(count: usize, on_end: usize, span: f64, world: &UnitQuaternion<f64>) -> (Vec<Pose>, Vec<u8>) {
        let stored = |(i, pose): (usize, Pose)| {
            let turns =
                if i * on_end / count == (i + 1) * on_end / count { 0 } else { 1 + 2 * (i as u8 / 16 % 2) };
            (pose.turned_back(4 - turns), turns)
        };
        let upright = arc(span, 0.6, world).into_iter().cycle().take(count);
        upright.enumerate().map(stored).unzip()
    }

    #[test]
    fn pictures_on_end_do_not_lay_the_world_on_its_side() {
        let world = UnitQuaternion::from_euler_angles(2.0, 0.4, -1.0);
        let off = |down: Vector3<f64>| down.angle(&(world * Vector3::y())).to_degrees();
        for (on_end, span) in [(6, 1.0), (6, 0.2), (20, 1.0), (6, 5.0)] {
            let (stored, turns) = front(60, on_end, span, &world);
            assert_eq!(turns.iter().filter(|&&t| t != 0).count(), on_end);
            let upright: Vec<Pose> = stored.iter().zip(&turns).map(|(p, t)| p.turned_back(*t)).collect();
            let known = off(gravity(upright.iter()).unwrap());
            assert!(known < 12.0, "{known} degrees with {on_end} over {span}");
            // Without being told which, and without a guess.
            let guessed = off(gravity_of_turned(&stored, &Vector3::x()).unwrap());
            assert!((guessed - known).abs() < 0.5, "{guessed} degrees with {on_end} over {span}");
        }
        // Half of them on end, in a world that was levelled by who knew which.
        for span in [0.2, 1.0, 5.0] {
            let (stored, turns) = front(60, 30, span, &world);
            let upright: Vec<Pose> = stored.iter().zip(&turns).map(|(p, t)| p.turned_back(*t)).collect();
            let known = gravity(upright.iter()).unwrap();
            assert!(gravity_of_turned(&stored, &known).unwrap().angle(&known) < 1e-6, "over {span}");
        }
        // All upright, looking down steeply with parallel rows: across the pictures nothing is tilted.
        let walk: Vec<Pose> = (0..30)
            .map(|i| {
                let place = Vector3::new(0.0, -2.0, 0.3 * f64::from(i));
                let ahead = Vector3::new(0.02 * f64::from(i % 3), 2.0, 2.2);
                let pose = Pose::look_at(&place, &(place + ahead), &-Vector3::y()).unwrap();
                pose.in_moved_world(1.0, &world, &Vector3::zeros())
            })
            .collect();
        let down = gravity(walk.iter()).unwrap();
        assert!(gravity_of_turned(&walk, &Vector3::x()).unwrap().angle(&down) < 1e-6);
        // From above, the rows say what is level as they are.
        let mut above = Vec::new();
        for i in 0..40 {
            let (x, z) = (f64::from(i % 8), f64::from(i / 8));
            let turn = UnitQuaternion::from_axis_angle(&Vector3::y_axis(), 0.7 * f64::from(i));
            let place = Vector3::new(x, -9.0, z);
            let ahead = turn * Vector3::z();
            let target = Vector3::new(x, 0.0, z) + 0.5 * ahead;
            above.push(Pose::look_at(&place, &target, &ahead).unwrap());
        }
        let down = gravity(above.iter()).unwrap();
        assert!((gravity_of_turned(&above, &Vector3::x()).unwrap() - down).norm() < 0.02, "{down}");
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
