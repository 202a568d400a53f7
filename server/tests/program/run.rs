//! The whole way, from a video to a scene, with the real program.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{SHORT, assert_success, capture, reconstruct, run};
use libreconstruct::camera::{Image, SparseModel};
use libreconstruct::presentation::{CameraData, CameraType, choose_preview_image};
use libreconstruct::splats::Splats;
use libreconstruct::video::Frames;
use libreconstruct_tests::pose_error::{compare, read_poses};
use nalgebra::Vector3;

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
    let mut whole = 0.0;
    for line in lines.iter().filter(|l| l["event"] == "progress") {
        let (stage, fraction) =
            (line["stage"].as_str().unwrap().to_owned(), line["fraction"].as_f64().unwrap());
        let before = last.insert(stage.clone(), fraction).unwrap_or(0.0);
        assert!(fraction >= before - 1e-6, "{stage} went from {before} back to {fraction}");
        assert!(line["total"].as_f64().is_some_and(|total| total >= whole - 1e-6), "{line} after {whole}");
        whole = line["total"].as_f64().unwrap();
    }
    assert_eq!(last.keys().collect::<Vec<_>>(), ["export", "frames", "sfm", "train"]);
    assert!((whole - 1.0f64).abs() < 1e-6, "{whole}");

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

    a_viewer_begins_with_the_subject(&out, &number);

    // The same command finds everything done.
    let again =
        reconstruct().arg("run").arg(&video).arg("-o").arg(&out).args(SHORT).arg("--json").output().unwrap();
    assert_success(&again);
    let text = String::from_utf8(again.stdout).unwrap();
    assert_eq!(text.matches("taken over").count(), 4, "{text}");
}

/// `camera_data` of both kinds against what was filmed: `out` is a finished run, `number` the video frame of every image.
fn a_viewer_begins_with_the_subject(out: &Path, number: &BTreeMap<String, u64>) {
    let model = SparseModel::read(&out.join("undistorted/sparse")).unwrap();
    let best = choose_preview_image(&model, &BTreeMap::new()).unwrap();
    let orbital = CameraData::from_model(&model, best, CameraType::Orbital);

    // What an orbital camera turns about is the subject: the masks of the frames have it there.
    let focus = Vector3::from(orbital.look_at);
    let on_subject = |image: &Image| {
        let mask = capture().join(format!("masks/{:06}.png", number[&image.name]));
        let mask = image::open(mask).unwrap().to_luma8();
        let camera = &model.cameras[&image.camera_id];
        let Some(pixel) = camera.project(&image.pose.transform(&focus)) else { return false };
        // The lens hardly bends the middle of the picture: the undistorted pixel is near enough, and so is what touches it.
        let (x, y) = (pixel.x / f64::from(camera.width), pixel.y / f64::from(camera.height));
        let near = |v: f64, size: u32| {
            let (v, reach) = (v * f64::from(size), 0.06 * f64::from(mask.width()));
            (v - reach).max(0.0) as u32..(v + reach).clamp(0.0, f64::from(size)) as u32
        };
        near(y, mask.height()).any(|y| near(x, mask.width()).any(|x| mask.get_pixel(x, y).0[0] > 127))
    };
    let hits = model.images.values().filter(|image| on_subject(image)).count();
    assert!(
        hits * 10 >= model.images.len() * 9,
        "the focus is on the subject in {hits} of {}",
        model.images.len()
    );

    // Rendered, a drone's start is the picture of the frame that was taken there; an orbit's start shows the scene, too.
    let drone: CameraData = serde_json::from_slice(&std::fs::read(out.join("camera.json")).unwrap()).unwrap();
    let position = Vector3::from(drone.position);
    let image = model.images.values().min_by(|a, b| {
        let distance = |i: &Image| (i.pose.centre() - position).norm();
        distance(a).total_cmp(&distance(b))
    });
    let image = image.unwrap();
    let camera = &model.cameras[&image.camera_id];
    let angle = 2.0 * (f64::from(camera.height) / 2.0 / camera.focal().1).atan().to_degrees();
    let file = out.join("orbital.json");
    std::fs::write(&file, serde_json::to_vec(&orbital).unwrap()).unwrap();
    for (name, file) in [("drone", out.join("camera.json")), ("orbital", file)] {
        let view = out.join(format!("{name}.jpg"));
        let mut command = reconstruct();
        command.arg("render").arg(out.join("scene.ply")).arg("--camera").arg(&file).arg("-o").arg(&view);
        command.args(["--device", "cpu", "--field-of-view", &angle.to_string()]);
        command.args(["--aspect", &(f64::from(camera.width) / f64::from(camera.height)).to_string()]);
        command.args(["--max-resolution", &camera.width.max(camera.height).to_string()]);
        assert_success(&command.output().unwrap());
        let view = image::open(view).unwrap().to_rgb8();
        let dark = view.pixels().filter(|p| p.0.iter().all(|v| *v < 8)).count();
        assert!(dark * 20 < view.pixels().len(), "{name}: {dark} pixels show nothing");
        if name == "drone" {
            let taken = image::open(out.join("undistorted/images").join(&image.name)).unwrap().to_rgb8();
            assert_eq!(view.dimensions(), taken.dimensions());
            let squares =
                view.as_raw().iter().zip(taken.as_raw()).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
            let psnr = 10.0 * (255.0 * 255.0 * view.as_raw().len() as f64 / squares.sum::<f64>()).log10();
            assert!(psnr > 15.0, "{psnr} dB");
        }
    }
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
    let lens = ["--camera-model", "RADIAL", "--focal", "380"];
    assert_success(&run([&["sfm", &at("frames"), "-o", &at("sfm")], &lens[..]].concat()));
    let model = run(["info", &at("sfm/sparse")]);
    assert_success(&model);
    let text = String::from_utf8_lossy(&model.stdout);
    assert!(text.contains(": RADIAL "), "{text}");
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
    let scored = format!("sfm/undistorted/images/{}", score["views"][0]["name"].as_str().unwrap());
    let (width, height) = image::image_dimensions(at(&scored)).unwrap();
    assert_eq!(score["longest_side"], width.max(height));
    assert_success(&run(["convert", &at("scene.ply"), &at("scene.spz")]));
    assert_success(&run(["info", &at("scene.spz")]));
    let cameras = at("sfm/undistorted/sparse");
    let view =
        run(["render", &at("scene.spz"), "--cameras", &cameras, "-o", &at("view.jpg"), "--device", "cpu"]);
    assert_success(&view);
    assert!(image::open(at("view.jpg")).unwrap().width() > 100);
    assert_success(&run(["devices"]));
}
