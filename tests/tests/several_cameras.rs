//! Photographs of one room by two cameras: each gets a lens of its own, and all have their places in one model.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::path::Path;

use libreconstruct::Control;
use libreconstruct::camera::{Camera, Pose, undistort};
use libreconstruct::sfm::{Grade, Reconstruction, SfmOptions, reconstruct};
use libreconstruct::video::Frames;
use libreconstruct_tests::alignment::aligned_errors;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, Scenery, take_photographs};

/// A phone.
fn first() -> CaptureOptions {
    CaptureOptions {
        seed: 8,
        width: 400,
        height: 300,
        frames: 24,
        frame_rate: 6.0,
        arc_degrees: 150.0,
        relative_focal: 0.8,
        distortion: 0.02,
        ..Default::default()
    }
}

/// A camera with a longer lens and a wider picture, carried along the same way.
fn second() -> CaptureOptions {
    CaptureOptions { width: 480, height: 320, relative_focal: 1.05, distortion: -0.06, ..first() }
}

/// Pictures of two cameras on one way, of which the second takes some.
fn photographs(
    folder: &Path,
    cameras: [&CaptureOptions; 2],
    is_second: impl Fn(usize) -> bool,
) -> (Frames, BTreeMap<u64, Pose>) {
    let films = cameras.map(Film::new);
    let (frames, poses) = take_photographs(&films, folder, |k| usize::from(is_second(k))).unwrap();
    (frames, poses.into_iter().enumerate().map(|(k, pose)| (k as u64, pose)).collect())
}

fn errors(found: &Reconstruction, truth: &BTreeMap<u64, Pose>) -> (usize, f64, f64) {
    let poses = found.model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
    let errors = aligned_errors(truth, &poses).unwrap();
    (errors.images.len(), errors.rotation_degrees, errors.position)
}

fn is_lens_of(camera: &Camera, options: &CaptureOptions) -> bool {
    let real = options.camera();
    let is_near = |a: f64, b: f64, by: f64| (a - b).abs() < by;
    is_near(camera.params[0] / real.params[0], 1.0, 0.01)
        && is_near(camera.params[3], options.distortion, 0.02)
}

#[test]
fn pictures_by_two_cameras_become_one_model_with_two_lenses() {
    let folder = tempfile::tempdir().unwrap();
    let (frames, truth) = photographs(folder.path(), [&first(), &second()], |k| k % 3 == 1);
    let by = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| reconstruct(&frames, &SfmOptions::default(), &Control::new())).unwrap()
    };
    let found = by(2);
    let (placed, rotation, position) = errors(&found, &truth);
    assert_eq!(placed, 24, "{:?}", found.report.warnings);
    assert!(rotation < 0.15 && position < 0.003, "{rotation} {position}");
    assert_eq!(found.report.verdict.as_ref().unwrap().grade, Grade::Good, "{:?}", found.report.verdict);
    let cameras = &found.model.cameras;
    assert!(cameras.len() == 2 && is_lens_of(&cameras[&1], &first()), "{cameras:?}");
    assert!(is_lens_of(&cameras[&2], &second()), "{cameras:?}");
    for (id, image) in &found.model.images {
        assert_eq!(image.camera_id, 1 + u32::from((id - 1) % 3 == 1), "{}", image.name);
    }
    let [other] = &found.report.other_cameras[..] else { panic!("{:?}", found.report.other_cameras) };
    assert!(other.registered == 8 && other.camera_params == cameras[&2].params, "{other:?}");
    // The training gets a pinhole camera for each.
    let straight =
        undistort(&found.model, folder.path(), &folder.path().join("straight"), &Control::new()).unwrap();
    assert!(straight.cameras.len() == 2 && straight.cameras.values().all(|c| !c.has_distortion()));
    assert!(straight.cameras[&1].width != straight.cameras[&2].width);

    assert_eq!(by(1).model, found.model);
}

#[test]
fn pictures_through_a_zoom_lens_become_one_model() {
    let folder = tempfile::tempdir().unwrap();
    // What is seen through one focal length is 52 degrees apart: no map can be made of it.
    let through = |k: u32| CaptureOptions {
        frames: 32,
        arc_degrees: 210.0,
        relative_focal: 0.7 * 1.09f64.powi(k as i32),
        ..first()
    };
    let scenery = Scenery::build(&through(0));
    let films: Vec<Film> = (0..8).map(|k| Film::in_scenery(scenery.clone(), &through(k))).collect();
    let (mut frames, poses) = take_photographs(&films, folder.path(), |k| k % 8).unwrap();
    // As EXIF data say it.
    for frame in &mut frames.frames {
        frame.focal_prior = Some(through(frame.camera).relative_focal * f64::from(frame.width));
    }
    let truth: BTreeMap<u64, Pose> = (0u64..).zip(poses).collect();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let (placed, rotation, position) = errors(&found, &truth);
    assert!(placed >= 28, "{placed}: {:?}", found.report.warnings);
    assert!(rotation < 0.3 && position < 0.01, "{rotation} {position}");
    assert!(found.model.cameras.len() >= 7 && found.model.cameras.contains_key(&1));
    assert_eq!(found.report.other_cameras.len() + 1, found.model.cameras.len());
}

#[test]
fn what_another_camera_took_elsewhere_stays_out_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // The room as in a mirror: another place to who looks for the same features.
    let elsewhere = CaptureOptions { mirrored: true, ..second() };
    let (frames, mut truth) = photographs(folder.path(), [&first(), &elsewhere], |k| k % 6 == 1);
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let stray: Vec<u64> = (0..24).filter(|k| k % 6 == 1).collect();
    stray.iter().for_each(|k| assert!(!found.model.images.contains_key(&(*k as u32 + 1)), "{k}"));
    truth.retain(|k, _| !stray.contains(k));
    let (placed, rotation, position) = errors(&found, &truth);
    assert!(placed == 20 && rotation < 0.2 && position < 0.005, "{placed} {rotation} {position}");
    assert!(found.report.other_cameras.is_empty() && found.model.cameras.len() == 1);
    let warning = found.report.warnings.iter().find(|w| w.code == "other_cameras");
    let name = &frames.frames[1].name;
    assert!(warning.is_some_and(|w| w.message.contains(&name[..])), "{:?}", found.report.warnings);
}

#[test]
fn a_telephoto_lens_that_saw_something_else_costs_the_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = CaptureOptions { mirrored: true, ..second() };
    let (mut frames, _) = photographs(folder.path(), [&first(), &elsewhere], |k| k % 6 == 1);
    // As EXIF says it of a lens that is longer than the usual ones.
    for frame in frames.frames.iter_mut().filter(|frame| frame.camera == 1) {
        frame.focal_prior = Some(6.0 * f64::from(frame.width));
    }
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let missing: Vec<u32> = (0..24u32).filter(|k| !found.model.images.contains_key(&(k + 1))).collect();
    assert_eq!(missing, [1, 7, 13, 19], "{:?}", found.report.warnings);
    assert!(found.report.warnings.iter().any(|w| w.code == "other_cameras"), "{:?}", found.report.warnings);
}
