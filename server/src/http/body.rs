//! Bodies of answers: whole ones, and streams that are produced while they are sent.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// The most bytes of what is here that are handed over at once. Of what was handed over nobody knows how long it lies.
const PIECE_BYTES: usize = 64 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// All of it is here.
    Whole(Bytes),
    /// All of it is here, in pieces: those that are the same for everybody are in memory once.
    Pieces(VecDeque<Bytes>),
    /// Chunks come through a channel; its bound is the back-pressure. `remaining` is the number of bytes still to come where
    /// that is known: a stream that ends early then breaks the connection instead of looking complete.
    Stream { chunks: mpsc::Receiver<io::Result<Bytes>>, remaining: Option<u64> },
}

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// What is the same for everybody, and in memory once.
    pub(crate) fn shared(bytes: Bytes) -> Self {
        Self::Pieces(VecDeque::from([bytes]))
    }
}

/// The next piece of these bytes.
fn piece(bytes: &mut Bytes) -> Bytes {
    bytes.split_to(bytes.len().min(PIECE_BYTES))
}

impl From<String> for ResponseBody {
    fn from(text: String) -> Self {
        Self::Whole(text.into())
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes.into())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(piece(bytes))))),
            Self::Pieces(pieces) => {
                let next = pieces.front_mut().map(piece);
                // Before anybody asks whether there are more.
                if pieces.front().is_some_and(|rest| rest.is_empty()) {
                    pieces.pop_front();
                }
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            // Whoever fills it may be there for longer.
            Self::Stream { remaining: Some(0), .. } => Poll::Ready(None),
            Self::Stream { chunks, remaining } => match (ready!(chunks.poll_recv(context)), remaining) {
                (Some(Ok(chunk)), left) => {
                    if let Some(left) = left {
                        *left = left.saturating_sub(chunk.len() as u64);
                    }
                    Poll::Ready(Some(Ok(Frame::data(chunk))))
                }
                (Some(Err(error)), _) => Poll::Ready(Some(Err(error))),
                (None, Some(left)) if *left > 0 => {
                    let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ended early");
                    Poll::Ready(Some(Err(error)))
                }
                (None, _) => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Pieces(pieces) => pieces.is_empty(),
            Self::Stream { remaining, .. } => *remaining == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::Stream { remaining: Some(left), .. } => SizeHint::with_exact(*left),
            Self::Stream { remaining: None, .. } => SizeHint::default(),
        }
    }
}
