//! The page of one scene: what it looks like, what it is worth, and what its owner can do with it.

use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use libreconstruct::ErrorKind;
use libreconstruct::job::{ArtifactKind, Job, JobStatus};
use libreconstruct::service::JobReport;
use libreconstruct::sfm::Grade;
use maud::{Markup, html};

use super::page::{POLICY_WITH_VIEWER, Page};
use super::{scenes, session, words};
use crate::http::download;
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::json as json_body;
use crate::http::rate_limit::Class;
use crate::http::response::Answer;

/// The browser may keep the scene and must ask whether it may still show it.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// The page.
pub(super) async fn page(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let read = exchange.api.blocking(move |service| {
        let job = service.job(user, job_id)?;
        let live = scenes::shown_at(service, user, &job)?;
        let is_there = |kind| match service.artifact(user, job_id, kind) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let mut more = Vec::new();
        for (kind, name, text) in scenes::MORE {
            if is_there(kind)? {
                more.push((name, text));
            }
        }
        Ok((job, live, more, is_there(ArtifactKind::FirstLook)?))
    });
    let (job, live, more, has_first) = read.await?;
    let report = exchange.api.report_of(user, job.clone()).await?;
    let prefix = exchange.api.prefix();
    let has_viewer = exchange.api.config().public_view;
    let is_finished = job.status == JobStatus::Finished;
    let public = (job.public && has_viewer && is_finished)
        .then(|| format!("{}/view/{job_id}/", exchange.api.base(&exchange.connection, exchange.parts)));
    let content = html! {
        @if is_finished {
            h1 { (job.title) }
            (viewer(prefix, &job, has_first, report.scale.as_ref().is_some_and(|scale| scale.applied)))
            @for warning in &job.details.warnings { p.warning { (warning.message) } }
            (scenes::actions(prefix, &job, has_viewer))
            @if let Some(address) = &public { (share(address, &job.title)) }
            (figures(&report))
            (files(prefix, &job, &more))
        } @else {
            h1 { (job.title) }
            ul.cards { li { (scenes::card(prefix, &job, live, has_viewer)) } }
        }
        (rename(prefix, &job))
    };
    let script = if is_finished { "scene.js" } else { "scenes.js" };
    let page =
        Page { prefix, title: &job.title, user: Some(&signed_in.user), path: "", script: Some(script) };
    let mut answer = page.answer(StatusCode::OK, &content)?;
    if is_finished {
        answer.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY_WITH_VIEWER);
    }
    Ok(answer)
}

fn viewer(prefix: &str, job: &Job, has_first: bool, is_metric: bool) -> Markup {
    let own = |what: &str| format!("{prefix}/scenes/{}/{what}", job.job_id);
    html! {
        div.viewer data-scene=(own("scene.spz")) data-preview=(own("preview.jpg")) data-camera=(own("camera.json"))
            data-first=[has_first.then(|| own("first.spz"))] data-frames=(own("frames.json"))
            data-name=(job.title) {
            noscript { img src=(own("preview.jpg")) alt={ "Preview of " (job.title) }; }
        }
        div.actions {
            button #full-screen type="button" hidden { "Full screen" }
            button #save-picture type="button" hidden { "Save a picture" }
            @if is_metric {
                button #measure type="button" aria-pressed="false" hidden { "Measure" }
            }
            button #show-frames type="button" aria-pressed="false" hidden { "Camera path" }
            form #begin-here method="post" action=(own("camera")) hidden {
                input type="hidden" name="camera_data" value="";
                button { "Begin with this view" }
            }
            form method="post" action=(own("camera")) {
                input type="hidden" name="camera_data" value="null";
                button { "Begin as at first" }
            }
        }
    }
}

fn share(address: &str, title: &str) -> Markup {
    html! {
        section aria-labelledby="share" {
            h2 #share { "Share" }
            p { "Everybody can look at it here:" }
            div.copy {
                a #address href=(address) { (address) }
                button type="button" data-copy="address" hidden { "Copy" }
            }
            p { "And within a page of your own:" }
            div.copy {
                code #embed { (embedding(address, title)) }
                button type="button" data-copy="embed" hidden { "Copy" }
            }
        }
    }
}

/// What somebody else writes into a page to show the scene there.
fn embedding(address: &str, title: &str) -> String {
    html! {
        iframe src=(address) title=(title) width="640" height="360" allow="fullscreen" style="border: 0" {}
    }
    .into_string()
}

/// What else there is to fetch.
fn files(prefix: &str, job: &Job, more: &[(&str, &str)]) -> Markup {
    html! {
        @if !more.is_empty() {
            section aria-labelledby="files" {
                h2 #files { "More files" }
                ul.plain {
                    @for (name, text) in more {
                        li { a href={ (prefix) "/scenes/" (job.job_id) "/download/" (name) } { "Download the " (text) } }
                    }
                }
            }
        }
    }
}

fn rename(prefix: &str, job: &Job) -> Markup {
    html! {
        section aria-labelledby="rename" {
            h2 #rename { "Title" }
            form.row method="post" action={ (prefix) "/scenes/" (job.job_id) "/title" } {
                label for="title" { "New title" }
                input #title name="title" required maxlength="255" value=(job.title);
                button { "Rename" }
            }
        }
    }
}

/// What ran and how good it is, in words.
fn figures(report: &JobReport) -> Markup {
    html! {
        section aria-labelledby="figures" {
            h2 #figures { "What it is worth" }
            @if let Some(verdict) = &report.verdict {
                p {
                    strong { @match verdict.grade {
                        Grade::Good => "The camera poses are good.",
                        Grade::Doubtful => "The camera poses are doubtful.",
                        Grade::Broken => "The camera poses are wrong.",
                    } }
                    (format!(
                        " They are expected to be off by {:.2}° and by {:.1} % of the camera's path; in 19 of 20 captures by less than {:.2}° and {:.1} %.",
                        verdict.rotation_error_degrees, 100.0 * verdict.position_error,
                        verdict.rotation_bound_degrees, 100.0 * verdict.position_bound,
                    ))
                }
                @for reason in &verdict.reasons { p.warning { (reason.message) } }
            }
            dl {
                @if let (Some(ran), Some(quality)) = (&report.ran, &report.quality) {
                    dt { "Frames placed" } dd { (quality.registered) " of " (ran.frames) }
                    dt { "Reprojection error" } dd { (format!("{:.2} pixels", quality.mean_reprojection_error)) }
                    @if let (Some(psnr), Some(ssim)) = (quality.psnr, quality.ssim) {
                        dt { "Likeness to frames held out" } dd { (format!("{psnr:.2} dB, SSIM {ssim:.3}")) }
                    }
                    dt { "Gaussians" } dd { (ran.splats) }
                    dt { "Training steps" } dd { (ran.steps) }
                    dt { "Trained on" } dd { (ran.device) }
                }
                dt { "Scale" }
                dd { @match &report.scale {
                    Some(scale) if scale.applied => {
                        "metres"
                        @if let Some(sigma) = scale.relative_sigma { (format!(", to {:.2} %", 100.0 * sigma)) }
                    },
                    Some(_) => "none: the tags gave no scale",
                    None => "none: no tags were asked for",
                } }
                @if let (Some(from), Some(until)) = (report.progress.started_at, report.progress.finished_at) {
                    dt { "Time" } dd { (words::duration(from, until)) }
                }
            }
        }
    }
}

/// Where the viewer begins to look.
pub(super) async fn camera(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let job = exchange.api.blocking(move |service| service.job(user, job_id)).await?;
    json_body::response(StatusCode::OK, &job.camera_data)
}

/// From where the frames were taken.
pub(super) async fn frames(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let cameras = exchange.api.stored(move |service| service.cameras(user, job_id)).await?;
    json_body::response(StatusCode::OK, &cameras)
}

/// What the viewer shows, sent by this server itself: a page asks no other.
pub(super) async fn file(exchange: &mut Exchange<'_>, job_id: &str, kind: ArtifactKind) -> Answer {
    let Some(signed_in) = session::find(exchange).await? else { return Err(ApiError::no_job()) };
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let artifact = exchange.api.quick(|service| service.artifact(user, job_id, kind)).await?;
    download::send(exchange, artifact.key, Some(&artifact.file_name), REVALIDATE).await
}
