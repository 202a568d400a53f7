//! A rolling shutter is found in a filmed capture and its error goes; a global shutter changes nothing.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::path::Path;

use libreconstruct::Control;
use libreconstruct::camera::{Pose, ReadoutDirection};
use libreconstruct::sfm::{Reconstruction, SfmOptions, reconstruct};
use libreconstruct::video::{FrameOptions, Frames, extract_frames};
use libreconstruct_tests::pose_error::{read_poses, trajectory_error};
use libreconstruct_tests::synthetic::{CaptureOptions, generate};

fn film(folder: &Path, rolling_shutter: f64) -> Frames {
    let options = CaptureOptions {
        seed: 1,
        width: 480,
        height: 270,
        frames: 45,
        arc_degrees: 82.0,
        rolling_shutter,
        ..Default::default()
    };
    generate(folder, &options, &Control::new()).unwrap();
    let video = folder.join("video.mp4");
    extract_frames(&video, &folder.join("frames"), &FrameOptions::default(), &Control::new()).unwrap()
}

fn found(frames: &Frames, rolling_shutter_ms: Option<f64>) -> Reconstruction {
    let options = SfmOptions { rolling_shutter_ms, ..Default::default() };
    reconstruct(frames, &options, &Control::new()).unwrap()
}

/// Position error of a reconstruction of `frames`, over the extent of the path.
fn error(folder: &Path, frames: &Frames, found: &Reconstruction) -> f64 {
    let truth = read_poses(&folder.join("poses.json")).unwrap();
    let number: BTreeMap<&str, u64> = frames.frames.iter().map(|f| (f.name.as_str(), f.index)).collect();
    let poses: BTreeMap<u64, Pose> =
        found.model.images.values().map(|i| (number[i.name.as_str()], i.pose)).collect();
    assert_eq!(poses.len(), frames.frames.len());
    trajectory_error(&truth, &poses).unwrap()
}

#[test]
fn a_rolling_shutter_of_20_ms_costs_less_than_a_quarter_of_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let frames = film(folder.path(), 0.02);
    let (with, without) = (found(&frames, None), found(&frames, Some(0.0)));
    let report = with.report.rolling_shutter.as_ref().unwrap();
    assert!(report.applied && report.direction == ReadoutDirection::Down, "{report:?}");
    assert!((report.readout_ms / 20.0 - 1.0).abs() < 0.1, "{report:?}");
    assert!(without.report.rolling_shutter.is_none());
    let (with, without) = (error(folder.path(), &frames, &with), error(folder.path(), &frames, &without));
    assert!(4.0 * with < without, "{without} without the correction, {with} with it");
}

#[test]
fn a_global_shutter_is_reconstructed_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let frames = film(folder.path(), 0.0);
    let (examined, not) = (found(&frames, None), found(&frames, Some(0.0)));
    assert!(examined.report.rolling_shutter.as_ref().is_some_and(|s| !s.applied), "{:?}", examined.report);
    assert!(examined.model == not.model);
}
