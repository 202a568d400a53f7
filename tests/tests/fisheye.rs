//! A film through a fisheye is recognised as one.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;

use libreconstruct::Control;
use libreconstruct::camera::{Pose, undistort};
use libreconstruct::sfm::{Grade, Reconstruction, SfmOptions, reconstruct};
use libreconstruct_tests::alignment::aligned_errors;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, film_frames};

/// Films `degrees` along the longer side of the picture, by a fisheye. With the errors of the poses: rotations in degrees, and
/// places as a share of the path.
fn found(folder: &std::path::Path, degrees: f64) -> (CaptureOptions, Reconstruction, (f64, f64)) {
    let options = CaptureOptions {
        seed: 8,
        width: 400,
        height: 300,
        frames: 24,
        frame_rate: 6.0,
        arc_degrees: 150.0,
        fisheye: true,
        relative_focal: 1.0 / degrees.to_radians(),
        distortion: 0.02,
        ..Default::default()
    };
    let (frames, truth) = film_frames(&[Film::new(&options)], folder).unwrap();
    let truth: BTreeMap<u64, Pose> = truth.into_iter().enumerate().map(|(k, p)| (k as u64, p)).collect();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let poses = found.model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
    let errors = aligned_errors(&truth, &poses).unwrap();
    assert_eq!(errors.images.len(), 24);
    (options, found, (errors.rotation_degrees, errors.position))
}

#[test]
fn an_action_camera_is_recognised_and_its_pictures_straightened() {
    let folder = tempfile::tempdir().unwrap();
    let (options, found, (rotation, position)) = found(folder.path(), 120.0);
    assert!(found.report.camera_model.is_fisheye(), "{:?}", found.report);
    let (focal, real) = (found.report.camera_params[0], options.camera().params[0]);
    assert!((focal / real - 1.0).abs() < 0.01, "{focal}, not {real}");
    assert!(rotation < 0.1 && position < 0.005, "{rotation} {position}");
    assert_eq!(found.report.verdict.as_ref().unwrap().grade, Grade::Good);
    // Pinhole pictures for the training: wider than the fisheye's, with its focal length.
    let straight =
        undistort(&found.model, folder.path(), &folder.path().join("straight"), &Control::new()).unwrap();
    let camera = &straight.cameras[&1];
    assert!(
        camera.params[0] == focal && camera.width > options.width && !camera.has_distortion(),
        "{camera:?}"
    );
}

#[test]
fn a_fisheye_that_is_hardly_wide_is_recognised_once_keypoints_are_exact() {
    let folder = tempfile::tempdir().unwrap();
    let (_, found, (rotation, position)) = found(folder.path(), 80.0);
    assert!(found.report.camera_model.is_fisheye(), "{:?}", found.report);
    assert!(rotation < 0.15 && position < 0.01, "{rotation} {position}");
}
