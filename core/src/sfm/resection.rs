//! Placing an image into an existing map: absolute pose from the scene points that its keypoints match.

use std::collections::BTreeMap;

use nalgebra::{Vector2, Vector3};
use rayon::prelude::*;

use crate::camera::{Camera, Pose};
use crate::defaults::with_defaults;
use crate::random::{Random, hash};

use super::map::{Keypoints, Map, Observation};
use super::matching::PairMatches;
use super::projection::{Extrinsics, Loss, Projector};
use super::two_view::TwoViewGeometry;
use super::two_view::p3p::p3p;

with_defaults! {
    /// When an image counts as placed. The fraction of inliers is COLMAP's (`abs_pose_min_inlier_ratio`); the rest was
    /// chosen by hand.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct ResectionOptions {
        /// Largest reprojection error of an inlier in pixels.
        pub(crate) max_error: f64 = 4.0,
        /// Fewest inliers.
        pub(crate) min_inliers: usize = 15,
        /// Smallest fraction of inliers.
        pub(crate) min_inlier_ratio: f64 = 0.25,
        /// Random samples after which the search ends.
        pub(crate) max_samples: usize = 3000,
        /// Probability with which it is to have met a sample without outliers.
        pub(crate) confidence: f64 = 0.9999,
        /// Seed of the random samples.
        pub(crate) seed: u64 = 0,
    }
}

/// Marks a keypoint that belongs to no point.
pub(crate) const NO_POINT: u32 = u32::MAX;

/// The point of every keypoint, by image.
pub(crate) fn points_of_keypoints(map: &Map, keypoints: &Keypoints) -> Vec<Vec<u32>> {
    let mut of: Vec<Vec<u32>> = keypoints.iter().map(|image| vec![NO_POINT; image.len()]).collect();
    for (p, point) in map.points.iter().enumerate() {
        for o in &point.track {
            of[o.image as usize][o.keypoint as usize] = p as u32;
        }
    }
    of
}

/// (other image, matches, whether the image is the first of the pair)
type Neighbour<'a> = (u32, &'a [[u32; 2]], bool);

/// Matches by image, so that the neighbours of one image are found at once.
pub(crate) struct MatchIndex<'a> {
    by_image: Vec<Vec<Neighbour<'a>>>,
}

impl<'a> MatchIndex<'a> {
    fn build(images: usize, pairs: impl Iterator<Item = (u32, u32, &'a [[u32; 2]])>) -> Self {
        let mut by_image = vec![Vec::new(); images];
        for (first, second, matches) in pairs {
            by_image[first as usize].push((second, matches, true));
            by_image[second as usize].push((first, matches, false));
        }
        Self { by_image }
    }

    /// Inlier matches of verified pairs.
    pub(crate) fn of_verified(images: usize, pairs: &'a [TwoViewGeometry]) -> Self {
        Self::build(images, pairs.iter().map(|p| (p.first, p.second, p.inliers.as_slice())))
    }

    /// All candidate matches.
    pub(crate) fn of_candidates(images: usize, pairs: &'a [PairMatches]) -> Self {
        Self::build(images, pairs.iter().map(|p| (p.first, p.second, p.matches.as_slice())))
    }

    /// (keypoint of `image`, point) for every keypoint that matches an observation of a point, ordered by keypoint.
    /// Where matches name several points for a keypoint, the one named most often counts.
    pub(crate) fn visible_points(&self, points: &[Vec<u32>], image: usize) -> Vec<(u32, u32)> {
        let mut named: Vec<(u32, u32)> = Vec::new();
        for &(other, matches, is_first) in &self.by_image[image] {
            let of = &points[other as usize];
            for m in matches {
                let (own, theirs) = if is_first { (m[0], m[1]) } else { (m[1], m[0]) };
                if of[theirs as usize] != NO_POINT {
                    named.push((own, of[theirs as usize]));
                }
            }
        }
        named.sort_unstable();
        let mut visible: Vec<(u32, u32)> = Vec::new();
        let mut best = 0;
        for run in named.chunk_by(|a, b| a == b) {
            match visible.last_mut() {
                Some(last) if last.0 == run[0].0 => {
                    if run.len() > best {
                        *last = run[0];
                        best = run.len();
                    }
                }
                _ => {
                    visible.push(run[0]);
                    best = run.len();
                }
            }
        }
        visible
    }
}

/// An image that was placed.
pub(crate) struct Placed {
    pub(crate) image: usize,
    pub(crate) pose: Pose,
    /// (keypoint, point) of the inliers.
    pub(crate) inliers: Vec<(u32, u32)>,
}

/// Tries to place `images` (which have no pose) by the points that `matches` connect them with. The result is in the
/// order of `images`; `map` is not changed.
pub(crate) fn place_images(
    map: &Map,
    keypoints: &Keypoints,
    matches: &MatchIndex<'_>,
    images: &[usize],
    options: &ResectionOptions,
) -> Vec<Placed> {
    let points = points_of_keypoints(map, keypoints);
    images
        .par_iter()
        .filter_map(|&image| {
            let visible = matches.visible_points(&points, image);
            let camera = map.camera_of(image);
            let (pose, inliers) = place_image(map, camera, &keypoints[image], &visible, image, options)?;
            Some(Placed { image, pose, inliers })
        })
        .collect()
}

/// The pose from which `camera` sees the points where `pixels`, the keypoints of `image`, are; with the (keypoint, point) that agree.
/// `None` if too few do.
pub(crate) fn place_image(
    map: &Map,
    camera: &Camera,
    pixels: &[Vector2<f64>],
    visible: &[(u32, u32)],
    image: usize,
    options: &ResectionOptions,
) -> Option<(Pose, Vec<(u32, u32)>)> {
    if visible.len() < options.min_inliers {
        return None;
    }
    let seen: Vec<Vector2<f64>> = visible.iter().map(|&(k, _)| pixels[k as usize]).collect();
    let points: Vec<Vector3<f64>> = visible.iter().map(|&(_, p)| map.points[p as usize].xyz).collect();
    let projector = Projector::new(camera);
    let rays: Vec<Vector3<f64>> = seen.iter().map(|p| camera.ray(p)).collect();
    let start = sample_pose(&projector, &seen, &rays, &points, options, hash(options.seed ^ image as u64))?;
    let pose = refine_pose(&projector, start, &seen, &points, options.max_error);
    let extrinsics = Extrinsics::from_pose(&pose);
    let inliers: Vec<(u32, u32)> = (0..visible.len())
        .filter(|&k| {
            projector
                .residual(&extrinsics, &points[k].into(), &seen[k].into())
                .is_some_and(|r| r[0].hypot(r[1]) <= options.max_error)
        })
        .map(|k| visible[k])
        .collect();
    let enough = inliers.len() >= options.min_inliers
        && inliers.len() as f64 >= options.min_inlier_ratio * visible.len() as f64
        && pose.is_finite();
    enough.then_some((pose, inliers))
}

/// The pose that most points agree with, by random samples of three (P3P) scored by truncated squared errors; every new
/// best pose is refined at once.
fn sample_pose(
    projector: &Projector,
    pixels: &[Vector2<f64>],
    rays: &[Vector3<f64>],
    points: &[Vector3<f64>],
    options: &ResectionOptions,
    seed: u64,
) -> Option<Pose> {
    let count = pixels.len();
    let limit = options.max_error * options.max_error;
    let score = |pose: &Pose| {
        let extrinsics = Extrinsics::from_pose(pose);
        let (mut cost, mut inliers) = (0.0, 0usize);
        for (pixel, point) in pixels.iter().zip(points) {
            let squared = projector
                .residual(&extrinsics, &(*point).into(), &(*pixel).into())
                .map_or(limit, |r| (r[0] * r[0] + r[1] * r[1]).min(limit));
            cost += squared;
            inliers += usize::from(squared < limit);
        }
        (cost, inliers)
    };
    let mut random = Random::new(seed);
    let mut best: Option<(f64, Pose)> = None;
    let mut solutions = Vec::with_capacity(4);
    let (mut drawn, mut needed) = (0, options.max_samples);
    while drawn < needed {
        drawn += 1;
        let sample = [random.below(count), random.below(count), random.below(count)];
        if sample[0] == sample[1] || sample[1] == sample[2] || sample[0] == sample[2] {
            continue;
        }
        p3p(&sample.map(|k| rays[k]), &sample.map(|k| points[k]), &mut solutions);
        for pose in solutions.drain(..) {
            if best.as_ref().is_some_and(|(lowest, _)| score(&pose).0 >= *lowest) {
                continue;
            }
            let refined = refine_pose(projector, pose, pixels, points, options.max_error);
            let (mut chosen, mut result) = (pose, score(&pose));
            let (cost, inliers) = score(&refined);
            if cost < result.0 {
                (chosen, result) = (refined, (cost, inliers));
            }
            best = Some((result.0, chosen));
            let ratio = (result.1 as f64 / count as f64).max(options.min_inlier_ratio);
            let misses = (1.0 - ratio.powi(3)).max(1e-12).ln();
            needed = needed.min(((1.0 - options.confidence).ln() / misses).ceil() as usize).max(20);
        }
    }
    best.map(|(_, pose)| pose)
}

/// Gauss-Newton on the reprojection error of one image with the points held.
fn refine_pose(
    projector: &Projector,
    start: Pose,
    pixels: &[Vector2<f64>],
    points: &[Vector3<f64>],
    max_error: f64,
) -> Pose {
    let loss = Loss::Cauchy(0.5 * max_error);
    let mut pose = start;
    for _ in 0..10 {
        let extrinsics = Extrinsics::from_pose(&pose);
        let mut h = nalgebra::Matrix6::<f64>::zeros();
        let mut g = nalgebra::Vector6::<f64>::zeros();
        for (pixel, point) in pixels.iter().zip(points) {
            let Some(l) = projector.linearise(&extrinsics, &(*point).into(), &(*pixel).into()) else {
                continue;
            };
            let weight = loss.at(l.residual[0].powi(2) + l.residual[1].powi(2)).1;
            for r in 0..2 {
                let (w, q) = (&l.by_rotation[r], &l.by_point[r]);
                let j = nalgebra::Vector6::new(w[0], w[1], w[2], -q[0], -q[1], -q[2]);
                h += weight * j * j.transpose();
                g += weight * l.residual[r] * j;
            }
        }
        for k in 0..6 {
            h[(k, k)] *= 1.0 + 1e-9;
        }
        let Some(chol) = h.cholesky() else { break };
        let step = chol.solve(&g);
        let turn = nalgebra::UnitQuaternion::from_scaled_axis(-step.fixed_rows::<3>(0).into_owned());
        let centre = pose.centre() - step.fixed_rows::<3>(3);
        pose = Pose::from_centre(turn * pose.rotation, &centre);
        if step.norm_squared() < 1e-20 {
            break;
        }
    }
    pose
}

/// Puts placed images into the map: pose, and observations of the points that they agree with.
pub(crate) fn insert(map: &mut Map, placed: &[Placed]) {
    // Of a station the image that is placed best says where it is.
    let mut best: BTreeMap<usize, &Placed> = BTreeMap::new();
    for image in placed {
        let of_station = best.entry(map.rig.station_of(image.image)).or_insert(image);
        if image.inliers.len() > of_station.inliers.len() {
            *of_station = image;
        }
    }
    for image in best.into_values() {
        map.register(image.image, &image.pose);
        for &(keypoint, point) in &image.inliers {
            let track = &mut map.points[point as usize].track;
            let index = image.image as u32;
            if let Err(at) = track.binary_search_by_key(&index, |o| o.image) {
                track.insert(at, Observation::new(index, keypoint));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn an_image_left_out_is_placed_by_its_neighbours() {
        let capture = Capture::orbit(12, 500, 0.3, 8);
        let pairs = capture.pairs(6);
        let mut map = capture.true_map_with_points();
        map.unregister(&[5]);
        let matches = MatchIndex::of_verified(12, &pairs);
        let options = ResectionOptions::default();
        let placed = place_images(&map, &capture.keypoints, &matches, &[5], &options);
        assert_eq!(placed.len(), 1);
        let error = (placed[0].pose.centre() - capture.poses[5].centre()).norm();
        assert!(error < 0.01, "{error}");
        insert(&mut map, &placed);
        assert!(map.observations_by_image()[5] > 50);
        assert!(map.points.iter().all(|p| p.track.is_sorted()));
    }

    #[test]
    fn an_image_of_something_else_is_not_placed() {
        let capture = Capture::orbit(12, 500, 0.3, 8);
        let mut pairs = capture.pairs(6);
        for pair in &mut pairs {
            if pair.first == 5 || pair.second == 5 {
                let side = usize::from(pair.second == 5);
                let count = pair.inliers.len();
                let shuffled: Vec<u32> =
                    (0..count).map(|k| pair.inliers[(7 * k + 3) % count][side]).collect();
                pair.inliers.iter_mut().zip(shuffled).for_each(|(m, k)| m[side] = k);
            }
        }
        let mut map = capture.true_map_with_points();
        map.unregister(&[5]);
        let matches = MatchIndex::of_verified(12, &pairs);
        let options = ResectionOptions::default();
        assert!(place_images(&map, &capture.keypoints, &matches, &[5], &options).is_empty());
    }
}
