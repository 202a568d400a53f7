//! A film of panoramas gives the poses of all its sides.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;

use libreconstruct::camera::{CameraModel, Pose};
use libreconstruct::sfm::{Grade, SfmOptions, reconstruct};
use libreconstruct::{Control, ErrorKind};
use libreconstruct_tests::alignment::aligned_errors;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, Staging, film_frames};

#[test]
fn a_walk_with_a_panoramic_camera_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let options = CaptureOptions {
        seed: 3,
        width: 1024,
        height: 512,
        frames: 16,
        frame_rate: 4.0,
        arc_degrees: 120.0,
        panorama: true,
        ..Default::default()
    };
    let (frames, truth) = film_frames(&[Film::new(&options)], folder.path()).unwrap();
    assert_eq!(frames.frames.len(), 6 * 16);
    let truth: BTreeMap<u64, Pose> = truth.into_iter().enumerate().map(|(k, p)| (k as u64, p)).collect();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let verdict = found.report.verdict.as_ref().unwrap();
    assert_eq!((found.report.registered, verdict.grade), (96, Grade::Good), "{verdict:?}");
    assert!(found.components.is_empty() && found.report.rolling_shutter.is_none());
    // The lens is known: half a side for 45 degrees.
    assert_eq!(found.report.camera_model, CameraModel::SimplePinhole);
    assert_eq!(found.report.camera_params[0], f64::from(frames.frames[0].width) / 2.0);
    let poses = found.model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
    let errors = aligned_errors(&truth, &poses).unwrap();
    assert_eq!(errors.images.len(), 96);
    assert!(errors.rotation_degrees < 0.15 && errors.position < 0.005, "{errors:?}");
    // The sides of a panorama have one centre, and turns that are known exactly.
    for sides in frames.frames.chunks(6).zip(0..) {
        let (sides, panorama) = sides;
        let poses: Vec<Pose> = (0..6).map(|k| found.model.images[&(6 * panorama + k + 1)].pose).collect();
        let front = sides[0].side.unwrap().side_from_panorama().inverse() * poses[0].rotation;
        for (frame, pose) in sides.iter().zip(&poses) {
            let panorama = frame.side.unwrap().side_from_panorama().inverse() * pose.rotation;
            assert!(panorama.angle_to(&front) < 1e-9 && (pose.centre() - poses[0].centre()).norm() < 1e-9);
        }
    }
}

#[test]
fn a_panoramic_camera_that_turns_on_the_spot_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = CaptureOptions {
        seed: 3,
        width: 768,
        height: 384,
        frames: 8,
        frame_rate: 4.0,
        arc_degrees: 120.0,
        staging: Staging::OnTheSpot,
        panorama: true,
        ..Default::default()
    };
    let (frames, _) = film_frames(&[Film::new(&options)], folder.path()).unwrap();
    let error = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientParallax, "{error}");
}
