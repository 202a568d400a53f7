//! The whole way, from a video to a scene, with the real program.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::collections::BTreeMap;

use common::{SHORT, assert_success, capture, reconstruct, run};
use libreconstruct::camera::SparseModel;
use libreconstruct::scene::Splats;
use libreconstruct::video::Frames;
use libreconstruct_tests::pose_error::{compare, read_poses};

#[test]
fn a_video_becomes_a_scene_with_every_file_and_figure() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let video = capture().join("video.mp4");
    let output =
        reconstruct().arg("run").arg(&video).arg("-o").arg(&out).args(SHORT).arg("--json").output().unwrap();
    assert_success(&output);

    // Every line for machines is JSON; progress of every stage came, never backwards.
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut last: BTreeMap<String, f64> = BTreeMap::new();
    for line in lines.iter().filter(|l| l["event"] == "progress") {
        let (stage, fraction) =
            (line["stage"].as_str().unwrap().to_owned(), line["fraction"].as_f64().unwrap());
        let before = last.insert(stage.clone(), fraction).unwrap_or(0.0);
        assert!(fraction >= before - 1e-6, "{stage} went from {before} back to {fraction}");
    }
    assert_eq!(last.keys().collect::<Vec<_>>(), ["export", "frames", "sfm", "train"]);

    // The report says what happened, and the files agree with it.
    let report = lines.last().unwrap();
    let saved: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(*report, saved);
    let used = report["frames"]["used"].as_u64().unwrap();
    assert!(used >= 20, "{used} frames");
    assert_eq!(report["sfm"]["registered"], used);
    let (ply, spz) =
        (Splats::read(&out.join("scene.ply")).unwrap(), Splats::read(&out.join("scene.spz")).unwrap());
    assert_eq!(ply.len() as u64, report["export"]["splats"].as_u64().unwrap());
    assert_eq!(ply.len(), spz.len());
    for name in ["frames.jpg", "poses.jpg", "preview.jpg"] {
        let picture = image::open(out.join(name)).unwrap();
        assert!(picture.width() >= 200 && picture.height() >= 100, "{name}");
    }
    assert!(std::fs::metadata(out.join("turntable.mp4")).unwrap().len() > 10_000);
    let camera: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("camera.json")).unwrap()).unwrap();
    assert!(
        camera["position"]["x"].is_number()
            && camera["lookAt"]["z"].is_number()
            && camera["up"]["y"].is_number()
    );
    assert_eq!(camera["cameraType"], "drone");

    // Poses against the known truth.
    let truth = read_poses(&capture().join("poses.json")).unwrap();
    let frames = Frames::load(&out.join("frames")).unwrap();
    let model = SparseModel::read(&out.join("sparse")).unwrap();
    let number: BTreeMap<_, _> = frames.frames.iter().map(|f| (f.name.clone(), f.index)).collect();
    let estimate = model.images.values().map(|i| (number[&i.name], i.pose)).collect();
    let wanted: Vec<u64> = frames.frames.iter().map(|f| f.index).collect();
    let error = compare(&truth, &estimate, &wanted);
    println!("{error:?}, PSNR {}", report["train"]["evaluation"]["psnr"]);
    assert!(error.registered == 1.0 && error.auc[1] > 90.0, "{error:?}");
    assert!(report["train"]["evaluation"]["psnr"].as_f64().unwrap() > 17.0);

    // The same command finds everything done.
    let again =
        reconstruct().arg("run").arg(&video).arg("-o").arg(&out).args(SHORT).arg("--json").output().unwrap();
    assert_success(&again);
    let text = String::from_utf8(again.stdout).unwrap();
    assert_eq!(text.matches("taken over").count(), 4, "{text}");
}

#[test]
fn the_stages_one_by_one_do_the_same_work() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let video = capture().join("video.mp4");
    let video = video.to_str().unwrap();
    assert_success(&run([
        "frames",
        video,
        "-o",
        &at("frames"),
        "--max-frames",
        "30",
        "--max-resolution",
        "480",
    ]));
    assert_success(&run(["sfm", &at("frames"), "-o", &at("sfm")]));
    assert_success(&run(["info", &at("sfm/sparse")]));
    assert_success(&run([
        "train",
        &at("sfm/undistorted"),
        "-o",
        &at("scene.ply"),
        "--training-num-steps",
        "60",
        "--training-max-num-gaussians",
        "5000",
        "--test-every",
        "8",
        "--device",
        "cpu",
    ]));
    let evaluated = run(["eval", &at("scene.ply"), &at("sfm/undistorted"), "--device", "cpu", "--json"]);
    assert_success(&evaluated);
    let score: serde_json::Value = serde_json::from_slice(&evaluated.stdout).unwrap();
    assert!(score["psnr"].as_f64().unwrap() > 12.0, "{score}");
    assert_success(&run(["convert", &at("scene.ply"), &at("scene.spz")]));
    assert_success(&run(["info", &at("scene.spz")]));
    let cameras = at("sfm/undistorted/sparse");
    let view =
        run(["render", &at("scene.spz"), "--cameras", &cameras, "-o", &at("view.jpg"), "--device", "cpu"]);
    assert_success(&view);
    assert!(image::open(at("view.jpg")).unwrap().width() > 100);
    assert_success(&run(["devices"]));
}
