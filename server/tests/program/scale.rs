//! Metric scale, with the real program: from a video with printed tags to a scene in metres.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::{assert_success, reconstruct, run, stderr};
use libreconstruct::Control;
use libreconstruct::camera::{Pose, SparseModel};
use libreconstruct::video::Frames;
use libreconstruct_tests::pose_error::{read_poses, scale};
use libreconstruct_tests::synthetic::{CaptureOptions, TagOptions, generate};

const SIZE_MM: f64 = 130.0;

/// A short walk around a table with two tags, and one of another family.
fn capture() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap().keep();
        let tags = TagOptions { count: 2, size: SIZE_MM / 1000.0, bend: 0.0, distractor: true };
        let options = CaptureOptions {
            width: 640,
            height: 360,
            frames: 30,
            frame_rate: 8.0,
            arc_degrees: 80.0,
            tags: Some(tags),
            ..Default::default()
        };
        generate(&folder, &options, &Control::new()).unwrap();
        folder
    })
}

/// Length of the model over the true one, minus 1.
fn scale_error(frames: &Path, model: &Path) -> f64 {
    let truth = read_poses(&capture().join("poses.json")).unwrap();
    let frames = Frames::load(frames).unwrap();
    let number: BTreeMap<_, _> = frames.frames.iter().map(|f| (f.name.clone(), f.index)).collect();
    let poses: BTreeMap<u64, Pose> =
        SparseModel::read(model).unwrap().images.values().map(|i| (number[&i.name], i.pose)).collect();
    1.0 / scale(&truth, &poses).unwrap() - 1.0
}

#[test]
fn a_video_with_tags_becomes_a_model_in_metres() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let video = capture().join("video.mp4");
    // Frames are stored at half the size; the tags are found in the video itself.
    let output = reconstruct()
        .arg("sfm")
        .arg(&video)
        .arg("-o")
        .arg(&out)
        .args(["--apriltag-size-mm", "130", "--require-scale", "--max-resolution", "480", "--json"])
        .output()
        .unwrap();
    assert_success(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let report: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let scale = &report["scale"];
    assert_eq!((scale["applied"].as_bool(), scale["apriltag_size_mm"].as_f64()), (Some(true), Some(130.0)));
    let sigma = scale["relative_sigma"].as_f64().unwrap();
    let ids: Vec<_> = scale["tags"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 5], "{scale}");
    for (name, model) in [("sparse", "sparse"), ("undistorted", "undistorted/sparse")] {
        let error = scale_error(&out.join("frames"), &out.join(model));
        println!("{name}: scale error {:+.3} %, sigma {:.3} %", 100.0 * error, 100.0 * sigma);
        assert!(error.abs() < 0.01 && error.abs() < 3.0 * sigma, "{name}: {error}, sigma {sigma}");
    }
    let tags: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("tags.json")).unwrap()).unwrap();
    assert_eq!(tags["family"], "tagStandard41h12");
}

#[test]
fn tags_are_found_shown_and_printed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let video = capture().join("video.mp4");
    let output = run(["tags".as_ref(), video.as_os_str(), "-o".as_ref(), out.as_os_str(), "--json".as_ref()]);
    assert_success(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let found: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let ids: Vec<_> = found["tags"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 5], "the tag of another family is none: {found}");
    let shown = found["frames_with_tags"].as_u64().unwrap();
    assert!(shown >= 20, "{found}");
    assert_eq!(std::fs::read_dir(out.join("tags")).unwrap().count() as u64, shown + 1);
    assert!(image::open(out.join("tags/tags.jpg")).unwrap().width() > 300);

    let page = folder.path().join("tag.svg");
    let print =
        |id: &str, size: &str| run(["tags", "--print", id, "--size", size, "-o", page.to_str().unwrap()]);
    assert_success(&print("7", "10cm"));
    assert!(std::fs::read_to_string(&page).unwrap().contains("--apriltag-size-mm 100 "));
    let refused = print("2115", "10cm");
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("2114"));
}

#[test]
fn a_scale_that_is_required_and_missing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let video = crate::common::capture().join("video.mp4");
    let attempt = |more: &[&str]| {
        let out = folder.path().join("out");
        reconstruct()
            .arg("sfm")
            .arg(&video)
            .arg("-o")
            .arg(out)
            .args(["--max-resolution", "480"])
            .args(more)
            .output()
            .unwrap()
    };
    let output = attempt(&["--apriltag-size-mm", "50", "--require-scale"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("tagStandard41h12"), "{}", stderr(&output));
    let output = attempt(&["--require-scale"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    // Without it the model is made, and says what is missing.
    let output = attempt(&["--apriltag-size-mm", "50"]);
    assert_success(&output);
    assert!(stderr(&output).contains("no AprilTag of the family"), "{}", stderr(&output));
}
