//! A file goes out: whole or in part, read a chunk at a time while the client takes it (rule 70 of docs/rest.md).

use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderValue, LAST_MODIFIED,
};
use hyper::{Method, StatusCode};
use libreconstruct::job::ArtifactKind;
use libreconstruct::storage::{BlobFile, BlobKey, BlobReader};
use tokio::sync::mpsc;

use super::body::ResponseBody;
use super::error::ApiError;
use super::exchange::Exchange;
use super::file_name::attachment;
use super::range::{Selection, select};
use super::response::{Answer, header_value, response};
use super::shares::Share;
use super::turns::Turns;

/// What is read at a time. While one chunk is sent the connection holds the next, and the one after that is read. A client may ask for
/// many files at once and take none of them: three chunks of each are in memory then, and no more.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Answers with the blob, or with the part of it that the request asks for. A scene is saved under `file_name`; `cache` is the
/// value of `Cache-Control`.
///
/// # Errors
/// 404 if it is not there (any more), 412 if another version is wanted, 416 for a range behind its end; 429 or 503 if too many files go
/// out already.
pub(super) async fn send(
    exchange: &Exchange<'_>,
    key: BlobKey,
    file_name: Option<&str>,
    cache: HeaderValue,
) -> Answer {
    let blob = exchange.api.stored(move |service| service.open_blob(&key)).await?;
    let size = blob.size;
    let etag = etag(&key, &blob);
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(ETAG, header_value(&etag)?);
    headers.insert(LAST_MODIFIED, header_value(&httpdate::fmt_http_date(blob.modified))?);
    headers.insert(CACHE_CONTROL, cache);
    let (method, asked) = (&exchange.parts.method, &exchange.parts.headers);
    let selection = select(method, asked, size, &etag, Some(blob.modified));
    let (status, first, length) = match selection {
        Selection::Whole => (StatusCode::OK, 0, size),
        Selection::Part { first, last } => {
            headers.insert(CONTENT_RANGE, header_value(&format!("bytes {first}-{last}/{size}"))?);
            (StatusCode::PARTIAL_CONTENT, first, last - first + 1)
        }
        Selection::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
        Selection::OtherVersion => {
            let text = "The file is another version than those of If-Match";
            return Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", text));
        }
        Selection::Unsatisfiable => {
            let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", "Range not satisfiable");
            return Err(error.with_header(CONTENT_RANGE, header_value(&format!("bytes */{size}"))?));
        }
    };
    if status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_LENGTH, length.into());
        let (content_type, disposition) = described(&key, file_name);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(disposition) = disposition {
            headers.insert(CONTENT_DISPOSITION, disposition);
        }
    }
    let body = match length {
        0 => ResponseBody::empty(),
        _ if method == Method::HEAD => ResponseBody::empty(),
        _ => {
            let place = exchange.api.downloads.begin(exchange.address())?;
            stream(exchange.api.turns.clone(), blob, first, length, place)
        }
    };
    let mut response = response(status, body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// The media type of a file and its `Content-Disposition`, whether we send it or the storage does (rule 70): a preview is shown, all
/// else is saved, and is bytes to whoever carries it.
pub(super) fn described(key: &BlobKey, file_name: Option<&str>) -> (&'static str, Option<HeaderValue>) {
    match key {
        BlobKey::Artifact { kind: ArtifactKind::Preview, .. } => (ArtifactKind::Preview.content_type(), None),
        _ => ("application/octet-stream", file_name.map(attachment)),
    }
}

/// Strong: a key is never used for other bytes, and size and time tell a restored backup apart.
fn etag(key: &BlobKey, blob: &BlobReader) -> String {
    let written = blob.modified.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let key = key.to_string();
    let name = key.rsplit('/').next().unwrap_or_default();
    format!("\"{name}-{:x}-{written:x}\"", blob.size)
}

/// Bytes of a file and the place that it has while any of them are in memory: whoever was handed the last ones may keep them for long.
struct Placed {
    bytes: Bytes,
    _place: Arc<Share<IpAddr>>,
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The `length` bytes from `first`. A slow client holds no thread: one is borrowed only while a chunk is read. `place` is held until
/// the last of them has left.
fn stream(
    turns: Arc<Turns>,
    blob: BlobReader,
    first: u64,
    length: u64,
    place: Share<IpAddr>,
) -> ResponseBody {
    let (sender, chunks) = mpsc::channel(1);
    tokio::spawn(async move {
        let place = Arc::new(place);
        let mut reader = ChunkReader { file: blob.file, seek: Some(first), left: length };
        while reader.left > 0 {
            // Room first: a chunk that waited for it would be one more in memory.
            let Ok(room) = sender.reserve().await else { return };
            let turn = turns.take_read().await;
            let read = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let chunk = reader.next();
                (reader, chunk)
            });
            let Ok((back, chunk)) = read.await else { return };
            reader = back;
            let chunk = chunk.map(|bytes| Bytes::from_owner(Placed { bytes, _place: place.clone() }));
            if let Err(error) = &chunk {
                tracing::error!(%error, "a download broke off");
            }
            let failed = chunk.is_err();
            room.send(chunk);
            if failed {
                return;
            }
        }
    });
    ResponseBody::Stream { chunks, remaining: Some(length) }
}

/// What is left to read of a file.
struct ChunkReader {
    file: Box<dyn BlobFile>,
    /// Where to begin, before the first chunk.
    seek: Option<u64>,
    left: u64,
}

impl ChunkReader {
    fn next(&mut self) -> io::Result<Bytes> {
        if let Some(first) = self.seek.take() {
            self.file.seek(SeekFrom::Start(first))?;
        }
        let size = self.left.min(CHUNK_BYTES);
        let mut chunk = vec![0; size as usize];
        self.file.read_exact(&mut chunk)?;
        self.left -= size;
        Ok(chunk.into())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use libreconstruct::job::JobId;

    use super::*;
    use crate::http::shares::Shares;

    #[tokio::test]
    async fn rule_91_a_file_has_its_place_until_its_last_bytes_have_left() {
        let places = Shares::default();
        let place = places.take(IpAddr::from([192, 0, 2, 1]), |_, _| Ok::<_, ()>(())).unwrap();
        let bytes: Vec<u8> = (0..2 * CHUNK_BYTES + 100).map(|n| (n % 251) as u8).collect();
        let size = bytes.len() as u64;
        let file = Box::new(io::Cursor::new(bytes.clone()));
        let blob = BlobReader { file, size, modified: UNIX_EPOCH };
        let mut body = stream(Arc::new(Turns::new(false)), blob, 0, size, place);
        let mut chunks = Vec::new();
        while let Some(frame) = body.frame().await {
            chunks.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert!(chunks.len() == 3 && chunks.concat() == bytes);
        while !chunks.is_empty() {
            assert_eq!(places.holders(), 1);
            chunks.pop();
        }
        assert_eq!(places.holders(), 0);
    }

    #[test]
    fn rule_70_a_preview_is_shown_and_all_else_is_saved() {
        for kind in ArtifactKind::ALL {
            let key = BlobKey::Artifact { job: JobId::random(), attempt: 1, kind };
            let (content_type, disposition) = described(&key, Some("a"));
            let is_shown = kind == ArtifactKind::Preview;
            let expected = if is_shown { "image/jpeg" } else { "application/octet-stream" };
            assert_eq!((content_type, disposition.is_none()), (expected, is_shown), "{kind:?}");
        }
    }
}
