//! Runs other programs on our files, where they are installed.

use std::path::Path;
use std::process::Command;

use crate::prerequisites::Prerequisite;

/// What a script exits with if the package it needs is not installed. It prints which.
const MISSING: i32 = 77;

/// Runs `tests/interop/<script>` with `program`. False, and noted as skipped, if the program or a package of the script is
/// not installed.
///
/// # Panics
/// If it fails otherwise.
pub(crate) fn run(program: &str, script: &str, arguments: &[&str]) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/interop").join(script);
    let missing = match Command::new(program).arg(path).args(arguments).output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) if output.status.code() == Some(MISSING) => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(output) => panic!("{script}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => format!("{program} ({error})"),
    };
    Prerequisite::Interop.is_missing(&missing);
    false
}
