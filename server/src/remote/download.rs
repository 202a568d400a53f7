//! A file of a job comes from where the server redirects to. Where the connection breaks it goes on, as long as it is the same file.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use libreconstruct::{Error, ErrorKind, Result};
use reqwest::header::{ETAG, HeaderValue, IF_RANGE, RANGE};
use reqwest::{Response, StatusCode};

use super::client::Client;

/// So often the rest is asked for.
const CONTINUED: u32 = 5;

/// Writes the file behind `path` of the interface to `to`, which appears when it is whole. `shown` is told how many bytes of how
/// many are there.
///
/// # Errors
/// Those of the server and of the connection; the system's for a file that cannot be written.
pub(crate) async fn download(
    client: &Client,
    path: &str,
    to: &Path,
    shown: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let cannot = |e| Error::io("write", to, e);
    let mut answer = ask(client, path, 0, None).await?;
    let size = answer.content_length();
    let etag = answer.headers().get(ETAG).cloned();
    let mut aside = Aside::of(to);
    let mut file = File::create(&aside.path).map_err(cannot)?;
    let (mut moved, mut continued) = (0, 0);
    loop {
        let host = answer.url().host_str().unwrap_or_default().to_owned();
        let broke = match client.chunk(&mut answer).await {
            Ok(Some(chunk)) => {
                file.write_all(&chunk).map_err(cannot)?;
                moved += chunk.len() as u64;
                shown(moved, size.unwrap_or(moved));
                continue;
            }
            Ok(None) if size.is_none_or(|size| size == moved) => break,
            Ok(None) => {
                let message = format!(
                    "the connection to {host} broke after {moved} of {} bytes",
                    size.unwrap_or_default()
                );
                Error::new(ErrorKind::Io, message)
            }
            Err(error) => error,
        };
        continued += 1;
        if continued > CONTINUED || etag.is_none() {
            return Err(broke);
        }
        answer = ask(client, path, moved, etag.as_ref()).await?;
        file.seek(SeekFrom::Start(moved)).map_err(cannot)?;
    }
    if size.is_none() {
        shown(moved, moved);
    }
    file.sync_all().map_err(cannot)?;
    drop(file);
    std::fs::rename(&aside.path, to).map_err(cannot)?;
    aside.is_whole = true;
    Ok(moved)
}

/// The file from `from` on. The address is asked for each time, since an old one may not work any more, and it gets no key: it is
/// the permission itself, and may be another server's.
async fn ask(client: &Client, path: &str, from: u64, etag: Option<&HeaderValue>) -> Result<Response> {
    let target = client.redirect(path).await?;
    let mut headers = Vec::new();
    if let (1.., Some(etag)) = (from, etag) {
        let range = HeaderValue::from_str(&format!("bytes={from}-"))
            .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        headers = vec![(RANGE, range), (IF_RANGE, etag.clone())];
    }
    let answer = client.fetch(target, &headers).await?;
    let expected = if headers.is_empty() { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    if answer.status() == expected {
        return Ok(answer);
    }
    let message = match from {
        0 => format!("the address of the file answers with the status {}", answer.status()),
        _ => "the connection broke, and the file cannot be continued".to_owned(),
    };
    Err(Error::new(ErrorKind::Io, message).hint("repeat the command"))
}

/// Where a file is until it is whole. Whoever lets go of it before removes what is there: it is of no use to anybody.
struct Aside {
    path: PathBuf,
    is_whole: bool,
}

impl Aside {
    fn of(path: &Path) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        Self { path: path.with_file_name(name), is_whole: false }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
