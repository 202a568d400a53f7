//! The one runtime for libraries that only speak asynchronously: the engine itself blocks.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, ErrorKind, Result};

/// Two threads carry all transfers: they only wait and copy, the work is done by who calls.
const THREADS: usize = 2;

/// The runtime, started when it is first needed; it lives as long as the process.
///
/// # Errors
/// The system's, if it has no threads left.
pub(crate) fn handle() -> Result<&'static Handle> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("reconstruct-io")
        .enable_all()
        .build()
        .map_err(|e| Error::new(ErrorKind::Io, "cannot start threads for the network").caused_by(e))?;
    // Of two that are started at once the second is dropped, unused.
    Ok(RUNTIME.get_or_init(|| runtime).handle())
}

/// Waits for `future`, which runs on that runtime. Must not be called on a thread of a runtime, but for those on which
/// blocking is allowed.
///
/// # Errors
/// The system's, if the runtime cannot be started.
pub(crate) fn wait_for<F: Future>(future: F) -> Result<F::Output> {
    Ok(handle()?.block_on(future))
}
