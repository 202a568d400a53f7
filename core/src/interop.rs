//! Runs other programs on our files, where they are installed. Tests must pass without them.

use std::path::Path;
use std::process::Command;

/// What a script exits with if the package it needs is not installed.
const MISSING: i32 = 77;

/// Runs `tests/interop/<script>` with `program`. False (and a line that says so) if the program or its packages are not
/// installed.
///
/// # Panics
/// If it fails otherwise.
pub(crate) fn run(program: &str, script: &str, arguments: &[&str]) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/interop").join(script);
    let output = Command::new(program).arg(path).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) if output.status.code() != Some(MISSING) => {
            panic!("{script}: {}", String::from_utf8_lossy(&output.stderr))
        }
        _ => {
            println!("{script} needs a program or package that is not here: not compared with it");
            false
        }
    }
}
