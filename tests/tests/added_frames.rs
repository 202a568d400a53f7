//! Photographs by a second camera are added to the model of a film.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use libreconstruct::camera::{Pose, SparseModel};
use libreconstruct::pipeline::{PosesOptions, find_poses, frames_added_to, frames_for, poses_in_memory};
use libreconstruct::sfm::SfmOptions;
use libreconstruct::video::{FrameOptions, Frames};
use libreconstruct::{Control, ErrorKind};
use libreconstruct_tests::alignment::aligned_errors;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, Staging, film_frames};

const FILMED: u32 = 20;
const ADDED: u32 = 14;

/// What is filmed first goes on where the second camera begins, and beyond.
fn clip(seed: u64, frames: u32, size: (u32, u32), focal: f64) -> CaptureOptions {
    CaptureOptions {
        seed,
        width: size.0,
        height: size.1,
        frames,
        frame_rate: 8.0,
        arc_degrees: 4.0 * f64::from(frames - 1),
        relative_focal: focal,
        ..Default::default()
    }
}

/// Takes the pictures alone: who adds photographs has no description of frames.
fn photographs(frames: &Frames, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for k in 0..frames.frames.len() {
        fs::copy(frames.path(k), folder.join(format!("IMG_{k:02}.jpg"))).unwrap();
    }
}

fn options(add_to: Option<&Path>) -> PosesOptions {
    PosesOptions { sfm: SfmOptions::default(), background: None, add_to: add_to.map(Into::into) }
}

#[test]
fn photographs_by_another_camera_join_the_model_of_a_film_whose_world_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let first = Film::new(&clip(1, FILMED, (400, 300), 0.8));
    let second = Film::new(&clip(1, ADDED, (360, 270), 0.65));
    let (filmed, true_first) = film_frames(&[first], &at("earlier/frames")).unwrap();
    let (taken, true_second) = film_frames(&[second], &at("taken")).unwrap();
    photographs(&taken, &at("photographs"));
    let control = Control::new();
    find_poses(&filmed, None, &options(None), &at("earlier"), &control).unwrap();
    let base = SparseModel::read(&at("earlier/sparse")).unwrap();
    assert_eq!(base.images.len() as u32, FILMED);

    let wanted = FrameOptions::default();
    let options_of_both = options(Some(&at("earlier")));
    let (frames, _) =
        frames_for(&at("photographs"), &at("both"), &wanted, &options_of_both, &control).unwrap();
    assert_eq!(frames.frames.len() as u32, FILMED + ADDED);
    let report = find_poses(&frames, None, &options_of_both, &at("both"), &control).unwrap().sfm;
    assert_eq!(report.registered as u32, FILMED + ADDED, "{:?}", report.warnings);
    assert_eq!(report.other_cameras.len(), 1);
    assert!((report.other_cameras[0].camera_params[0] / (0.65 * 360.0) - 1.0).abs() < 0.02);
    let both = SparseModel::read(&at("both/sparse")).unwrap();

    // The world is the one of the first model.
    let by_name: BTreeMap<&str, Pose> = both.images.values().map(|i| (i.name.as_str(), i.pose)).collect();
    let radius = {
        let centres: Vec<_> = base.images.values().map(|i| i.pose.centre()).collect();
        let mean = centres.iter().sum::<nalgebra::Vector3<f64>>() / centres.len() as f64;
        centres.iter().map(|c| (c - mean).norm()).sum::<f64>() / centres.len() as f64
    };
    for image in base.images.values() {
        let now = by_name[image.name.as_str()];
        assert!((now.centre() - image.pose.centre()).norm() < 0.01 * radius, "{}", image.name);
        assert!(now.rotation.angle_to(&image.pose.rotation) < 0.003, "{}", image.name);
    }
    // And all cameras are where they were.
    let truth: BTreeMap<u64, Pose> = (0..).zip(true_first.into_iter().chain(true_second)).collect();
    let poses = both.images.iter().map(|(id, image)| (u64::from(*id) - 1, image.pose)).collect();
    let errors = aligned_errors(&truth, &poses).unwrap();
    assert!(errors.rotation_degrees < 0.2 && errors.position < 0.01, "{errors:?}");

    // The same without a folder, from what was found just now.
    let again =
        poses_in_memory(&at("photographs"), &at("again"), &wanted, &options_of_both, &control).unwrap();
    assert_eq!(again.model.images.len(), both.images.len());
    assert!(!at("again/sparse").exists());
}

#[test]
fn pictures_of_another_place_and_models_of_other_pictures_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (filmed, _) =
        film_frames(&[Film::new(&clip(1, 12, (320, 240), 0.8))], &at("earlier/frames")).unwrap();
    // It shares nothing with a room.
    let elsewhere = CaptureOptions { staging: Staging::Photograph, ..clip(2, 8, (320, 240), 0.8) };
    let (taken, _) = film_frames(&[Film::new(&elsewhere)], &at("taken")).unwrap();
    photographs(&taken, &at("elsewhere"));
    let control = Control::new();
    find_poses(&filmed, None, &options(None), &at("earlier"), &control).unwrap();
    let add_to = options(Some(&at("earlier")));
    let wanted = FrameOptions::default();
    let in_memory = |input: &str, options: &PosesOptions| {
        let found = poses_in_memory(&at(input), &at("new"), &wanted, options, &control);
        found.map(|found| found.report.registered).unwrap_err()
    };
    let sparse = at("earlier/sparse");
    let mut base = SparseModel::read(&sparse).unwrap();
    for lacks_a_frame in [false, true] {
        if lacks_a_frame {
            // That it finds its place now makes it no new one. Points are found anew.
            assert!(base.images.remove(&6).is_some());
            base.images.values_mut().for_each(|image| image.points2d.clear());
            base.points.clear();
            base.write_binary(&sparse).unwrap();
        }
        let error = in_memory("elsewhere", &add_to);
        assert_eq!(error.kind(), ErrorKind::PartialReconstruction, "{error}");
        assert!(error.message().contains("none of the 8 new frames"), "{error}");
    }

    // A model without the frames it was made of.
    fs::create_dir(at("alone")).unwrap();
    fs::rename(at("earlier/sparse"), at("alone/sparse")).unwrap();
    let error = in_memory("elsewhere", &options(Some(&at("alone"))));
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // Frames without a model.
    assert_eq!(in_memory("elsewhere", &add_to).kind(), ErrorKind::NotFound);
    // The model of something else, whose images have the same names.
    let wider = CaptureOptions { arc_degrees: 130.0, ..clip(2, 12, (320, 240), 0.8) };
    let (other, _) = film_frames(&[Film::new(&wider)], &at("room")).unwrap();
    find_poses(&other, None, &options(None), &at("other"), &control).unwrap();
    fs::rename(at("other/sparse"), at("earlier/sparse")).unwrap();
    let error = in_memory("elsewhere", &add_to);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.hint_text().is_some());
}

#[test]
fn the_frames_of_the_earlier_result_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let film =
        |seed, frames| film_frames(&[Film::new(&clip(seed, frames, (160, 120), 0.8))], &at("x")).unwrap().0;
    let earlier = film(1, 4);
    fs::create_dir(at("earlier")).unwrap();
    fs::rename(at("x"), at("earlier/frames")).unwrap();
    let before: Vec<Vec<u8>> =
        earlier.frames.iter().map(|f| fs::read(at("earlier/frames").join(&f.name)).unwrap()).collect();
    photographs(&film(2, 3), &at("more"));
    let add = || {
        frames_added_to(&at("earlier"), &at("more"), &at("both"), &FrameOptions::default(), &Control::new())
    };
    let both = add().unwrap();
    let names: Vec<&str> = both.frames.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(&names[..4], earlier.frames.iter().map(|f| f.name.as_str()).collect::<Vec<_>>());
    assert_eq!(&names[4..], ["more_IMG_00.jpg", "more_IMG_01.jpg", "more_IMG_02.jpg"]);
    assert_eq!(both.frames.iter().map(|f| f.camera).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1]);
    assert!(!both.is_sequential() && both.frames.iter().all(|f| f.timestamp.is_none()));
    assert!(at("both/frames/frames.jpg").is_file());
    // Once more, after a run that was ended before it described what it had done.
    fs::remove_file(Frames::description_path(&both.folder)).unwrap();
    assert_eq!(add().unwrap().frames, both.frames);
    for (frame, bytes) in earlier.frames.iter().zip(&before) {
        assert_eq!(&fs::read(at("earlier/frames").join(&frame.name)).unwrap(), bytes);
        assert_eq!(&fs::read(at("both/frames").join(&frame.name)).unwrap(), bytes);
    }
    // Not into itself.
    let control = Control::new();
    let error =
        frames_added_to(&at("earlier"), &at("more"), &at("earlier"), &FrameOptions::default(), &control);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(Frames::load(&at("earlier/frames")).unwrap().frames, earlier.frames);
    // Nor among pictures that nobody has chosen here, nor into the folder that they are added from.
    fs::create_dir_all(at("theirs/frames")).unwrap();
    fs::write(at("theirs/frames/garden.jpg"), "chosen by hand").unwrap();
    for (given, output) in [("more", "theirs"), ("both/frames", "both")] {
        let before = fs::read_dir(at(output).join("frames")).unwrap().count();
        let error =
            frames_added_to(&at("earlier"), &at(given), &at(output), &FrameOptions::default(), &control);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(fs::read_dir(at(output).join("frames")).unwrap().count(), before);
    }
}
