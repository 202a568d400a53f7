//! What is done beside all requests while the service is open, on a thread of its own: the mark of this machine is renewed, and
//! it is written when keys were last used, so that no request has to wait for that.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::host::{HostMark, RENEW};
use super::last_used::LastUsed;
use crate::database::JobDatabase;
use crate::error::{Error, ErrorKind, Result};

/// How often it is written when keys were last used.
const FLUSH: Duration = Duration::from_secs(10);

/// The thread; it ends when this is dropped.
pub(super) struct Housekeeper {
    /// Gone when the thread is to end.
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Housekeeper {
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        host: Arc<HostMark>,
        last_used: Arc<LastUsed>,
        database: Arc<dyn JobDatabase>,
    ) -> Result<Self> {
        let (wake, woken) = mpsc::channel();
        let work = move || {
            let mut flushed = Instant::now();
            loop {
                let woken = woken.recv_timeout(RENEW);
                if woken == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                host.renew();
                if woken.is_err() && flushed.elapsed() < FLUSH {
                    continue;
                }
                flushed = Instant::now();
                if let Err(error) = last_used.flush(database.as_ref()) {
                    log::warn!("when keys were last used: {error:?}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("housekeeper".into()).spawn(work);
        let thread = thread.map_err(|e| {
            Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}")).caused_by(e)
        })?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    /// Asks for a round now.
    #[cfg(test)]
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake {
            // It lives as long as this.
            let _ = wake.send(());
        }
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing more to say than what its panic said.
            let _ = thread.join();
        }
    }
}
