//! The bytes of a body on their way to the disk, through a buffer of fixed size.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use libreconstruct::Result as CoreResult;
use libreconstruct::service::{Appending, UploadWriter};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::super::drain::discard;
use super::super::error::ApiError;

/// What is gathered before it is written. One such buffer fills while the other is written: that is all the memory of an upload.
const BUFFER_BYTES: usize = 1 << 20;
/// A client that sends less than this in [`RATE_WINDOW`] of waiting is cut: 8 KiB a second, a fifth of a line of 3G.
const RATE_BYTES: u64 = 480 * 1024;
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// How often it is looked whether the transfer is to end.
const LOOK: Duration = Duration::from_millis(100);
/// For so long what is still on the line of its sender is taken; at a stop of the server as much is left to store it.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// What takes the bytes of a body.
pub(super) trait Writer: Send + 'static {
    fn append(&mut self, bytes: &[u8]) -> CoreResult<()>;
}

impl Writer for UploadWriter {
    fn append(&mut self, bytes: &[u8]) -> CoreResult<()> {
        UploadWriter::append(self, bytes)
    }
}

impl Writer for Appending {
    fn append(&mut self, bytes: &[u8]) -> CoreResult<()> {
        Appending::append(self, bytes)
    }
}

/// Why a transfer is to end before its body has, once there is a reason.
pub(super) type Leave<'a> = &'a (dyn Fn() -> Option<ApiError> + Sync);

/// Copies the body to the writer, and says whether it has come to its end. What came before it was cut off, or was on its way when
/// there was a reason to `leave`, is written. The client is read only as fast as the disk writes, and no thread is held while we wait for
/// the client. If this is dropped at any point, the writer is too (rule 30 of docs/rest.md). What the client still sends after it was
/// refused is read and dropped by somebody else.
///
/// # Errors
/// The writer's; then it is gone.
pub(super) async fn take_in<W: Writer>(
    mut body: Incoming,
    writer: W,
    leave: Option<Leave<'_>>,
) -> Result<(W, Result<(), ApiError>), ApiError> {
    let taken = copy(&mut body, writer, leave).await;
    // Nothing, if the body has come to its end.
    discard(body);
    taken
}

async fn copy<W: Writer>(
    body: &mut Incoming,
    writer: W,
    leave: Option<Leave<'_>>,
) -> Result<(W, Result<(), ApiError>), ApiError> {
    let mut filling = Vec::new();
    let mut disk = Disk::Idle(Box::new(writer), Vec::new());
    let mut rate = Rate::new();
    let mut leave_by = None;
    let ended = loop {
        // What a sender had sent before it turned to another transfer is still on the line, and is taken. A sender that goes on with
        // both is left.
        if let Some(why) = leave.and_then(|leave| leave())
            && Instant::now() >= *leave_by.get_or_insert_with(|| Instant::now() + LONGEST_REST)
        {
            break Err(why);
        }
        let frame = tokio::select! {
            biased;
            frame = rate.next(body) => frame,
            why = nothing_comes(leave) => break Err(why),
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let Some(data) = frame.data_ref() else { continue };
        filling.extend_from_slice(data);
        if filling.len() >= BUFFER_BYTES {
            let (writer, empty) = disk.idle().await?;
            disk = Disk::write(writer, filling);
            filling = empty;
        }
    };
    let (writer, _) = disk.idle().await?;
    let (writer, _) = Disk::write(writer, filling).idle().await?;
    Ok((writer, ended))
}

/// Ends with the reason to leave when there is one and nothing has come for a moment; never if there cannot be any.
async fn nothing_comes(leave: Option<Leave<'_>>) -> ApiError {
    let Some(leave) = leave else { return std::future::pending().await };
    loop {
        sleep(LOOK).await;
        if let Some(why) = leave() {
            return why;
        }
    }
}

/// The writer and the buffer that it does not need, here or on the thread that writes.
enum Disk<W> {
    Idle(Box<W>, Vec<u8>),
    Busy(JoinHandle<CoreResult<(W, Vec<u8>)>>),
}

impl<W: Writer> Disk<W> {
    fn write(mut writer: W, mut bytes: Vec<u8>) -> Self {
        Self::Busy(tokio::task::spawn_blocking(move || {
            writer.append(&bytes)?;
            bytes.clear();
            Ok((writer, bytes))
        }))
    }

    async fn idle(self) -> Result<(W, Vec<u8>), ApiError> {
        match self {
            Self::Idle(writer, buffer) => Ok((*writer, buffer)),
            Self::Busy(task) => match task.await {
                Ok(result) => Ok(result?),
                Err(error) => Err(ApiError::internal(format!("writing ended: {error}"))),
            },
        }
    }
}

/// How fast the client sends, counting only the time in which it was waited for.
struct Rate {
    waited: Duration,
    bytes: u64,
}

impl Rate {
    fn new() -> Self {
        Self { waited: Duration::ZERO, bytes: 0 }
    }

    /// The next piece of the body, or nothing at its end.
    async fn next<B>(&mut self, body: &mut B) -> Result<Option<hyper::body::Frame<B::Data>>, ApiError>
    where
        B: Body + Unpin,
        B::Data: bytes::Buf,
    {
        let too_slow = || ApiError::timeout("The upload is too slow");
        let began = Instant::now();
        let frame = timeout(RATE_WINDOW.saturating_sub(self.waited), body.frame());
        let frame = match frame.await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => Some(frame),
            Ok(Some(Err(_))) => return Err(ApiError::bad_request("The upload ended early")),
            Err(_) => None,
        };
        self.waited += began.elapsed();
        self.bytes +=
            frame.as_ref().and_then(|f| f.data_ref()).map_or(0, |d| bytes::Buf::remaining(d) as u64);
        if self.waited >= RATE_WINDOW {
            if self.bytes < RATE_BYTES {
                return Err(too_slow());
            }
            *self = Self::new();
        }
        match frame {
            Some(frame) => Ok(Some(frame)),
            // Enough came before in this window.
            None => Box::pin(self.next(body)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use bytes::Bytes;
    use hyper::StatusCode;
    use tokio::sync::mpsc;

    use super::super::super::body::ResponseBody;
    use super::*;

    /// Sends `bytes` every `pause` and returns how long it was listened to.
    async fn listened(bytes: usize, pause: Duration, times: usize) -> (Duration, bool) {
        let (sender, chunks) = mpsc::channel::<io::Result<Bytes>>(1);
        tokio::spawn(async move {
            for _ in 0..times {
                tokio::time::sleep(pause).await;
                if sender.send(Ok(vec![0; bytes].into())).await.is_err() {
                    return;
                }
            }
        });
        let mut body = ResponseBody::Stream { chunks, remaining: None };
        let began = Instant::now();
        let mut rate = Rate::new();
        loop {
            match rate.next(&mut body).await {
                Ok(Some(_)) => {}
                Ok(None) => return (began.elapsed(), true),
                Err(error) => {
                    assert_eq!(error.status, StatusCode::REQUEST_TIMEOUT);
                    return (began.elapsed(), false);
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_cut_and_a_slow_line_is_not() {
        let second = Duration::from_secs(1);
        assert_eq!(listened(9 * 1024, second, 600).await, (600 * second, true));
        let (time, whole) = listened(7 * 1024, second, 600).await;
        assert!(!whole && time <= 61 * second, "{time:?}");
        let (time, whole) = listened(1 << 20, 100 * second, 3).await;
        assert!(!whole && time <= 61 * second, "{time:?}");
    }
}
