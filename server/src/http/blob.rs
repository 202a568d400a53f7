//! The blob route: signed addresses that need no key. `Authorization` is not looked at here, because many clients send
//! it again after a redirect to the same host and port (rule 69 of docs/rest.md).

mod block_list;
mod upload;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use libreconstruct::job::BlobName;
use libreconstruct::storage::BlobKey;

use super::artifacts::now;
use super::body::ResponseBody;
use super::download;
use super::drain::or_drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::signature::{Access, Grant, verify};

/// The answer to a genuine address whose file is gone.
fn gone() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "File not found")
}

fn grant(exchange: &Exchange<'_>, access: Access, name: &str) -> Result<Grant, ApiError> {
    let query = exchange.parts.uri.query().unwrap_or("");
    verify(exchange.api.service().signing_keys(), access, name, query, now())
}

/// Sends a file, or a part of it.
pub(crate) async fn get(exchange: &Exchange<'_>, name: &str) -> Result<Response<ResponseBody>, ApiError> {
    let grant = grant(exchange, Access::Download, name)?;
    let key = BlobKey::parse(name).ok_or_else(gone)?;
    // The bytes behind an address never change, so that the client may keep them; they are for the holder of the
    // address only, so that no shared cache may.
    let cache = HeaderValue::from_static("private, max-age=900");
    let sent = download::send(exchange, key, grant.file_name.as_deref(), cache).await;
    sent.map_err(|error| if error.status == StatusCode::NOT_FOUND { gone() } else { error })
}

/// Takes a video, or a block of one, or the list of its blocks.
pub(crate) async fn put(
    exchange: &Exchange<'_>,
    name: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, ApiError> {
    let known = grant(exchange, Access::Upload, name)
        .and_then(|_| name.parse::<BlobName>().map_err(|_| gone()))
        .and_then(|name| Ok((name, upload::Part::of(exchange.parts.uri.query().unwrap_or(""))?)));
    let ((name, part), body) = or_drain(known, body)?;
    upload::receive(exchange, name, part, body).await
}
