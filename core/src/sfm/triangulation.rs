//! Scene points from tracks when the poses are known.
//!
//! Robust: hypotheses from pairs of views, the one that most views agree with is refined on those by Gauss-Newton.

use std::borrow::Cow;

use nalgebra::{Matrix3, Vector2, Vector3};
use rayon::prelude::*;

use crate::camera::{Camera, Pose};
use crate::random::hash;

use super::geometry::angle_between;
use super::map::{Keypoints, Map, MapPoint, Observation};
use super::other_cameras::OtherCameras;
use super::projection::{Extrinsics, Loss, Projectors};

/// Limits of a triangulated point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TriangulationOptions {
    /// Largest reprojection error of an observation in pixels.
    pub(crate) max_error: f64,
    /// Smallest angle in radians between the two rays of some pair of observations.
    pub(crate) min_angle: f64,
}

/// A track of more pairs of observations than this is triangulated from this many of them. Chosen by hand.
const MAX_HYPOTHESES: usize = 24;
/// Gauss-Newton steps from the best of them at most. Chosen by hand.
const REFINEMENTS: usize = 4;

/// Unit view rays (camera coordinates) of all keypoints, by image.
pub(crate) fn keypoint_rays(
    camera: &Camera,
    others: &OtherCameras,
    keypoints: &Keypoints,
) -> Vec<Vec<Vector3<f64>>> {
    let of_image = |(i, pixels): (usize, &Vec<Vector2<f64>>)| {
        let camera = others.of(i).unwrap_or(camera);
        pixels.iter().map(|p| camera.ray(p)).collect()
    };
    keypoints.par_iter().enumerate().map(of_image).collect()
}

/// World-frame unit rays by image and keypoint; empty for images without a pose.
pub(crate) fn world_rays(map: &Map, keypoints: &Keypoints) -> Vec<Vec<Vector3<f64>>> {
    let turn = |(i, (pose, image)): (usize, (&Option<Pose>, &Vec<_>))| match pose {
        Some(pose) => {
            let camera = map.camera_of(i);
            let to_world = pose.rotation.inverse();
            image.iter().map(|p| to_world * camera.ray(p)).collect()
        }
        None => Vec::new(),
    };
    map.poses.par_iter().zip(keypoints).enumerate().map(turn).collect()
}

/// The cameras with what they have seen, prepared once to compare points with it.
pub(crate) struct Views<'a> {
    keypoints: &'a Keypoints,
    projectors: Projectors,
    extrinsics: Vec<Option<Extrinsics>>,
}

impl<'a> Views<'a> {
    /// From the poses and the camera of `map`.
    pub(crate) fn new(map: &Map, keypoints: &'a Keypoints) -> Self {
        let extrinsics = map.poses.iter().map(|p| p.as_ref().map(Extrinsics::from_pose)).collect();
        Self { keypoints, projectors: Projectors::new(&map.camera, &map.others), extrinsics }
    }

    /// Whether an observation's image has a pose.
    pub(crate) fn is_registered(&self, image: u32) -> bool {
        self.extrinsics[image as usize].is_some()
    }

    fn centre(&self, o: &Observation) -> Vector3<f64> {
        // Tracks given to this module hold registered images only.
        self.extrinsics[o.image as usize].as_ref().map_or_else(Vector3::zeros, |e| e.centre.into())
    }

    /// Squared reprojection error in pixels; infinite behind the camera.
    pub(crate) fn squared_error(&self, o: &Observation, x: &Vector3<f64>) -> f64 {
        let pixel = &self.keypoints[o.image as usize][o.keypoint as usize];
        self.extrinsics[o.image as usize]
            .as_ref()
            .and_then(|pose| {
                self.projectors.of(o.image as usize).residual(pose, &(*x).into(), &(*pixel).into())
            })
            .map_or(f64::INFINITY, |r| r[0] * r[0] + r[1] * r[1])
    }

    /// Sum of the squared errors of a track, each at most `limit`; `None` once it is not below `lowest`.
    fn score(&self, track: &[Observation], x: &Vector3<f64>, limit: f64, lowest: f64) -> Option<f64> {
        let mut score = 0.0;
        for o in track {
            score += self.squared_error(o, x).min(limit);
            if score >= lowest {
                return None;
            }
        }
        Some(score)
    }

    /// Largest angle between the rays from the observing cameras to `x`, in radians. Sees only pairs with the two
    /// cameras that are farthest from the first one and from each other: within a factor of two of the exact value.
    pub(crate) fn widest_angle(&self, track: &[Observation], x: &Vector3<f64>) -> f64 {
        let Some(first) = track.first() else { return 0.0 };
        let from = |o: &Observation| {
            let a = x - self.centre(o);
            track
                .iter()
                .map(|b| (angle_between(&a, &(x - self.centre(b))), b))
                .max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let far = from(first).map_or(first, |(_, o)| o);
        from(far).map_or(0.0, |(angle, _)| angle)
    }

    /// Gauss-Newton on the reprojection error of all of `track`.
    fn refine(&self, track: &[Observation], start: Vector3<f64>, max_error: f64) -> Vector3<f64> {
        let loss = Loss::Huber(0.5 * max_error);
        let mut x = start;
        for _ in 0..REFINEMENTS {
            let mut h = Matrix3::zeros();
            let mut g = Vector3::zeros();
            for o in track {
                let pixel = self.keypoints[o.image as usize][o.keypoint as usize];
                let Some(pose) = &self.extrinsics[o.image as usize] else { continue };
                let projector = self.projectors.of(o.image as usize);
                let Some(l) = projector.linearise(pose, &x.into(), &pixel.into()) else { continue };
                l.add_to_point(loss, &mut h, &mut g);
            }
            let floor = 1e-12 * h.trace();
            let Some(chol) = (h + Matrix3::from_diagonal_element(floor)).cholesky() else { break };
            let step = chol.solve(&g);
            x -= step;
            if step.norm_squared() < 1e-20 * x.norm_squared() {
                break;
            }
        }
        x
    }
}

/// The cameras with the rays of their keypoints, prepared once to find points.
pub(crate) struct Triangulator<'a> {
    views: Views<'a>,
    /// World-frame unit rays by image and keypoint; empty for images without a pose.
    rays: Cow<'a, [Vec<Vector3<f64>>]>,
}

impl<'a> Triangulator<'a> {
    /// From the poses and the camera of `map`.
    pub(crate) fn new(map: &Map, keypoints: &'a Keypoints) -> Self {
        Self { views: Views::new(map, keypoints), rays: Cow::Owned(world_rays(map, keypoints)) }
    }

    fn ray(&self, o: &Observation) -> &Vector3<f64> {
        &self.rays[o.image as usize][o.keypoint as usize]
    }

    /// The middle of the shortest segment between the rays of two observations; `None` if they are (nearly) parallel or
    /// meet behind a camera. Also the angle between the rays.
    pub(crate) fn midpoint(&self, a: &Observation, b: &Observation) -> Option<(Vector3<f64>, f64)> {
        let (ca, cb) = (self.views.centre(a), self.views.centre(b));
        let (da, db) = (self.ray(a), self.ray(b));
        let angle = angle_between(da, db);
        let c = da.dot(db);
        let denominator = 1.0 - c * c;
        if denominator < 1e-10 {
            return None;
        }
        let w = cb - ca;
        let (wa, wb) = (w.dot(da), w.dot(db));
        let ta = (wa - c * wb) / denominator;
        let tb = (c * wa - wb) / denominator;
        (ta > 0.0 && tb > 0.0).then(|| (0.5 * (ca + ta * da + cb + tb * db), angle))
    }

    /// The point that most observations of `track` agree on, and which those are; `None` without two that agree at a
    /// sufficient angle.
    pub(crate) fn triangulate(
        &self,
        track: &[Observation],
        options: &TriangulationOptions,
    ) -> Option<MapPoint> {
        let limit = options.max_error * options.max_error;
        let mut best: Option<(f64, Vector3<f64>)> = None;
        for (a, b) in hypotheses(track) {
            let Some((x, angle)) = self.midpoint(&track[a], &track[b]) else { continue };
            if angle < 0.5 * options.min_angle {
                continue;
            }
            let lowest = best.map_or(f64::INFINITY, |(lowest, _)| lowest);
            let Some(score) = self.views.score(track, &x, limit, lowest) else { continue };
            best = Some((score, x));
            // All observations agree, and together they are off by less than one that does not would be: what is refined
            // from here is what the other hypotheses would lead to.
            if score < limit {
                break;
            }
        }
        let (_, mut x) = best?;
        let mut agreeing: Vec<Observation> = Vec::new();
        for _ in 0..2 {
            agreeing.clear();
            agreeing.extend(track.iter().filter(|o| self.views.squared_error(o, &x) < limit));
            if agreeing.len() < 2 {
                return None;
            }
            x = self.views.refine(&agreeing, x, options.max_error);
        }
        agreeing.retain(|o| self.views.squared_error(o, &x) < limit);
        let usable = agreeing.len() >= 2
            && x.iter().all(|v| v.is_finite())
            && self.views.widest_angle(&agreeing, &x) >= options.min_angle;
        usable.then_some(MapPoint { xyz: x, track: agreeing })
    }
}

/// Pairs of views of a track from which its point is guessed: those far apart in the track first, and then all of them,
/// or a fixed random choice if they are many.
fn hypotheses(track: &[Observation]) -> impl Iterator<Item = (usize, usize)> + use<> {
    let n = track.len();
    let all = n * n.saturating_sub(1) / 2 <= MAX_HYPOTHESES;
    let key = track.first().map_or(0, |o| hash(u64::from(o.image) << 32 | u64::from(o.keypoint)));
    let apart = (1..n).rev().flat_map(move |gap| (0..n - gap).map(move |a| (a, a + gap)));
    let spread = (0..MAX_HYPOTHESES / 2).map(move |k| {
        let a = k * n / (MAX_HYPOTHESES / 2);
        let b = (a + n / 2) % n.max(1);
        (a.min(b), a.max(b))
    });
    let random = (0..MAX_HYPOTHESES as u64 / 2).map(move |k| {
        let a = (hash(key ^ k) % n.max(1) as u64) as usize;
        let b = (hash(key ^ k ^ (1 << 40)) % n.max(1) as u64) as usize;
        (a.min(b), a.max(b))
    });
    let some = spread.chain(random).filter(|(a, b)| a != b);
    apart.take(if all { usize::MAX } else { 0 }).chain(some.take(if all { 0 } else { usize::MAX }))
}

/// Triangulates every track; the observations that disagree with a track's point make a point of their own if they can.
/// Observations of images without a pose are left out.
pub(crate) fn triangulate_tracks(
    map: &Map,
    keypoints: &Keypoints,
    tracks: &[Vec<Observation>],
    options: &TriangulationOptions,
) -> Vec<MapPoint> {
    triangulate_with(&Triangulator::new(map, keypoints), tracks, options)
}

/// As [`triangulate_tracks`], where `rays` are the [`world_rays`] of `map` and `keypoints`.
pub(crate) fn triangulate_tracks_with_rays(
    map: &Map,
    keypoints: &Keypoints,
    rays: &[Vec<Vector3<f64>>],
    tracks: &[Vec<Observation>],
    options: &TriangulationOptions,
) -> Vec<MapPoint> {
    let triangulator = Triangulator { views: Views::new(map, keypoints), rays: Cow::Borrowed(rays) };
    triangulate_with(&triangulator, tracks, options)
}

fn triangulate_with(
    triangulator: &Triangulator<'_>,
    tracks: &[Vec<Observation>],
    options: &TriangulationOptions,
) -> Vec<MapPoint> {
    let is_registered = |o: &Observation| triangulator.views.is_registered(o.image);
    tracks
        .par_iter()
        .map(|track| {
            let mut rest: Vec<_> = track.iter().copied().filter(is_registered).collect();
            let mut points = Vec::new();
            while rest.len() >= 2 {
                let Some(point) = triangulator.triangulate(&rest, options) else { break };
                rest.retain(|o| !point.track.contains(o));
                points.push(point);
            }
            points
        })
        .flatten_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn exact_tracks_give_exact_points_and_wrong_observations_are_left_out() {
        let capture = Capture::orbit(12, 200, 0.0, 5);
        let map = capture.true_map();
        let options = TriangulationOptions { max_error: 2.0, min_angle: 0.02 };
        let mut keypoints = capture.keypoints.clone();
        let mut tracks = capture.tracks();
        tracks.retain(|t| t.len() >= 4);
        // One observation of every track goes wrong by 30 pixels.
        for track in &tracks {
            let o = track[1];
            keypoints[o.image as usize][o.keypoint as usize].x += 30.0;
        }
        let points = triangulate_tracks(&map, &keypoints, &tracks, &options);
        assert_eq!(points.len(), tracks.len());
        for (point, track) in points.iter().zip(&tracks) {
            assert_eq!(point.track.len(), track.len() - 1);
            assert!(!point.track.contains(&track[1]));
            let truth = capture.point_of(&track[0]);
            assert!((point.xyz - truth).norm() < 1e-6, "{} and {truth}", point.xyz);
        }
    }

    #[test]
    fn two_things_joined_by_mistake_become_two_points() {
        let capture = Capture::orbit(10, 60, 0.0, 5);
        let map = capture.true_map();
        let tracks = capture.tracks();
        let (a, b) = (&tracks[0], &tracks[1]);
        let mixed: Vec<_> = a
            .iter()
            .take(3)
            .chain(b.iter().filter(|o| !a[..3].iter().any(|x| x.image == o.image)).take(4))
            .copied()
            .collect();
        let options = TriangulationOptions { max_error: 2.0, min_angle: 0.02 };
        let points = triangulate_tracks(&map, &capture.keypoints, &[mixed], &options);
        assert_eq!(points.len(), 2);
    }

    #[test]
    fn a_point_without_parallax_is_refused() {
        let capture = Capture::orbit(4, 30, 0.0, 5);
        let mut map = capture.true_map();
        let first = map.poses[0].unwrap();
        for (i, pose) in map.poses.iter_mut().flatten().enumerate() {
            let turn = nalgebra::UnitQuaternion::from_euler_angles(0.0, 0.02 * i as f64, 0.0);
            *pose = crate::camera::Pose::from_centre(turn * first.rotation, &first.centre());
        }
        let keypoints = capture.project_all(&map);
        let options = TriangulationOptions { max_error: 2.0, min_angle: 0.02 };
        assert!(triangulate_tracks(&map, &keypoints, &capture.tracks(), &options).is_empty());
    }
}
