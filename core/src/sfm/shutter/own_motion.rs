//! The motion at each frame as its own picture shows it.
//!
//! Between key frames a hand trembles in ways that their poses do not tell. In a picture it shows: the points of the map
//! are sheared against where they should be. What the path says, and how sure it is, holds the motion where the picture
//! says little.

use nalgebra::{SMatrix, SVector, Vector3};
use rayon::prelude::*;

use crate::camera::Readout;
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::projection::{Extrinsics, Loss, Projector};

use super::motion::{Motion, PathMotion};

/// Weights of a frame and its neighbours in a mean that quick motions vanish in.
const MEANS: [f64; 5] = [1.0 / 16.0, 4.0 / 16.0, 6.0 / 16.0, 4.0 / 16.0, 1.0 / 16.0];

/// What the frames show.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) map: &'a Map,
    /// The keypoints as they were measured, ...
    pub(super) measured: &'a Keypoints,
    /// ... and with `motions` and `readout`.
    pub(super) corrected: &'a Keypoints,
    pub(super) motions: &'a [Option<Motion>],
    pub(super) readout: Readout,
}

/// The motion of every frame that fits its keypoints best. `noise` is the standard deviation of a keypoint's coordinate,
/// pixels. Pose and motion of a frame are found together, with the points as they are.
pub(super) fn own_motions(
    seen: Seen<'_>,
    path: &[Option<PathMotion>],
    loss: Loss,
    noise: f64,
) -> Vec<Option<Motion>> {
    let Seen { map, measured, corrected, motions, readout } = seen;
    let projector = Projector::new(&map.camera);
    let mut points: Vec<Vec<(Vector3<f64>, u32)>> = vec![Vec::new(); map.poses.len()];
    for point in &map.points {
        for o in &point.track {
            points[o.image as usize].push((point.xyz, o.keypoint));
        }
    }
    let own = |i: usize| -> Option<Motion> {
        let (pose, path, motion) = (map.poses[i]?, path[i]?, motions[i]?);
        let extrinsics = Extrinsics::from_pose(&pose);
        let mut h = SMatrix::<f64, 12, 12>::zeros();
        let mut g = SVector::<f64, 12>::zeros();
        for (xyz, keypoint) in &points[i] {
            let k = *keypoint as usize;
            let pixel: [f64; 2] = corrected[i][k].into();
            let Some(l) = projector.linearise(&extrinsics, &(*xyz).into(), &pixel) else { continue };
            let weight = loss.at(l.residual[0].powi(2) + l.residual[1].powi(2)).1;
            let time = readout.seconds * readout.phase(&measured[i][k], &map.camera);
            for r in 0..2 {
                let (w, p) = (&l.by_rotation[r], &l.by_point[r]);
                let by_pose = [w[0], w[1], w[2], -p[0], -p[1], -p[2]];
                let j = SVector::<f64, 12>::from_fn(
                    |k, _| {
                        if k < 6 { by_pose[k] } else { time * by_pose[k - 6] }
                    },
                );
                h.ger(weight, &j, &j, 1.0);
                g.axpy(weight * l.residual[r], &j, 1.0);
            }
        }
        let (turn, drift) = (motion.turn - path.motion.turn, motion.drift - path.motion.drift);
        for k in 0..3 {
            let of_turn = noise * noise / path.turn_variance.max(f64::MIN_POSITIVE);
            let of_drift = noise * noise / path.drift_variance.max(f64::MIN_POSITIVE);
            h[(6 + k, 6 + k)] += of_turn;
            g[6 + k] += of_turn * turn[k];
            h[(9 + k, 9 + k)] += of_drift;
            g[9 + k] += of_drift * drift[k];
        }
        for k in 0..12 {
            h[(k, k)] *= 1.0 + 1e-9;
        }
        let step = h.cholesky()?.solve(&g);
        Some(Motion {
            turn: motion.turn - step.fixed_rows::<3>(6),
            drift: motion.drift - step.fixed_rows::<3>(9),
        })
    };
    // A frame that cannot be solved keeps what it had.
    (0..map.poses.len()).into_par_iter().map(|i| own(i).or(motions[i])).collect()
}

/// By which factor `motions` exceed those of the path: the readout time is too short by it. Compared are means over
/// neighbouring frames: of quick motions a path through the frames shows too little.
pub(super) fn excess_over_path(path: &[Option<PathMotion>], motions: &[Option<Motion>]) -> f64 {
    let all: Vec<Option<(PathMotion, Motion)>> =
        path.iter().zip(motions).map(|(p, m)| (*p).zip(*m)).collect();
    let (mut both, mut own) = (0.0, 0.0);
    for window in all.windows(MEANS.len()) {
        let Some(window) = window.iter().copied().collect::<Option<Vec<_>>>() else { continue };
        let mean = |of: fn(&(PathMotion, Motion)) -> Vector3<f64>| -> Vector3<f64> {
            window.iter().zip(MEANS).map(|(w, weight)| weight * of(w)).sum()
        };
        let (path, found) = (mean(|w| w.0.motion.turn), mean(|w| w.1.turn));
        let weight = 1.0 / window[MEANS.len() / 2].0.turn_variance.max(f64::MIN_POSITIVE);
        both += weight * path.dot(&found);
        own += weight * path.norm_squared();
        let (path, found) = (mean(|w| w.0.motion.drift), mean(|w| w.1.drift));
        let weight = 1.0 / window[MEANS.len() / 2].0.drift_variance.max(f64::MIN_POSITIVE);
        both += weight * path.dot(&found);
        own += weight * path.norm_squared();
    }
    if both > 0.0 && own > 0.0 { both / own } else { 1.0 }
}
