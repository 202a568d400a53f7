//! The verdict on whole reconstructions: a sound capture is good, and one in which the camera stood is no success.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;

use libreconstruct::sfm::{Doubt, Grade, SfmOptions, reconstruct};
use libreconstruct::{Control, ErrorKind};
use libreconstruct_tests::alignment::aligned_errors;
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
