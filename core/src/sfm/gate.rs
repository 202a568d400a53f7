//! Refuses to pass on what is no sound reconstruction, and says why.
//!
//! A wrong model with a confident face costs its user hours of training. Every refusal names the figures, the frames
//! and one thing to do about it.

use std::collections::BTreeMap;

use nalgebra::{Matrix3, Vector2};

use crate::camera::Camera;
use crate::control::Warning;
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;
use crate::video::{Frame, Frames};

use super::calibration::FAR_FROM_KNOWN;
use super::features::Features;
use super::map::{Keypoints, Map};
use super::report::{FrameRange, SfmReport, ranges};
use super::rig::Rig;
use super::two_view::TwoViewGeometry;
use super::wide_pairs::{share_of, wide_pairs};
use crate::statistics::quantile;

/// A frame with fewer features shows too little.
const FEW_FEATURES: usize = 100;
/// Fraction of the capture that a turn on the spot explains ([`rotation_only_pairs`]), from which nothing can be seen of depth.
const ROTATION_ONLY: f64 = 0.85;
/// Where frames cannot be placed and at least this fraction is such pairs, they are the reason.
const OFTEN_ROTATION_ONLY: f64 = 0.3;
/// A homography that is a rotation but for this (ratio of its singular values, minus 1).
const ROTATION_DEVIATION: f64 = 0.03;
/// Homography inliers over all inliers from which a homography explains a pair.
const HOMOGRAPHY_RATIO: f64 = 0.8;
/// Points whose rays meet at less than this (degrees) have no depth to speak of.
const LOW_PARALLAX: f64 = 1.0;
/// Where a turn on the spot explains most pairs, a focal length and distortion that are a little wrong imitate this
/// much (degrees) in frames that show no depth at all.
const MOSTLY_ROTATION_ONLY: f64 = 0.5;
const IMITATED_PARALLAX: f64 = 3.0;
/// Fraction of the frames that must be placed, and below which the user is warned.
const MIN_REGISTERED: f64 = 0.5;
const FEW_REGISTERED: f64 = 0.8;
/// Fraction of the verified matches that must agree with the model, and below which the user is warned.
const MIN_AGREEING: f64 = 0.5;
const FEW_AGREEING: f64 = 0.75;
/// Focal lengths of lenses that people film with, over the longer side of the picture; a telephoto lens has a longer one, which is believed
/// if it came out near what it is known to be.
const USUAL_FOCAL: (f64, f64) = (0.3, 5.0);

fn refuse(kind: ErrorKind, message: String, hint: &'static str) -> Error {
    Error::new(kind, message).hint(hint).at(Stage::Sfm)
}

/// `frame_000012.jpg to frame_000031.jpg (0:00.4 to 0:01.0), ...`, at most four ranges.
pub(crate) fn describe(ranges: &[FrameRange], frames: &Frames) -> String {
    let time = |t: f64| format!("{}:{:04.1}", (t / 60.0) as u64, t % 60.0);
    let one = |r: &FrameRange| {
        let (Some(first), Some(last)) = (frames.frames.get(r.first), frames.frames.get(r.last)) else {
            return format!("{} to {}", r.first, r.last);
        };
        let names =
            if r.first == r.last { first.name.clone() } else { format!("{} to {}", first.name, last.name) };
        match first.timestamp.zip(last.timestamp) {
            Some((a, b)) if r.first != r.last => format!("{names} ({} to {})", time(a), time(b)),
            Some((a, _)) => format!("{names} ({})", time(a)),
            None => names,
        }
    };
    let mut parts: Vec<String> = ranges.iter().take(4).map(one).collect();
    if ranges.len() > 4 {
        parts.push(format!("and {} more", ranges.len() - 4));
    }
    parts.join(", ")
}

/// # Errors
/// `TooFewFrames`; `InvalidMedia` if pictures by one camera differ in size.
pub(crate) fn check_frames(frames: &Frames) -> Result<()> {
    let count = frames.frames.len();
    if count < 3 {
        return Err(refuse(
            ErrorKind::TooFewFrames,
            format!("{count} usable frames; at least 3 are needed"),
            "film for longer while moving around the scene, or take more frames from the video",
        ));
    }
    let mut firsts: BTreeMap<u32, &Frame> = BTreeMap::new();
    for other in &frames.frames {
        let first = firsts.entry(other.camera).or_insert(other);
        if (other.width, other.height) == (first.width, first.height) {
            continue;
        }
        return Err(refuse(
            ErrorKind::InvalidMedia,
            format!(
                "{} has {}x{} pixels, but {} has {}x{}",
                first.name, first.width, first.height, other.name, other.width, other.height
            ),
            "pictures by one camera must have one size and orientation; another size is another camera",
        ));
    }
    Ok(())
}

/// # Errors
/// `InsufficientFeatures` if most frames show hardly any texture.
pub(crate) fn check_features(features: &[Features], frames: &Frames) -> Result<()> {
    let poor = ranges((0..features.len()).filter(|&i| features[i].keypoints.len() < FEW_FEATURES));
    let count: usize = poor.iter().map(|r| r.last - r.first + 1).sum();
    if 2 * count > features.len() {
        return Err(refuse(
            ErrorKind::InsufficientFeatures,
            format!(
                "{count} of {} frames have fewer than {FEW_FEATURES} features: {}",
                features.len(),
                describe(&poor, frames)
            ),
            "film something with texture, in good light, without motion blur",
        ));
    }
    Ok(())
}

/// Fraction of the capture that a camera turning on the spot (or standing still) would explain: of the wide pairs of each image
/// ([`wide_pairs`]), on average over all images that are in a verified pair.
///
/// Such pairs are homographies `K R K^-1`. The focal length is not known here, nor can it be found where it does not
/// matter, so the one that explains most counts.
pub(crate) fn rotation_only_pairs<'a>(
    pairs: impl IntoIterator<Item = &'a TwoViewGeometry>,
    camera: &Camera,
) -> f64 {
    let wide = wide_pairs(pairs, camera);
    let centre = camera.principal_point();
    let side = f64::from(camera.width.max(camera.height));
    let explained = |focal: f64| {
        let k = calibration_matrix(focal, &centre);
        let Some(inverse) = k.try_inverse() else { return 0.0 };
        share_of(&wide, |pair| {
            let is_homography =
                pair.homography_inliers as f64 >= HOMOGRAPHY_RATIO * pair.inliers.len() as f64;
            let turns = |h: &Matrix3<f64>| rotation_deviation(&(inverse * h * k)) < ROTATION_DEVIATION;
            is_homography && pair.homography.as_ref().is_some_and(turns)
        })
    };
    (0..40).map(|step| explained(side * 0.4 * 10f64.powf(f64::from(step) / 40.0))).fold(0.0, f64::max)
}

fn calibration_matrix(focal: f64, centre: &Vector2<f64>) -> Matrix3<f64> {
    Matrix3::new(focal, 0.0, centre.x, 0.0, focal, centre.y, 0.0, 0.0, 1.0)
}

/// Ratio of the largest to the smallest singular value, minus 1: 0 for a scaled rotation.
fn rotation_deviation(m: &Matrix3<f64>) -> f64 {
    let s = m.singular_values();
    if s.min() > 0.0 { s.max() / s.min() - 1.0 } else { f64::INFINITY }
}

/// # Errors
/// `InsufficientParallax` if the camera only turned or stood still; `InsufficientFeatures` if frames hardly match.
pub(crate) fn check_pairs(
    rig: &Rig,
    pairs: &[TwoViewGeometry],
    rotation_only: f64,
    frames: &Frames,
) -> Result<()> {
    let verified: Vec<&TwoViewGeometry> = pairs.iter().filter(|p| !p.inliers.is_empty()).collect();
    let count = frames.frames.len();
    // A station is known by any of its images.
    let mut matched = vec![false; rig.stations()];
    for pair in &verified {
        matched[rig.station_of(pair.first as usize)] = true;
        matched[rig.station_of(pair.second as usize)] = true;
    }
    let alone = ranges((0..count).filter(|&i| !matched[rig.station_of(i)]));
    let lost: usize = alone.iter().map(|r| r.last - r.first + 1).sum();
    if 2 * lost > count {
        return Err(refuse(
            ErrorKind::InsufficientFeatures,
            format!(
                "{lost} of {count} frames match no other frame ({} verified pairs): {}",
                verified.len(),
                describe(&alone, frames)
            ),
            "film slowly, in good light, so that neighbouring frames show the same things",
        ));
    }
    if rotation_only > ROTATION_ONLY {
        return Err(refuse(
            ErrorKind::InsufficientParallax,
            format!(
                "the camera stands still or turns on the spot: that explains {:.0} % of the widest of {} verified \
                 pairs of frames",
                100.0 * rotation_only,
                verified.len()
            ),
            "walk sideways or around the scene while filming",
        ));
    }
    Ok(())
}

/// Whether a map of `registered` frames, whose median point is seen over `parallax` degrees, shows depth.
fn check_depth(parallax: f64, rotation_only: f64, registered: usize) -> Result<()> {
    let message = if parallax < LOW_PARALLAX {
        format!(
            "the camera hardly moved: the median point is seen over {parallax:.2} degrees in {registered} frames"
        )
    } else if rotation_only > MOSTLY_ROTATION_ONLY && parallax < IMITATED_PARALLAX {
        format!(
            "the camera mostly turns on the spot: {:.0} % of the widest pairs of frames show no depth, and the median point \
             is seen over {parallax:.1} degrees only",
            100.0 * rotation_only
        )
    } else {
        return Ok(());
    };
    Err(refuse(ErrorKind::InsufficientParallax, message, "walk sideways or around the scene while filming"))
}

/// Whether a focal length (pixels) may be that of a picture whose longer side is `side`: it is that of a lens that people film
/// with, or near the one that is `known`.
fn is_possible_focal(focal: f64, side: f64, known: Option<f64>) -> bool {
    let is_near = |known: f64| (focal / known).ln().abs() < (1.0 + FAR_FROM_KNOWN).ln();
    (USUAL_FOCAL.0 * side..=USUAL_FOCAL.1 * side).contains(&focal) || known.is_some_and(is_near)
}

/// The cameras of `map` (0 is the first one) that came out as none can be, of those that made registered images: with a focal length
/// or a distortion that no lens has. `known_focals` is by camera the focal length in pixels that was given or EXIF names.
pub(crate) fn impossible_cameras(map: &Map, known_focals: &[Option<f64>]) -> Vec<usize> {
    let is_possible = |k: usize, camera: &Camera| {
        let side = f64::from(camera.width.max(camera.height));
        let known = known_focals.get(k).copied().flatten();
        is_possible_focal(camera.mean_focal(), side, known) && !bends_back(camera)
    };
    let impossible = |(k, camera): (usize, &Camera)| (!is_possible(k, camera)).then_some(k);
    // One without registered images still has the lens that it began with.
    map.cameras()
        .enumerate()
        .filter_map(impossible)
        .filter(|&k| map.registered_by(k).next().is_some())
        .collect()
}

/// Why a map is not sound that tears neighbouring frames apart after these images.
pub(crate) fn torn(broken_steps: &[usize], frames: &Frames) -> Error {
    let name = |i: usize| frames.frames.get(i).map_or_else(|| i.to_string(), |f| f.name.clone());
    let first = broken_steps.first().copied().unwrap_or(0);
    refuse(
        ErrorKind::UnreliableReconstruction,
        format!(
            "the model tears neighbouring frames apart at {} places, first between {} and {}: a part of the video is mistaken for \
             another that looks alike",
            broken_steps.len(),
            name(first),
            name(first + 1)
        ),
        "film more slowly and without cuts there, or put something distinct beside what looks the same from several sides",
    )
}

/// Refuses a map that needs a lens that there is not.
fn check_lenses(map: &Map, known_focals: &[Option<f64>]) -> Result<()> {
    let impossible = impossible_cameras(map, known_focals);
    let Some(camera) = impossible.first().and_then(|&k| map.cameras().nth(k)) else { return Ok(()) };
    let side = camera.width.max(camera.height);
    let focal = camera.mean_focal();
    Err(refuse(
        ErrorKind::IntrinsicsUnreliable,
        format!(
            "the focal length came out as {focal:.0} pixels for pictures of {} pixels, distortion {:?}",
            side, camera.params
        ),
        "film from more directions, or give the focal length (--focal, or focal in a library; a service reads it from the EXIF data \
         of photographs)",
    ))
}

/// Judges a finished map; returns what the user should know. `known_focals` is by camera the focal length in pixels, if it was given
/// or EXIF names it: it says more of what is possible than the usual range. So many frames are `elsewhere`: they show other places,
/// which become models of their own, and are no fault of this one.
///
/// # Errors
/// `PartialReconstruction`, `InsufficientParallax`, `IntrinsicsUnreliable`, `UnreliableReconstruction`.
pub(crate) fn check_model(
    report: &SfmReport,
    map: &Map,
    frames: &Frames,
    known_focals: &[Option<f64>],
    elsewhere: usize,
) -> Result<Vec<Warning>> {
    let mut warnings = Vec::new();
    let strays = ranges(map.strays());
    let stray: usize = strays.iter().map(|r| r.last - r.first + 1).sum();
    let (registered, total) = (report.registered, report.frames - stray);
    let fraction = registered as f64 / total as f64;
    let of_this_place = total.saturating_sub(elsewhere);
    if registered < 3 || (registered as f64) < MIN_REGISTERED * of_this_place as f64 {
        if report.rotation_only_pairs > OFTEN_ROTATION_ONLY {
            return Err(refuse(
                ErrorKind::InsufficientParallax,
                format!(
                    "the camera mostly turns on the spot: {:.0} % of the widest of the {} pairs of frames show no \
                     depth, and only {registered} of {total} frames could be placed",
                    100.0 * report.rotation_only_pairs,
                    report.verified_pairs
                ),
                "walk sideways or around the scene while filming",
            ));
        }
        return Err(refuse(
            ErrorKind::PartialReconstruction,
            format!(
                "only {registered} of {total} frames could be placed; not {}",
                describe(&report.unregistered, frames)
            ),
            "film slowly, without cuts and fast turns, and keep the same things in view from frame to frame",
        ));
    }
    let parallax = report.median_parallax_degrees;
    check_depth(parallax, report.rotation_only_pairs, registered)?;
    check_lenses(map, known_focals)?;
    if !report.broken_steps.is_empty() {
        return Err(torn(&report.broken_steps, frames));
    }
    if report.agreeing_matches < MIN_AGREEING {
        return Err(refuse(
            ErrorKind::UnreliableReconstruction,
            format!(
                "only {:.0} % of the verified matches agree with the model of {registered} frames",
                100.0 * report.agreeing_matches
            ),
            "the scene may move, repeat itself or be symmetric: film something that stands still and has distinct parts",
        ));
    }
    if fraction < FEW_REGISTERED {
        warnings.push(Warning::new(
            "few_registered",
            format!(
                "{registered} of {total} frames were placed; not {}",
                describe(&report.unregistered, frames)
            ),
        ));
    }
    if stray > 0 {
        warnings.push(Warning::new(
            "other_cameras",
            format!(
                "{stray} pictures by other cameras than most see too little of the scene to be placed: {}",
                describe(&strays, frames)
            ),
        ));
    }
    if report.agreeing_matches < FEW_AGREEING {
        warnings.push(Warning::new(
            "contradicting_matches",
            format!(
                "only {:.0} % of the verified matches agree with the model: the scene may move or repeat itself",
                100.0 * report.agreeing_matches
            ),
        ));
    }
    if parallax < 2.0 * LOW_PARALLAX {
        warnings.push(Warning::new(
            "low_parallax",
            format!("the median point is seen over {parallax:.1} degrees only: depth is uncertain"),
        ));
    }
    if report.mean_reprojection_error > 1.5 {
        warnings.push(Warning::new(
            "large_reprojection_error",
            format!("the mean reprojection error is {:.2} pixels", report.mean_reprojection_error),
        ));
    }
    if let Some(jump) = largest_jump(map).filter(|_| frames.is_sequential()) {
        warnings.push(Warning::new("uneven_path", jump));
    }
    Ok(warnings)
}

/// Whether the distortion folds over what a lens without any would show in the corners of the picture. Whether something is seen in the
/// corners themselves is not asked: beyond a lens that bends them far inwards its polynomial shows nothing, and the poses are right all the
/// same (of a third of the films through bent lenses in `docs/verdict.md`, and of a fisheye that is not known as one yet). What lies
/// there is left out where pictures are straightened.
fn bends_back(camera: &Camera) -> bool {
    let corner =
        Vector2::new(0.5 * f64::from(camera.width), 0.5 * f64::from(camera.height)) / camera.mean_focal();
    (1..=20).any(|step| {
        let (_, jacobian) = camera.distort(&(corner * (f64::from(step) / 20.0)));
        jacobian.determinant() <= 0.0
    })
}

/// A step between consecutive registered frames that is far larger than all others, per frame.
fn largest_jump(map: &Map) -> Option<String> {
    // The images of a station do not step from one to the next.
    let firsts = (0..map.rig.stations()).map(|s| map.rig.images_of(s).start);
    let placed: Vec<usize> = firsts.filter(|&i| map.poses[i].is_some()).collect();
    let step = |w: &[usize]| {
        let (a, b) = (map.poses[w[0]]?.centre(), map.poses[w[1]]?.centre());
        Some(((b - a).norm() / (w[1] - w[0]) as f64, w[0], w[1]))
    };
    let steps: Vec<(f64, usize, usize)> = placed.windows(2).filter_map(step).collect();
    let mut lengths: Vec<f64> = steps.iter().map(|s| s.0).collect();
    let usual = quantile(&mut lengths, 0.9)?;
    let (length, from, to) = *steps.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    (length > 10.0 * usual).then(|| {
        format!("the camera jumps {:.0} times its usual step between frames {from} and {to}", length / usual)
    })
}

/// Registered images, observations and errors of a map, by which two maps are compared; larger is better.
pub(crate) fn quality(map: &Map, keypoints: &Keypoints) -> (usize, usize) {
    let registered = map.registered();
    let good = map
        .points
        .iter()
        .flat_map(|p| p.track.iter().map(move |o| (p, o)))
        .filter(|(p, o)| {
            let pixel = &keypoints[o.image as usize][o.keypoint as usize];
            map.reprojection_error(o.image as usize, &p.xyz, pixel) < 2.0
        })
        .count();
    (registered, good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::CameraModel;
    use crate::sfm::other_cameras::OtherCameras;
    use crate::sfm::synthetic::Capture;
    use crate::sfm::two_view::TwoViewConfig;
    use nalgebra::UnitQuaternion;

    fn frames(count: usize) -> Frames {
        let frame = |i: usize| Frame {
            timestamp: Some(i as f64),
            ..Frame::new(Frames::name_of(i as u64), i as u64, 640, 480)
        };
        Frames::of_images("", (0..count).map(frame).collect())
    }

    fn pair(homography: Matrix3<f64>, ratio: f64) -> TwoViewGeometry {
        TwoViewGeometry {
            first: 0,
            second: 1,
            config: TwoViewConfig::Uncalibrated,
            fundamental: None,
            homography: Some(homography),
            second_from_first: None,
            inliers: (0..100).map(|k| [k, k]).collect(),
            homography_inliers: (100.0 * ratio) as usize,
            median_parallax: 0.0,
        }
    }

    #[test]
    fn a_telephoto_lens_is_possible_where_it_is_known() {
        for (focal, known, possible) in [
            (1200.0, None, true),
            (100.0, None, false),
            (6400.0, None, false),
            (6400.0, Some(6000.0), true),
            (6400.0, Some(3000.0), false),
            // What is usual is believed whatever EXIF says: it may tell of another lens.
            (1200.0, Some(6000.0), true),
            (f64::NAN, Some(6000.0), false),
        ] {
            assert_eq!(is_possible_focal(focal, 1000.0, known), possible, "{focal} {known:?}");
        }
    }

    #[test]
    fn a_camera_must_be_possible_that_made_a_part_of_the_map() {
        let mut map = Capture::walk(12, 300, 0.0, 4).true_map();
        let of_image: Vec<usize> = (0..12).map(|i| usize::from(i % 4 == 1)).collect();
        let telephoto = Camera::from_focal(CameraModel::SimpleRadial, 8900.0, 1200, 900);
        map.others = OtherCameras::new(vec![telephoto], &of_image);
        assert_eq!(impossible_cameras(&map, &[None, None]), [1]);
        assert!(impossible_cameras(&map, &[None, Some(9000.0)]).is_empty());
        check_lenses(&map, &[None, Some(9000.0)]).unwrap();
        let error = check_lenses(&map, &[None, None]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IntrinsicsUnreliable);
        assert!(error.message().contains("8900 pixels for pictures of 1200 pixels"), "{error}");
        // How to give it is said for every way to ask for a scene.
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("--focal") && hint.contains("EXIF"), "{hint}");
        // What is known of one camera says nothing of another.
        assert_eq!(impossible_cameras(&map, &[Some(9000.0), None]), [1]);
        map.unregister(&[1, 5, 9]);
        assert!(impossible_cameras(&map, &[None, None]).is_empty());
        map.camera.params[3] = -3.0;
        assert_eq!(impossible_cameras(&map, &[None, None]), [0]);
    }

    #[test]
    fn turning_on_the_spot_is_told_from_moving_along_a_wall() {
        let camera = Camera::from_focal(CameraModel::SimpleRadial, 768.0, 640, 480);
        let k = calibration_matrix(500.0, &camera.principal_point());
        let inverse = k.try_inverse().unwrap();
        let turn = |i: f64| {
            let r =
                UnitQuaternion::from_euler_angles(0.05, 0.1 * i, 0.02 * i).to_rotation_matrix().into_inner();
            pair(k * r * inverse, 0.95)
        };
        let turns: Vec<_> = (1..6).map(|i| turn(f64::from(i))).collect();
        assert!(rotation_only_pairs(&turns, &camera) > 0.99);
        let along = |i: f64| {
            let shift = Matrix3::identity()
                + nalgebra::Vector3::new(0.1 * i, 0.0, 0.02) * nalgebra::RowVector3::new(0.0, 0.0, 1.0);
            pair(k * shift * inverse, 0.95)
        };
        let moves: Vec<_> = (1..6).map(|i| along(f64::from(i))).collect();
        assert!(rotation_only_pairs(&moves, &camera) < 0.3);
        let error = check_pairs(&Rig::of_single_images(2), &turns, 1.0, &frames(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsufficientParallax);
        assert!(error.hint_text().is_some());
    }

    #[test]
    fn how_dense_the_frames_are_says_nothing_of_turns() {
        let camera = Camera::from_focal(CameraModel::SimpleRadial, 768.0, 640, 480);
        let k = calibration_matrix(500.0, &camera.principal_point());
        let inverse = k.try_inverse().unwrap();
        // The camera goes to the side and then turns on the spot. Each step moves the picture by about 2 pixels, and where it goes,
        // things at other depths by a fifth more or less.
        let between = |walked: f64, turned: f64| {
            let shift = Matrix3::identity()
                + nalgebra::Vector3::new(0.004 * walked, 0.0, 0.0) * nalgebra::RowVector3::new(0.0, 0.0, 1.0);
            let turn = UnitQuaternion::from_euler_angles(0.0, 0.0035 * turned, 0.0)
                .to_rotation_matrix()
                .into_inner();
            let is_within_tolerance = 0.2 * 2.0 * walked < 4.0;
            pair(k * turn * shift * inverse, if is_within_tolerance { 0.95 } else { 0.5 })
        };
        // Of 180 steps the first `walked` are to the side; each `every`-th is a frame.
        let share = |walked: usize, every: usize| {
            let pair_at = |i: usize, j: usize| {
                let before = [i, j].map(|frame| (every * frame).min(walked) as f64);
                let after = [i, j].map(|frame| (every * frame).saturating_sub(walked) as f64);
                let (first, second) = (i as u32, j as u32);
                TwoViewGeometry { first, second, ..between(before[1] - before[0], after[1] - after[0]) }
            };
            let frames = 180 / every;
            let mut pairs = Vec::new();
            for offset in [1, 2, 3, 4, 6, 8, 12, 16, 24] {
                pairs.extend((offset..frames).map(|j| pair_at(j - offset, j)));
            }
            rotation_only_pairs(&pairs, &camera)
        };
        let (dense, sparse) = (share(180, 1), share(180, 6));
        assert!(dense < 0.1 && (dense - sparse).abs() < 0.1, "{dense} {sparse}");
        for every in [1, 6] {
            assert!(share(0, every) > 0.99, "{every}: {}", share(0, every));
        }
        let half = share(90, 1);
        assert!((half - 0.5).abs() < 0.1, "{half}");
    }

    #[test]
    fn depth_must_be_more_than_a_wrong_lens_imitates() {
        // A camera that turned, bent into a map; one that moved little in front of a desk; one that stood.
        for (parallax, rotation_only, good) in
            [(1.99, 0.57, false), (5.5, 0.16, true), (1.5, 0.2, true), (8.0, 0.6, true), (0.5, 0.0, false)]
        {
            let result = check_depth(parallax, rotation_only, 40);
            assert_eq!(result.is_ok(), good, "{parallax} {rotation_only}");
            assert!(result.err().is_none_or(|e| e.kind() == ErrorKind::InsufficientParallax));
        }
    }

    #[test]
    fn two_frames_are_too_few_and_sizes_must_agree() {
        assert_eq!(check_frames(&frames(2)).unwrap_err().kind(), ErrorKind::TooFewFrames);
        let mut mixed = frames(4);
        mixed.frames[2].width = 480;
        let error = check_frames(&mixed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        assert!(error.message().contains("frame_000002.jpg"));
    }

    #[test]
    fn dark_frames_are_named() {
        let features = vec![Features::default(); 5];
        let error = check_features(&features, &frames(5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsufficientFeatures);
        assert!(error.message().contains("0:04.0"), "{error}");
    }
}
