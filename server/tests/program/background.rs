//! Background removal with the real program: masks, and a scene that is the object and nothing else.

use std::path::{Path, PathBuf};

use crate::common::{SHORT, assert_success, capture, reconstruct, run, stderr};
use libreconstruct::Control;
use libreconstruct::masks::{coverage, find_mask, read_mask};
use libreconstruct::splats::Splats;
use libreconstruct_tests::masks::{MaskScore, known_masks, opacity_outside, scores};
use libreconstruct_tests::prerequisites::mask_model;
use libreconstruct_tests::synthetic::{CaptureOptions, SubjectKind, generate};

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
    for score in scores(&known, &out.join("undistorted/masks")).unwrap() {
        assert!(score.overlap > 0.95, "{}: {}", score.name, score.overlap);
    }
    let splats = Splats::read(&out.join("scene.ply")).unwrap();
    assert!(splats.len() > 300, "{}", splats.len());
    let outside = opacity_outside(&splats, &known, 4);
    assert!(outside <= 0.01, "{outside} of the opacity is beside the object");
    // The preview stands before white.
    let preview = image::open(out.join("preview.jpg")).unwrap().to_rgb8();
    let white = preview.pixels().filter(|p| p.0.iter().all(|v| *v > 240)).count();
    assert!(white * 2 > preview.pixels().len(), "{white} of {}", preview.pixels().len());

    // The scene is scored as it was, by the masks beside the pictures; of whole pictures most is not in it.
    let score = |more: &[&str]| {
        let output = reconstruct()
            .arg("eval")
            .args([out.join("scene.ply"), out.join("undistorted")])
            .args(["--device", "cpu", "--test-every", "8", "--json"])
            .args(more)
            .output()
            .unwrap();
        assert_success(&output);
        let score: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (score["psnr"].as_f64().unwrap(), score["masks"].is_string())
    };
    let reported = report["train"]["evaluation"]["psnr"].as_f64().unwrap();
    let (psnr, by_masks) = score(&[]);
    // Files have unit quaternions.
    assert!(by_masks && (psnr - reported).abs() < 1e-3, "{psnr} dB, not {reported} dB");
    let (whole, by_masks) = score(&["--no-masks"]);
    assert!(!by_masks && whole < reported - 3.0, "{whole} dB of whole pictures, {reported} dB of the object");
}

/// What became of a capture whose background was removed by the network.
struct Removed {
    out: PathBuf,
    /// By picture.
    scores: Vec<MaskScore>,
    /// The last line for machines.
    result: serde_json::Value,
}

impl Removed {
    fn from(capture: &Path, model: &Path, out: PathBuf, more: &[&str]) -> Self {
        let output = reconstruct()
            .arg("sfm")
            .arg(capture.join("video.mp4"))
            .args(["-o".as_ref(), out.as_os_str(), "--remove-background".as_ref(), "--mask-model".as_ref()])
            .arg(model)
            .args(["--max-frames", "24", "--json"])
            .args(more)
            .output()
            .unwrap();
        assert_success(&output);
        let known = known_masks(&out, &capture.join("masks")).unwrap();
        let scores = scores(&known, &out.join("undistorted/masks")).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let result = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        Self { out, scores, result }
    }

    /// The overlaps with the known masks.
    fn overlaps(&self) -> Vec<f64> {
        self.scores.iter().map(|score| score.overlap).collect()
    }

    fn mean(&self) -> f64 {
        self.overlaps().iter().sum::<f64>() / self.scores.len() as f64
    }

    fn lowest(&self) -> f64 {
        self.overlaps().iter().copied().fold(1.0, f64::min)
    }
}

#[test]
fn the_ground_under_the_object_is_kept_as_far_as_asked() {
    let Some(model) = mask_model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let removed = Removed::from(capture(), &model, folder.path().join("out"), &["--keep-floor", "2"]);
    let known = known_masks(&removed.out, &capture().join("masks")).unwrap();
    let (mut covered, mut object) = (0, 0);
    for known in &known {
        let path = find_mask(&removed.out.join("undistorted/masks"), &known.name).unwrap();
        let mask = read_mask(&path).unwrap();
        let larger = coverage(&mask) / coverage(&known.mask);
        assert!(larger > 1.3 && larger < 6.0, "{}: {larger} of the object", known.name);
        let on_object = known.mask.pixels().zip(mask.pixels()).filter(|(k, _)| k[0] > 127);
        let (all, kept) =
            on_object.fold((0, 0), |(all, kept), (_, m)| (all + 1, kept + u32::from(m[0] > 127)));
        (object, covered) = (object + all, covered + kept);
    }
    assert!(f64::from(covered) > 0.93 * f64::from(object), "{covered} of {object}");
    assert!(removed.result["background"]["determined"].as_f64().unwrap() > 0.7, "{}", removed.result);
    assert_eq!(removed.result["background"]["support_plane"], true, "{}", removed.result);
    assert!(removed.out.join("masks.jpg").is_file());
}

/// Before a room full of texture: a white figure that has none, and a candlestick whose rods are 4 to 6 pixels wide at the size at
/// which the views come to agree. A border that is off by half a pixel costs such a rod a fifth of its overlap.
#[test]
fn plain_and_thin_things_are_found_before_a_textured_background() {
    let Some(model) = mask_model() else { return };
    for (subject, mean, lowest) in [(SubjectKind::Plain, 0.96, 0.94), (SubjectKind::Thin, 0.81, 0.73)] {
        let folder = tempfile::tempdir().unwrap();
        let options = CaptureOptions {
            width: 640,
            height: 360,
            frames: 24,
            subject,
            masks: true,
            ..Default::default()
        };
        generate(folder.path(), &options, &Control::new()).unwrap();
        let removed = Removed::from(folder.path(), &model, folder.path().join("out"), &[]);
        assert_eq!(removed.result["background"]["support_plane"], true, "{}", removed.result);
        let masks = removed.out.join("undistorted/masks");
        let written = std::fs::read_dir(masks).unwrap().next().unwrap().unwrap();
        let mask = read_mask(&written.path()).unwrap();
        assert!(mask.pixels().any(|p| p[0] > 127) && mask.pixels().any(|p| p[0] < 128));
        println!("{subject:?}: overlap {:.3}, at least {:.3}", removed.mean(), removed.lowest());
        assert!(removed.mean() > mean && removed.lowest() > lowest, "{subject:?}: {:?}", removed.overlaps());
    }
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
        for (place, why) in [("12", "X,Y,FRAME"), ("3,4,", "X,Y,FRAME")] {
            let output = run([command, video, "-o", out, "--object", place]);
            assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
            assert!(stderr(&output).contains(why), "{}", stderr(&output));
        }
        for wide in ["0", "21", "nan"] {
            let output = run([command, video, "-o", out, "--keep-floor", wide]);
            assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
            assert!(
                stderr(&output).to_lowercase().contains(&format!("is {wide} times")),
                "{}",
                stderr(&output)
            );
        }
        let output = run([command, video, "-o", out, "--object", "3,4", "--mask-dir", "/nowhere/masks"]);
        assert!(stderr(&output).contains("cannot be used with"), "{}", stderr(&output));
        let output = run([command, video, "-o", out, "--mask-dir", "/nowhere/masks"]);
        assert!(stderr(&output).contains("/nowhere/masks"), "{}", stderr(&output));
    }
}
