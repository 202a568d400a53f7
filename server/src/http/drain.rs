//! Reads and drops a body that nobody wants, within limits: if the connection were closed while the client still sends,
//! the client would not get the answer.

use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body;

use super::error::ApiError;

/// More than this is not taken from a client that was refused.
const MOST_BYTES: usize = 64 << 20;
/// Nor for longer than this.
const LONGEST: Duration = Duration::from_secs(10);

/// Hands the body back if `known` is good. If not, the body is read and dropped while the client gets the error.
pub(crate) fn or_drain<T, B>(known: Result<T, ApiError>, body: B) -> Result<(T, B), ApiError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    match known {
        Ok(known) => Ok((known, body)),
        Err(error) => {
            discard(body);
            Err(error)
        }
    }
}

/// Reads and drops a body that has no meaning for the request, while the client gets its answer (RFC 9112, section
/// 9.6).
pub(crate) fn discard<B>(body: B)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    if !body.is_end_stream() {
        tokio::spawn(tokio::time::timeout(LONGEST, drain(body)));
    }
}

async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut taken = 0;
    while let Some(Ok(frame)) = body.frame().await {
        taken += frame.data_ref().map_or(0, Buf::remaining);
        if taken > MOST_BYTES {
            return;
        }
    }
}
