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

/// Neighbouring windows that count as one sample of the pace: they overlap, and a hand that trembles does so for a while.
const BLOCK: usize = 10;
/// ... but there are this many samples at least.
const FEWEST_BLOCKS: usize = 4;

/// The motions that frames show, by image.
pub(super) struct OwnMotions {
    pub(super) motions: Vec<Option<Motion>>,
    /// Which part of a frame's pace along the path its picture tells, 0 to 1; the path says the rest.
    pub(super) told: Vec<f64>,
}

/// How much faster frames move than their path says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    /// The readout time is too short by this factor.
    pub(super) factor: f64,
    /// Its standard deviation, by how stretches of the video contradict each other; `None` where the video is too short to say.
    pub(super) deviation: Option<f64>,
}

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
pub(super) fn own_motions(seen: Seen<'_>, path: &[Option<PathMotion>], loss: Loss, noise: f64) -> OwnMotions {
    let Seen { map, motions, .. } = seen;
    let points = points_by_image(map);
    let own = |i: usize| -> Option<(Motion, f64)> {
        let (path, motion) = (path[i]?, motions[i]?);
        let Equations { mut h, mut g, .. } = Equations::of(seen, i, &points[i], loss)?;
        let (turn, drift) = (motion.turn - path.motion.turn, motion.drift - path.motion.drift);
        let held = Held::by(&path, noise);
        let by_picture = pace_information(&h, &path.motion);
        let by_path =
            held.turn * path.motion.turn.norm_squared() + held.drift * path.motion.drift.norm_squared();
        held.add_to(&mut h);
        for k in 0..3 {
            g[6 + k] += held.turn * turn[k];
            g[9 + k] += held.drift * drift[k];
        }
        let step = h.cholesky()?.solve(&g);
        let motion = Motion {
            turn: motion.turn - step.fixed_rows::<3>(6),
            drift: motion.drift - step.fixed_rows::<3>(9),
        };
        Some((motion, by_picture / (by_picture + by_path).max(f64::MIN_POSITIVE)))
    };
    // A frame that cannot be solved keeps what it had.
    let solved = |i: usize| own(i).map_or((motions[i], 0.0), |(motion, told)| (Some(motion), told));
    let (motions, told) = (0..map.poses.len()).into_par_iter().map(solved).unzip();
    OwnMotions { motions, told }
}

/// How many times as large the standard deviations of the principal point (across, down) are with the motions of the frames unknown,
/// as the path holds them, as with known ones. Poses are free, points are where they are.
///
/// What a principal point beside the middle does to a picture that its pose does not take back looks much like a motion: the
/// estimates of both go together, and neither knows.
pub(super) fn centre_looseness(
    seen: Seen<'_>,
    path: &[Option<PathMotion>],
    loss: Loss,
    noise: f64,
) -> [f64; 2] {
    let points = points_by_image(seen.map);
    let told = |i: usize| -> Option<[[f64; 2]; 2]> {
        let Equations { mut h, by_centre, of_centre, .. } = Equations::of(seen, i, &points[i], loss)?;
        Held::by(&path[i]?, noise).add_to(&mut h);
        let of_pose = h.fixed_view::<6, 6>(0, 0).into_owned().cholesky()?;
        let pose_takes = of_pose.solve(&by_centre.fixed_rows::<6>(0).into_owned());
        let all_take = h.cholesky()?.solve(&by_centre);
        let left = |k: usize| {
            let pose = by_centre.column(k).rows(0, 6).dot(&pose_takes.column(k));
            [of_centre - pose, of_centre - by_centre.column(k).dot(&all_take.column(k))]
        };
        Some([left(0), left(1)])
    };
    let told: Vec<[[f64; 2]; 2]> = (0..seen.map.poses.len()).into_par_iter().filter_map(told).collect();
    [0, 1].map(|k| {
        let sum = |which: usize| told.iter().map(|t| t[k][which].max(0.0)).sum::<f64>();
        (sum(0) / sum(1).max(f64::MIN_POSITIVE)).sqrt().clamp(1.0, 1e3)
    })
}

/// The points that each image sees, and its keypoints of them.
fn points_by_image(map: &Map) -> Vec<Vec<(Vector3<f64>, u32)>> {
    let mut points: Vec<Vec<(Vector3<f64>, u32)>> = vec![Vec::new(); map.poses.len()];
    for point in &map.points {
        for o in &point.track {
            points[o.image as usize].push((point.xyz, o.keypoint));
        }
    }
    points
}

/// The normal equations of a frame: of its pose (rotation, centre) and of its motion (turn, drift).
struct Equations {
    h: SMatrix<f64, 12, 12>,
    g: SVector<f64, 12>,
    /// Both by the principal point, ...
    by_centre: SMatrix<f64, 12, 2>,
    /// ... and what pictures tell of either of its coordinates, all else known.
    of_centre: f64,
}

impl Equations {
    /// Those of image `i`, which sees these points; `None` without a pose.
    fn of(seen: Seen<'_>, i: usize, points: &[(Vector3<f64>, u32)], loss: Loss) -> Option<Self> {
        let Seen { map, measured, corrected, readout, .. } = seen;
        let projector = Projector::new(&map.camera);
        let extrinsics = Extrinsics::from_pose(&map.poses[i]?);
        let mut of =
            Self { h: SMatrix::zeros(), g: SVector::zeros(), by_centre: SMatrix::zeros(), of_centre: 0.0 };
        for (xyz, keypoint) in points {
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
                of.h.ger(weight, &j, &j, 1.0);
                of.g.axpy(weight * l.residual[r], &j, 1.0);
                of.by_centre.column_mut(r).axpy(weight, &j, 1.0);
            }
            of.of_centre += weight;
        }
        Some(of)
    }
}

/// How firmly the path holds the components of a motion, in units of the normal equations.
struct Held {
    turn: f64,
    drift: f64,
}

impl Held {
    fn by(path: &PathMotion, noise: f64) -> Self {
        let firmly = |variance: f64| noise * noise / variance.max(f64::MIN_POSITIVE);
        Self { turn: firmly(path.turn_variance), drift: firmly(path.drift_variance) }
    }

    /// Adds it to the equations, with what makes them regular.
    fn add_to(&self, h: &mut SMatrix<f64, 12, 12>) {
        for k in 0..3 {
            h[(6 + k, 6 + k)] += self.turn;
            h[(9 + k, 9 + k)] += self.drift;
        }
        for k in 0..12 {
            h[(k, k)] *= 1.0 + 1e-9;
        }
    }
}

/// What a picture tells of the pace of this motion if its pose is free, from the normal equations of pose and motion.
fn pace_information(h: &SMatrix<f64, 12, 12>, motion: &Motion) -> f64 {
    let along = SVector::<f64, 6>::from_fn(|k, _| if k < 3 { motion.turn[k] } else { motion.drift[k - 3] });
    let crossed = h.fixed_view::<6, 6>(0, 6) * along;
    let own = along.dot(&(h.fixed_view::<6, 6>(6, 6) * along));
    let of_pose = h.fixed_view::<6, 6>(0, 0).into_owned();
    of_pose.cholesky().map_or(0.0, |c| (own - crossed.dot(&c.solve(&crossed))).max(0.0))
}

/// How much faster frames move than their `path` says. Compared are means over neighbouring frames: of quick motions a path
/// through the frames shows too little.
///
/// The deviation is that of a ratio of sums from blocks of samples (a sandwich, clustered: Cameron & Miller, "A
/// practitioner's guide to cluster-robust inference", J. of Human Resources 2015): the noise of the keypoints
/// is the lesser part of it, how little the poses of frames tell of the motion at them the greater.
pub(super) fn pace(path: &[Option<PathMotion>], own: &OwnMotions) -> Pace {
    let frames = path.iter().zip(&own.motions).zip(&own.told);
    let all: Vec<Option<(PathMotion, Motion, f64)>> =
        frames.map(|((p, m), told)| (*p).zip(*m).map(|(p, m)| (p, m, *told))).collect();
    let mut samples = Vec::new();
    for window in all.windows(MEANS.len()) {
        let Some(window) = window.iter().copied().collect::<Option<Vec<_>>>() else { continue };
        let mean = |of: fn(&(PathMotion, Motion, f64)) -> Vector3<f64>| -> Vector3<f64> {
            window.iter().zip(MEANS).map(|(w, weight)| weight * of(w)).sum()
        };
        let (_, _, told) = window[MEANS.len() / 2];
        let (mut both, mut own) = (0.0, 0.0);
        let (path, found) = (mean(|w| w.0.motion.turn), mean(|w| w.1.turn));
        let weight = 1.0 / window[MEANS.len() / 2].0.turn_variance.max(f64::MIN_POSITIVE);
        both += weight * path.dot(&found);
        own += weight * path.norm_squared();
        let (path, found) = (mean(|w| w.0.motion.drift), mean(|w| w.1.drift));
        let weight = 1.0 / window[MEANS.len() / 2].0.drift_variance.max(f64::MIN_POSITIVE);
        both += weight * path.dot(&found);
        own += weight * path.norm_squared();
        samples.push(Sample { both, own, told });
    }
    Pace::of(&samples)
}

/// What some neighbouring frames say of the pace: the sums of products of both motions, and of squares of the path's.
struct Sample {
    both: f64,
    own: f64,
    told: f64,
}

impl Pace {
    fn of(samples: &[Sample]) -> Self {
        let sum = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>();
        let (both, own) = (sum(|s| s.both), sum(|s| s.own));
        if !(both > 0.0 && own > 0.0) {
            return Self { factor: 1.0, deviation: None };
        }
        let factor = both / own;
        let block = (samples.len() / FEWEST_BLOCKS).clamp(1, BLOCK);
        let off = |block: &[Sample]| block.iter().map(|s| s.both - factor * s.own).sum::<f64>().powi(2);
        let blocks = samples.chunks(block).map(off);
        let count = blocks.len() as f64;
        let squares: f64 = blocks.sum();
        // Where the path holds a motion, it differs from the path's by less than it should.
        let told = sum(|s| s.told * s.own);
        let variance = squares / (told * told) * count / (count - 1.0);
        Self { factor, deviation: variance.is_finite().then(|| variance.sqrt()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Samples whose own pace differs by this much from block to block, `told` of which is seen.
    fn samples(spread: f64, told: f64, seed: u64) -> Vec<Sample> {
        let mut random = Random::new(seed);
        let mut all = Vec::new();
        for _ in 0..20 {
            let pace = 1.0 + told * spread * random.normal();
            all.extend((0..BLOCK).map(|_| Sample { both: 2.0 * pace, own: 2.0, told }));
        }
        all
    }

    #[test]
    fn the_deviation_of_the_pace_is_that_of_many_films() {
        for told in [1.0, 0.4] {
            let paces: Vec<Pace> = (0..400).map(|seed| Pace::of(&samples(0.3, told, seed))).collect();
            let count = paces.len() as f64;
            // As far as the path lets it be seen: rounds of adjustment multiply what is left.
            let scatter = paces.iter().map(|p| ((p.factor - 1.0) / told).powi(2)).sum::<f64>() / count;
            let said = paces.iter().map(|p| p.deviation.unwrap().powi(2)).sum::<f64>() / count;
            assert!((said / scatter - 1.0).abs() < 0.2, "{} said, {} true", said.sqrt(), scatter.sqrt());
        }
        assert_eq!(Pace::of(&[]), Pace { factor: 1.0, deviation: None });
        assert_eq!(Pace::of(&samples(0.0, 0.0, 1)).deviation, None);
    }
}
