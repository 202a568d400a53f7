//! The blob route: signed addresses that need no key. `Authorization` is not looked at here, because many clients send
//! it again after a redirect to the same host and port (rule 69 of docs/rest.md).

mod block_list;
mod intake;
mod resume;
mod upload;

use hyper::body::{Body, Incoming};
use hyper::header::HeaderValue;
use hyper::{Method, Response, StatusCode};
use libreconstruct::job::BlobName;
use libreconstruct::storage::BlobKey;

use super::api::Api;
use super::artifacts::now;
use super::body::ResponseBody;
use super::download;
use super::drain::or_drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::response::Answer;
use super::signature::{Access, EXPIRED, Grant, verify};

/// The answer to a genuine address whose file is gone.
fn gone() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "File not found")
}

fn grant(exchange: &Exchange<'_>, access: Access, name: &str) -> Result<Grant, ApiError> {
    let query = exchange.parts.uri.query().unwrap_or("");
    verify(exchange.api.service().signing_keys(), access, name, query, now())
}

/// Sends a file, or a part of it. HEAD of an address for uploads says how much has come.
pub(crate) async fn get(exchange: &Exchange<'_>, name: &str) -> Answer {
    if exchange.parts.method == Method::HEAD {
        match upload(exchange, name) {
            Ok(name) => return resume::show(exchange, name).await,
            // It was an address for uploads.
            Err(error) if error.code == EXPIRED => return Err(error),
            Err(_) => {}
        }
    }
    let grant = grant(exchange, Access::Download, name)?;
    let key = BlobKey::parse(name).ok_or_else(gone)?;
    // Each redirect leads to another address, so that a cache would save nothing, and would show what is deleted.
    let cache = HeaderValue::from_static("no-store");
    let sent = download::send(exchange, key, grant.file_name.as_deref(), cache).await;
    sent.map_err(|error| if error.status == StatusCode::NOT_FOUND { gone() } else { error })
}

/// The upload for which the address is.
fn upload(exchange: &Exchange<'_>, name: &str) -> Result<BlobName, ApiError> {
    grant(exchange, Access::Upload, name)?;
    name.parse().map_err(|_| gone())
}

/// Takes a video, or a block of one, or the list of its blocks.
pub(crate) async fn put(exchange: &Exchange<'_>, name: &str, body: Incoming) -> Answer {
    let known = upload(exchange, name).and_then(|name| {
        let part = upload::Part::of(exchange.parts.uri.query().unwrap_or(""))?;
        if part == upload::Part::Whole {
            upload::check_is_whole(&exchange.parts.headers, body.size_hint().exact())?;
        }
        Ok((name, part))
    });
    let ((name, part), body) = or_drain(known, body)?;
    if part == upload::Part::Whole && resume::is_creation(&exchange.parts.headers) {
        return resume::create(exchange, name, body).await;
    }
    upload::receive(exchange, name, part, body).await
}

/// Adds to the end of an upload.
pub(crate) async fn patch(exchange: &Exchange<'_>, name: &str, body: Incoming) -> Answer {
    let (name, body) = or_drain(upload(exchange, name), body)?;
    resume::append(exchange, name, body).await
}

/// Forgets what has come of an upload and is not complete.
pub(crate) async fn delete(exchange: &Exchange<'_>, name: &str) -> Answer {
    resume::forget(exchange, upload(exchange, name)?).await
}

/// Begins an upload whose bytes then come as tus has it.
pub(crate) async fn begin_tus(exchange: &Exchange<'_>, name: &str) -> Answer {
    resume::begin_tus(exchange, upload(exchange, name)?).await
}

/// Says what an address can do.
pub(crate) fn options(api: &Api, mut response: Response<ResponseBody>) -> Answer {
    resume::offer(api, response.headers_mut())?;
    Ok(response)
}
