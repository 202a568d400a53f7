//! Keypoints as a global shutter would have shown them.

use std::collections::BTreeMap;

use nalgebra::{UnitQuaternion, Vector2, Vector3};
use rayon::prelude::*;

use crate::camera::{Camera, Pose, Readout};
use crate::fiducial::{Tag, Tags};
use crate::sfm::map::{Keypoints, Map, MapPoint, Observation};
use crate::sfm::triangulation::{TriangulationOptions, triangulate_tracks};
use crate::statistics::median;

use super::motion::Motion;

/// By image and keypoint.
pub(super) type Corrected = Vec<Vec<Vector2<f64>>>;

/// Step of the readout time over which keypoints are taken to move evenly, seconds.
const STEP: f64 = 1e-3;
/// Keypoints whose median depth is that of a tag. Chosen by hand.
const AROUND_TAG: usize = 9;
/// Sightings of a tag meet if they are off by no more than this (pixels; its middle is not measured exactly), ...
const TAG_ERROR: f64 = 8.0;
/// ... from directions that differ by this (radians). Both chosen by hand.
const TAG_ANGLE: f64 = 0.0175;

/// Distances of what the keypoints show from the plane of their camera, by image and keypoint: those of the map's
/// points, of `others` where a keypoint belongs to none, and the median of the image elsewhere.
pub(super) fn depths(map: &Map, others: &[MapPoint], keypoints: &Keypoints) -> Vec<Vec<f64>> {
    let mut depths: Vec<Vec<f64>> = keypoints.iter().map(|k| vec![f64::NAN; k.len()]).collect();
    for point in others.iter().chain(&map.points) {
        for o in &point.track {
            if let Some(pose) = &map.poses[o.image as usize] {
                let depth = pose.transform(&point.xyz).z;
                if depth > 0.0 {
                    depths[o.image as usize][o.keypoint as usize] = depth;
                }
            }
        }
    }
    for image in &mut depths {
        let mut known: Vec<f64> = image.iter().copied().filter(|d| d.is_finite()).collect();
        let usual = median(&mut known).unwrap_or(1.0);
        image.iter_mut().filter(|d| d.is_nan()).for_each(|d| *d = usual);
    }
    depths
}

/// What a pixel shows, in the camera at the moment when its line is read.
struct Sighting {
    pixel: Vector2<f64>,
    seen: Vector3<f64>,
    /// When that is, in readout times after the middle of the picture.
    phase: f64,
}

impl Sighting {
    /// What is seen at `pixel` and this depth.
    fn new(camera: &Camera, readout: &Readout, pixel: &Vector2<f64>, depth: f64) -> Self {
        let plane = camera.unproject(pixel);
        let seen = depth * Vector3::new(plane.x, plane.y, 1.0);
        Self { pixel: *pixel, seen, phase: readout.phase(pixel, camera) }
    }

    /// Where it would be seen had all lines been read at the moment of the middle one, if the readout takes so many seconds.
    fn corrected(&self, map: &Map, pose: &Pose, motion: &Motion, seconds: f64) -> Vector2<f64> {
        let time = seconds * self.phase;
        let turn = UnitQuaternion::from_scaled_axis(-time * motion.turn);
        let at_middle = turn * self.seen + time * (pose.rotation * motion.drift);
        map.camera.project(&at_middle).unwrap_or(self.pixel)
    }
}

/// Where `pixel`, seen at `depth`, would be had all lines been read at the moment of the middle one.
fn corrected(
    map: &Map,
    pose: &Pose,
    motion: &Motion,
    readout: &Readout,
    pixel: &Vector2<f64>,
    depth: f64,
) -> Vector2<f64> {
    Sighting::new(&map.camera, readout, pixel, depth).corrected(map, pose, motion, readout.seconds)
}

/// All keypoints corrected.
pub(super) fn correct_keypoints(
    map: &Map,
    keypoints: &Keypoints,
    depths: &[Vec<f64>],
    motions: &[Option<Motion>],
    readout: &Readout,
) -> Corrected {
    let image = |i: usize| -> Vec<Vector2<f64>> {
        let (Some(pose), Some(motion)) = (map.poses[i], motions[i]) else { return keypoints[i].clone() };
        let seen = keypoints[i].iter().zip(&depths[i]);
        seen.map(|(pixel, &depth)| corrected(map, &pose, &motion, readout, pixel, depth)).collect()
    };
    (0..keypoints.len()).into_par_iter().map(image).collect()
}

/// All keypoints corrected, and how they move with the readout time, pixels per second.
pub(super) fn correct_keypoints_with_slopes(
    map: &Map,
    keypoints: &Keypoints,
    depths: &[Vec<f64>],
    motions: &[Option<Motion>],
    readout: &Readout,
) -> (Corrected, Corrected) {
    let image = |i: usize| -> (Vec<Vector2<f64>>, Vec<Vector2<f64>>) {
        let (Some(pose), Some(motion)) = (map.poses[i], motions[i]) else {
            return (keypoints[i].clone(), vec![Vector2::zeros(); keypoints[i].len()]);
        };
        keypoints[i]
            .iter()
            .zip(&depths[i])
            .map(|(pixel, &depth)| {
                let sighting = Sighting::new(&map.camera, readout, pixel, depth);
                let at = |seconds| sighting.corrected(map, &pose, &motion, seconds);
                let now = at(readout.seconds);
                (now, (at(readout.seconds + STEP) - now) / STEP)
            })
            .unzip()
    };
    (0..keypoints.len()).into_par_iter().map(image).unzip()
}

/// Root mean square of the shift of the keypoints that are in tracks of `map`, pixels.
pub(super) fn rms(map: &Map, keypoints: &Keypoints, corrected: &Keypoints) -> f64 {
    let shift = |o: &Observation| {
        let (image, keypoint) = (o.image as usize, o.keypoint as usize);
        (corrected[image][keypoint] - keypoints[image][keypoint]).norm_squared()
    };
    let squares: f64 = map.points.iter().flat_map(|p| &p.track).map(shift).sum();
    (squares / map.observations().max(1) as f64).sqrt()
}

/// The corners of `tags` corrected. A tag is where its sightings meet; one by itself is as far away as the keypoints near
/// to it.
pub(super) fn correct_tags(
    map: &Map,
    keypoints: &Keypoints,
    depths: &[Vec<f64>],
    motions: &[Option<Motion>],
    readout: &Readout,
    tags: &Tags,
) -> Tags {
    let middle = |tag: &Tag| tag.corners.map(Vector2::from).iter().sum::<Vector2<f64>>() / 4.0;
    let mut tag_depths: Vec<Vec<f64>> = vec![Vec::new(); map.poses.len()];
    let mut middles: Corrected = vec![Vec::new(); map.poses.len()];
    let mut tracks: BTreeMap<u32, Vec<Observation>> = BTreeMap::new();
    for (i, frame) in tags.frames.iter().enumerate().take(map.poses.len()) {
        let (Some(pose), Some(motion)) = (&map.poses[i], &motions[i]) else { continue };
        for (k, tag) in frame.tags.iter().enumerate() {
            let middle = middle(tag);
            let depth = depth_near(&middle, &keypoints[i], &depths[i]);
            middles[i].push(corrected(map, pose, motion, readout, &middle, depth));
            tag_depths[i].push(depth);
            let track = tracks.entry(tag.id).or_default();
            if track.last().is_none_or(|o| o.image as usize != i) {
                track.push(Observation::new(i as u32, k as u32));
            }
        }
    }
    let tracks: Vec<Vec<Observation>> = tracks.into_values().collect();
    let limits = TriangulationOptions { max_error: TAG_ERROR, min_angle: TAG_ANGLE };
    for point in triangulate_tracks(map, &middles, &tracks, &limits) {
        for o in &point.track {
            if let Some(pose) = &map.poses[o.image as usize] {
                tag_depths[o.image as usize][o.keypoint as usize] = pose.transform(&point.xyz).z;
            }
        }
    }
    let mut tags = tags.clone();
    for (i, frame) in tags.frames.iter_mut().enumerate().take(map.poses.len()) {
        let (Some(pose), Some(motion)) = (&map.poses[i], &motions[i]) else { continue };
        for (tag, &depth) in frame.tags.iter_mut().zip(&tag_depths[i]) {
            let correct = |c: [f64; 2]| corrected(map, pose, motion, readout, &c.into(), depth).into();
            tag.corners = tag.corners.map(correct);
        }
    }
    tags
}

/// The median depth of the keypoints nearest to `place`.
fn depth_near(place: &Vector2<f64>, keypoints: &[Vector2<f64>], depths: &[f64]) -> f64 {
    let mut near: Vec<(f64, f64)> =
        keypoints.iter().zip(depths).map(|(k, &d)| ((k - place).norm_squared(), d)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut around: Vec<f64> = near.iter().take(AROUND_TAG).map(|n| n.1).collect();
    median(&mut around).unwrap_or(1.0)
}
