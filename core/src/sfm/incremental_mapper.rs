//! The incremental mapper: begin with two images, add those that see enough of the map, adjust, repeat.
//!
//! Slower than the global mapper and free to drift, but it needs no consistent rotations in advance: it is what remains
//! for few pictures with wide baselines (Schonberger & Frahm, "Structure-from-Motion Revisited", CVPR 2016).

use rayon::prelude::*;

use crate::camera::Pose;
use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust};
use super::filters::{filter_images, filter_points};
use super::map::Map;
use super::mapper_input::MapperInput;
use super::mapper_options::{IncrementalOptions, MapperOptions};
use super::resection::{MatchIndex, insert, place_images, points_of_keypoints};
use super::retriangulation::retriangulate;
use super::triangulation::{TriangulationOptions, triangulate_tracks};
use super::two_view::{TwoViewConfig, TwoViewGeometry};

/// Maps as many images as it can; the best of a few initial pairs by number of registered images.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn map_incrementally(
    input: &MapperInput<'_>,
    options: &MapperOptions,
    control: &Control,
) -> Result<Map> {
    let mut best = input.empty_map();
    for pair in
        initial_pairs(input.pairs, &options.incremental).into_iter().take(options.incremental.initial_pairs)
    {
        let map = grow(input, options, pair, control)?;
        // What two starts leave out in a large capture no other one will place, and each takes the square of its images.
        let is_settled = input.images() > options.incremental.many_images
            && best.registered() > 0
            && map.registered() <= best.registered();
        let better = (map.registered(), map.observations()) > (best.registered(), best.observations());
        if better {
            best = map;
        }
        if is_settled || best.registered() == input.images() {
            break;
        }
    }
    Ok(best)
}

/// Pairs with many inliers and a good angle, best first; every image leads at most one of them.
fn initial_pairs<'a>(pairs: &'a [TwoViewGeometry], options: &IncrementalOptions) -> Vec<&'a TwoViewGeometry> {
    let (good, wide) = options.initial_angles;
    let score = |p: &TwoViewGeometry| {
        let angle = p.median_parallax.to_degrees();
        let planar = if p.config == TwoViewConfig::PlanarOrPanoramic { options.planar_pair } else { 1.0 };
        let inliers = (p.inliers.len() as f64).min(options.initial_inliers);
        planar * inliers * (angle / good).min(1.0) * (wide / angle.max(wide))
    };
    let mut order: Vec<&TwoViewGeometry> = pairs.iter().filter(|p| p.second_from_first.is_some()).collect();
    order.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let mut used = std::collections::BTreeSet::new();
    order.retain(|p| used.insert(p.first));
    order
}

/// How a map of so many images is adjusted.
fn adjustment(images: usize, options: &MapperOptions) -> BundleOptions {
    let IncrementalOptions { loss, stopping, min_images_for_focal, min_images_for_distortion, .. } =
        options.incremental;
    BundleOptions {
        loss,
        noise: ASSUMED_NOISE,
        rest: 0.0,
        stopping,
        poses: PoseUnknowns::All,
        intrinsics: RefineIntrinsics {
            focal: options.refine_focal && images >= min_images_for_focal,
            distortion: (images >= min_images_for_distortion).then_some(options.distortion_prior),
            principal_point: None,
        },
        other_centres: Vec::new(),
    }
}

fn grow(
    input: &MapperInput<'_>,
    options: &MapperOptions,
    pair: &TwoViewGeometry,
    control: &Control,
) -> Result<Map> {
    let IncrementalOptions { round_ratio, max_failures, resection, .. } = &options.incremental;
    let images = input.images();
    let mut map = input.empty_map();
    map.register(pair.first as usize, &Pose::identity());
    if let Some(second) = &pair.second_from_first {
        map.register(pair.second as usize, second);
    }
    let tracks = input.tracks();
    let triangulation = TriangulationOptions { max_error: options.max_error, min_angle: options.min_angle };
    map.points = triangulate_tracks(&map, input.keypoints, &tracks, &triangulation);
    adjust(&mut map, input.keypoints, &adjustment(2, options), control)?;
    filter_points(&mut map, input.keypoints, triangulation.max_error, triangulation.min_angle);

    let verified = MatchIndex::of_verified(images, input.pairs);
    let mut failures = vec![0u8; images];
    loop {
        control.check()?;
        let points = points_of_keypoints(&map, input.keypoints);
        let mut candidates: Vec<(usize, usize)> = (0..images)
            .into_par_iter()
            .filter(|&i| map.poses[i].is_none() && failures[i] < *max_failures)
            .map(|i| (verified.visible_points(&points, i).len(), i))
            .filter(|&(seen, _)| seen >= resection.min_inliers)
            .collect();
        candidates.sort_by_key(|&(seen, i)| (std::cmp::Reverse(seen), i));
        let Some(&(most, _)) = candidates.first() else { break };
        let round: Vec<usize> = candidates
            .iter()
            .filter(|&&(seen, _)| seen as f64 >= round_ratio * most as f64)
            .map(|&(_, i)| i)
            .collect();
        let placed = place_images(&map, input.keypoints, &verified, &round, resection);
        for &image in &round {
            if !placed.iter().any(|p| p.image == image) {
                failures[image] += 1;
            }
        }
        if placed.is_empty() {
            continue;
        }
        insert(&mut map, &placed);
        map.points = triangulate_tracks(&map, input.keypoints, &tracks, &triangulation);
        let bundle = adjustment(map.registered(), options);
        adjust(&mut map, input.keypoints, &bundle, control)?;
        filter_points(&mut map, input.keypoints, triangulation.max_error, triangulation.min_angle);
        for image in filter_images(&mut map, options.min_observations) {
            failures[image] += 1;
        }
        if map.registered() < 2 {
            break;
        }
    }
    if map.registered() > 2 {
        map.points = retriangulate(&map, input.keypoints, input.matches, &triangulation);
        let bundle = adjustment(map.registered(), options);
        adjust(&mut map, input.keypoints, &bundle, control)?;
        filter_points(&mut map, input.keypoints, triangulation.max_error, triangulation.min_angle);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn an_orbit_grows_from_two_images() {
        let capture = Capture::orbit(14, 700, 0.4, 6);
        let (pairs, matches) = capture.pairs_and_matches(5);
        let mut camera = capture.camera.clone();
        camera.params[0] *= 1.03;
        camera.params[3] = 0.0;
        let input = capture.input((&pairs, &matches), camera, &[]);
        let map = map_incrementally(&input, &MapperOptions::default(), &Control::new()).unwrap();
        assert_eq!(map.registered(), 14);
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 0.01 && rotations < 0.2, "{centres} {rotations}");
        assert!((map.camera.params[0] / 700.0 - 1.0).abs() < 0.01, "{:?}", map.camera);
    }
}
