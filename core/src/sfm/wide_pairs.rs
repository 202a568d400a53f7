//! Which pairs of a capture tell whether its camera moves and its scene has depth: the wide ones.
//!
//! Two frames that hardly differ look as if the camera had only turned, or as if all lay in one plane: what depth shifts in them stays
//! within the tolerance of a homography. Of a video with many key frames most pairs are of that kind, wherever its camera went, so a
//! share of all pairs would tell how dense the frames are. Of a few photographs nearly all pairs are wide.

use std::collections::BTreeMap;

use nalgebra::{Vector2, Vector3};

use super::two_view::TwoViewGeometry;
use crate::camera::Camera;
use crate::statistics::median;

/// From this motion on (share of the longer side of the picture) a pair is wide: a camera that moves sideways by less looks as if a lens
/// of four such sides, the longest that is tried, had turned (`gate.rs`).
const WIDE: f64 = 0.12;
/// A homography that explains a smaller share of the matches leaves depth unexplained.
const EXPLAINED: f64 = 0.8;
/// Of an image that has fewer wide pairs, its widest count: one in so many of its pairs, ...
const ONE_IN: usize = 4;
/// ... and at least so many. Chosen by hand: a frame of a long video is one of about 26 pairs, of which 18 are with frames at most 24
/// away, so that one in four are pairs with frames farther away.
const LEAST: usize = 3;

/// The pairs with inliers of `pairs` that tell most of their images, each with its weight. Every image weighs as much as any other,
/// and all together 1, so that a stretch of the capture counts by its frames, however many pairs these have. Motion is compared with the
/// size of `camera`, which made the images, or most of them.
pub(crate) fn wide_pairs<'a>(
    pairs: impl IntoIterator<Item = &'a TwoViewGeometry>,
    camera: &Camera,
) -> Vec<(&'a TwoViewGeometry, f64)> {
    let verified = pairs.into_iter().filter(|pair| !pair.inliers.is_empty());
    let mut weighed: Vec<(&TwoViewGeometry, f64)> = verified.map(|pair| (pair, 0.0)).collect();
    // What shows depth tells, however little the picture moves, as where the camera goes forward.
    let shows_depth =
        |p: &TwoViewGeometry| (p.homography_inliers as f64) < EXPLAINED * p.inliers.len() as f64;
    let width = |pair| if shows_depth(pair) { f64::INFINITY } else { motion(pair, camera) };
    let motions: Vec<f64> = weighed.iter().map(|(pair, _)| width(pair)).collect();
    // By image: where its pairs are in `weighed` and `motions`.
    let mut of_image: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (k, (pair, _)) in weighed.iter().enumerate() {
        of_image.entry(pair.first).or_default().push(k);
        of_image.entry(pair.second).or_default().push(k);
    }
    let share = 1.0 / of_image.len().max(1) as f64;
    for own in of_image.values_mut() {
        // Pairs of one motion keep their order, so that the result is the same in every run.
        own.sort_by(|&a, &b| motions[b].total_cmp(&motions[a]));
        let wide = own.iter().filter(|&&k| motions[k] >= WIDE).count();
        let count = wide.max(own.len() / ONE_IN).max(LEAST).min(own.len());
        for &k in own.iter().take(count) {
            weighed[k].1 += share / count as f64;
        }
    }
    weighed.retain(|(_, weight)| *weight > 0.0);
    weighed
}

/// The weight of those of the `wide` pairs that are so, 0 to 1.
pub(crate) fn share_of(wide: &[(&TwoViewGeometry, f64)], is_so: impl Fn(&TwoViewGeometry) -> bool) -> f64 {
    let mut share = 0.0f64;
    for &(pair, weight) in wide {
        if is_so(pair) {
            share += weight;
        }
    }
    share.min(1.0) // rounding must not make it more than all
}

/// How far the picture moves from the first image to the second, as a share of its longer side: the median over nine of its points, by
/// the homography. Without one nothing is as wide.
fn motion(pair: &TwoViewGeometry, camera: &Camera) -> f64 {
    let Some(homography) = &pair.homography else { return f64::INFINITY };
    let (width, height) = (f64::from(camera.width), f64::from(camera.height));
    let parts: [f64; 3] = [0.25, 0.5, 0.75];
    let points = parts.iter().flat_map(|&x| parts.map(|y| Vector2::new(x * width, y * height)));
    let moved = |from: Vector2<f64>| {
        let to = homography * Vector3::new(from.x, from.y, 1.0);
        let distance = (to.xy() / to.z - from).norm() / width.max(height);
        if distance.is_finite() { distance } else { f64::INFINITY }
    };
    let mut motions: Vec<f64> = points.map(moved).collect();
    median(&mut motions).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use nalgebra::Matrix3;

    use super::*;
    use crate::camera::CameraModel;

    /// A pair whose picture moves sideways by so many pixels.
    fn pair((first, second): (u32, u32), pixels: f64) -> TwoViewGeometry {
        let homography = Matrix3::new(1.0, 0.0, pixels, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0);
        TwoViewGeometry {
            homography: Some(homography),
            inliers: vec![[0, 0]; 20],
            homography_inliers: 20,
            ..TwoViewGeometry::degenerate(first, second)
        }
    }

    fn camera() -> Camera {
        Camera::from_focal(CameraModel::SimpleRadial, 600.0, 640, 480)
    }

    #[test]
    fn of_a_dense_film_only_the_widest_pairs_count() {
        let offsets: [u32; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 24];
        let all = |i: u32| offsets.iter().map(move |&offset| pair((i, i + offset), 2.0 * f64::from(offset)));
        let pairs: Vec<_> = (0..100).flat_map(all).collect();
        let wide = wide_pairs(&pairs, &camera());
        assert!(wide.iter().all(|(pair, _)| pair.second - pair.first >= 12));
        assert!((share_of(&wide, |_| true) - 1.0).abs() < 1e-9);
        assert!(share_of(&wide, |pair| pair.second - pair.first >= 16) > 0.85);
        assert_eq!(share_of(&wide, |_| false), 0.0);
    }

    #[test]
    fn of_few_photographs_all_pairs_count() {
        let ends = (0..6u32).flat_map(|i| (i + 1..6).map(move |j| (i, j)));
        let mut pairs: Vec<_> = ends.map(|(i, j)| pair((i, j), 80.0 * f64::from(j - i))).collect();
        pairs.push(TwoViewGeometry::degenerate(0, 6));
        let wide = wide_pairs(&pairs, &camera());
        assert_eq!(wide.len(), 15);
        assert!(wide.iter().all(|(_, weight)| (weight - 1.0 / 15.0).abs() < 1e-9));
        assert!(wide_pairs(&pairs[15..], &camera()).is_empty());
    }

    #[test]
    fn images_weigh_alike_however_many_pairs_they_have() {
        // Ten images of which each sees all others, and two that see nothing but each other.
        let ends = (0..10u32).flat_map(|i| (i + 1..10).map(move |j| (i, j))).chain([(10, 11)]);
        let pairs: Vec<_> = ends.map(|ends| pair(ends, 100.0)).collect();
        let share = share_of(&wide_pairs(&pairs, &camera()), |pair| pair.first == 10);
        assert!((share - 2.0 / 12.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn motion_is_that_of_most_of_the_picture() {
        assert!((motion(&pair((0, 1), 64.0), &camera()) - 0.1).abs() < 1e-9);
        let unexplained = TwoViewGeometry { homography: None, ..pair((0, 1), 0.0) };
        assert_eq!(motion(&unexplained, &camera()), f64::INFINITY);
        let vanished = TwoViewGeometry { homography: Some(Matrix3::zeros()), ..unexplained };
        assert_eq!(motion(&vanished, &camera()), f64::INFINITY);
    }
}
