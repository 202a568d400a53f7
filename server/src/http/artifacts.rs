//! Redirects to the files of a finished job (docs/rest.md, §4.5 and §4.6).

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::LOCATION;
use libreconstruct::job::ArtifactKind;

use super::body::ResponseBody;
use super::error::ApiError;
use super::exchange::Exchange;
use super::rate_limit::Class;
use super::response::{Answer, header_value, response};
use super::route;
use super::signature::{Access, sign};

/// How long the address of a file holds, seconds (rule 68).
const LIFETIME_SECONDS: u64 = 15 * 60;

/// A scene file.
pub(crate) fn download(exchange: &mut Exchange<'_>, job_id: &str, file_type: &str) -> Answer {
    redirect(exchange, job_id, || match file_type {
        "ply" => Ok(ArtifactKind::Ply),
        "spz" => Ok(ArtifactKind::Spz),
        // The text is promised (rule 66).
        _ => Err(ApiError::bad_request("Invalid file type. Must be \"ply\" or \"spz\"")),
    })
}

/// The picture.
pub(crate) fn preview(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    redirect(exchange, job_id, || Ok(ArtifactKind::Preview))
}

fn redirect(
    exchange: &mut Exchange<'_>,
    job_id: &str,
    kind: impl FnOnce() -> Result<ArtifactKind, ApiError>,
) -> Answer {
    let user = exchange.authorize(Class::Request)?;
    let job_id = exchange.job_id(job_id)?;
    let kind = kind()?;
    let artifact = exchange.api.quick(|service| service.artifact(user, job_id, kind))?;
    let name = artifact.key.to_string();
    let expiry = now() + LIFETIME_SECONDS;
    let keys = exchange.api.service().signing_keys();
    let query = sign(keys, Access::Download, &name, expiry, Some(&artifact.file_name));
    let base = exchange.api.base(&exchange.connection, exchange.parts);
    let location = header_value(&format!("{base}{}{name}?{query}", route::BLOB))?;
    let mut response = response(StatusCode::FOUND, ResponseBody::empty());
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Seconds since 1970 by this server's clock.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
