//! A service on another machine, as one user of it: what `submit`, `status` and `download` need of HTTP. It behaves, and fails, as
//! the Python package's `Client` does, and works with any server of the specification (docs/rest.md, §4).

mod body;
pub(crate) mod client;
pub(crate) mod download;
pub(crate) mod key;
mod unfinished;
pub(crate) mod upload;

use std::future::Future;
use std::time::Duration;

use libreconstruct::{CancelToken, Error, ErrorKind, Result};

/// How often it is looked whether the work is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Runs `work` until it is done, or until it is cancelled.
///
/// # Errors
/// Those of `work`; [`ErrorKind::Cancelled`]; the system's, if it has no thread left.
pub(crate) fn run<T>(cancel: &CancelToken, work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
    let cancelled = async {
        while !cancel.is_cancelled() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let result = runtime.block_on(async {
        tokio::select! {
            result = work => result,
            () = cancelled => Err(Error::new(ErrorKind::Cancelled, "cancelled")),
        }
    });
    // A look-up of a name that hangs must not keep the process.
    runtime.shutdown_background();
    result
}
