//! How cameras and points move by a step.
//!
//! A chain of images that bends, or whose one half has another size, moves everything beyond that joint: as far as the chain is long. The
//! equations are linear and lead along the tangent; a rigid part of the map that is moved along a tangent is stretched
//! by half the square of the angle, and one that grows as it turns comes out turned by too much. Next to noise of a tenth of a pixel a
//! turn of 0.3 degrees with a change of size of 1 % counts, so such a step would cost more than it gains, and many small ones would
//! be needed. Each camera and point therefore moves as what surrounds it does: along the path of the similarity that begins
//! with the velocity which the equations ask for (the exponential map of Sim(3); Strasdat, Montiel and Davison, "Scale
//! Drift-Aware Large Scale Monocular SLAM", 2010). Short steps are the same.

use nalgebra::{UnitQuaternion, Vector3};
use rayon::prelude::*;

use super::{Problem, State};
use crate::camera::Camera;
use crate::statistics::median;

/// How a camera's surroundings grow is the median over so many of its observations, at least. Chosen by hand.
const ASKED: usize = 64;
/// More than this is no motion of what surrounds a camera, but of points whose distance nothing says. Chosen by hand.
const MOST_GROWTH: f64 = 0.5;

/// How what surrounds something is turned and grows, by the rates of the step.
#[derive(Clone, Copy, Default)]
pub(super) struct Surroundings {
    /// Axis times radians, in the world's frame.
    pub(super) turn: Vector3<f64>,
    /// Logarithm of the ratio of sizes.
    pub(super) growth: f64,
}

impl Surroundings {
    /// Where something gets to that starts out with this velocity: the translation of the exponential.
    ///
    /// The integral over `s` from 0 to 1 of `exp(s growth) R(s turn) velocity`, of which the growth is taken to the second power.
    pub(super) fn carry(&self, velocity: &Vector3<f64>) -> Vector3<f64> {
        let (g, squared) = (self.growth, self.turn.norm_squared());
        // (1 - cos a) / a^2 and (a - sin a) / a^3
        let (first, second) = if squared < 1e-6 {
            (0.5, 1.0 / 6.0)
        } else {
            let angle = squared.sqrt();
            ((1.0 - angle.cos()) / squared, (angle - angle.sin()) / (squared * angle))
        };
        let along = 1.0 + g / 2.0 + g * g / 6.0;
        let across = first + g / 3.0 + g * g / 8.0;
        let inwards = second + g / 8.0 + g * g / 20.0;
        let sideways = self.turn.cross(velocity);
        along * velocity + across * sideways + inwards * self.turn.cross(&sideways)
    }
}

impl std::iter::Sum for Surroundings {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self { turn: a.turn + b.turn, growth: a.growth + b.growth })
    }
}

impl Problem<'_> {
    /// `state` after the step `x` of cameras and intrinsics and the `moves` of the points; `None` for an impossible
    /// camera.
    pub(super) fn moved(&self, state: &State, x: &[f64], moves: &[[f64; 3]]) -> Option<State> {
        let mut next = state.clone();
        let around: Vec<Surroundings> = (0..self.stations.count())
            .into_par_iter()
            .map(|c| Surroundings {
                turn: -(state.rotations[c].inverse() * rotation_of(x, c)),
                growth: self.growth(state, x, moves, c),
            })
            .collect();
        let mut centres = Vec::with_capacity(self.stations.count());
        for (c, around) in around.iter().enumerate() {
            let turn = UnitQuaternion::from_scaled_axis(rotation_of(x, c));
            next.rotations[c] = UnitQuaternion::new_normalize((turn * state.rotations[c]).into_inner());
            centres.push(self.centre(state, c) + around.carry(&shift_of(x, c)));
        }
        for (place, extrinsics) in next.extrinsics.iter_mut().enumerate() {
            let c = self.stations.camera(place);
            *extrinsics = self.stations.extrinsics(place, &next.rotations[c], &centres[c]);
        }
        let shared = &x[self.first_unknown(0)..];
        self.intrinsics.change(&mut next.camera, shared);
        for (k, (intrinsics, camera)) in self.others.of_camera.iter().zip(&mut next.others).enumerate() {
            intrinsics.change(camera, &x[self.first_unknown(k + 1)..]);
        }
        let extra = &shared[self.intrinsics.free.len()..];
        next.extra.iter_mut().zip(extra).take(self.extra).for_each(|(value, step)| *value += step);
        next.points.par_iter_mut().zip(moves).enumerate().for_each(|(p, (point, step))| {
            let seen = self.seen(p);
            let share = 1.0 / seen.len().max(1) as f64;
            let sum: Surroundings = seen.map(|o| around[self.structure.camera[o] as usize]).sum();
            let around = Surroundings { turn: share * sum.turn, growth: share * sum.growth };
            let step = around.carry(&Vector3::from(*step));
            point.iter_mut().zip(step.iter()).for_each(|(value, step)| *value += step);
        });
        let is_possible = |camera: &Camera| camera.mean_focal() > 0.0;
        (is_possible(&next.camera) && next.others.iter().all(is_possible)).then_some(next)
    }

    /// By how much what camera `c` sees gets farther away from it, over the distance.
    fn growth(&self, state: &State, x: &[f64], moves: &[[f64; 3]], c: usize) -> f64 {
        let (centre, shift) = (self.centre(state, c), shift_of(x, c));
        let of = |&o: &u32| {
            let p = self.structure.point[o as usize] as usize;
            let ray = Vector3::from(state.points[p]) - centre;
            (Vector3::from(moves[p]) - shift).dot(&ray) / ray.norm_squared()
        };
        let own = self.structure.of_camera(c);
        let asked = own.iter().step_by((own.len() / ASKED).max(1));
        let mut growth: Vec<f64> = asked.map(of).filter(|g| g.is_finite()).collect();
        median(&mut growth).unwrap_or(0.0).clamp(-MOST_GROWTH, MOST_GROWTH)
    }
}

/// What the step `x` has of the rotation of camera `c`, in its own frame.
fn rotation_of(x: &[f64], c: usize) -> Vector3<f64> {
    Vector3::new(x[6 * c], x[6 * c + 1], x[6 * c + 2])
}

/// What the step `x` has of its centre.
fn shift_of(x: &[f64], c: usize) -> Vector3<f64> {
    Vector3::new(x[6 * c + 3], x[6 * c + 4], x[6 * c + 5])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn what_is_carried_follows_the_path_of_a_similarity() {
        for (turn, growth) in
            [([0.0; 3], 0.1), ([0.2, -0.3, 0.1], 0.0), ([0.2, -0.3, 0.1], -0.1), ([1e-4, 0.0, 0.0], 0.02)]
        {
            let around = Surroundings { turn: Vector3::from(turn), growth };
            let velocity = Vector3::new(0.5, 2.0, -1.0);
            // By small steps.
            let steps = 10_000;
            let mut sum = Vector3::zeros();
            for k in 0..steps {
                let s = (f64::from(k) + 0.5) / f64::from(steps);
                let rotation = UnitQuaternion::from_scaled_axis(s * around.turn);
                sum += (s * growth).exp() * (rotation * velocity) / f64::from(steps);
            }
            let error = (around.carry(&velocity) - sum).norm();
            assert!(error < 2e-4 * velocity.norm(), "{turn:?} {growth}: {error}");
        }
    }

    #[test]
    fn a_map_that_turns_and_grows_as_a_whole_stays_the_same_in_its_pictures() {
        let options = BundleOptions {
            loss: Loss::Huber(1e6),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 1, tolerance: 0.0 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: false, distortion: None, principal_point: None },
            other_centres: Vec::new(),
        };
        let capture = Capture::walk(12, 400, 0.0, 5);
        let map = capture.true_map_with_points();
        let problem = Problem::new(&map, &capture.keypoints, &options).unwrap();
        let state = problem.state(&map);
        // As where the map hangs on something ten metres away.
        let (turn, growth, hinge) = (Vector3::new(0.02, 0.1, -0.05), 0.05, Vector3::new(3.0, -10.0, 2.0));
        let velocity = |at: Vector3<f64>| turn.cross(&(at - hinge)) + growth * (at - hinge);
        let mut x = Vec::new();
        for c in 0..problem.stations.count() {
            x.extend((-(state.rotations[c] * turn)).iter());
            x.extend(velocity(problem.centre(&state, c)).iter());
        }
        let moves: Vec<[f64; 3]> = state.points.iter().map(|p| velocity(Vector3::from(*p)).into()).collect();
        let moved = problem.moved(&state, &x, &moves).unwrap();
        let worst = |state: &State| {
            let projectors = super::super::projectors(state);
            let mut worst: f64 = 0.0;
            for p in 0..state.points.len() {
                for o in problem.seen(p) {
                    let [x, y] = problem.residual(&projectors, state, o, p).unwrap();
                    worst = worst.max(x.hypot(y));
                }
            }
            worst
        };
        assert!(worst(&state) < 1e-6 && worst(&moved) < 0.02, "{} {}", worst(&state), worst(&moved));
        // Along the tangent it would not.
        let mut straight = state.clone();
        for (c, extrinsics) in straight.extrinsics.iter_mut().enumerate() {
            let centre = problem.centre(&state, c) + shift_of(&x, c);
            *extrinsics = problem.stations.extrinsics(c, &moved.rotations[c], &centre);
        }
        for (point, step) in straight.points.iter_mut().zip(&moves) {
            point.iter_mut().zip(step).for_each(|(value, step)| *value += step);
        }
        assert!(worst(&straight) > 1.0, "{}", worst(&straight));
    }
}
