//! What the server asks of Windows, which has no signals: Ctrl-C and Ctrl-Break in its console stop it. A new certificate is
//! read when it starts, and only then.

use libreconstruct::{Error, ErrorKind, Result};
use tokio::signal::windows::{CtrlBreak, CtrlC, ctrl_break, ctrl_c};

use crate::http::tls::Tls;

/// The console's events that the server hears.
pub(super) struct Signals {
    interrupt: CtrlC,
    stop: CtrlBreak,
}

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let fails = |e| Error::new(ErrorKind::Internal, format!("cannot hear the console's events: {e}"));
        Ok(Self { interrupt: ctrl_c().map_err(fails)?, stop: ctrl_break().map_err(fails)? })
    }

    /// Waits for an event to stop. There is none that would mean to read the certificate again.
    pub(super) async fn stop(&mut self, _tls: Option<&Tls>) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
        }
    }
}

/// Windows does not count connections as files, and its limit on those is far away.
pub(super) fn raise_file_limit() {}
