//! A video comes in, through a buffer of fixed size, straight to the disk (rules 23 to 32 of docs/rest.md).

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ETAG, HeaderValue, LAST_MODIFIED};
use hyper::{Response, StatusCode};
use libreconstruct::job::BlobName;
use libreconstruct::service::{UploadFacts, UploadWriter};
use libreconstruct::{CancelToken, Result as CoreResult};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::super::body::ResponseBody;
use super::super::drain::or_drain;
use super::super::error::ApiError;
use super::super::exchange::Exchange;
use super::super::{digest, file_name};
use super::block_list;

/// What is gathered before it is written. One such buffer fills while the other is written: that is all the memory of an upload.
const BUFFER_BYTES: usize = 1 << 20;
/// A client that sends less than this in [`RATE_WINDOW`] of waiting is cut: 8 KiB a second, a fifth of a line of 3G.
const RATE_BYTES: u64 = 480 * 1024;
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// A list of 50,000 blocks with ids of 64 bytes fits.
const BLOCK_LIST_BYTES: usize = 8 << 20;
/// A list of blocks must be here by then.
const BLOCK_LIST_DEADLINE: Duration = Duration::from_secs(60);

/// What a PUT carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole video.
    Whole,
    /// One block of it (`comp=block`).
    Block { id: String },
    /// The list of its blocks (`comp=blocklist`).
    BlockList,
}

impl Part {
    /// By Azure's parameters; others are ignored.
    pub(super) fn of(query: &str) -> Result<Self, ApiError> {
        let find = |wanted: &str| {
            form_urlencoded::parse(query.as_bytes())
                .find(|(name, _)| name == wanted)
                .map(|(_, v)| v.into_owned())
        };
        match find("comp").as_deref() {
            None => Ok(Self::Whole),
            Some("block") => match find("blockid") {
                Some(id) if (1..=128).contains(&id.len()) => Ok(Self::Block { id }),
                _ => Err(ApiError::bad_request("blockid must have 1 to 128 characters")),
            },
            Some("blocklist") => Ok(Self::BlockList),
            Some(_) => Err(ApiError::bad_request("comp must be block or blocklist")),
        }
    }
}

pub(super) async fn receive(
    exchange: &Exchange<'_>,
    name: BlobName,
    part: Part,
    body: Incoming,
) -> Result<Response<ResponseBody>, ApiError> {
    let limit = exchange.api.service().limits().max_upload_bytes;
    let too_large = || ApiError::too_large(format!("The video is larger than {limit} bytes"));
    // Rule 28: what is announced is refused before a byte is read.
    let announced = if body.size_hint().lower() > limit { Err(too_large()) } else { Ok(()) };
    let (expected, body) =
        or_drain(announced.and_then(|()| digest::expected(&exchange.parts.headers)), body)?;
    let facts = UploadFacts {
        file_name: file_name::of_upload(&exchange.parts.headers),
        size: body.size_hint().exact(),
        md5: expected.md5,
        sha256: expected.sha256,
    };
    let owner = exchange.api.quick(|service| service.upload_owner(&name)).await;
    let place = owner.and_then(|user| exchange.api.transfers.begin(user));
    let (_place, body) = or_drain(place, body)?;
    if part == Part::BlockList {
        return commit(exchange, name, facts, body).await;
    }
    let begun = match part {
        Part::Block { id } => {
            exchange.api.blocking(move |service| service.put_block(&name, &id, facts)).await
        }
        _ => exchange.api.blocking(move |service| service.begin_upload(&name, facts)).await,
    };
    let (writer, body) = or_drain(begun, body)?;
    let writer = copy(body, writer).await?;
    let etag = exchange.api.blocking(move |_| writer.finish()).await?;
    created(&etag)
}

/// Puts the blocks together.
async fn commit(
    exchange: &Exchange<'_>,
    name: BlobName,
    mut facts: UploadFacts,
    body: Incoming,
) -> Result<Response<ResponseBody>, ApiError> {
    let whole = timeout(BLOCK_LIST_DEADLINE, Limited::new(body, BLOCK_LIST_BYTES).collect())
        .await
        .map_err(|_| ApiError::timeout("The list of blocks did not arrive in time"))?
        .map_err(|_| ApiError::bad_request("The list of blocks could not be read"))?;
    let ids = block_list::parse(&whole.to_bytes())
        .map_err(|why| ApiError::bad_request(format!("The list of blocks is not valid: {why}")))?;
    // Size and digests in these headers are those of the list, not of the video.
    (facts.size, facts.md5, facts.sha256) = (None, None, None);
    // When the client leaves, this is dropped, and the work on its list ends too.
    let present = Present::default();
    let left = present.left.clone();
    let etag = exchange.api.blocking(move |service| service.commit_blocks(&name, &ids, facts, &left)).await?;
    created(&etag)
}

/// A client that waits for its answer.
#[derive(Default)]
struct Present {
    left: CancelToken,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.left.cancel();
    }
}

/// 201, empty (rule 24).
fn created(etag: &str) -> Result<Response<ResponseBody>, ApiError> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::CREATED;
    let etag = HeaderValue::from_str(etag).map_err(|e| ApiError::internal(e.to_string()))?;
    response.headers_mut().insert(ETAG, etag);
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    if let Ok(now) = HeaderValue::from_str(&now) {
        response.headers_mut().insert(LAST_MODIFIED, now);
    }
    Ok(response)
}

/// Copies the body to the writer. The client is read only as fast as the disk writes, and no thread is held while we
/// wait for the client. If this is dropped at any point, nothing is left (rule 30).
async fn copy(mut body: Incoming, writer: UploadWriter) -> Result<UploadWriter, ApiError> {
    let mut filling = Vec::new();
    let mut disk = Disk::Idle(Box::new(writer), Vec::new());
    let mut rate = Rate::new();
    while let Some(frame) = rate.next(&mut body).await? {
        let Some(data) = frame.data_ref() else { continue };
        filling.extend_from_slice(data);
        if filling.len() >= BUFFER_BYTES {
            let (writer, empty) = disk.idle().await?;
            disk = Disk::write(writer, filling);
            filling = empty;
        }
    }
    let (writer, _) = disk.idle().await?;
    let (writer, _) = Disk::write(writer, filling).idle().await?;
    Ok(writer)
}

/// The writer and the buffer that it does not need, here or on the thread that writes.
enum Disk {
    Idle(Box<UploadWriter>, Vec<u8>),
    Busy(JoinHandle<CoreResult<(UploadWriter, Vec<u8>)>>),
}

impl Disk {
    fn write(mut writer: UploadWriter, mut bytes: Vec<u8>) -> Self {
        Self::Busy(tokio::task::spawn_blocking(move || {
            writer.append(&bytes)?;
            bytes.clear();
            Ok((writer, bytes))
        }))
    }

    async fn idle(self) -> Result<(UploadWriter, Vec<u8>), ApiError> {
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
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn rule_32_parameters_of_azure() {
        assert_eq!(Part::of("se=1&sig=x").unwrap(), Part::Whole);
        assert_eq!(
            Part::of("comp=block&blockid=MDA%3D&se=1").unwrap(),
            Part::Block { id: "MDA=".to_owned() }
        );
        assert_eq!(Part::of("comp=blocklist").unwrap(), Part::BlockList);
        for bad in ["comp=block", "comp=block&blockid=", "comp=tags", "comp="] {
            assert!(Part::of(bad).is_err(), "{bad}");
        }
    }

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
