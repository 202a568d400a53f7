//! How much of the pairwise evidence the finished map agrees with: finds images that sit in the wrong place and maps
//! that hang together by nothing.

use nalgebra::Vector3;
use rayon::prelude::*;

use super::geometry::epipolar_angle;
use super::map::{Keypoints, Map, Observation, angle_of_pixels};
use super::rig::Rig;
use super::scale_averaging::components;
use super::triangulation::world_rays;
use super::two_view::TwoViewGeometry;

/// Verified inlier matches and how many of them agree with the poses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Support {
    pub(crate) matches: usize,
    pub(crate) agreeing: usize,
}

impl Support {
    /// Fraction that agrees; 1 if there is nothing to agree with.
    pub(crate) fn ratio(&self) -> f64 {
        if self.matches == 0 { 1.0 } else { self.agreeing as f64 / self.matches as f64 }
    }
}

/// Support of every pair (an image without a pose: no matches). A match agrees if both rays are within `max_error`
/// pixels of the other's epipolar plane and the point where they meet is in front of both cameras.
pub(crate) fn support_of_pairs(
    map: &Map,
    keypoints: &Keypoints,
    pairs: &[TwoViewGeometry],
    max_error: f64,
) -> Vec<Support> {
    let rays = world_rays(map, keypoints);
    pairs
        .par_iter()
        .map(|pair| {
            let (i, j) = (pair.first as usize, pair.second as usize);
            let (Some(a), Some(b)) = (map.poses[i], map.poses[j]) else { return Support::default() };
            let baseline = b.centre() - a.centre();
            let limit = angle_of_pixels(map, max_error, i, j);
            let agrees = |m: &&[u32; 2]| {
                let (ra, rb) = (&rays[i][m[0] as usize], &rays[j][m[1] as usize]);
                epipolar_angle(ra, rb, &baseline) <= limit && in_front(ra, rb, &baseline, limit)
            };
            Support { matches: pair.inliers.len(), agreeing: pair.inliers.iter().filter(agrees).count() }
        })
        .collect()
}

/// Whether two rays meet ahead of both cameras, or are parallel within `limit`.
fn in_front(a: &Vector3<f64>, b: &Vector3<f64>, baseline: &Vector3<f64>, limit: f64) -> bool {
    let c = a.dot(b);
    let (wa, wb) = (baseline.dot(a), baseline.dot(b));
    let sine = a.cross(b).norm();
    sine < 2.0 * limit || (wa - c * wb > 0.0 && c * wa - wb > 0.0)
}

/// Support of every station: the sum over the pairs of its images.
pub(crate) fn support_of_stations(rig: &Rig, pairs: &[TwoViewGeometry], support: &[Support]) -> Vec<Support> {
    let mut sums = vec![Support::default(); rig.stations()];
    for (pair, s) in pairs.iter().zip(support) {
        for image in [pair.first, pair.second] {
            let sum = &mut sums[rig.station_of(image as usize)];
            sum.matches += s.matches;
            sum.agreeing += s.agreeing;
        }
    }
    sums
}

/// Support of every image: the sum over its pairs.
pub(crate) fn support_of_images(
    images: usize,
    pairs: &[TwoViewGeometry],
    support: &[Support],
) -> Vec<Support> {
    let mut sums = vec![Support::default(); images];
    for (pair, s) in pairs.iter().zip(support) {
        for image in [pair.first, pair.second] {
            sums[image as usize].matches += s.matches;
            sums[image as usize].agreeing += s.agreeing;
        }
    }
    sums
}

/// Registered images in groups whose stations share at least `min_points` points pair by pair (transitively), largest
/// first. More than one group means that scale or place of one group against the other is known by chance only.
pub(crate) fn rigid_groups(map: &Map, min_points: usize) -> Vec<Vec<usize>> {
    let stations = map.rig.stations();
    let mut shared = vec![0u32; stations * stations];
    for point in &map.points {
        // Tracks are ordered by image, so their stations are in order, too.
        let seen = |o: &Observation| map.rig.station_of(o.image as usize);
        for (k, a) in point.track.iter().enumerate() {
            for b in &point.track[k + 1..] {
                shared[seen(a) * stations + seen(b)] += 1;
            }
        }
    }
    let links: Vec<(usize, usize)> = (0..stations * stations)
        .filter(|&k| shared[k] as usize >= min_points)
        .map(|k| (k / stations, k % stations))
        .collect();
    let component = components(stations, &links);
    let mut groups = vec![Vec::new(); stations];
    for i in (0..map.poses.len()).filter(|&i| map.poses[i].is_some()) {
        groups[component[map.rig.station_of(i)]].push(i);
    }
    groups.retain(|g| !g.is_empty());
    groups.sort_by_key(|g| (std::cmp::Reverse(g.len()), g[0]));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn a_misplaced_image_loses_its_support() {
        let capture = Capture::orbit(12, 400, 0.3, 5);
        let pairs = capture.pairs(4);
        let mut map = capture.true_map();
        let right = support_of_pairs(&map, &capture.keypoints, &pairs, 4.0);
        assert!(right.iter().all(|s| s.ratio() > 0.95));
        let pose = map.poses[6].unwrap();
        map.poses[6] = Some(Pose::from_centre(pose.rotation, &(pose.centre() * 1.4)));
        let wrong = support_of_pairs(&map, &capture.keypoints, &pairs, 4.0);
        let images = support_of_images(12, &pairs, &wrong);
        let worst = (0..12).min_by(|&a, &b| images[a].ratio().total_cmp(&images[b].ratio())).unwrap();
        assert_eq!(worst, 6);
        assert!(images[6].ratio() < 0.5, "{:?}", images[6]);
    }

    #[test]
    fn two_pieces_are_told_apart() {
        let capture = Capture::orbit(12, 400, 0.0, 5);
        let mut map = capture.true_map_with_points();
        assert_eq!(rigid_groups(&map, 10).len(), 1);
        map.points.retain(|p| p.track.iter().all(|o| o.image < 5) || p.track.iter().all(|o| o.image >= 5));
        let groups = rigid_groups(&map, 10);
        assert_eq!(groups, vec![(5..12).collect::<Vec<_>>(), (0..5).collect()]);
    }
}
