//! Every bad input ends with the right exit code, a message that names what was wrong, and no scene.

use std::path::Path;
use std::process::{Command, Output};

use image::RgbImage;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, film_frames};

use crate::common::{assert_success, reconstruct, run, stderr};

/// Runs `reconstruct run INPUT` into a new folder and returns the output and whether any scene was left.
fn attempt(input: &Path, more: &[&str]) -> (Output, bool) {
    let out = tempfile::tempdir().unwrap();
    let output = reconstruct()
        .arg("run")
        .arg(input)
        .arg("-o")
        .arg(out.path().join("out"))
        .args(["--quality", "preview", "--device", "cpu"])
        .args(more)
        .output()
        .unwrap();
    let scene =
        ["scene.ply", "scene.spz", "report.json"].iter().any(|f| out.path().join("out").join(f).exists());
    (output, scene)
}

#[track_caller]
fn expect(input: &Path, more: &[&str], code: i32, words: &[&str]) {
    let (output, scene) = attempt(input, more);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(!scene, "a scene was left");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

fn ffmpeg(arguments: &[&str], output: &Path) {
    let status =
        Command::new("ffmpeg").args(["-v", "error", "-y"]).args(arguments).arg(output).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_missing_file() {
    expect(Path::new("/nowhere/at-all.mp4"), &[], 3, &["/nowhere/at-all.mp4", "does not exist"]);
}

#[test]
fn what_is_no_video() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.mp4");
    std::fs::write(&path, "These are notes, not a film.").unwrap();
    expect(&path, &[], 3, &["notes.mp4"]);
    std::fs::write(&path, b"").unwrap();
    expect(&path, &[], 3, &["notes.mp4", "empty"]);
}

#[test]
fn a_film_that_is_no_panorama() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.mp4");
    ffmpeg(&["-f", "lavfi", "-i", "testsrc2=s=320x180:d=1"], &path);
    expect(&path, &["--projection", "equirectangular"], 2, &["film.mp4", "320x180", "320x160", "360°"]);
    expect(&path, &["--projection", "cubemap"], 2, &["cubemap", "equirectangular"]);
}

#[test]
fn a_lens_that_nobody_knows() {
    let folder = tempfile::tempdir().unwrap();
    let (pictures, out) = (folder.path().to_str().unwrap(), folder.path().join("out"));
    let sfm = |more: &[&str]| run([&["sfm", pictures, "-o", out.to_str().unwrap()], more].concat());
    let unknown = sfm(&["--camera-model", "FISHEYE"]);
    assert_eq!(unknown.status.code(), Some(2));
    let text = stderr(&unknown);
    assert!(text.contains("'FISHEYE'") && text.contains("RADIAL_FISHEYE"), "{text}");
    let impossible = sfm(&["--focal", "0"]);
    assert_eq!(impossible.status.code(), Some(2), "{}", stderr(&impossible));
    assert!(stderr(&impossible).contains("focal"), "{}", stderr(&impossible));
    assert!(!out.exists());
    // A whole run takes and refuses it as its stage does.
    let whole = run(["run", pictures, "-o", out.to_str().unwrap(), "--focal", "0"]);
    assert_eq!((whole.status.code(), stderr(&whole)), (Some(2), stderr(&impossible)));
    assert!(!out.exists());
}

#[test]
fn a_playlist_in_the_clothes_of_a_video_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret.ts");
    ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=320x240:duration=1", "-c:v", "libx264"], &secret);
    let path = folder.path().join("video.mp4");
    let playlist =
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{}\n#EXT-X-ENDLIST\n", secret.display());
    std::fs::write(&path, playlist).unwrap();
    expect(&path, &[], 3, &["video.mp4"]);
}

#[test]
fn a_camera_that_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("still.mp4");
    let picture = crate::common::capture().join("video.mp4");
    let picture = picture.to_str().unwrap();
    ffmpeg(
        &["-i", picture, "-vf", "select=eq(n\\,0),loop=60:1:0,fps=20", "-t", "3", "-c:v", "libx264"],
        &path,
    );
    expect(&path, &[], 5, &["hint"]);
}

#[test]
fn a_video_too_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.mp4");
    let picture = crate::common::capture().join("video.mp4");
    ffmpeg(&["-i", picture.to_str().unwrap(), "-frames:v", "2", "-c:v", "libx264"], &path);
    expect(&path, &[], 5, &["2"]);
}

#[test]
fn a_scene_without_texture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.mp4");
    let fade = "gradients=size=480x270:duration=3:speed=0.02:nb_colors=2,format=yuv420p";
    ffmpeg(&["-f", "lavfi", "-i", fade, "-c:v", "libx264"], &path);
    expect(&path, &[], 5, &["hint"]);
}

#[test]
fn doubtful_poses_are_a_warning_and_with_strict_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (frames, out) = (folder.path().join("frames"), folder.path().join("out"));
    let walk = CaptureOptions {
        seed: 3,
        width: 320,
        height: 240,
        frames: 15,
        frame_rate: 8.0,
        arc_degrees: 60.0,
        ..Default::default()
    };
    let (filmed, _) = film_frames(&[Film::new(&walk)], &frames).unwrap();
    // Somebody covered the lens at the end: the rest makes a model, but more than a fifth of the frames has no place in it.
    for k in 11..filmed.frames.len() {
        RgbImage::new(walk.width, walk.height).save(filmed.path(k)).unwrap();
    }
    let find = |more: &[&str]| {
        reconstruct().arg("sfm").arg(&frames).arg("-o").arg(&out).args(more).output().unwrap()
    };
    let reason = "of the frames were placed";

    let refused = find(&["--strict"]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(5), "{text}");
    assert!(text.contains(reason) && text.contains("hint"), "{text}");
    assert!(!out.join("sparse").exists() && !out.join("undistorted").exists());

    let found = find(&[]);
    assert_success(&found);
    let text = stderr(&found);
    assert!(text.lines().any(|l| l.starts_with("warning: ") && l.contains(reason)), "{text}");
    assert!(String::from_utf8_lossy(&found.stdout).contains("poses doubtful"), "{found:?}");
    assert!(out.join("sparse").is_dir());
}

#[test]
fn options_out_of_range_name_the_option_and_its_range() {
    let video = Path::new("whatever.mp4");
    expect(video, &["--training-max-num-gaussians", "999"], 2, &["training_max_num_gaussians", "999", "1"]);
    expect(video, &["--training-num-steps", "0"], 2, &["training_num_steps", "0"]);
    expect(video, &["--apriltag-size-mm", "0"], 2, &["apriltag_size_mm", "1000"]);
    expect(video, &["--reconstruction-method", "magic"], 2, &["magic", "glomap", "colmap"]);
    expect(video, &["--camera-type", "submarine"], 2, &["orbital", "drone"]);
    let output = run(["run", "a.mp4"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--output"));
    let output = run(["eval", "a.ply", "garden", "--test-every", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--test-every"), "{}", stderr(&output));
}

#[test]
fn a_scene_of_unknown_format_is_refused_before_the_work() {
    // The dataset is not even looked at.
    let output = run(["train", "nowhere", "-o", "scene.obj"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("scene.obj") && stderr(&output).contains(".spz"), "{}", stderr(&output));
}

#[test]
fn without_ffmpeg_the_message_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = reconstruct()
        .arg("run")
        .arg(crate::common::capture().join("video.mp4"))
        .arg("-o")
        .arg(folder.path())
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("apt-get install"), "{}", stderr(&output));
}

#[test]
fn a_gpu_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none.json");
    let output =
        reconstruct().args(["render", "scene.ply", "--cameras", "x", "-o", "a.jpg"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "a missing scene comes first: {}", stderr(&output));
    let output = reconstruct()
        .arg("run")
        .arg(crate::common::capture().join("video.mp4"))
        .arg("-o")
        .arg(folder.path().join("out"))
        .args(["--device", "gpu"])
        .env("VK_DRIVER_FILES", &nowhere)
        .env("VK_ICD_FILENAMES", &nowhere)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

#[test]
fn a_model_that_another_program_has_made_is_not_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("sparse/0/cameras.bin");
    std::fs::create_dir_all(model.parent().unwrap()).unwrap();
    std::fs::write(&model, "by COLMAP").unwrap();
    for command in ["run", "sfm"] {
        // Before anything is looked for: there is no such video.
        let output = run([command, "/nowhere/film.mp4", "-o", folder.path().to_str().unwrap()]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(folder.path().join("sparse").to_str().unwrap()), "{text}");
        assert!(text.contains("not made by a run of this program") && text.contains("hint"), "{text}");
        assert_eq!(std::fs::read(&model).unwrap(), b"by COLMAP");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn pictures_that_cannot_be_read_do_not_hide_that_ffmpeg_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in");
    std::fs::create_dir(&input).unwrap();
    for k in 0..4 {
        std::fs::write(input.join(format!("IMG_{k}.HEIC")), "x").unwrap();
    }
    for k in 0..2 {
        // It begins as a video does: only ffmpeg can tell more.
        std::fs::write(input.join(format!("IMG_{k}.MOV")), b"\0\0\0\x18ftypqt  ").unwrap();
        let output = reconstruct()
            .arg("frames")
            .arg(&input)
            .arg("-o")
            .arg(folder.path().join("out"))
            .env("RECONSTRUCT_FFMPEG", "/nowhere/ffmpeg")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("/nowhere/ffmpeg"), "{}", stderr(&output));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_folder_that_cannot_be_written() {
    let output = reconstruct()
        .arg("run")
        .arg(crate::common::capture().join("video.mp4"))
        .args(["-o", "/proc/nothing-can-be-made-here"])
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    assert!(code == 3 || code == 6, "{code}: {}", stderr(&output));
    assert!(stderr(&output).contains("/proc/nothing-can-be-made-here"), "{}", stderr(&output));
}

#[test]
fn damaged_scenes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("a.ply", &b"ply\nformat ascii 1.0\nelement vertex 99999999999\nend_header\n"[..]),
        ("a.spz", b"\x1f\x8b\x08garbage"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = run(["info", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains(name), "{}", stderr(&output));
    }
}
