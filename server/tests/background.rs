//! Background removal with the real program: masks, and a scene that is the object and nothing else.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::{SHORT, assert_success, capture, reconstruct, run, stderr};
use libreconstruct::background::find_model;
use libreconstruct::masks::read_mask;
use libreconstruct::scene::Splats;
use libreconstruct_tests::masks::{known_masks, opacity_outside, overlaps};

#[test]
fn masks_of_ones_own_make_a_scene_of_the_object_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let masks = capture().join("masks");
    let output = reconstruct()
        .arg("run")
        .arg(capture().join("video.mp4"))
        .args(["-o".as_ref(), out.as_os_str(), "--mask-dir".as_ref(), masks.as_os_str()])
        .args(SHORT)
        .args(["--json", "--no-turntable"])
        .output()
        .unwrap();
    assert_success(&output);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let background = &report["background"];
    assert_eq!(background["given"], true);
    assert_eq!(background["masks"], report["sfm"]["registered"]);
    assert!(image::open(out.join("masks.jpg")).unwrap().width() > 300);

    let known = known_masks(&out, &masks).unwrap();
    // They went through the lens and back.
    for (name, overlap, _) in overlaps(&known, &out.join("undistorted/masks")).unwrap() {
        assert!(overlap > 0.95, "{name}: {overlap}");
    }
    let splats = Splats::read(&out.join("scene.ply")).unwrap();
    assert!(splats.len() > 300, "{}", splats.len());
    let outside = opacity_outside(&splats, &known, 4);
    assert!(outside <= 0.01, "{outside} of the opacity is beside the object");
    // The preview stands before white.
    let preview = image::open(out.join("preview.jpg")).unwrap().to_rgb8();
    let white = preview.pixels().filter(|p| p.0.iter().all(|v| *v > 240)).count();
    assert!(white * 2 > preview.pixels().len(), "{white} of {}", preview.pixels().len());
}

#[test]
fn the_object_is_found_and_the_views_agree_on_it() {
    let model =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/models/u2netp/u2netp.onnx");
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_reconstruct")).with_file_name("u2netp.onnx");
    // Runs where the weights are: `make test` installs them.
    let Some(model) = find_model(None).ok().or_else(|| [beside, model].into_iter().find(|p| p.is_file()))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = reconstruct()
        .arg("sfm")
        .arg(capture().join("video.mp4"))
        .args(["-o".as_ref(), out.as_os_str(), "--remove-background".as_ref(), "--mask-model".as_ref()])
        .arg(&model)
        .args(["--max-frames", "24", "--json"])
        .output()
        .unwrap();
    assert_success(&output);
    let known = known_masks(&out, &capture().join("masks")).unwrap();
    let overlaps = overlaps(&known, &out.join("undistorted/masks")).unwrap();
    let mean = overlaps.iter().map(|o| o.1).sum::<f64>() / overlaps.len() as f64;
    assert!(mean > 0.8, "{mean}: {overlaps:?}");
    assert!(out.join("masks.jpg").is_file());
    let text = String::from_utf8(output.stdout).unwrap();
    let result: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(result["background"]["support_plane"], true, "{result}");
    let written = std::fs::read_dir(out.join("undistorted/masks")).unwrap().next().unwrap().unwrap();
    let mask = read_mask(&written.path()).unwrap();
    assert!(mask.pixels().any(|p| p[0] > 127) && mask.pixels().any(|p| p[0] < 128));
}

#[test]
fn what_is_missing_is_said_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let (video, out) = (capture().join("video.mp4"), folder.path().join("out"));
    let (video, out) = (video.to_str().unwrap(), out.to_str().unwrap());
    for command in ["run", "sfm"] {
        let asked = ["--remove-background", "--mask-model", "/nowhere/model.onnx"];
        let output = run([command, video, "-o", out].into_iter().chain(asked));
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("/nowhere/model.onnx") && said.contains("make mask-model"), "{said}");
        assert!(!folder.path().join("out/frames").exists());
        let output = run([command, video, "-o", out, "--mask-dir", "/nowhere/masks"]);
        assert!(stderr(&output).contains("/nowhere/masks"), "{}", stderr(&output));
    }
}
