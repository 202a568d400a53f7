//! A file as the body of a request: read in pieces while it is sent.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libreconstruct::{Error, Result};
use reqwest::Body;
use tokio::sync::mpsc;

use crate::http::body::ResponseBody;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// The file at `path`, from its beginning; how much of it was handed on is counted in `sent`.
///
/// # Errors
/// If it cannot be opened.
pub(super) fn of_file(path: &Path, size: u64, sent: Arc<AtomicU64>) -> Result<Body> {
    let mut file = File::open(path).map_err(|e| Error::io("read", path, e))?;
    let (sender, chunks) = mpsc::channel(2);
    sent.store(0, Ordering::Relaxed);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut piece = vec![0; PIECE];
            let read = match file.read(&mut piece) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Who sends it may have gone already.
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            };
            piece.truncate(read);
            sent.fetch_add(read as u64, Ordering::Relaxed);
            if sender.blocking_send(Ok(piece.into())).is_err() {
                return;
            }
        }
    });
    // One that has become shorter meanwhile breaks the connection.
    Ok(Body::wrap(ResponseBody::Stream { chunks, remaining: Some(size) }))
}
