//! Pictures by further cameras join a map: by its points, through lenses that nobody knows.
//!
//! The map of the camera that made most pictures is made as if there were no others. A picture by another camera that matches
//! pictures of the map sees points whose places are known: for the right focal length there is a pose from which it sees them
//! where they are (P3P by random samples), for a wrong one few fit. The focal length with which the pictures of a camera see most
//! points is where an adjustment of everything begins, in which each camera has intrinsics of its own.

use rayon::prelude::*;

use crate::camera::Camera;
use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust};
use super::filters::{filter_images, filter_points};
use super::map::{Keypoints, Map};
use super::mapper_options::{JoiningOptions, MapperOptions};
use super::matching::PairMatches;
use super::resection::{MatchIndex, insert, place_image, place_images, points_of_keypoints};
use super::retriangulation::retriangulate;
use super::triangulation::TriangulationOptions;
use super::two_view::TwoViewGeometry;

/// What was found in and between all pictures.
pub(crate) struct JoiningInput<'a> {
    pub(crate) keypoints: &'a Keypoints,
    pub(crate) matches: &'a [PairMatches],
    /// Verified pairs, found without a focal length.
    pub(crate) verified: &'a [TwoViewGeometry],
    /// By camera (0 is the one of `map.camera`): the focal length in pixels that the caller or EXIF names.
    pub(crate) known_focals: &'a [Option<f64>],
}

/// Places the pictures by the other cameras of `map`, those of which none has a pose, that see its points, and adjusts all of it. Cameras whose pictures see too
/// little are tried again when others have joined.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn join_cameras(
    map: &mut Map,
    input: &JoiningInput<'_>,
    options: &MapperOptions,
    control: &Control,
) -> Result<()> {
    let images = map.poses.len();
    let matches = MatchIndex::of_verified(images, input.verified);
    let limits = TriangulationOptions { max_error: options.max_error, min_angle: options.min_angle };
    let bundle = BundleOptions {
        loss: options.completion.loss,
        noise: ASSUMED_NOISE,
        rest: 0.0,
        stopping: options.completion.stopping,
        poses: PoseUnknowns::All,
        intrinsics: RefineIntrinsics {
            focal: options.refine_focal,
            distortion: Some(options.distortion_prior),
            principal_point: None,
        },
        other_centres: Vec::new(),
    };
    let placed =
        |other: usize| (0..images).any(|i| map.poses[i].is_some() && map.others.index(i) == other + 1);
    let mut open: Vec<usize> = (0..map.others.cameras.len()).filter(|&other| !placed(other)).collect();
    while !open.is_empty() {
        let before = open.len();
        let mut still_open = Vec::new();
        for other in open {
            control.check()?;
            let own: Vec<usize> = (0..images).filter(|&i| map.others.index(i) == other + 1).collect();
            let known = input.known_focals.get(other + 1).copied().flatten();
            let Some(camera) = camera_by_points(map, input.keypoints, &matches, &own, known, options) else {
                still_open.push(other);
                continue;
            };
            log::debug!("another camera joins: {camera:?}");
            map.others.cameras[other] = camera;
            let placed = place_images(map, input.keypoints, &matches, &own, &options.completion.resection);
            insert(map, &placed);
        }
        open = still_open;
        if open.len() == before {
            break;
        }
        map.points = retriangulate(map, input.keypoints, input.matches, &limits);
        filter_images(map, options.min_observations);
        adjust(map, input.keypoints, &bundle, control)?;
        filter_points(map, input.keypoints, options.max_error, options.min_angle);
        filter_images(map, options.min_observations);
    }
    Ok(())
}

/// The camera that made the pictures `own` (none of which has a pose), without distortion: that of the focal length with which
/// they see most points of the map. `None` where they see too few.
fn camera_by_points(
    map: &Map,
    keypoints: &Keypoints,
    matches: &MatchIndex<'_>,
    own: &[usize],
    known: Option<f64>,
    options: &MapperOptions,
) -> Option<Camera> {
    let JoiningOptions { focals, ratio, pictures, min_inliers, resection } = &options.joining;
    let points = points_of_keypoints(map, keypoints);
    let mut visible: Vec<(usize, Vec<(u32, u32)>)> =
        own.par_iter().map(|&image| (image, matches.visible_points(&points, image))).collect();
    visible.sort_by_key(|(image, seen)| (std::cmp::Reverse(seen.len()), *image));
    visible.truncate(*pictures);
    visible.retain(|(_, seen)| seen.len() >= resection.min_inliers);
    let first = map.camera_of(*own.first()?);
    let side = f64::from(first.width.max(first.height));
    let steps = ((focals.1 / focals.0).ln() / ratio.ln()).ceil() as i32;
    let mut tried: Vec<f64> = (0..=steps).map(|k| focals.0 * side * ratio.powi(k)).collect();
    tried.extend(known);
    let fitting = |&focal: &f64| -> (usize, Camera) {
        let camera = Camera::from_focal(first.model, focal, first.width, first.height);
        let inliers = |(image, seen): &(usize, Vec<(u32, u32)>)| {
            let placed = place_image(map, &camera, &keypoints[*image], seen, *image, resection);
            placed.map_or(0, |(_, inliers)| inliers.len())
        };
        (visible.iter().map(inliers).sum(), camera)
    };
    let fits: Vec<(usize, Camera)> = tried.par_iter().map(fitting).collect();
    // Of equally good ones the last: that is the known one.
    let (inliers, camera) = fits.into_iter().max_by_key(|(inliers, _)| *inliers)?;
    (inliers >= *min_inliers).then_some(camera)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::CameraModel;
    use crate::sfm::other_cameras::OtherCameras;
    use crate::sfm::synthetic::Capture;

    /// A walk of which every third picture was made by a camera with another lens and size.
    fn mixed(noise: f64) -> Capture {
        let mut lens = Camera::from_focal(CameraModel::SimpleRadial, 980.0, 1200, 900);
        lens.params[3] = 0.03;
        Capture::walk(24, 2500, noise, 5).with_other_camera(lens, |i| i % 3 == 1)
    }

    /// The map of the first camera's pictures, true; of the other camera nothing is known.
    fn start(capture: &Capture) -> Map {
        let mut map = capture.true_map_with_points();
        map.unregister(&(0..24).filter(|i| i % 3 == 1).collect::<Vec<_>>());
        let guess = Camera::from_focal(CameraModel::SimpleRadial, 1440.0, 1200, 900);
        let of_image: Vec<usize> = (0..24).map(|i| usize::from(i % 3 == 1)).collect();
        map.others = OtherCameras::new(vec![guess], &of_image);
        map
    }

    fn joined(capture: &Capture, known: &[Option<f64>], options: &MapperOptions) -> Map {
        let (verified, matches) = capture.pairs_and_matches(6);
        let mut map = start(capture);
        let input = JoiningInput {
            keypoints: &capture.keypoints,
            matches: &matches,
            verified: &verified,
            known_focals: known,
        };
        join_cameras(&mut map, &input, options, &Control::new()).unwrap();
        map
    }

    #[test]
    fn pictures_through_an_unknown_lens_find_their_place_and_their_lens() {
        let capture = mixed(0.4);
        let options = MapperOptions::default();
        // Not known, known, and wrong, as after a picture was cropped.
        for known in [None, Some(970.0), Some(1900.0)] {
            let map = joined(&capture, &[None, known], &options);
            assert_eq!(map.registered(), 24, "{known:?}");
            let lens = &map.others.cameras[0];
            assert!((lens.params[0] / 980.0 - 1.0).abs() < 0.01, "{lens:?}");
            assert!((lens.params[3] - 0.03).abs() < 0.02, "{lens:?}");
            let (centres, rotations) = capture.errors(&map);
            assert!(centres < 0.02 && rotations < 0.2, "{known:?}: {centres} {rotations}");
        }
    }

    #[test]
    fn pictures_of_something_else_stay_out_and_leave_the_map_as_it_is() {
        let mut capture = mixed(0.4);
        let options = MapperOptions::default();
        // What the other camera saw is somewhere else.
        for i in (0..24).filter(|i| i % 3 == 1) {
            let count = capture.keypoints[i].len();
            let other: Vec<_> = (0..count).map(|k| capture.keypoints[i][(7 * k + 3) % count]).collect();
            capture.keypoints[i] = other;
        }
        let before = start(&capture);
        let map = joined(&capture, &[None, None], &options);
        assert_eq!(map.registered(), 16);
        assert_eq!((map.poses, map.points, map.camera), (before.poses, before.points, before.camera));
    }
}
