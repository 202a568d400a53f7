//! How the camera moves while a picture is taken, from its path.
//!
//! The path is the one through the poses whose jerk is smallest, which follows a hand closer than a cubic spline: at a
//! third of a swing from frame to frame this has 0.83 of the true velocity, that 0.95. (White noise on jerk: Tang, Yoon &
//! Barfoot, "A white-noise-on-jerk motion prior for continuous-time trajectory estimation on SE(3)", RA-L 2019.) How far
//! the velocity at a frame may be from it is taken from the coarser model of a random walk of the velocity (Barfoot,
//! "State Estimation for Robotics", 2017, section 11.1): the more, the longer and the rougher the steps are.

use nalgebra::{Matrix2, Matrix2x3, Matrix3, Matrix3x2, Vector3};

use crate::camera::Pose;
use crate::statistics::median;

/// How a camera moves at the moment of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Motion {
    /// Angular velocity in camera axes, radians per second: after a time `t` the rotation is `exp(t turn) R`.
    pub(super) turn: Vector3<f64>,
    /// Velocity of the centre in world axes, units of the world per second.
    pub(super) drift: Vector3<f64>,
}

impl Motion {
    /// The same motion at another pace.
    pub(super) fn scaled(&self, factor: f64) -> Self {
        Self { turn: factor * self.turn, drift: factor * self.drift }
    }
}

/// What the path says of the motion at a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PathMotion {
    pub(super) motion: Motion,
    /// Variance of each component of `motion.turn`, ...
    pub(super) turn_variance: f64,
    /// ... and of `motion.drift`.
    pub(super) drift_variance: f64,
}

/// A longer time between two frames, seconds, tells too little of the motion at either to correct anything by it. Chosen by hand.
pub(super) const LONGEST_STEP: f64 = 1.0;
/// Weight of the squared acceleration beside that of the squared jerk, as the equations have them.
const FAINT: f64 = 1e-6;
/// Median of the chi-squared distribution with three degrees of freedom.
const MEDIAN_OF_CHI2_3: f64 = 2.366;

/// The motion at every frame; `None` without a pose, or where no other frame is within `longest_step`. Both that and the
/// increasing `times` are in seconds.
pub(super) fn path_motions(
    times: &[f64],
    poses: &[Option<Pose>],
    longest_step: f64,
) -> Vec<Option<PathMotion>> {
    let placed: Vec<(usize, f64, Pose)> = poses
        .iter()
        .zip(times)
        .enumerate()
        .filter_map(|(i, (pose, &time))| pose.map(|pose| (i, time, pose)))
        .collect();
    let runs: Vec<Run> = placed
        .chunk_by(|a, b| b.1 > a.1 && b.1 - a.1 <= longest_step)
        .filter(|run| run.len() >= 2)
        .map(Run::new)
        .collect();
    let turn = roughness(runs.iter().flat_map(|r| r.roughness(&r.turns)));
    let drift = roughness(runs.iter().flat_map(|r| r.roughness(&r.shifts)));
    let mut motions = vec![None; poses.len()];
    for run in &runs {
        let (turns, drifts) = (run.velocities(&run.turns), run.velocities(&run.shifts));
        for (k, &(image, pose)) in run.images.iter().enumerate() {
            let looseness = run.looseness(k);
            motions[image] = Some(PathMotion {
                motion: Motion { turn: pose.rotation * turns[k], drift: drifts[k] },
                turn_variance: turn * looseness,
                drift_variance: drift * looseness,
            });
        }
    }
    motions
}

/// Spectral density of the acceleration from samples of its three components together.
fn roughness(samples: impl Iterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.collect();
    median(&mut samples).map_or(0.0, |m| m / MEDIAN_OF_CHI2_3)
}

/// Frames that follow each other closely.
struct Run {
    images: Vec<(usize, Pose)>,
    /// Seconds from each frame to the next, one fewer than images.
    steps: Vec<f64>,
    /// Rotation from each frame to the next, world axes, radians.
    turns: Vec<Vector3<f64>>,
    /// Way of the centre from each frame to the next.
    shifts: Vec<Vector3<f64>>,
}

impl Run {
    fn new(frames: &[(usize, f64, Pose)]) -> Self {
        let between = |w: &[(usize, f64, Pose)]| {
            let (a, b) = (&w[0].2, &w[1].2);
            // An increment turns about the same axis in either camera, so its world axes are the same too.
            let turn = b.rotation * a.rotation.inverse();
            (w[1].1 - w[0].1, a.rotation.inverse() * turn.scaled_axis(), b.centre() - a.centre())
        };
        let mut run = Self {
            images: frames.iter().map(|f| (f.0, f.2)).collect(),
            steps: Vec::new(),
            turns: Vec::new(),
            shifts: Vec::new(),
        };
        for (step, turn, shift) in frames.windows(2).map(between) {
            run.steps.push(step);
            run.turns.push(turn);
            run.shifts.push(shift);
        }
        run
    }

    /// Velocities at the frames of the path with these increments whose jerk is smallest (integral of its square). For
    /// rotations this is exact up to the square of the angle between neighbouring frames.
    fn velocities(&self, increments: &[Vector3<f64>]) -> Vec<Vector3<f64>> {
        let count = self.images.len();
        // Unknowns are velocity and acceleration at every frame: a block-tridiagonal system.
        let mut diagonal = vec![Matrix2::zeros(); count];
        let mut right = vec![Matrix2x3::zeros(); count];
        let mut coupling = Vec::with_capacity(self.steps.len());
        for (k, (&step, increment)) in self.steps.iter().zip(increments).enumerate() {
            let (t, t2, t3) = (step, step * step, step * step * step);
            // Inverse covariance of what position, velocity and acceleration differ by from those of a constant
            // acceleration after the step.
            let weight = Matrix3::new(
                720.0 / (t2 * t3),
                -360.0 / (t2 * t2),
                60.0 / t3,
                -360.0 / (t2 * t2),
                192.0 / t3,
                -36.0 / t2,
                60.0 / t3,
                -36.0 / t2,
                9.0 / t,
            );
            let by_first = Matrix3x2::new(-t, -0.5 * t2, -1.0, -t, 0.0, -1.0);
            let by_second = Matrix3x2::new(0.0, 0.0, 1.0, 0.0, 0.0, 1.0);
            let mut constant = Matrix3::zeros();
            constant.set_row(0, &increment.transpose());
            diagonal[k] += by_first.transpose() * weight * by_first;
            diagonal[k + 1] += by_second.transpose() * weight * by_second;
            right[k] -= by_first.transpose() * weight * constant;
            right[k + 1] -= by_second.transpose() * weight * constant;
            coupling.push(by_first.transpose() * weight * by_second);
            // Two frames do not tell an acceleration: it is then zero.
            for end in [k, k + 1] {
                diagonal[end][(1, 1)] += FAINT / t;
            }
        }
        // Every block is positive definite: the sum of squares of as many independent differences.
        let inverse = |m: &Matrix2<f64>| m.try_inverse().unwrap_or_else(Matrix2::zeros);
        for (k, coupling) in coupling.iter().enumerate() {
            let factor = coupling.transpose() * inverse(&diagonal[k]);
            let (block, above) = (factor * coupling, factor * right[k]);
            diagonal[k + 1] -= block;
            right[k + 1] -= above;
        }
        for k in (0..count).rev() {
            if let Some(coupling) = coupling.get(k) {
                let below = coupling * right[k + 1];
                right[k] -= below;
            }
            right[k] = inverse(&diagonal[k]) * right[k];
        }
        right.iter().map(|r| r.row(0).transpose()).collect()
    }

    /// Variance of the velocity at frame `k`, given the poses, for a spectral density of 1: of two frames at one step of
    /// time the velocity between is known to a third of the step, within a long row to 0.144 of it.
    fn looseness(&self, k: usize) -> f64 {
        let before = k.checked_sub(1).and_then(|b| self.steps.get(b)).map_or(0.0, |s| 1.0 / s);
        let after = self.steps.get(k).map_or(0.0, |s| 1.0 / s);
        1.0 / (4.0 * (before + after) * 0.866)
    }

    /// Samples of the spectral density of the acceleration: squared changes of the change of the mean velocity from
    /// step to step, which a path that bends evenly does not have.
    fn roughness(&self, increments: &[Vector3<f64>]) -> Vec<f64> {
        let rates: Vec<Vector3<f64>> = increments.iter().zip(&self.steps).map(|(i, s)| i / *s).collect();
        let sample = |(w, s): (&[Vector3<f64>], &[f64])| {
            (w[2] - 2.0 * w[1] + w[0]).norm_squared() / ((s[0] + s[1] + s[2]) / 3.0)
        };
        rates.windows(3).zip(self.steps.windows(3)).map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::UnitQuaternion;

    /// A hand-held pose and its motion at a time.
    fn pose(time: f64) -> Pose {
        let turn = UnitQuaternion::from_euler_angles(
            0.1 * (2.0 * time).sin(),
            0.4 * time,
            0.05 * (3.0 * time).cos(),
        );
        Pose::from_centre(turn, &Vector3::new(time.sin(), 0.1 * (4.0 * time).cos(), 0.3 * time * time))
    }

    fn truth(time: f64) -> Motion {
        let h = 1e-5;
        let (a, b) = (pose(time - h), pose(time + h));
        Motion {
            turn: (b.rotation * a.rotation.inverse()).scaled_axis() / (2.0 * h),
            drift: (b.centre() - a.centre()) / (2.0 * h),
        }
    }

    #[test]
    fn motions_of_a_path_are_found_at_uneven_times_and_not_across_gaps() {
        let times: Vec<f64> = (0..60).map(|i| 0.08 * f64::from(i) + 0.02 * f64::from(i % 3)).collect();
        let mut poses: Vec<Option<Pose>> = times.iter().map(|&t| Some(pose(t))).collect();
        poses[30..45].fill(None);
        poses[46..50].fill(None);
        let motions = path_motions(&times, &poses, LONGEST_STEP);
        assert!(motions.iter().zip(&poses).all(|(m, p)| m.is_none() || p.is_some()));
        for i in (3..27).chain(53..57) {
            let (found, truth) = (motions[i].unwrap(), truth(times[i]));
            let turn = (found.motion.turn - truth.turn).norm();
            let drift = (found.motion.drift - truth.drift).norm();
            assert!(turn < 0.02 && drift < 0.01, "{i}: {turn} {drift}");
            // The path says how wrong it may be.
            assert!(turn < 6.0 * found.turn_variance.sqrt() && found.turn_variance.sqrt() < 0.1);
        }
        let few = [0.0, 5.0, 5.1].map(|t| Some(pose(t)));
        let alone = path_motions(&[0.0, 5.0, 5.1], &few, LONGEST_STEP);
        assert!(alone[0].is_none() && alone[1].is_some());
    }
}
