//! The incremental path: begin with two images, add those that see enough of the map, adjust, repeat.
//!
//! Slower than the global path and free to drift, but it needs no consistent rotations in advance: it is what remains for
//! few pictures with wide baselines (Schonberger & Frahm, "Structure-from-Motion Revisited", CVPR 2016).

use rayon::prelude::*;

use crate::camera::Pose;
use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::{BundleOptions, RefineIntrinsics, adjust};
use super::filters::{filter_images, filter_points};
use super::levenberg_marquardt::Stopping;
use super::map::{Map, Observation};
use super::mapper::{DISTORTION_PRIOR, Evidence, MIN_OBSERVATIONS};
use super::projection::Loss;
use super::resection::{MatchIndex, ResectionOptions, insert, place_images, points_of_keypoints};
use super::retriangulation::retriangulate;
use super::tracks::build_tracks;
use super::triangulation::{TriangulationOptions, triangulate_tracks};
use super::two_view::{TwoViewConfig, TwoViewGeometry};

/// Images placed in one round see at least this fraction of what the best one sees.
const ROUND_RATIO: f64 = 0.6;
/// Initial pairs tried.
const INITIAL_PAIRS: usize = 4;
const MAX_ERROR: f64 = 4.0;

/// Maps as many images as it can; the best of a few initial pairs by number of registered images.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn map_incrementally(evidence: &Evidence<'_>, control: &Control) -> Result<Map> {
    let mut best = Map::new(evidence.camera.clone(), evidence.keypoints.len());
    for pair in initial_pairs(evidence.pairs).into_iter().take(INITIAL_PAIRS) {
        let map = grow(evidence, pair, control)?;
        let better = (map.registered(), map.observations()) > (best.registered(), best.observations());
        if better {
            best = map;
        }
        if best.registered() == evidence.keypoints.len() {
            break;
        }
    }
    Ok(best)
}

/// Pairs with many inliers and a good angle, best first; every image leads at most one of them.
fn initial_pairs(pairs: &[TwoViewGeometry]) -> Vec<&TwoViewGeometry> {
    let score = |p: &TwoViewGeometry| {
        let angle = p.median_parallax.to_degrees();
        let planar = if p.config == TwoViewConfig::PlanarOrPanoramic { 0.3 } else { 1.0 };
        planar * (p.inliers.len() as f64).min(400.0) * (angle / 10.0).min(1.0) * (40.0 / angle.max(40.0))
    };
    let mut order: Vec<&TwoViewGeometry> = pairs.iter().filter(|p| p.second_from_first.is_some()).collect();
    order.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let mut used = std::collections::BTreeSet::new();
    order.retain(|p| used.insert(p.first));
    order
}

fn options(images: usize) -> BundleOptions {
    BundleOptions {
        loss: Loss::Cauchy(1.5),
        stopping: Stopping { max_iterations: 15, tolerance: 1e-4 },
        rotations: true,
        // Two or three images say too little about the lens.
        intrinsics: RefineIntrinsics {
            focal: images >= 4,
            distortion: (images >= 6).then_some(DISTORTION_PRIOR),
            principal_point: None,
        },
    }
}

fn grow(evidence: &Evidence<'_>, pair: &TwoViewGeometry, control: &Control) -> Result<Map> {
    let images = evidence.keypoints.len();
    let mut map = Map::new(evidence.camera.clone(), images);
    map.poses[pair.first as usize] = Some(Pose::identity());
    map.poses[pair.second as usize] = pair.second_from_first;
    let tracks = ordered_tracks(evidence);
    let triangulation = TriangulationOptions { max_error: MAX_ERROR, min_angle: 1.5f64.to_radians() };
    map.points = triangulate_tracks(&map, evidence.keypoints, &tracks, &triangulation);
    adjust(&mut map, evidence.keypoints, &options(2), control)?;
    filter_points(&mut map, evidence.keypoints, MAX_ERROR, triangulation.min_angle);

    let verified = MatchIndex::of_verified(images, evidence.pairs);
    let resection = ResectionOptions { max_error: 6.0, min_inliers: 15, min_inlier_ratio: 0.25, seed: 1 };
    let mut failures = vec![0u8; images];
    loop {
        control.check()?;
        let points = points_of_keypoints(&map, evidence.keypoints);
        let mut candidates: Vec<(usize, usize)> = (0..images)
            .into_par_iter()
            .filter(|&i| map.poses[i].is_none() && failures[i] < 3)
            .map(|i| (verified.visible_points(&points, i).len(), i))
            .filter(|&(seen, _)| seen >= resection.min_inliers)
            .collect();
        candidates.sort_by_key(|&(seen, i)| (std::cmp::Reverse(seen), i));
        let Some(&(most, _)) = candidates.first() else { break };
        let round: Vec<usize> = candidates
            .iter()
            .filter(|&&(seen, _)| seen as f64 >= ROUND_RATIO * most as f64)
            .map(|&(_, i)| i)
            .collect();
        let placed = place_images(&map, evidence.keypoints, &verified, &round, &resection);
        for &image in &round {
            if !placed.iter().any(|p| p.image == image) {
                failures[image] += 1;
            }
        }
        if placed.is_empty() {
            continue;
        }
        insert(&mut map, &placed);
        map.points = triangulate_tracks(&map, evidence.keypoints, &tracks, &triangulation);
        let bundle = options(map.registered());
        adjust(&mut map, evidence.keypoints, &bundle, control)?;
        filter_points(&mut map, evidence.keypoints, MAX_ERROR, triangulation.min_angle);
        for image in filter_images(&mut map, MIN_OBSERVATIONS) {
            failures[image] += 1;
        }
        if map.registered() < 2 {
            break;
        }
    }
    if map.registered() > 2 {
        map.points = retriangulate(&map, evidence.keypoints, evidence.matches, &triangulation);
        let bundle = options(map.registered());
        adjust(&mut map, evidence.keypoints, &bundle, control)?;
        filter_points(&mut map, evidence.keypoints, MAX_ERROR, triangulation.min_angle);
    }
    Ok(map)
}

/// Tracks of all verified matches; the pairs with most inliers are joined first.
pub(crate) fn ordered_tracks(evidence: &Evidence<'_>) -> Vec<Vec<Observation>> {
    let mut pairs: Vec<&TwoViewGeometry> = evidence.pairs.iter().collect();
    pairs.sort_by_key(|p| std::cmp::Reverse(p.inliers.len()));
    build_tracks(evidence.keypoints, pairs.iter().map(|p| (p.first, p.second, p.inliers.as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::mapper::tests::evidence_of;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn an_orbit_grows_from_two_images() {
        let capture = Capture::orbit(14, 700, 0.4, 6);
        let (pairs, matches) = evidence_of(&capture, 5);
        let mut camera = capture.camera.clone();
        camera.params[0] *= 1.03;
        camera.params[3] = 0.0;
        let evidence = Evidence {
            keypoints: &capture.keypoints,
            matches: &matches,
            pairs: &pairs,
            camera,
            rotations: &[],
        };
        let map = map_incrementally(&evidence, &Control::new()).unwrap();
        assert_eq!(map.registered(), 14);
        let (centers, rotations) = capture.errors(&map);
        assert!(centers < 0.01 && rotations < 0.2, "{centers} {rotations}");
        assert!((map.camera.params[0] / 700.0 - 1.0).abs() < 0.01, "{:?}", map.camera);
    }
}
