//! Redirects to the files of a finished job (docs/rest.md, §4.5 and §4.6).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::LOCATION;
use libreconstruct::job::{ArtifactKind, JobId, UserId};
use libreconstruct::service::Artifact;
use libreconstruct::storage::DownloadAnswer;

use super::body::ResponseBody;
use super::download::described;
use super::error::ApiError;
use super::exchange::Exchange;
use super::rate_limit::Class;
use super::response::{Answer, header_value, response};
use super::route;
use super::signature::{Access, sign};

/// How long the address of a file holds, seconds (rule 68).
const LIFETIME_SECONDS: u64 = 15 * 60;

/// The types of §4.5, and those of rule 81.
const FILE_TYPES: [(&str, ArtifactKind); 11] = [
    ("ply", ArtifactKind::Ply),
    ("spz", ArtifactKind::Spz),
    ("report", ArtifactKind::Report),
    ("log", ArtifactKind::Log),
    ("cameras", ArtifactKind::Cameras),
    ("masks", ArtifactKind::Masks),
    ("turntable", ArtifactKind::Turntable),
    ("sog", ArtifactKind::Sog),
    ("glb", ArtifactKind::Glb),
    ("first_look", ArtifactKind::FirstLook),
    ("poses", ArtifactKind::Poses),
];

/// A scene file, or what is told of how it was made.
pub(crate) async fn download(exchange: &mut Exchange<'_>, job_id: &str, file_type: &str) -> Answer {
    redirect(exchange, job_id, || kind_of(file_type)).await
}

fn kind_of(file_type: &str) -> Result<ArtifactKind, ApiError> {
    let known = FILE_TYPES.into_iter().find(|(name, _)| *name == file_type);
    known.map(|(_, kind)| kind).ok_or_else(|| {
        let others: Vec<&str> = FILE_TYPES.iter().skip(2).map(|(name, _)| *name).collect();
        // How it begins is promised (rule 66).
        ApiError::bad_request(format!(
            "Invalid file type. Must be \"ply\" or \"spz\" (or one of: {})",
            others.join(", ")
        ))
    })
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
    let (content_type, disposition) = described(&artifact.key, Some(&artifact.file_name));
    let disposition = disposition.as_ref().and_then(|value| value.to_str().ok()).map(str::to_owned);
    let lifetime = Duration::from_secs(LIFETIME_SECONDS);
    let asked = artifact.clone();
    // Some storages are asked for what signs their addresses.
    let at_the_storage = exchange.api.stored(move |service| {
        let answer = DownloadAnswer { content_type, content_disposition: disposition.as_deref() };
        service.artifact_address(&asked, lifetime, &answer)
    });
    let location = match at_the_storage.await? {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules 66 and 81.
    #[test]
    fn every_file_of_a_job_has_a_name_and_the_refusal_lists_them() {
        for kind in ArtifactKind::ALL {
            // It has a path of its own.
            let expected = kind != ArtifactKind::Preview;
            assert_eq!(FILE_TYPES.iter().any(|(_, known)| *known == kind), expected, "{kind:?}");
        }
        assert_eq!(kind_of("first_look").unwrap(), ArtifactKind::FirstLook);
        for wrong in ["", "PLY", "obj", "preview"] {
            let refused = kind_of(wrong).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
            assert_eq!(
                refused.message,
                "Invalid file type. Must be \"ply\" or \"spz\" (or one of: report, log, cameras, masks, turntable, sog, \
                 glb, first_look, poses)"
            );
        }
    }
}
