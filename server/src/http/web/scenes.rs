//! The jobs of who is signed in: a page of them, and what their pictures and files are.

use std::fmt::Write as _;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use libreconstruct::job::{ArtifactKind, Cursor, Job, JobStatus, ListQuery, Timestamp, UserId};
use libreconstruct::service::Service;
use libreconstruct::{ErrorKind, Stage};
use maud::{Markup, html};

use super::page::Page;
use super::{session, words};
use crate::http::artifacts;
use crate::http::body::ResponseBody;
use crate::http::download;
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::json as json_body;
use crate::http::rate_limit::Class;
use crate::http::response::{Answer, response};

/// What a picture of the training is called where it cannot be seen.
const LIVE: &str = "The scene as far as it is trained";
/// Jobs on a page.
const PAGE: u32 = 24;

/// A job of the list.
struct Listed {
    job: Job,
    /// When its scene was last seen, if it is being trained.
    live: Option<Timestamp>,
}

/// A page of jobs, newest first.
pub(super) async fn list(exchange: &mut Exchange<'_>) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let user = signed_in.user.user_id;
    let cursor = cursor(exchange.parts.uri.query().unwrap_or(""))?;
    let query = ListQuery { limit: Some(PAGE), cursor, ..ListQuery::default() };
    let (jobs, next) = exchange.api.blocking(move |service| read(service, user, &query)).await?;
    let prefix = exchange.api.prefix();
    let has_viewer = exchange.api.config().public_view;
    let content = html! {
        h1 { "My scenes" }
        @if jobs.is_empty() {
            @if cursor.is_none() {
                p { "You have none yet." }
                p.actions {
                    a href={ (prefix) "/scenes/new" } { "Send a video" }
                    a href={ (prefix) "/profile" } { "Make a key for programs" }
                }
            } @else {
                p { "There are no older ones." }
            }
        }
        ul.cards {
            @for Listed { job, live } in &jobs { li { (card(prefix, job, *live, has_viewer)) } }
        }
        nav.pages aria-label="Pages" {
            @if cursor.is_some() { a href={ (prefix) "/scenes" } { "Newest" } }
            @if let Some(next) = next { a href={ (prefix) "/scenes?cursor=" (next) } { "Older" } }
        }
    };
    let user = Some(&signed_in.user);
    let page = Page { prefix, title: "My scenes", user, path: "/scenes", script: Some("scenes.js") };
    page.answer(StatusCode::OK, &content)
}

/// Where the page begins.
fn cursor(query: &str) -> Result<Option<Cursor>, ApiError> {
    let given = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "cursor");
    Ok(given.map(|(_, value)| value.parse()).transpose()?)
}

fn read(
    service: &Service,
    user: UserId,
    query: &ListQuery,
) -> libreconstruct::Result<(Vec<Listed>, Option<Cursor>)> {
    let page = service.list(user, query)?;
    let mut jobs = Vec::with_capacity(page.jobs.len());
    for summary in page.jobs {
        match service.job(user, summary.job_id) {
            Ok(job) => {
                let live = shown_at(service, user, &job)?;
                jobs.push(Listed { job, live });
            }
            // It was deleted since.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok((jobs, page.next))
}

/// When the scene was last seen while it is trained, if it is.
pub(super) fn shown_at(
    service: &Service,
    user: UserId,
    job: &Job,
) -> libreconstruct::Result<Option<Timestamp>> {
    if job.status != JobStatus::GeneratingScene {
        return Ok(None);
    }
    match service.live_picture(user, job.job_id) {
        Ok(picture) => Ok(picture.map(|picture| picture.made_at)),
        // It was deleted since.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the page of jobs says of one; `live` is when its scene was last seen.
pub(super) fn card(prefix: &str, job: &Job, live: Option<Timestamp>, has_viewer: bool) -> Markup {
    let own = |what: &str| format!("{prefix}/scenes/{}/{what}", job.job_id);
    let is_finished = job.status == JobStatus::Finished;
    let has_ended = job.status.is_terminal();
    html! {
        article.card data-job=(job.job_id) data-live=[(!has_ended).then(|| own("report"))]
            data-picture=[(!has_ended).then(|| own("live.jpg"))] {
            @if is_finished {
                img.preview src=(own("preview.jpg")) alt="" loading="lazy" width="320" height="180";
            } @else if let Some(live) = live {
                // The time makes it another picture for the browser.
                img.preview src={ (own("live.jpg")) "?at=" (live.as_micros()) } alt=(LIVE) width="320" height="180";
            } @else {
                div.preview aria-hidden="true" {}
            }
            h2 { a href={ (prefix) "/scenes/" (job.job_id) } { (job.title) } }
            p.state {
                span data-field="status" { (job.status.to_string()) }
                span data-field="stage" { (doing(job)) }
            }
            @if !has_ended {
                progress max="100" value=(job.percent_complete.unwrap_or(0)) aria-label={ "Progress of " (job.title) } {}
            }
            @if let Some(failure) = &job.details.failure {
                div.problem {
                    p { (failure.message) }
                    p.help { "Code: " code { (failure.code) } }
                }
            }
            @for warning in &job.details.warnings {
                p.warning { (warning.message) }
            }
            p.help { "Submitted " (words::time(job.uploaded_at)) @if job.public { " · public" } }
            (actions(prefix, job, has_viewer))
        }
    }
}

/// What can be done with a job.
pub(super) fn actions(prefix: &str, job: &Job, has_viewer: bool) -> Markup {
    let own = |what: &str| format!("{prefix}/scenes/{}/{what}", job.job_id);
    let is_finished = job.status == JobStatus::Finished;
    let has_ended = job.status.is_terminal();
    // Of several actions of the same name, a program that reads pages aloud says to which scene each belongs.
    let of_it = html! { span.unseen { " " (job.title) } };
    html! {
        div.actions {
            @if job.has_spz { a href=(own("download/spz")) { "Download .spz" (of_it) } }
            @if job.has_ply { a href=(own("download/ply")) { "Download .ply" (of_it) } }
            @if is_finished && job.public && has_viewer {
                a href={ (prefix) "/view/" (job.job_id) "/" } { "Look at" (of_it) }
            }
            @if has_viewer && (is_finished || !has_ended) {
                form method="post" action=(own("public")) {
                    input type="hidden" name="public" value=(!job.public);
                    button { @if job.public { "Make private" } @else { "Make public" } (of_it) }
                }
            }
            @if has_ended {
                a href=(own("restart")) { "Run again" (of_it) }
            } @else {
                form method="post" action=(own("cancel")) { button { "Stop" (of_it) } }
            }
            a.danger href=(own("delete")) { "Delete" (of_it) }
        }
    }
}

/// What is done of a job, in words.
fn doing(job: &Job) -> String {
    let mut text = String::new();
    if job.status.is_terminal() || matches!(job.status, JobStatus::Queued { .. }) {
        return text;
    }
    if let Some(stage) = job.details.stage {
        let name = match stage {
            Stage::Frames => "choosing frames",
            Stage::Sfm => "finding the cameras",
            Stage::Train => "training",
            Stage::Export => "writing the files",
        };
        let percent = (100.0 * job.details.stage_fraction).round();
        let _ = write!(text, " · {name}, {percent} %");
        if let Some(end) = job.details.stage_ends_at.filter(|end| *end > Timestamp::now()) {
            let _ = write!(text, ", {} left", words::duration(Timestamp::now(), end));
        }
    }
    text
}

/// The report of a job, as the interface has it (rule 80 of docs/rest.md).
pub(super) async fn report(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let report = exchange.api.report(user, job_id).await?;
    json_body::response(StatusCode::OK, &report)
}

/// The picture, sent by this server itself: a page shows pictures of no other.
pub(super) async fn preview(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    // One page asks for many.
    let Some(signed_in) = session::find(exchange).await? else { return Err(ApiError::no_job()) };
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let kind = ArtifactKind::Preview;
    let artifact = exchange.api.quick(|service| service.artifact(user, job_id, kind)).await?;
    download::send(exchange, artifact.key, None, HeaderValue::from_static("no-store")).await
}

/// What the scene looks like while it is trained; nothing (204) if nobody knows yet, which is no error.
pub(super) async fn live(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    // A page asks for it again and again.
    let Some(signed_in) = session::find(exchange).await? else { return Err(ApiError::no_job()) };
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let picture = exchange.api.blocking(move |service| service.live_picture(user, job_id)).await?;
    let Some(picture) = picture else { return Ok(response(StatusCode::NO_CONTENT, ResponseBody::empty())) };
    let mut response = response(StatusCode::OK, picture.jpeg.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("image/jpeg"));
    Ok(response)
}

/// What there may be beside the scene itself: the name of the file type, and what it is called on a page.
pub(super) const MORE: [(ArtifactKind, &str, &str); 8] = [
    (ArtifactKind::Sog, "sog", "scene as .sog (PlayCanvas, SuperSplat)"),
    (ArtifactKind::Glb, "glb", "scene as .glb (glTF)"),
    (ArtifactKind::Poses, "poses", "picture of the camera poses"),
    (ArtifactKind::Cameras, "cameras", "camera poses (COLMAP)"),
    (ArtifactKind::Masks, "masks", "masks"),
    (ArtifactKind::Turntable, "turntable", "film"),
    (ArtifactKind::Report, "report", "all figures (JSON)"),
    (ArtifactKind::Log, "log", "log"),
];

/// A file, by an address that needs no session.
pub(super) async fn download(exchange: &mut Exchange<'_>, job_id: &str, file_type: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let kind = match file_type {
        "ply" => ArtifactKind::Ply,
        "spz" => ArtifactKind::Spz,
        other => MORE.iter().find(|(_, name, _)| *name == other).ok_or_else(ApiError::no_route)?.0,
    };
    artifacts::lead_to(exchange, user, job_id, kind).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_page_begins_is_read_or_refused() {
        assert!(cursor("").unwrap().is_none() && cursor("other=1").unwrap().is_none());
        assert_eq!(cursor("cursor=x").unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}
