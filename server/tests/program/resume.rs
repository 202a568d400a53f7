//! Killed at any moment, the same command goes on and ends with the same files, bit for bit.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{SHORT, assert_success, reconstruct, short_capture};

const FILES: [&str; 8] = [
    "frames/frames.json",
    "sparse/images.bin",
    "sparse/points3D.bin",
    "undistorted/sparse/cameras.bin",
    "scene.ply",
    "scene.spz",
    "preview.jpg",
    "camera.json",
];

fn start(out: &Path) -> std::process::Child {
    let null = std::process::Stdio::null;
    let video = short_capture().join("video.mp4");
    let mut command = reconstruct();
    command.arg("run").arg(video).arg("-o").arg(out).args(SHORT).arg("--no-turntable");
    command.stdout(null()).stderr(null()).spawn().unwrap()
}

#[test]
fn kill_and_again_gives_the_same_scene() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, killed) = (folder.path().join("straight"), folder.path().join("killed"));
    // Filmed before the clock runs.
    short_capture();
    let began = Instant::now();
    assert!(start(&straight).wait().unwrap().success());
    let whole = began.elapsed();

    // Ten kills spread over the run; every attempt lives longer than the one before, so that each gets further.
    for k in 1..=10u32 {
        let mut child = start(&killed);
        let (began, life) = (Instant::now(), whole * k / 11 + Duration::from_millis(7));
        while began.elapsed() < life && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
        // No scene file is ever seen half-written.
        for name in ["scene.ply", "scene.spz"] {
            let path = killed.join(name);
            if path.exists() {
                libreconstruct::splats::Splats::read(&path).unwrap();
            }
        }
    }
    assert!(start(&killed).wait().unwrap().success());
    for name in FILES {
        let (a, b) = (std::fs::read(straight.join(name)).unwrap(), std::fs::read(killed.join(name)).unwrap());
        assert!(a == b, "{name} differs after the kills");
    }
    // Nothing temporary is left.
    let left: Vec<_> = std::fs::read_dir(&killed)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.') && name != ".reconstruct" || name.ends_with(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn another_number_of_threads_gives_the_same_scene() {
    let folder = tempfile::tempdir().unwrap();
    let video = short_capture().join("video.mp4");
    let run = |threads: &str| {
        let out = folder.path().join(threads);
        let mut command = reconstruct();
        command.arg("run").arg(&video).arg("-o").arg(&out).args(SHORT).args([
            "--no-turntable",
            "--threads",
            threads,
        ]);
        assert_success(&command.output().unwrap());
        FILES.map(|name| std::fs::read(out.join(name)).unwrap())
    };
    let (one, three) = (run("1"), run("3"));
    for (k, name) in FILES.iter().enumerate() {
        assert!(one[k] == three[k], "{name} depends on the number of threads");
    }
}
