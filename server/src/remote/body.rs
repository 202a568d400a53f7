//! Bodies of requests, handed over in pieces that are counted: who waits for the answer can tell a slow line from a dead one.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use libreconstruct::{Error, Result};
use reqwest::Body;
use tokio::sync::{Notify, mpsc};

use crate::http::body::ResponseBody;

/// Bytes that are read, and handed over, at a time: few enough that even a line of 5 KiB/s takes one within half a minute.
const PIECE: usize = 128 << 10;
/// Pieces that are read ahead.
const AHEAD: usize = 8;

/// How much of a body was handed over.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    bytes: AtomicU64,
    more: Notify,
}

impl Sent {
    /// The body is sent, or sent again, from its beginning.
    pub(super) fn begin(&self) {
        self.0.bytes.store(0, Ordering::Relaxed);
    }

    /// Bytes that were handed over since the beginning.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Waits until a further piece is handed over.
    pub(super) async fn more(&self) {
        self.0.more.notified().await;
    }

    fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.0.more.notify_one();
    }
}

/// These bytes as a body, counted in `sent`.
pub(super) fn of_bytes(bytes: Bytes, sent: &Sent) -> Body {
    Body::wrap(Counted { body: ResponseBody::Whole(bytes), sent: sent.clone() })
}

/// The file at `path`, from its beginning, counted in `sent`; `size`: its bytes. It is read while it is sent.
///
/// # Errors
/// If it cannot be opened.
pub(super) fn of_file(path: &Path, size: u64, sent: &Sent) -> Result<Body> {
    let mut file = File::open(path).map_err(|e| Error::io("read", path, e))?;
    let (sender, chunks) = mpsc::channel(AHEAD);
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
            if sender.blocking_send(Ok(piece.into())).is_err() {
                return;
            }
        }
    });
    // One that has become shorter meanwhile breaks the connection.
    let body = ResponseBody::Stream { chunks, remaining: Some(size) };
    Ok(Body::wrap(Counted { body, sent: sent.clone() }))
}

/// A body that counts what it hands over.
struct Counted {
    body: ResponseBody,
    sent: Sent,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.sent.add(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
