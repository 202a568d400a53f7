//! What the README shows runs as it stands.

use std::path::Path;
use std::process::Command;

use crate::common::{assert_success, short_capture};

const README: &str = include_str!("../../../README.md");

/// The contents of the code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    README.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_commands_run() {
    let folder = tempfile::tempdir().unwrap();
    let video = folder.path().join("kitchen.mp4");
    std::fs::copy(short_capture().join("video.mp4"), &video).unwrap();
    let photos = folder.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    let mut decode = Command::new("ffmpeg");
    decode.args(["-v", "error", "-i"]).arg(&video).args(["-q:v", "2"]).arg(photos.join("%03d.jpg"));
    assert!(decode.status().unwrap().success());

    let commands: Vec<&str> = blocks("console")
        .iter()
        .flat_map(|block| block.lines())
        .filter_map(|line| line.strip_prefix("$ reconstruct "))
        .collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for command in commands {
        let arguments = command.split_whitespace();
        let mut program = crate::common::reconstruct();
        let output = program.current_dir(folder.path()).args(arguments).output().unwrap();
        println!("$ reconstruct {command}\n{}", String::from_utf8_lossy(&output.stdout));
        assert_success(&output);
    }
    for made in ["kitchen/scene.ply", "castle/turntable.mp4", "kitchen.spz", "view.jpg"] {
        assert!(folder.path().join(made).is_file(), "{made}");
    }
}

/// The session with a server: the block as it stands, on a free port and with pictures small enough for a test.
#[test]
#[cfg(unix)]
fn the_session_with_a_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(short_capture().join("video.mp4"), folder.path().join("kitchen.mp4")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_reconstruct")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let script = format!("set -e\n{}\nkill $!\nwait $!\n", blocks("sh").first().unwrap());
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .env_remove("LIBRECONSTRUCT_DATA")
        .env("LIBRECONSTRUCT_LISTEN", "127.0.0.1:0")
        .env("LIBRECONSTRUCT_RECONSTRUCTION_DEVICE", "cpu")
        .env("LIBRECONSTRUCT_RECONSTRUCTION_MAX_RESOLUTION", "480")
        .env("LIBRECONSTRUCT_RECONSTRUCTION_TRAINING_MAX_RESOLUTION", "240")
        .output()
        .unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), crate::common::stderr(&output));
    assert_success(&output);
    assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with("Finished"));
    let begins = |name: &str, magic: &[u8]| {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        assert!(bytes.starts_with(magic), "{name}");
    };
    begins("scene.ply", b"ply\n");
    begins("scene.spz", &[0x1f, 0x8b]);
    begins("preview.jpg", &[0xff, 0xd8, 0xff]);
}

#[test]
fn the_library_example_is_the_one_that_is_built() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/examples/reconstruct.rs");
    let example = std::fs::read_to_string(example).unwrap();
    let code: Vec<&str> = example.lines().skip_while(|l| !l.starts_with("use ")).collect();
    let shown: Vec<&str> = blocks("rust").first().unwrap().lines().collect();
    assert_eq!(shown, code);
}
