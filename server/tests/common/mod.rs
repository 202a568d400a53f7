//! A small capture to work on, and the command.

#![allow(dead_code)] // every test file uses its part

pub(crate) mod server;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use libreconstruct::Control;
use libreconstruct_tests::synthetic::{CaptureOptions, generate};

/// The options of [`capture`]: small enough for seconds, large enough for a real reconstruction.
pub(crate) fn capture_options() -> CaptureOptions {
    CaptureOptions {
        width: 480,
        height: 270,
        frames: 40,
        frame_rate: 8.0,
        arc_degrees: 110.0,
        masks: true,
        ..Default::default()
    }
}

/// A folder with a synthetic capture, made once for all tests of a program.
pub(crate) fn capture() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| film(&capture_options()))
}

/// Just enough for a reconstruction, for tests that make many and look at none.
pub(crate) fn short_capture() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        film(&CaptureOptions {
            width: 256,
            height: 192,
            frames: 20,
            frame_rate: 10.0,
            arc_degrees: 50.0,
            exposure_drift: 0.0,
            ..Default::default()
        })
    })
}

fn film(options: &CaptureOptions) -> PathBuf {
    let folder = tempfile::tempdir().unwrap().keep();
    generate(&folder, options, &Control::new()).unwrap();
    folder
}

/// The command, as it was built for this test.
pub(crate) fn reconstruct() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reconstruct"));
    // Whoever runs the tests may serve a folder of their own: tests leave it alone.
    command.env_remove("LIBRECONSTRUCT_DATA");
    command
}

/// Runs the command and returns what it printed.
pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    reconstruct().args(arguments).output().unwrap()
}

/// Options of a short run on the CPU.
pub(crate) const SHORT: [&str; 12] = [
    "--quality",
    "preview",
    "--training-num-steps",
    "150",
    "--training-max-num-gaussians",
    "6000",
    "--max-resolution",
    "480",
    "--device",
    "cpu",
    "--test-every",
    "8",
];

/// What a program printed on standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with what was printed unless the program ended well.
#[track_caller]
pub(crate) fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        stderr(output)
    );
}
