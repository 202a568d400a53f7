//! A search for poses that was stopped goes on from what it has found, and finds the same.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use image::{GrayImage, Luma};
use libreconstruct::camera::SparseModel;
use libreconstruct::pipeline::{PosesOptions, find_poses};
use libreconstruct::sfm::{Given, ObjectMasks, Reconstruction, SfmOptions, reconstruct_given};
use libreconstruct::video::Frames;
use libreconstruct::{Control, ErrorKind, Event};
use libreconstruct_tests::synthetic::{CaptureOptions, Film, film_frames};

const FRAMES: u32 = 10;

fn film(folder: &Path) -> Frames {
    let options = CaptureOptions {
        seed: 1,
        width: 400,
        height: 300,
        frames: FRAMES,
        frame_rate: 8.0,
        arc_degrees: 4.0 * f64::from(FRAMES - 1),
        ..Default::default()
    };
    film_frames(&[Film::new(&options)], folder).unwrap().0
}

/// The last message of each step.
type Messages = BTreeMap<String, String>;

/// Hears what steps say. At the first event for which `stops` says so, it stops the work.
fn listening(stops: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> (Control, Arc<Mutex<Messages>>) {
    let heard = Arc::new(Mutex::new(Messages::new()));
    let silent = Control::new();
    let (all, cancel) = (heard.clone(), silent.cancel_token().clone());
    let control = silent.with_listener(move |event| {
        if let Event::Progress { step, message, .. } = event {
            let message = message.unwrap_or_default();
            if stops(&step, &message) {
                cancel.cancel();
            }
            all.lock().unwrap().insert(step.into_owned(), message);
        }
    });
    (control, heard)
}

/// The fractions that were told, with the seconds that were left.
type Told = Arc<Mutex<Vec<(f32, Option<f64>)>>>;

/// Hears how far the work is. Takes so long over the first that all later progress has a rate.
fn told_slowly() -> (Control, Told) {
    let told = Told::default();
    let sink = told.clone();
    let control = Control::new().with_listener(move |event| {
        let Event::Progress { fraction, remaining_seconds, .. } = event else { return };
        let mut sink = sink.lock().unwrap();
        if sink.is_empty() {
            std::thread::sleep(Duration::from_millis(1100));
        }
        sink.push((fraction, remaining_seconds));
    });
    (control, told)
}

/// Nothing went back, and until the end it was told how much time was left.
fn assert_seconds_were_told(told: &Told) {
    let told = told.lock().unwrap();
    assert!(told.is_sorted_by(|a, b| a.0 <= b.0), "{told:?}");
    assert!(told.iter().any(|(_, seconds)| seconds.is_some_and(|seconds| seconds > 0.0)), "{told:?}");
    assert_eq!(told.last(), Some(&(1.0, Some(0.0))), "{told:?}");
}

/// What is found, without the time that it took.
fn found(frames: &Frames, given: &Given<'_>, control: &Control) -> (Reconstruction, Option<String>) {
    let (mut found, why) = reconstruct_given(frames, given, &SfmOptions::default(), control).unwrap();
    found.report.times.clear();
    (found, why.map(|error| error.to_string()))
}

/// Runs until `stops` says so. On two threads: each that is reading a picture then finishes it, and with many that could be all.
fn stopped(frames: &Frames, given: &Given<'_>, stops: impl Fn(&str, &str) -> bool + Send + Sync + 'static) {
    let (control, _) = listening(stops);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let run = || reconstruct_given(frames, given, &SfmOptions::default(), &control);
    let error = pool.install(run).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

/// The files of a folder and when they were written.
fn written(folder: &Path) -> BTreeMap<String, SystemTime> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().modified().unwrap()))
        .collect()
}

fn file(folder: &Path, begin: &str) -> std::path::PathBuf {
    let name = written(folder).into_keys().find(|name| name.starts_with(begin)).unwrap();
    folder.join(name)
}

#[test]
fn a_run_that_was_stopped_goes_on_and_finds_the_same_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let frames = film(&folder.path().join("frames"));
    let (control, told) = told_slowly();
    let straight = found(&frames, &Given::default(), &control);
    assert_seconds_were_told(&told);
    assert_eq!(straight.0.report.registered as u32, FRAMES, "{:?}", straight.0.report.warnings);

    // In the middle of the features; at their end, where pairs are matched; where they are verified; after that.
    for (step, text, matches, verified) in [
        ("features", "4 of 10 frames", false, false),
        ("matching", "", false, false),
        ("two-view geometry", "", true, false),
        ("relative poses", "", true, true),
    ] {
        let keep_in = folder.path().join(step);
        let given = Given { keep_in: Some(&keep_in), ..Given::default() };
        stopped(&frames, &given, move |s, message| s == step && message == text);
        let before = written(&keep_in);
        let (control, heard) = listening(|_, _| false);
        assert!(found(&frames, &given, &control) == straight, "stopped at {step}");
        let heard = heard.lock().unwrap();
        let pictures = before.keys().filter(|name| name.starts_with("features-")).count();
        assert_eq!(heard["features"], format!("10 of 10 frames, {pictures} taken over"), "stopped at {step}");
        assert!(if step == "features" { (4..10).contains(&pictures) } else { pictures == 10 });
        assert_eq!(heard["matching"] == "taken over", matches, "stopped at {step}");
        assert_eq!(heard["two-view geometry"] == "taken over", verified, "stopped at {step}");
        // What was taken over was not written again.
        let after = written(&keep_in);
        assert!(before.iter().all(|(name, time)| after[name] == *time), "stopped at {step}");
        assert_eq!(after.len(), 12);
    }
}

#[test]
fn what_is_torn_or_of_another_picture_is_found_anew() {
    let folder = tempfile::tempdir().unwrap();
    let frames = film(&folder.path().join("frames"));
    let keep_in = folder.path().join("kept");
    let given = Given { keep_in: Some(&keep_in), ..Given::default() };
    stopped(&frames, &given, |step, _| step == "relative poses");
    let heard_in = |expected: &(Reconstruction, Option<String>)| {
        let (control, heard) = listening(|_, _| false);
        assert!(found(&frames, &given, &control) == *expected);
        let heard = heard.lock().unwrap();
        ["features", "matching", "two-view geometry"].map(|step| heard[step].clone())
    };
    let straight = found(&frames, &Given::default(), &Control::new());

    let torn = file(&keep_in, "features-");
    fs::write(&torn, &fs::read(&torn).unwrap()[..1000]).unwrap();
    let flipped = file(&keep_in, "matches");
    let mut bytes = fs::read(&flipped).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&flipped, &bytes).unwrap();
    // The matches are the same again, and so what was verified is theirs.
    assert_eq!(heard_in(&straight), ["10 of 10 frames, 9 taken over", "", "taken over"]);
    assert_eq!(heard_in(&straight), ["10 of 10 frames, 10 taken over", "taken over", "taken over"]);

    let before = written(&keep_in);
    let mut picture = image::open(frames.path(3)).unwrap().into_rgb8();
    picture.enumerate_pixels_mut().filter(|(x, y, _)| x + y < 250).for_each(|(_, _, p)| p.0 = [90; 3]);
    picture.save(frames.path(3)).unwrap();
    let retouched = found(&frames, &Given::default(), &Control::new());
    assert!(retouched != straight);
    assert_eq!(heard_in(&retouched), ["10 of 10 frames, 9 taken over", "", ""]);
    let after = written(&keep_in);
    assert_eq!(after.keys().filter(|name| !before.contains_key(*name)).count(), 1);
    assert_eq!(after.len(), 12, "what is of the old picture is gone");
}

#[test]
fn what_is_of_the_object_alone_stands_beside_what_is_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let frames = film(&folder.path().join("frames"));
    let masks: Vec<GrayImage> =
        (0..FRAMES).map(|_| GrayImage::from_fn(40, 30, |x, _| Luma([u8::from(x > 3)]))).collect();
    for least in [10, 1_000_000] {
        let keep_in = folder.path().join(least.to_string());
        let object = Some(ObjectMasks { masks: &masks, least });
        let straight = found(&frames, &Given { object, ..Given::default() }, &Control::new());
        // Of too few features on the object nothing is made.
        assert_eq!(straight.1.is_some(), least > 10, "{:?}", straight.1);
        let given = Given { object, keep_in: Some(&keep_in), ..Given::default() };
        stopped(&frames, &given, |step, _| step == "relative poses");
        let (control, heard) = listening(|_, _| false);
        assert!(found(&frames, &given, &control) == straight);
        assert_eq!(heard.lock().unwrap()["matching"], "taken over");
        let (control, heard) = listening(|_, _| false);
        assert!(found(&frames, &Given { object: None, ..given }, &control) != straight || least > 10);
        assert_eq!(heard.lock().unwrap()["matching"] == "taken over", least > 10);
        assert_eq!(heard.lock().unwrap()["features"], "10 of 10 frames, 10 taken over");
    }
}

#[test]
fn a_folder_of_results_has_it_until_they_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let frames = film(&at("frames"));
    let options = PosesOptions { sfm: SfmOptions::default(), background: None, add_to: None };
    let (control, told) = told_slowly();
    find_poses(&frames, None, &options, &at("straight"), &control).unwrap();
    assert_seconds_were_told(&told);
    let (control, _) = listening(|step, _| step == "relative poses");
    let error = find_poses(&frames, None, &options, &at("stopped"), &control).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(written(&at("stopped/.reconstruct/sfm")).len(), 12);
    assert!(!at("stopped/sparse").exists());
    let (control, heard) = listening(|_, _| false);
    find_poses(&frames, None, &options, &at("stopped"), &control).unwrap();
    assert_eq!(heard.lock().unwrap()["two-view geometry"], "taken over");
    let names = |folder: &str| written(&at(folder)).into_keys().collect::<Vec<_>>();
    assert_eq!(names("stopped"), names("straight"), "nothing else stays behind");
    assert!(!names("stopped").contains(&".reconstruct".to_owned()));
    let model = |folder: &str| SparseModel::read(&at(folder).join("sparse")).unwrap();
    assert!(model("stopped") == model("straight"));
}
