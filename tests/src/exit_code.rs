//! How the programs of this crate end.

use std::process::ExitCode;

use libreconstruct::Result;

/// Success, or the code of the error, which is printed.
pub fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.kind().exit_code())
        }
    }
}
