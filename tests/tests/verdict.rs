//! The verdict on whole reconstructions: a sound capture is good, and one in which the camera stood is no success.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;

use libreconstruct::sfm::{Doubt, Grade, SfmOptions, reconstruct};
use libreconstruct::{Control, ErrorKind};
use libreconstruct_tests::alignment::aligned_errors;
use libreconstruct_tests::drawn_captures::{KINDS, draw};
use libreconstruct_tests::synthetic::{CaptureOptions, Film, Staging, film_frames};

fn small(staging: Staging, arc_degrees: f64) -> CaptureOptions {
    CaptureOptions {
        seed: 3,
        width: 400,
        height: 300,
        frames: 16,
        frame_rate: 8.0,
        arc_degrees,
        staging,
        ..Default::default()
    }
}

#[test]
fn a_walk_around_a_table_is_good_and_as_exact_as_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (frames, truth) = film_frames(&[Film::new(&small(Staging::Around, 60.0))], folder.path()).unwrap();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let verdict = found.report.verdict.unwrap();
    assert_eq!((verdict.grade, verdict.reasons.len()), (Grade::Good, 0), "{verdict:?}");
    let truth: BTreeMap<u64, _> = truth.into_iter().enumerate().map(|(k, p)| (k as u64, p)).collect();
    let poses = found.model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
    let errors = aligned_errors(&truth, &poses).unwrap();
    assert!(errors.rotation_degrees <= verdict.rotation_bound_degrees, "{errors:?} {verdict:?}");
    assert!(errors.position <= verdict.position_bound, "{errors:?} {verdict:?}");
    assert_eq!(verdict.frames.len(), found.model.images.len());
    assert!(!found.report.warnings.iter().any(|w| w.code == "poses_doubtful"));
}

#[test]
fn things_that_turn_before_a_camera_that_stands_are_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let (frames, _) = film_frames(&[Film::new(&small(Staging::Turned, 70.0))], folder.path()).unwrap();
    let error = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap_err();
    let kinds = [ErrorKind::UnreliableReconstruction, ErrorKind::InsufficientParallax];
    assert!(kinds.contains(&error.kind()) && error.hint_text().is_some(), "{error:?}");
    // Who asks for the model all the same is told what it is.
    let keep = SfmOptions { keep_broken: true, ..Default::default() };
    if let Ok(kept) = reconstruct(&frames, &keep, &Control::new()) {
        let verdict = kept.report.verdict.unwrap();
        assert_eq!((verdict.grade, verdict.reasons[0].doubt), (Grade::Broken, Doubt::StillCamera));
    }
}

/// A film of the study of verdicts.
fn drawn(kind: &str, seed: u64) -> CaptureOptions {
    let kind = KINDS.iter().find(|k| k.name == kind).unwrap();
    draw(kind, seed, 320).remove(0)
}

/// From the focal length that its pairs seem to say, twice the true one, the map of this film is off by 3 degrees and a quarter of
/// the path.
#[test]
fn a_walk_along_a_wall_finds_out_of_a_wrong_focal_length() {
    let folder = tempfile::tempdir().unwrap();
    let options = drawn("along", 3109);
    let (frames, truth) = film_frames(&[Film::new(&options)], folder.path()).unwrap();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    let focal = found.model.cameras.values().next().unwrap().mean_focal();
    let true_focal = options.relative_focal * f64::from(options.width.max(options.height));
    assert!((focal / true_focal).ln().abs() < 0.02, "{focal} instead of {true_focal}");
    let truth: BTreeMap<u64, _> = truth.into_iter().enumerate().map(|(k, p)| (k as u64, p)).collect();
    let poses = found.model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
    let errors = aligned_errors(&truth, &poses).unwrap();
    assert!(errors.rotation_degrees < 0.5 && errors.position < 0.01, "{errors:?}");
    assert_eq!(found.report.attempts.iter().filter(|attempt| attempt.chosen).count(), 1);
}

/// This turn on the spot comes out as a smooth path on a circle, with depths to match. Of most others the map falls apart, which is refused
/// more easily; a small change of the program may make it one of those: then it takes another film (`turning_excess` below 2).
#[test]
fn a_turn_on_the_spot_that_looks_like_a_path_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let film = Film::new(&drawn("on_the_spot", 3119));
    let (frames, _) = film_frames(&[film], folder.path()).unwrap();
    let keep = SfmOptions { keep_broken: true, ..Default::default() };
    let kept = reconstruct(&frames, &keep, &Control::new()).unwrap();
    let verdict = kept.report.verdict.unwrap();
    assert_eq!((verdict.grade, verdict.reasons[0].doubt), (Grade::Broken, Doubt::LittleParallax));
    assert!(verdict.evidence.turning_excess < 2.0 && verdict.evidence.largest_step < 2.0, "{verdict:?}");
}
