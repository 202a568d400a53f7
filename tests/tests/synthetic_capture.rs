//! What the generator films is complete, always the same, and as hard as it is said to be.

#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;
use std::process::{Command, Output};

use image::GrayImage;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, SubjectKind};
use nalgebra::Vector3;

fn film(folder: &Path, more: &[&str]) -> Output {
    let size = ["--width", "96", "--height", "64", "--frames", "6", "--masks"];
    let program = env!("CARGO_BIN_EXE_synthetic-capture");
    Command::new(program).arg("-o").arg(folder).args(size).args(more).output().unwrap()
}

#[test]
fn a_capture_is_complete_and_its_seed_decides_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let made: Vec<_> = [("first", "1"), ("again", "1"), ("other", "2")]
        .into_iter()
        .map(|(name, seed)| {
            let path = folder.path().join(name);
            let done = film(&path, &["--seed", seed]);
            assert!(done.status.success(), "{done:?}");
            ["video.mp4", "poses.json"].map(|file| std::fs::read(path.join(file)).unwrap())
        })
        .collect();
    assert!(made[0] == made[1] && made[0] != made[2]);
    let poses: serde_json::Value = serde_json::from_slice(&made[0][1]).unwrap();
    assert_eq!(poses["frames"].as_array().map(Vec::len), Some(6));
    assert_eq!(std::fs::read_dir(folder.path().join("first/masks")).unwrap().count(), 6);
}

#[test]
fn a_panorama_is_filmed_and_described_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let film = |width: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_synthetic-capture"));
        command.arg("-o").arg(folder.path()).args(["--panorama", "--width", width, "--height", "64"]);
        command.args(["--frames", "3"]).args(more).output().unwrap()
    };
    for wrong in [film("120", &[]), film("128", &["--rolling-shutter", "0.02"])] {
        assert!(!wrong.status.success());
        assert!(String::from_utf8_lossy(&wrong.stderr).contains("twice as wide"), "{wrong:?}");
    }
    let done = film("128", &[]);
    assert!(done.status.success(), "{done:?}");
    let poses = std::fs::read(folder.path().join("poses.json")).unwrap();
    let poses: serde_json::Value = serde_json::from_slice(&poses).unwrap();
    assert_eq!(poses["projection"], "equirectangular");
    assert!(poses["frames"][2]["c2w"].is_array() && poses["frames"][2]["fx"].is_null(), "{poses}");
}

#[test]
fn what_cannot_be_filmed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let done = film(folder.path(), &["--seed", "one"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("one") && said.contains("--seed"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A walk around the table, in small pictures.
fn walk(subject: SubjectKind) -> CaptureOptions {
    CaptureOptions {
        width: 96,
        height: 72,
        frames: 26,
        frame_rate: 4.0,
        arc_degrees: 330.0,
        relative_focal: 1.35,
        distortion: 0.0,
        subject,
        plain_walls: true,
        ..CaptureOptions::default()
    }
}

fn masks(options: &CaptureOptions) -> Vec<GrayImage> {
    let film = Film::new(options);
    (0..options.frames).map(|frame| film.expose(frame).1).collect()
}

#[test]
fn things_before_the_subject_hide_it_in_a_few_neighbouring_pictures_and_are_no_part_of_it() {
    let clip = walk(SubjectKind::Bricks);
    let free = masks(&clip);
    let hidden = masks(&CaptureOptions { occluders: true, ..clip });
    let is_hidden: Vec<bool> = (free.iter().zip(&hidden))
        .map(|(free, hidden)| {
            let pixels = || free.as_raw().iter().zip(hidden.as_raw());
            assert!(
                pixels().all(|(free, hidden)| hidden <= free),
                "a thing before the subject is in its mask"
            );
            assert!(pixels().any(|(_, hidden)| *hidden == 255), "no picture is without the subject");
            pixels().any(|(free, hidden)| hidden < free)
        })
        .collect();
    // Between two of the three things the subject is free.
    let runs = is_hidden.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len);
    let runs: Vec<usize> = runs.collect();
    assert!(runs.len() == 3 && runs.iter().all(|run| (2..=6).contains(run)), "{runs:?}");
    assert!(
        CaptureOptions { occluders: true, path_scale: 0.5, ..walk(SubjectKind::Bricks) }.check().is_err()
    );
}

#[test]
fn a_camera_close_to_a_train_sees_most_of_its_length_and_goes_around_it() {
    let usual = walk(SubjectKind::Train);
    let close = CaptureOptions { relative_focal: 0.45, path_scale: 0.41, ..usual.clone() };
    let focus = Vector3::new(0.0, -0.86, 0.0);
    let (far, near) = (Film::poses_of(&usual), Film::poses_of(&close));
    for (far, near) in far.iter().zip(&near) {
        assert!((near.centre() - focus - 0.41 * (far.centre() - focus)).norm() < 1e-9);
        assert!(near.rotation.angle_to(&far.rotation) < 1e-6);
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let distance = median(near.iter().map(|pose| (pose.centre() - focus).norm()).collect());
    assert!((0.75..0.9).contains(&(0.5 * 1.12 / distance)), "{distance}");
    let masks = masks(&close);
    let shown = |mask: &GrayImage, x: u32| (0..mask.height()).any(|y| mask.get_pixel(x, y)[0] == 255);
    let width = |mask: &GrayImage| (0..mask.width()).filter(|&x| shown(mask, x)).count() as f64 / 96.0;
    let width = median(masks.iter().map(width).collect());
    assert!((0.6..0.8).contains(&width), "{width}");
    // It is never so close that it sees nothing else.
    let part = |mask: &GrayImage| mask.as_raw().iter().filter(|value| **value > 0).count() as f64 / 6912.0;
    assert!(masks.iter().map(part).all(|part| (0.03..0.4).contains(&part)));
}
