//! The `synthetic-capture` program: what it films is complete, and always the same.

#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;
use std::process::{Command, Output};

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
