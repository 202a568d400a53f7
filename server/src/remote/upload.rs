//! A video goes to the server: in blocks where the address takes them, so that a connection that breaks, or a process that ends,
//! loses one block at most; else in one piece.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use libreconstruct::{Error, ErrorKind, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::{Client, Header};
use super::file_body;
use super::unfinished::{Notes, Unfinished, modified};

/// Bytes of a block, as the web application sends them.
const BLOCK: u64 = 4 << 20;
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
    if takes_blocks(&client.join(&begun.url)?, &begun.blob_name) && size > BLOCK {
        notes.write(&begun);
        match go_on(client, video, begun, options, &notes, shown).await {
            // A block must begin while the address holds. All in one piece may take longer.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => notes.remove(),
            done => return done,
        }
        (begun, needed) = ask(client, video, size, modified).await?;
    }
    send_whole(client, video, &begun, &needed, shown).await?;
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
        for block in upload.blocks..count {
            shown(block * BLOCK, upload.size);
            let bytes = read_block(video, block, upload.size)?;
            let mut url = url.clone();
            url.query_pairs_mut().append_pair("comp", "block").append_pair("blockid", &id(block));
            client.send(Method::PUT, &url, &[], || Ok(bytes.clone().into())).await?;
            upload.blocks = block + 1;
            notes.write(&upload);
        }
        shown(upload.size, upload.size);
        let ids: String = (0..count).map(|block| format!("<Latest>{}</Latest>", id(block))).collect();
        let list = Bytes::from(format!("<?xml version=\"1.0\"?><BlockList>{ids}</BlockList>"));
        let mut url = url.clone();
        url.query_pairs_mut().append_pair("comp", "blocklist");
        client.send(Method::PUT, &url, &[name_of(video)?], || Ok(list.clone().into())).await?;
        upload.is_complete = true;
        notes.write(&upload);
    }
    let submitted = submit_upload(client, &upload, options).await?;
    notes.remove();
    Ok(submitted)
}

/// The name of a block: all have the same length.
fn id(block: u64) -> String {
    STANDARD.encode(format!("{block:06}"))
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
    let sent = Arc::<AtomicU64>::default();
    let body = || file_body::of_file(video, size, sent.clone());
    let mut sending = std::pin::pin!(client.send(Method::PUT, &url, &headers, body));
    loop {
        tokio::select! {
            done = &mut sending => {
                done?;
                shown(size, size);
                return Ok(());
            }
            // Until the answer has come it is not there.
            () = sleep(SHOWN_EVERY) => shown(sent.load(Ordering::Relaxed).min(size.saturating_sub(1)), size),
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
}
