//! The one runtime for libraries that only speak asynchronously: the engine itself blocks.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::block_in_place;

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

/// Waits for `future`, which runs on that runtime. On a thread of another runtime (the server's, which has several) what else
/// waits for that thread is handed to others meanwhile.
///
/// # Errors
/// The system's, if the runtime cannot be started.
pub(crate) fn wait_for<F: Future>(future: F) -> Result<F::Output> {
    let handle = handle()?;
    let is_inside = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    Ok(if is_inside { block_in_place(|| handle.block_on(future)) } else { handle.block_on(future) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_waited_for_on_any_thread() {
        assert_eq!(wait_for(async { 1 }).unwrap(), 1);
        let server = Builder::new_multi_thread().build().unwrap();
        let on_its_threads = server.block_on(async {
            let inside = tokio::spawn(async { wait_for(async { 2 }).unwrap() });
            let beside = tokio::task::spawn_blocking(|| wait_for(async { 3 }).unwrap());
            (inside.await.unwrap(), beside.await.unwrap(), wait_for(async { 4 }).unwrap())
        });
        assert_eq!(on_its_threads, (2, 3, 4));
    }
}
