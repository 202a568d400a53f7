//! A film of two places, or of three, gives a model of each.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::{BTreeMap, BTreeSet};

use image::codecs::jpeg::JpegEncoder;
use libreconstruct::Control;
use libreconstruct::camera::{Pose, SparseModel};
use libreconstruct::sfm::{FrameRange, SfmOptions, reconstruct};
use libreconstruct_tests::alignment::aligned_errors;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, film_frames};

#[test]
fn two_clips_that_share_nothing_become_two_models() {
    let folder = tempfile::tempdir().unwrap();
    let clip = |mirrored, frames| CaptureOptions {
        seed: 1,
        width: 400,
        height: 300,
        frames,
        frame_rate: 8.0,
        arc_degrees: 70.0,
        mirrored,
        ..Default::default()
    };
    let films = [Film::new(&clip(false, 18)), Film::new(&clip(true, 14))];
    let (frames, truth) = film_frames(&films, folder.path()).unwrap();
    let truth: BTreeMap<u64, Pose> = truth.into_iter().enumerate().map(|(k, p)| (k as u64, p)).collect();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    assert_eq!((found.report.registered, found.components.len()), (18, 1), "{:?}", found.report.warnings);
    let report = &found.report.components[0];
    assert_eq!(report.images, [FrameRange { first: 18, last: 31 }]);
    assert_eq!((report.registered, report.points), (14, found.components[0].points.len()));
    assert_eq!(report.verdict.as_ref().unwrap().frames[0].frame, 18);
    assert!(found.report.warnings.iter().any(|w| w.code == "other_place"), "{:?}", found.report.warnings);
    // Each is as right as if it had been filmed alone.
    let is_right = |model: &SparseModel| {
        let poses = model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
        let errors = aligned_errors(&truth, &poses).unwrap();
        assert_eq!(errors.images.len(), model.images.len());
        assert!(errors.rotation_degrees < 0.2 && errors.position < 0.01, "{errors:?}");
    };
    is_right(&found.model);
    is_right(&found.components[0]);
    let names: BTreeMap<u32, &str> =
        found.components[0].images.iter().map(|(id, image)| (*id, image.name.as_str())).collect();
    assert!(names.iter().all(|(id, name)| frames.frames[*id as usize - 1].name == *name));
}

#[test]
fn three_clips_become_three_models_though_none_has_half_of_the_frames() {
    let folder = tempfile::tempdir().unwrap();
    let clip = |seed, mirrored| CaptureOptions {
        seed,
        width: 400,
        height: 300,
        frames: 14,
        frame_rate: 8.0,
        arc_degrees: 70.0,
        mirrored,
        ..Default::default()
    };
    let films = [Film::new(&clip(1, false)), Film::new(&clip(1, true)), Film::new(&clip(2, false))];
    let (frames, truth) = film_frames(&films, folder.path()).unwrap();
    // Rooms have boards and bricks of the same kinds: as a negative, the third one looks like none of the others.
    for k in 28..42 {
        let path = frames.path(k);
        let mut picture = image::open(&path).unwrap();
        picture.invert();
        let mut bytes = Vec::new();
        picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, 95)).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let truth: BTreeMap<u64, Pose> = truth.into_iter().enumerate().map(|(k, p)| (k as u64, p)).collect();
    let found = reconstruct(&frames, &SfmOptions::default(), &Control::new()).unwrap();
    assert_eq!(found.components.len(), 2, "{:?}", found.report.warnings);
    let mut clips = BTreeSet::new();
    for model in std::iter::once(&found.model).chain(&found.components) {
        let poses: BTreeMap<u64, Pose> =
            model.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
        let of: BTreeSet<u64> = poses.keys().map(|k| k / 14).collect();
        assert!(of.len() == 1 && poses.len() >= 12, "{:?}", poses.keys());
        clips.extend(of);
        let errors = aligned_errors(&truth, &poses).unwrap();
        assert!(errors.rotation_degrees < 0.5 && errors.position < 0.02, "{errors:?}");
    }
    assert_eq!(clips.len(), 3);
}
