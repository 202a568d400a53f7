//! The completion of a map, whichever mapper made it: what is in the wrong place goes, what is missing is placed, and
//! all matches count.

use std::sync::Arc;

use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust};
use super::filters::{filter_images, filter_points};
use super::map::{Map, MapPoint};
use super::mapper_input::MapperInput;
use super::mapper_options::MapperOptions;
use super::polishing::bundle_options;
use super::resection::{MatchIndex, insert, place_images};
use super::retriangulation::retriangulate;
use super::support::{rigid_groups, support_of_pairs, support_of_stations};
use super::tracks::select_tracks;
use super::triangulation::TriangulationOptions;

/// Completes and polishes a map: takes out what is in the wrong place, places what is missing, triangulates from all
/// matches, adjusts everything.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn complete(
    map: &mut Map,
    input: &MapperInput<'_>,
    options: &MapperOptions,
    control: &Control,
) -> Result<()> {
    let MapperOptions { max_error, min_angle, min_observations, completion, .. } = options;
    let (keypoints, images) = (input.keypoints, input.images());
    let limits = TriangulationOptions { max_error: *max_error, min_angle: *min_angle };
    let bundle = BundleOptions {
        loss: completion.loss,
        noise: ASSUMED_NOISE,
        rest: 0.0,
        stopping: completion.stopping,
        poses: PoseUnknowns::All,
        intrinsics: RefineIntrinsics {
            focal: options.refine_focal,
            distortion: Some(options.distortion_prior),
            principal_point: None,
        },
        other_centres: Vec::new(),
    };
    let mut tries = vec![0u8; images];
    loop {
        drop_misplaced(map, input, options);
        let missing: Vec<usize> =
            (0..images).filter(|&i| map.poses[i].is_none() && tries[i] < completion.max_tries).collect();
        let added = place_missing(map, input, options, &missing);
        missing.iter().for_each(|&i| tries[i] += 1);
        map.points = retriangulate(map, keypoints, input.matches, &limits);
        filter_images(map, *min_observations);
        // The poses are wanted; all points are made anew from them.
        keep_longest_tracks(map, completion.adjustment_tracks);
        adjust(map, keypoints, &bundle, control)?;
        map.points = retriangulate(map, keypoints, input.matches, &limits);
        filter_images(map, *min_observations);
        if added == 0 {
            break;
        }
    }
    // Keypoints are still to become better, and everything will be adjusted to them then.
    let stopping = completion.stopping;
    let bundle = BundleOptions { stopping, ..bundle_options(map, keypoints, options, None) };
    adjust(map, keypoints, &bundle, control)?;
    filter_points(map, keypoints, *max_error, *min_angle);
    filter_images(map, *min_observations);
    Ok(())
}

/// Leaves `per_image` points or more for every image that has them, those with the longest tracks.
fn keep_longest_tracks(map: &mut Map, per_image: usize) {
    let mut tracks: Vec<_> = map.points.iter_mut().map(|p| std::mem::take(&mut p.track)).collect();
    let chosen = select_tracks(&tracks, map.poses.len(), per_image);
    let points = chosen
        .into_iter()
        .map(|t| MapPoint { xyz: map.points[t].xyz, track: std::mem::take(&mut tracks[t]) });
    map.points = points.collect();
}

/// Takes out images whose matches contradict the map, and all but the largest group of images that hold together.
fn drop_misplaced(map: &mut Map, input: &MapperInput<'_>, options: &MapperOptions) {
    let support = support_of_pairs(map, input.keypoints, input.pairs, options.max_epipolar_error);
    let rig = Arc::clone(&map.rig);
    let stations = support_of_stations(&rig, input.pairs, &support);
    let weak = stations.iter().enumerate().filter(|(_, s)| s.ratio() < options.completion.min_support);
    let weak: Vec<usize> = weak.map(|(station, _)| rig.images_of(station).start).collect();
    map.unregister(&weak);
    let groups = rigid_groups(map, options.completion.rigid_points);
    map.unregister(&groups.get(1..).unwrap_or_default().concat());
}

/// Places what can be placed of `missing`, neighbours of the map first; returns how many.
fn place_missing(
    map: &mut Map,
    input: &MapperInput<'_>,
    options: &MapperOptions,
    missing: &[usize],
) -> usize {
    let completion = &options.completion;
    let verified = MatchIndex::of_verified(input.images(), input.pairs);
    let candidates = MatchIndex::of_candidates(input.images(), input.matches);
    let limits = TriangulationOptions { max_error: completion.max_error, min_angle: options.min_angle };
    let mut added = 0;
    loop {
        let open: Vec<usize> = missing.iter().copied().filter(|&i| map.poses[i].is_none()).collect();
        if open.is_empty() {
            return added;
        }
        let mut placed = place_images(map, input.keypoints, &verified, &open, &completion.resection);
        if placed.is_empty() {
            placed = place_images(map, input.keypoints, &candidates, &open, &completion.loose_resection);
        }
        if placed.is_empty() {
            return added;
        }
        added += placed.len();
        insert(map, &placed);
        map.points = retriangulate(map, input.keypoints, input.matches, &limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::front_end::absolute_rotations;
    use crate::sfm::global_mapper::map_globally;
    use crate::sfm::synthetic::Capture;
    use nalgebra::{UnitQuaternion, Vector3};

    #[test]
    fn the_global_path_maps_orbits_and_walks() {
        let options = MapperOptions::default();
        for capture in [Capture::orbit(20, 1200, 0.5, 3), Capture::walk(20, 1500, 0.5, 3)] {
            let (pairs, matches) = capture.pairs_and_matches(6);
            let mut random = crate::random::Random::new(1);
            let rotations: Vec<_> = capture
                .poses
                .iter()
                .map(|p| {
                    let error = 0.005 * Vector3::new(random.normal(), random.normal(), random.normal());
                    Some(UnitQuaternion::from_scaled_axis(error) * p.rotation)
                })
                .collect();
            let mut camera = capture.camera.clone();
            camera.params[0] *= 0.97;
            camera.params[3] = 0.0;
            let input = capture.input((&pairs, &matches), camera, &rotations);
            let mut map = map_globally(&input, &options, 0, &Control::new()).unwrap();
            complete(&mut map, &input, &options, &Control::new()).unwrap();
            assert_eq!(map.registered(), 20);
            let (centres, rotations) = capture.errors(&map);
            assert!(centres < 0.01 && rotations < 0.2, "{centres} {rotations}");
        }
    }

    /// So many images that the equations are solved as sparse ones.
    #[test]
    fn a_long_walk_closes_its_loop_whatever_the_number_of_threads() {
        let options = MapperOptions::default();
        let images = 420;
        let capture = Capture::circuit(images, 25, 0.4, 2);
        let mut random = crate::random::Random::new(4);
        let mut noise = |size: f64| size * Vector3::new(random.normal(), random.normal(), random.normal());
        let mut pairs = capture.pairs_around(9);
        for pose in pairs.iter_mut().filter_map(|p| p.second_from_first.as_mut()) {
            pose.rotation = UnitQuaternion::from_scaled_axis(noise(0.003)) * pose.rotation;
            pose.translation = (pose.translation + noise(0.03)).normalize();
        }
        let (mut pairs, matches) = Capture::with_matches(pairs);
        let mut camera = capture.camera.clone();
        camera.params[0] *= 0.98;
        camera.params[3] = 0.0;
        let mut run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let rotations = absolute_rotations(&capture.rig, &mut pairs, &Control::new()).unwrap();
                let input = capture.input((&pairs, &matches), camera.clone(), &rotations);
                let mut map = map_globally(&input, &options, 0, &Control::new()).unwrap();
                complete(&mut map, &input, &options, &Control::new()).unwrap();
                map
            })
        };
        let map = run(2);
        assert_eq!(map.registered(), images);
        // Relative to the radius of the loop, of which the path is 2 pi.
        let (centres, rotations) = capture.errors(&map);
        let drift = centres / std::f64::consts::TAU;
        assert!(drift < 0.001 && rotations < 0.5, "{drift} {rotations}");
        let other = run(1);
        assert_eq!((map.poses, map.points, map.camera), (other.poses, other.points, other.camera));
    }

    #[test]
    fn an_image_without_rotation_is_placed_in_the_end() {
        let options = MapperOptions::default();
        let capture = Capture::orbit(16, 900, 0.4, 3);
        let (pairs, matches) = capture.pairs_and_matches(6);
        let mut rotations: Vec<_> = capture.poses.iter().map(|p| Some(p.rotation)).collect();
        rotations[7] = None;
        let input = capture.input((&pairs, &matches), capture.camera.clone(), &rotations);
        let mut map = map_globally(&input, &options, 0, &Control::new()).unwrap();
        assert_eq!(map.registered(), 15);
        complete(&mut map, &input, &options, &Control::new()).unwrap();
        assert_eq!(map.registered(), 16);
        assert!(capture.errors(&map).0 < 0.01);
    }
}
