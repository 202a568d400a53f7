//! A video goes to the server: in blocks where the address takes them, so that a connection that breaks, or a process that ends,
//! loses one block at most; else in one piece. Where the line is too slow for blocks, they go in pieces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use libreconstruct::{Error, ErrorKind, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::body::{self, Sent};
use super::client::{Client, Header, Repeat, UNMEASURED};
use super::unfinished::{Notes, Unfinished, modified};

/// Bytes of a block, as the web application sends them.
const BLOCK: u64 = 4 << 20;
/// Bytes of a piece of a block, in which it is sent where the line is slow, as the web application does.
const PIECE: u64 = 256 << 10;
/// How often it is shown how much of a video in one piece was sent.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Sends the video and submits it with `options`; the server's answer. `shown` is told how many bytes of how many are there.
///
/// # Errors
/// Those of the server and of the connection; the system's for a video that cannot be read.
pub(crate) async fn submit(
    client: &Client,
    video: &Path,
    options: &Value,
    shown: &mut dyn FnMut(u64, u64),
) -> Result<Value> {
    let metadata = std::fs::metadata(video).map_err(|e| Error::io("open", video, e))?;
    if !metadata.is_file() {
        return Err(Error::argument(format!("{} is not a file", video.display())).hint(
            "name one video, or one zip file with the pictures; `reconstruct run` takes a folder of them",
        ));
    }
    let (size, modified) = (metadata.len(), modified(&metadata));
    let notes = Notes::of(client.base(), video);
    if let Some(before) = notes.read(size, modified) {
        let was_complete = before.is_complete;
        match go_on(client, video, before, options, &notes, shown).await {
            Err(error) if is_of_no_use(&error, was_complete) => notes.remove(),
            // A wrong option, or another server's word for what is gone: the next time begins anew.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                notes.remove();
                return Err(error);
            }
            done => return done,
        }
    }
    let (mut begun, mut needed) = ask(client, video, size, modified).await?;
    let in_blocks = takes_blocks(&client.join(&begun.url)?, &begun.blob_name);
    if in_blocks && size > BLOCK {
        notes.write(&begun);
        match go_on(client, video, begun, options, &notes, shown).await {
            // A block must begin while the address holds, and a new address does not know the blocks of the old one. All in one
            // piece must only begin while it holds.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => notes.remove(),
            done => return done,
        }
        (begun, needed) = ask(client, video, size, modified).await?;
    }
    // One that is no more than a block can go in pieces, too.
    let can_be_cut = in_blocks && size <= BLOCK;
    let repeat = if can_be_cut { Repeat::UnlessSlow } else { Repeat::Patiently };
    match send_whole(client, video, &begun, &needed, repeat, shown).await {
        Err(error) if can_be_cut && error.kind() == ErrorKind::DeadlineExceeded => {
            // Not whole once more.
            begun.pieces.insert(0, 0);
            return go_on(client, video, begun, options, &notes, shown).await;
        }
        // A server of ours measures, and a block must begin while the address holds.
        Err(error) if in_blocks && error.kind() == ErrorKind::DeadlineExceeded => {
            return Err(error.hint(
                "below 8 KiB a second a line is too slow for a video that does not get through within two hours",
            ));
        }
        sent => sent?,
    }
    begun.is_complete = true;
    notes.write(&begun);
    let submitted = submit_upload(client, &begun, options).await?;
    notes.remove();
    Ok(submitted)
}

/// Whether what was begun is of no use any more: the address has expired, or the video is gone or was submitted.
fn is_of_no_use(error: &Error, was_complete: bool) -> bool {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::IdempotencyMismatch => true,
        // Of a video of which all was there it says that the server is still at its submission: it must not be made twice.
        ErrorKind::Conflict => !was_complete,
        // Not a wrong option, which a video that is sent again does not mend.
        ErrorKind::InvalidArgument => error.message().starts_with("Blob not found"),
        _ => false,
    }
}

/// Asks where the video is to go; with the headers that it needs there.
async fn ask(client: &Client, video: &Path, size: u64, modified: u128) -> Result<(Unfinished, Value)> {
    let extension = video.extension().unwrap_or_default().to_string_lossy().into_owned();
    let asked = json!({ "file_extension": extension });
    let address = client.api(Method::POST, "generate-upload-url/", Some(&asked), &[]).await.map_err(|e| {
        match e.kind() {
            ErrorKind::InvalidArgument => e.hint(format!(
                "{} ends with {extension:?}: mp4, mov, m4v, mkv, webm, avi and, for pictures, zip are accepted",
                video.display()
            )),
            _ => e,
        }
    })?;
    let text = |name: &str| {
        address[name].as_str().map(str::to_owned).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("the server's answer has no {name}: {address}"))
        })
    };
    let begun = Unfinished {
        size,
        modified,
        url: text("url")?,
        blob_name: text("blob_name")?,
        blocks: 0,
        pieces: BTreeMap::new(),
        is_complete: false,
        idempotency_key: uuid::Uuid::new_v4().simple().to_string(),
    };
    Ok((begun, address["headers"].clone()))
}

/// Whether an address is one of a server of ours, which takes blocks as Azure's clients send them (rule 32 of docs/rest.md).
fn takes_blocks(url: &Url, blob_name: &str) -> bool {
    url.path().ends_with(&format!("/blob/{blob_name}"))
}

/// Sends the blocks that are not there yet, has them put together, and submits the video.
async fn go_on(
    client: &Client,
    video: &Path,
    mut upload: Unfinished,
    options: &Value,
    notes: &Notes,
    shown: &mut dyn FnMut(u64, u64),
) -> Result<Value> {
    let url = client.join(&upload.url)?;
    let count = upload.size.div_ceil(BLOCK);
    if !upload.is_complete {
        let sent = Sent::default();
        let address = |name: &str| {
            let mut url = url.clone();
            url.query_pairs_mut().append_pair("comp", "block").append_pair("blockid", name);
            url
        };
        let mut is_slow = false;
        for block in upload.blocks..count {
            let start = block * BLOCK;
            shown(start, upload.size);
            let bytes = read_block(video, block, upload.size)?;
            let mut is_there = false;
            if !is_slow && !upload.pieces.contains_key(&block) {
                let whole = || Ok(body::of_bytes(bytes.clone(), &sent));
                let to = address(&id(block));
                match client.send(Method::PUT, &to, &[], Repeat::UnlessSlow, &sent, whole).await {
                    Ok(_) => is_there = true,
                    Err(error) if error.kind() == ErrorKind::DeadlineExceeded => {}
                    Err(error) => return Err(error),
                }
            }
            if !is_there {
                let first = upload.pieces.get(&block).copied().unwrap_or_default();
                for (piece, bytes) in (0..).zip(cut(&bytes)).skip(first as usize) {
                    let began = Instant::now();
                    let whole = || Ok(body::of_bytes(bytes.clone(), &sent));
                    let to = address(&piece_id(block, piece));
                    client.send(Method::PUT, &to, &[], Repeat::Patiently, &sent, whole).await?;
                    upload.pieces.insert(block, piece + 1);
                    notes.write(&upload);
                    shown(start + piece * PIECE + bytes.len() as u64, upload.size);
                    // The next block goes whole if it would have come before the server measures.
                    is_slow = began.elapsed() * ((BLOCK / PIECE) as u32) >= UNMEASURED;
                }
            }
            upload.blocks = block + 1;
            notes.write(&upload);
        }
        shown(upload.size, upload.size);
        let listed = names(count, &upload.pieces);
        let list = Bytes::from(format!("<?xml version=\"1.0\"?><BlockList>{listed}</BlockList>"));
        let mut url = url.clone();
        url.query_pairs_mut().append_pair("comp", "blocklist");
        let headers = [name_of(video)?];
        let body = || Ok(list.clone().into());
        client.send(Method::PUT, &url, &headers, Repeat::Patiently, &sent, body).await?;
        upload.is_complete = true;
        notes.write(&upload);
    }
    let submitted = submit_upload(client, &upload, options).await?;
    notes.remove();
    Ok(submitted)
}

/// The name of a block that is sent whole.
fn id(block: u64) -> String {
    STANDARD.encode(format!("{block:06}"))
}

/// The name of a piece of a block. None has the name of the whole: that may still come when it was given up, and would take the
/// place of the piece.
fn piece_id(block: u64, piece: u64) -> String {
    STANDARD.encode(format!("{block:06}.{piece}"))
}

/// All that was sent of `count` blocks, as the list for the server names it; `pieces` says how many a block was sent in.
fn names(count: u64, pieces: &BTreeMap<u64, u64>) -> String {
    let of_block = |block| match pieces.get(&block) {
        Some(&pieces) => (0..pieces).map(|piece| piece_id(block, piece)).collect(),
        None => vec![id(block)],
    };
    (0..count).flat_map(of_block).map(|name| format!("<Latest>{name}</Latest>")).collect()
}

/// The pieces of a block.
fn cut(block: &Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = block.clone();
    std::iter::from_fn(move || (!rest.is_empty()).then(|| rest.split_to(rest.len().min(PIECE as usize))))
}

fn read_block(video: &Path, block: u64, size: u64) -> Result<Bytes> {
    let (start, length) = (block * BLOCK, BLOCK.min(size - block * BLOCK));
    let read = || {
        let mut file = File::open(video)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|e| Error::io("read", video, e))?;
    if bytes.len() as u64 != length {
        return Err(Error::argument(format!("{} became shorter while it was sent", video.display()))
            .hint("repeat the command when nothing writes to it any more"));
    }
    Ok(bytes.into())
}

/// Sends all in one request.
async fn send_whole(
    client: &Client,
    video: &Path,
    upload: &Unfinished,
    needed: &Value,
    repeat: Repeat,
    shown: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut headers =
        vec![name_of(video)?, (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    // What a cloud storage wants of the upload.
    for (name, value) in needed.as_object().into_iter().flatten() {
        let header = HeaderName::try_from(name).ok().zip(value.as_str().and_then(|v| v.parse().ok()));
        headers.push(header.ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("the server asks for a header that is none: {name}"))
        })?);
    }
    if headers.iter().any(|(name, _)| name.as_str().starts_with("x-ms-")) {
        headers.push((HeaderName::from_static("x-ms-blob-content-disposition"), name_of(video)?.1));
    }
    let (url, size) = (client.join(&upload.url)?, upload.size);
    let sent = Sent::default();
    let whole = || body::of_file(video, size, &sent);
    let mut sending = std::pin::pin!(client.send(Method::PUT, &url, &headers, repeat, &sent, whole));
    loop {
        tokio::select! {
            done = &mut sending => {
                done?;
                shown(size, size);
                return Ok(());
            }
            // Until the answer has come it is not there.
            () = sleep(SHOWN_EVERY) => shown(sent.bytes().min(size.saturating_sub(1)), size),
        }
    }
}

/// What the file is called: the title of a job that is given none.
fn name_of(video: &Path) -> Result<Header> {
    let name = video.file_name().unwrap_or_default().to_string_lossy();
    let text = format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(&name, NON_ALPHANUMERIC));
    let value = HeaderValue::from_str(&text).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    Ok((CONTENT_DISPOSITION, value))
}

async fn submit_upload(client: &Client, upload: &Unfinished, options: &Value) -> Result<Value> {
    let mut fields = options.clone();
    fields["blob_name"] = upload.blob_name.as_str().into();
    let key = HeaderValue::from_str(&format!("\"{}\"", upload.idempotency_key))
        .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    let headers = [(HeaderName::from_static("idempotency-key"), key)];
    client.api(Method::POST, "submit-job/", Some(&fields), &headers).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_where_they_are_taken() {
        let blob = "videos/7a0f0f7e-3f5e-4d0c-9d57-0f6d1c1f8a11.mp4";
        let takes = |url: String| takes_blocks(&Url::parse(&url).unwrap(), blob);
        assert!(takes(format!("https://scenes.example.org/blob/{blob}?sig=x")));
        assert!(takes(format!("https://example.org/scans/blob/{blob}")));
        assert!(!takes(format!("https://bucket.s3.amazonaws.com/{blob}?X-Amz-Signature=x")));
        assert!(!takes(format!("https://example.org/?a=/blob/{blob}")));
    }

    #[test]
    fn a_file_is_cut_into_blocks_without_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let video = folder.path().join("a.mp4");
        let content: Vec<u8> = (0..BLOCK + 5).map(|k| k as u8).collect();
        std::fs::write(&video, &content).unwrap();
        let pieces: Vec<Bytes> = (0..2).map(|k| read_block(&video, k, BLOCK + 5).unwrap()).collect();
        assert_eq!(pieces.concat(), content);
        assert!(read_block(&video, 1, BLOCK + 6).unwrap_err().message().contains("shorter"));
        assert_eq!(id(3).len(), id(49_999).len());
    }

    #[test]
    fn what_was_sent_in_pieces_is_listed_in_pieces() {
        let block: Bytes = (0..PIECE + PIECE / 2).map(|k| k as u8).collect::<Vec<u8>>().into();
        let pieces: Vec<Bytes> = cut(&block).collect();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE as usize, PIECE as usize / 2]);
        assert_eq!(pieces.concat(), block);
        let listed = names(3, &BTreeMap::from([(1, 2)]));
        let expected: String = [id(0), piece_id(1, 0), piece_id(1, 1), id(2)]
            .map(|name| format!("<Latest>{name}</Latest>"))
            .concat();
        assert_eq!(listed, expected);
    }
}
