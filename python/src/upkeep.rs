//! What an open engine does from time to time, on a thread of its own: deletions are finished, uploads that nobody submitted expire,
//! what nobody needs is swept.
//!
//! The thread never calls Python. It belongs to the process that started it, as all of an engine does.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use libreconstruct::service::Service;
use libreconstruct::{Error, ErrorKind, Result};

/// How often, as a server does it.
const EVERY: Duration = Duration::from_secs(60);

/// The thread; it is asked to end when this is dropped.
pub(crate) struct Upkeep {
    /// Gone when the thread is to end.
    _wake: Sender<()>,
    /// Its other end is gone once the thread has ended.
    ended: Receiver<()>,
}

/// A thread that was asked to end.
pub(crate) struct Ending(Receiver<()>);

impl Ending {
    /// Waits until it has, for `limit` at most.
    pub(crate) fn wait(self, limit: Duration) {
        // Nothing is ever sent: it is disconnected, or the time is over.
        let _ = self.0.recv_timeout(limit);
    }
}

impl Upkeep {
    /// # Errors
    /// [`ErrorKind::Io`] if the system gives no thread.
    pub(crate) fn start(service: Service) -> Result<Self> {
        let (wake, woken) = mpsc::channel::<()>();
        let (end, ended) = mpsc::channel::<()>();
        let work = move || {
            while woken.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = service.maintain() {
                    log::warn!(target: "libreconstruct", "maintenance, which is tried again in a minute: {error:?}");
                }
            }
            // In this order: once it is told that this has ended, nothing here holds the service.
            drop(service);
            drop(end);
        };
        std::thread::Builder::new().name("upkeep".into()).spawn(work).map_err(|e| {
            Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}")).caused_by(e)
        })?;
        Ok(Self { _wake: wake, ended })
    }

    /// Asks the thread to end.
    pub(crate) fn end(self) -> Ending {
        // Its waker is gone with this.
        Ending(self.ended)
    }
}
