//! What the server asks of a Unix: signals, and room for many open files. `windows.rs` is the same for Windows.

use libreconstruct::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::http::tls::Tls;

/// The signals that the server hears.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let hear = |kind| {
            signal(kind).map_err(|e| Error::new(ErrorKind::Internal, format!("cannot hear signals: {e}")))
        };
        Ok(Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            hang_up: hear(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal to stop. Meanwhile a hang-up reads the certificate again.
    pub(super) async fn stop(&mut self, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => match tls.map(Tls::reload) {
                    Some(Ok(())) => tracing::info!("the certificate was read again"),
                    Some(Err(error)) => tracing::error!(%error, "the old certificate stays in use"),
                    None => {}
                },
            }
        }
    }
}

/// Connections and uploads are files to the system, and its usual limit is meant for other programs.
pub(super) fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls are given a valid struct of their own.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
