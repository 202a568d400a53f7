//! Redirects to the files of a finished job (docs/rest.md, §4.5 and §4.6).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::LOCATION;
use libreconstruct::job::{ArtifactKind, JobId, UserId};
use libreconstruct::service::Artifact;

use super::body::ResponseBody;
use super::error::ApiError;
use super::exchange::Exchange;
use super::file_name::attachment;
use super::rate_limit::Class;
use super::response::{Answer, header_value, response};
use super::route;
use super::signature::{Access, sign};

/// How long the address of a file holds, seconds (rule 68).
const LIFETIME_SECONDS: u64 = 15 * 60;

/// A scene file, or what is told of how it was made.
pub(crate) async fn download(exchange: &mut Exchange<'_>, job_id: &str, file_type: &str) -> Answer {
    redirect(exchange, job_id, || match file_type {
        "ply" => Ok(ArtifactKind::Ply),
        "spz" => Ok(ArtifactKind::Spz),
        // Beside these two, whose names are in the text below (rule 81).
        "report" => Ok(ArtifactKind::Report),
        "log" => Ok(ArtifactKind::Log),
        "cameras" => Ok(ArtifactKind::Cameras),
        "masks" => Ok(ArtifactKind::Masks),
        "turntable" => Ok(ArtifactKind::Turntable),
        "sog" => Ok(ArtifactKind::Sog),
        "glb" => Ok(ArtifactKind::Glb),
        "poses" => Ok(ArtifactKind::Poses),
        // The text is promised (rule 66).
        _ => Err(ApiError::bad_request("Invalid file type. Must be \"ply\" or \"spz\"")),
    })
    .await
}

/// The picture.
pub(crate) async fn preview(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    redirect(exchange, job_id, || Ok(ArtifactKind::Preview)).await
}

async fn redirect(
    exchange: &mut Exchange<'_>,
    job_id: &str,
    kind: impl FnOnce() -> Result<ArtifactKind, ApiError>,
) -> Answer {
    let user = exchange.authorize(Class::Request).await?;
    let job_id = exchange.job_id(job_id)?;
    lead_to(exchange, user, job_id, kind()?).await
}

/// Leads to a file of a job of the user's.
pub(crate) async fn lead_to(
    exchange: &Exchange<'_>,
    user: UserId,
    job_id: JobId,
    kind: ArtifactKind,
) -> Answer {
    let artifact = exchange.api.quick(|service| service.artifact(user, job_id, kind)).await?;
    // A picture is shown, a scene is saved (rule 70).
    let disposition = (kind != ArtifactKind::Preview).then(|| attachment(&artifact.file_name));
    let disposition = disposition.as_ref().and_then(|value| value.to_str().ok());
    let lifetime = Duration::from_secs(LIFETIME_SECONDS);
    let at_the_storage =
        exchange.api.quick(|service| service.artifact_address(&artifact, lifetime, disposition)).await?;
    let location = match at_the_storage {
        Some(address) => address,
        None => own_address(exchange, &artifact),
    };
    let location = header_value(&location)?;
    let mut response = response(StatusCode::FOUND, ResponseBody::empty());
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// The address under which this server sends the file itself.
fn own_address(exchange: &Exchange<'_>, artifact: &Artifact) -> String {
    let name = artifact.key.to_string();
    let expiry = now() + LIFETIME_SECONDS;
    let keys = exchange.api.service().signing_keys();
    let query = sign(keys, Access::Download, &name, expiry, Some(&artifact.file_name));
    let base = exchange.api.base(&exchange.connection, exchange.parts);
    format!("{base}{}{name}?{query}", route::BLOB)
}

/// Seconds since 1970 by this server's clock.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
