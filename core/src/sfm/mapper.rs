//! From verified pairs to a map: the global path, and the refinement that both paths share.

use nalgebra::UnitQuaternion;

use crate::camera::{Camera, CameraModel, Pose};
use crate::control::Control;
use crate::error::Result;
use crate::random::hash;

use super::bundle_adjustment::{
    BundleOptions, RefineIntrinsics, adjust, intrinsics_deviations, principal_point_index,
};
use super::filters::{filter_images, filter_points};
use super::global_positioning::{Positions, Start, position};
use super::incremental::ordered_tracks;
use super::levenberg_marquardt::Stopping;
use super::map::{Keypoints, Map, MapPoint, Observation};
use super::matching::PairMatches;
use super::projection::Loss;
use super::resection::{MatchIndex, ResectionOptions, insert, place_images};
use super::retriangulation::retriangulate;
use super::scale_averaging::initial_centers;
use super::support::{rigid_groups, support_of_images, support_of_pairs};
use super::tracks::select_tracks;
use super::triangulation::{TriangulationOptions, keypoint_rays, triangulate_tracks};
use super::two_view::TwoViewGeometry;
use crate::statistics::median;

/// What the front end found out.
pub(crate) struct Evidence<'a> {
    /// Pixels of all keypoints, by image.
    pub(crate) keypoints: &'a Keypoints,
    /// All candidate matches.
    pub(crate) matches: &'a [PairMatches],
    /// Verified pairs with relative poses.
    pub(crate) pairs: &'a [TwoViewGeometry],
    /// The camera of all images, focal length calibrated.
    pub(crate) camera: Camera,
    /// Absolute rotations (world to camera) by image; the incremental path does not use them.
    pub(crate) rotations: &'a [Option<UnitQuaternion<f64>>],
}

/// Standard deviation of the prior that holds the distortion (of the plane z = 1) near zero. Lenses of phones and cameras are
/// within a few of it; a capture that says little about its lens would else bend it to fit the noise.
pub(super) const DISTORTION_PRIOR: f64 = 0.05;

/// An image with fewer observations is not registered.
pub(crate) const MIN_OBSERVATIONS: usize = 15;
/// Tracks per image for positioning and the first adjustments: enough for the geometry, and fast.
const POSITIONING_TRACKS: usize = 300;
const ADJUSTMENT_TRACKS: usize = 1000;
/// Positions with a smaller fraction of agreeing observations are tried again from random starts.
const GOOD_AGREEMENT: f64 = 0.7;
const RANDOM_STARTS: u64 = 3;
/// Final limits: reprojection error in pixels, triangulation angle in radians.
pub(crate) const MAX_ERROR: f64 = 4.0;
pub(crate) const MIN_ANGLE: f64 = 0.025;
/// Images of a group share this many points pair by pair.
const RIGID_POINTS: usize = 15;
/// An image whose matches agree less than this with the map is in the wrong place.
const MIN_SUPPORT: f64 = 0.4;

/// Maps all images that have a rotation at once.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn map_globally(evidence: &Evidence<'_>, seed: u64, control: &Control) -> Result<Map> {
    let keypoints = evidence.keypoints;
    let images = keypoints.len();
    let mut map = Map::new(evidence.camera.clone(), images);
    let tracks = ordered_tracks(evidence);
    let positions = find_positions(evidence, &tracks, seed, control)?;
    for (i, pose) in map.poses.iter_mut().enumerate() {
        if let (Some(rotation), Some(center)) = (evidence.rotations[i], positions.centers[i]) {
            *pose = Some(Pose::from_center(rotation, &center));
        }
    }
    let chosen: Vec<_> =
        select_tracks(&tracks, images, ADJUSTMENT_TRACKS).into_iter().map(|t| tracks[t].clone()).collect();
    // Positioning leaves errors of a degree or two: begin with what is near enough, then narrow down.
    let degree = evidence.camera.mean_focal() * 1f64.to_radians();
    let rough = TriangulationOptions { max_error: (1.5 * degree).max(12.0), min_angle: MIN_ANGLE };
    map.points = triangulate_tracks(&map, keypoints, &chosen, &rough);
    let mut bundle = BundleOptions {
        loss: Loss::Huber(4.0),
        stopping: Stopping { max_iterations: 15, tolerance: 1e-3 },
        rotations: false,
        intrinsics: RefineIntrinsics::default(),
    };
    adjust(&mut map, keypoints, &bundle, control)?;
    bundle.rotations = true;
    adjust(&mut map, keypoints, &bundle, control)?;
    bundle.intrinsics =
        RefineIntrinsics { focal: true, distortion: Some(DISTORTION_PRIOR), principal_point: None };
    for (max_error, scale) in [(0.6 * degree, 3.0), (8.0, 2.0), (MAX_ERROR, 1.0)] {
        let limits = TriangulationOptions { max_error: max_error.max(MAX_ERROR), min_angle: MIN_ANGLE };
        map.points = triangulate_tracks(&map, keypoints, &chosen, &limits);
        filter_images(&mut map, MIN_OBSERVATIONS);
        bundle.loss = Loss::Cauchy(scale);
        bundle.stopping = Stopping { max_iterations: 20, tolerance: 1e-3 };
        adjust(&mut map, keypoints, &bundle, control)?;
    }
    filter_points(&mut map, keypoints, MAX_ERROR, MIN_ANGLE);
    filter_images(&mut map, MIN_OBSERVATIONS);
    Ok(map)
}

fn find_positions(
    evidence: &Evidence<'_>,
    tracks: &[Vec<super::map::Observation>],
    seed: u64,
    control: &Control,
) -> Result<Positions> {
    let rays = keypoint_rays(&evidence.camera, evidence.keypoints);
    let long: Vec<_> = tracks.iter().filter(|t| t.len() >= 3).cloned().collect();
    let chosen: Vec<_> = select_tracks(&long, evidence.keypoints.len(), POSITIONING_TRACKS)
        .into_iter()
        .map(|t| long[t].clone())
        .collect();
    let centers = initial_centers(evidence.rotations, evidence.pairs, &rays);
    let mut best = position(evidence.rotations, &rays, &chosen, Start::Centers(&centers), control)?;
    for k in 0..RANDOM_STARTS {
        if best.agreeing >= GOOD_AGREEMENT {
            break;
        }
        let start = Start::Random(hash(seed ^ k));
        let other = position(evidence.rotations, &rays, &chosen, start, control)?;
        if other.agreeing > best.agreeing {
            best = other;
        }
    }
    Ok(best)
}

/// Completes and polishes a map: takes out what is in the wrong place, places what is missing, triangulates from all
/// matches, adjusts everything.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn complete(map: &mut Map, evidence: &Evidence<'_>, control: &Control) -> Result<()> {
    let keypoints = evidence.keypoints;
    let limits = TriangulationOptions { max_error: MAX_ERROR, min_angle: MIN_ANGLE };
    let bundle = BundleOptions {
        loss: Loss::Cauchy(1.0),
        stopping: Stopping { max_iterations: 20, tolerance: 1e-4 },
        rotations: true,
        intrinsics: RefineIntrinsics {
            focal: true,
            distortion: Some(DISTORTION_PRIOR),
            principal_point: None,
        },
    };
    let images = keypoints.len();
    let mut tries = vec![0u8; images];
    loop {
        drop_misplaced(map, evidence);
        let missing: Vec<usize> = (0..images).filter(|&i| map.poses[i].is_none() && tries[i] < 2).collect();
        let added = place_missing(map, evidence, &missing);
        missing.iter().for_each(|&i| tries[i] += 1);
        map.points = retriangulate(map, keypoints, evidence.matches, &limits);
        filter_images(map, MIN_OBSERVATIONS);
        adjust(map, keypoints, &bundle, control)?;
        filter_points(map, keypoints, MAX_ERROR, MIN_ANGLE);
        filter_images(map, MIN_OBSERVATIONS);
        if added == 0 {
            break;
        }
    }
    map.points = retriangulate(map, keypoints, evidence.matches, &limits);
    filter_images(map, MIN_OBSERVATIONS);
    adjust(map, keypoints, &polishing(map, keypoints, None), control)?;
    filter_points(map, keypoints, MAX_ERROR, MIN_ANGLE);
    filter_images(map, MIN_OBSERVATIONS);
    Ok(())
}

/// Takes out images whose matches contradict the map, and all but the largest group of images that hold together.
fn drop_misplaced(map: &mut Map, evidence: &Evidence<'_>) {
    let support = support_of_pairs(map, evidence.keypoints, evidence.pairs, 2.0 * MAX_ERROR);
    let images = support_of_images(map.poses.len(), evidence.pairs, &support);
    for (i, s) in images.iter().enumerate() {
        if map.poses[i].is_some() && s.ratio() < MIN_SUPPORT {
            map.unregister(i);
        }
    }
    for group in rigid_groups(map, RIGID_POINTS).iter().skip(1) {
        group.iter().for_each(|&i| map.unregister(i));
    }
}

/// Places what can be placed of `missing`, neighbours of the map first; returns how many.
fn place_missing(map: &mut Map, evidence: &Evidence<'_>, missing: &[usize]) -> usize {
    let images = evidence.keypoints.len();
    let strict =
        ResectionOptions { max_error: 2.0 * MAX_ERROR, min_inliers: 15, min_inlier_ratio: 0.25, seed: 2 };
    let verified = MatchIndex::of_verified(images, evidence.pairs);
    let candidates = MatchIndex::of_candidates(images, evidence.matches);
    let mut added = 0;
    loop {
        let open: Vec<usize> = missing.iter().copied().filter(|&i| map.poses[i].is_none()).collect();
        if open.is_empty() {
            return added;
        }
        let mut placed = place_images(map, evidence.keypoints, &verified, &open, &strict);
        if placed.is_empty() {
            // Matches of pairs that were too weak to be verified may be enough together.
            let loose = ResectionOptions { min_inlier_ratio: 0.1, min_inliers: 20, ..strict };
            placed = place_images(map, evidence.keypoints, &candidates, &open, &loose);
        }
        if placed.is_empty() {
            return added;
        }
        added += placed.len();
        insert(map, &placed);
        let limits = TriangulationOptions { max_error: 2.0 * MAX_ERROR, min_angle: MIN_ANGLE };
        map.points = retriangulate(map, evidence.keypoints, evidence.matches, &limits);
    }
}

/// Standard deviation of a keypoint's x and y in pixels, as the reprojection errors of most show it (those of normal
/// errors have a median of 1.1774 standard deviations); `None` for a map without points.
pub(crate) fn keypoint_noise(map: &Map, keypoints: &Keypoints) -> Option<f64> {
    let observations = map.points.iter().flat_map(|p| p.track.iter().map(move |o| (p, o)));
    let error = |(p, o): (&MapPoint, &Observation)| {
        map.reprojection_error(o.image as usize, &p.xyz, &keypoints[o.image as usize][o.keypoint as usize])
    };
    let mut errors: Vec<f64> = observations.map(error).collect();
    median(&mut errors).map(|error| error / 1.1774)
}

/// What became of the principal point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PrincipalPoint {
    /// Whether it was refined; else it is the image centre.
    pub(crate) refined: bool,
    /// Standard deviation in pixels when it was free (the larger of x and y); `None` where the capture says nothing.
    pub(crate) deviation: Option<f64>,
}

/// Prior of the principal point: standard deviation over the longer side. Cameras for photographs are within 1 to 3 %; cropped pictures
/// may be further off.
const PRINCIPAL_POINT_PRIOR: f64 = 0.015;
/// It is refined only if it becomes this much better known than by its prior (on captures with exact calibration the errors
/// are 2 to 6 deviations: these do not know what the lens model leaves out) ...
const PRINCIPAL_POINT_GAIN: f64 = 0.15;
/// ... and is this many standard deviations from the image centre. The centre is what cameras that crop and stabilise their video aim
/// at; an estimate that cannot be told from it would turn all poses by its error and gain nothing.
const SIGNIFICANT: f64 = 4.0;

/// Standard deviation of the principal point's prior in pixels.
pub(crate) fn principal_point_prior(camera: &Camera) -> f64 {
    PRINCIPAL_POINT_PRIOR * f64::from(camera.width.max(camera.height))
}

/// Cauchy's loss with this scale, in standard deviations, is 95 % as efficient as least squares where errors are normal
/// (Holland & Welsch, "Robust regression using iteratively reweighted least-squares", 1977), ...
const TUNING: f64 = 2.385;
/// ... within these bounds in pixels.
const LOSS_SCALE: (f64, f64) = (0.1, 1.0);

/// How a finished map is adjusted, with the principal point free under its prior (its standard deviation in pixels) or fixed.
/// Errors of keypoints are not normal: most are of some tenths of a pixel, and some, on contours and at coarse scales, of
/// pixels. How large they may be to count fully follows from what is usual in the map.
pub(crate) fn polishing(map: &Map, keypoints: &Keypoints, principal_point: Option<f64>) -> BundleOptions {
    let noise = keypoint_noise(map, keypoints).unwrap_or(f64::INFINITY);
    BundleOptions {
        loss: Loss::Cauchy((TUNING * noise).clamp(LOSS_SCALE.0, LOSS_SCALE.1)),
        stopping: Stopping { max_iterations: 30, tolerance: 1e-6 },
        rotations: true,
        intrinsics: RefineIntrinsics { focal: true, distortion: Some(DISTORTION_PRIOR), principal_point },
    }
}

/// Adjusts a finished map to keypoints that have become better.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn polish(map: &mut Map, keypoints: &Keypoints, control: &Control) -> Result<()> {
    // Only the first adjustment shows how small the errors are now.
    for _ in 0..2 {
        let bundle = polishing(map, keypoints, None);
        adjust(map, keypoints, &bundle, control)?;
    }
    filter_points(map, keypoints, MAX_ERROR, MIN_ANGLE);
    filter_images(map, MIN_OBSERVATIONS);
    Ok(())
}

/// Gives a SIMPLE_RADIAL camera its second radial coefficient, which makes it RADIAL, if the capture tells it from zero: left
/// out, it bends the focal length, the poses and the scale. The principal point was decided before, and is free here only if it was
/// refined. Returns whether there is one.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn refine_second_radial(
    map: &mut Map,
    keypoints: &Keypoints,
    is_center_free: bool,
    control: &Control,
) -> Result<bool> {
    let (CameraModel::SimpleRadial, [focal, x, y, k1]) = (map.camera.model, &map.camera.params[..]) else {
        return Ok(false);
    };
    let mut free = map.clone();
    free.camera.params = vec![*focal, *x, *y, *k1, 0.0];
    free.camera.model = CameraModel::Radial;
    let bundle = polishing(map, keypoints, is_center_free.then(|| principal_point_prior(&map.camera)));
    adjust(&mut free, keypoints, &bundle, control)?;
    let Some(deviations) = intrinsics_deviations(&free, keypoints, &bundle) else { return Ok(false) };
    let told = |&(k, sigma): &(usize, f64)| k == 4 && free.camera.params[k].abs() > SIGNIFICANT * sigma;
    let refined = deviations.iter().any(told);
    if refined {
        *map = free;
        filter_points(map, keypoints, MAX_ERROR, MIN_ANGLE);
    }
    Ok(refined)
}

/// Frees the principal point under its prior, and keeps the result if the capture determines it and it is not the image centre.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn refine_principal_point(
    map: &mut Map,
    keypoints: &Keypoints,
    control: &Control,
) -> Result<PrincipalPoint> {
    let prior = principal_point_prior(&map.camera);
    let bundle = polishing(map, keypoints, Some(prior));
    let mut free = map.clone();
    adjust(&mut free, keypoints, &bundle, control)?;
    let Some(deviations) = intrinsics_deviations(&free, keypoints, &bundle) else {
        return Ok(PrincipalPoint { refined: false, deviation: None });
    };
    let x = principal_point_index(map.camera.model);
    let shift = |k: usize| (free.camera.params[k] - map.camera.params[k]).abs();
    let of_center = || deviations.iter().filter(|(k, _)| (x..x + 2).contains(k));
    let deviation = of_center().map(|&(_, sigma)| sigma).fold(0.0, f64::max);
    let distance = of_center().map(|&(k, sigma)| shift(k) / sigma).fold(0.0, f64::max);
    let refined = deviation < PRINCIPAL_POINT_GAIN * prior && distance > SIGNIFICANT;
    if refined {
        *map = free;
        filter_points(map, keypoints, MAX_ERROR, MIN_ANGLE);
    }
    Ok(PrincipalPoint { refined, deviation: Some(deviation) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;
    use nalgebra::Vector3;

    /// Pairs and candidate matches of a synthetic capture.
    pub(crate) fn evidence_of(capture: &Capture, window: usize) -> (Vec<TwoViewGeometry>, Vec<PairMatches>) {
        let pairs = capture.pairs(window);
        let matches = pairs
            .iter()
            .map(|p| PairMatches { first: p.first, second: p.second, matches: p.inliers.clone() })
            .collect();
        (pairs, matches)
    }

    #[test]
    fn the_global_path_maps_orbits_and_walks() {
        for capture in [Capture::orbit(20, 1200, 0.5, 3), Capture::walk(20, 1500, 0.5, 3)] {
            let (pairs, matches) = evidence_of(&capture, 6);
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
            let evidence = Evidence {
                keypoints: &capture.keypoints,
                matches: &matches,
                pairs: &pairs,
                camera,
                rotations: &rotations,
            };
            let mut map = map_globally(&evidence, 0, &Control::new()).unwrap();
            complete(&mut map, &evidence, &Control::new()).unwrap();
            assert_eq!(map.registered(), 20);
            let (centers, rotations) = capture.errors(&map);
            assert!(centers < 0.01 && rotations < 0.2, "{centers} {rotations}");
        }
    }

    #[test]
    fn the_second_radial_coefficient_is_refined_where_the_lens_has_one() {
        for (k2, refined) in [(0.0, false), (-0.1, true)] {
            let mut capture = Capture::walk(20, 1500, 0.2, 3);
            let mut map = capture.true_map_with_points();
            let straight = capture.camera.clone();
            let mut params = straight.params.clone();
            params.push(k2);
            let bent = Camera { model: CameraModel::Radial, params, ..straight.clone() };
            let Capture { poses, points, keypoints, seen, .. } = &mut capture;
            for (pose, (keypoints, seen)) in poses.iter().zip(keypoints.iter_mut().zip(seen.iter())) {
                for (keypoint, &point) in keypoints.iter_mut().zip(seen) {
                    let point = pose.transform(&points[point]);
                    *keypoint += bent.project(&point).unwrap() - straight.project(&point).unwrap();
                }
            }
            let control = Control::new();
            polish(&mut map, &capture.keypoints, &control).unwrap();
            let found = refine_second_radial(&mut map, &capture.keypoints, false, &control).unwrap();
            assert_eq!(found, refined);
            if refined {
                assert_eq!(map.camera.model, CameraModel::Radial);
                assert!((map.camera.params[4] / k2 - 1.0).abs() < 0.2, "{:?}", map.camera);
                assert!((map.camera.mean_focal() / 700.0 - 1.0).abs() < 2e-3, "{:?}", map.camera);
            } else {
                assert_eq!(map.camera.model, CameraModel::SimpleRadial);
            }
        }
    }

    #[test]
    fn an_image_without_rotation_is_placed_in_the_end() {
        let capture = Capture::orbit(16, 900, 0.4, 3);
        let (pairs, matches) = evidence_of(&capture, 6);
        let mut rotations: Vec<_> = capture.poses.iter().map(|p| Some(p.rotation)).collect();
        rotations[7] = None;
        let evidence = Evidence {
            keypoints: &capture.keypoints,
            matches: &matches,
            pairs: &pairs,
            camera: capture.camera.clone(),
            rotations: &rotations,
        };
        let mut map = map_globally(&evidence, 0, &Control::new()).unwrap();
        assert_eq!(map.registered(), 15);
        complete(&mut map, &evidence, &Control::new()).unwrap();
        assert_eq!(map.registered(), 16);
        assert!(capture.errors(&map).0 < 0.01);
    }
}
