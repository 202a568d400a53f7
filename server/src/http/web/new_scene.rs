//! A new scene: the page that takes videos, an address for each, and the job when a video is there.
//!
//! A page sends a video in blocks to the address that a client of the interface would get (rules 23 to 32 of docs/rest.md), always
//! through this server: what a storage makes of requests from a page would have to be set up there. So a lost connection costs a block.

use hyper::StatusCode;
use libreconstruct::job::{BlobName, JobRequest, VideoExtension};
use libreconstruct::service::Idempotency;
use maud::html;
use sha2::{Digest, Sha256};

use super::form::Form;
use super::page::Page;
use super::{scene_options, session, words};
use crate::http::exchange::Exchange;
use crate::http::json as json_body;
use crate::http::rate_limit::Class;
use crate::http::response::Answer;
use crate::http::{submit as submission, uploads};

/// Of a queue with more room than this nobody needs to know it.
const MANY: u64 = 20;

/// The page.
pub(super) async fn page(exchange: &mut Exchange<'_>) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let user = signed_in.user.user_id;
    let usage = exchange.api.blocking(move |service| service.usage(user)).await?;
    let limits = exchange.api.service().limits();
    let room = limits.max_queued_jobs.saturating_sub(usage.waiting_jobs);
    let left = limits.max_stored_bytes.map(|most| most.saturating_sub(usage.stored_bytes));
    let largest = left.map_or(limits.max_upload_bytes, |left| left.min(limits.max_upload_bytes));
    let types = VideoExtension::ALL.map(VideoExtension::as_str);
    let defaults = JobRequest::within(BlobName::random(VideoExtension::Mp4), limits);
    let prefix = exchange.api.prefix();
    let content = html! {
        h1 { "New scenes" }
        p {
            "Walk once around what you film, slowly and at one distance, with all of it in view; ten seconds to two minutes are enough. "
            "Nothing in the picture should move but the camera."
        }
        noscript { p.problem {
            "Videos are sent in pieces, so that nothing is lost with a connection. That needs scripts, which this browser does not run. "
            a href={ (prefix) "/docs" } { "The interface" } " takes them from any program."
        } }
        form #new-scene method="post" action={ (prefix) "/scenes" } data-uploads={ (prefix) "/scenes/uploads" }
            data-types=(types.join(" ")) data-largest=(largest) data-room=(room) data-user=(user.to_string()) hidden {
            div.drop #drop {
                label for="videos" { "Choose videos or pictures, or drop them here" }
                input #videos type="file" multiple accept=(types.iter().chain(&PICTURES).map(|t| format!(".{t}")).collect::<Vec<_>>().join(","));
                label for="folder" { "Or a folder of pictures" }
                input #folder type="file" webkitdirectory;
                p.help {
                    (types.join(", ")) "; up to " (words::bytes(largest)) " each"
                    @if left.is_some_and(|left| left < limits.max_upload_bytes) { ", which is the room that you have left" }
                    ". Pictures (" (PICTURES.join(", ")) ") are sent as one zip, which this page makes, or you."
                    @if room < MANY { " " (room) " more can wait in your queue." }
                }
            }
            ul.plain #interrupted aria-label="Interrupted uploads" {}
            ul.plain #chosen aria-label="Chosen videos" {}
            details.options { summary { "Options" } (scene_options::fields(&defaults, limits)) }
            p.actions { button.main #start disabled { "Send and reconstruct" } }
        }
        p #said role="status" {}
    };
    let user = Some(&signed_in.user);
    let page = Page { prefix, title: "New scenes", user, path: "/scenes/new", script: Some("new_scene.js") };
    page.answer(StatusCode::OK, &content)
}

/// Names of pictures that the page packs end so.
const PICTURES: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// An address on this server for a video of the form's `file_extension`.
pub(super) async fn create_upload(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    let user = session::need(exchange, Class::Upload).await?.user.user_id;
    let ticket = exchange
        .api
        .blocking(move |service| service.create_patient_upload(user, form.text("file_extension")));
    let ticket = ticket.await?;
    // Without scheme and host: the page reaches us by those by which it was reached.
    let path = format!("{}{}", exchange.api.prefix(), uploads::own_path(exchange.api, &ticket));
    json_body::response(StatusCode::OK, &serde_json::json!({ "path": path, "blob_name": ticket.blob_name }))
}

/// Queues a video that was sent, with the options of the form.
pub(super) async fn submit(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    let user = session::need(exchange, Class::Submit).await?.user.user_id;
    let mut body = scene_options::read(&form);
    body["blob_name"] = form.text("blob_name").into();
    let request = JobRequest::from_json(&body, exchange.api.service().limits())?;
    // The page asks again if the answer was lost: the same request is then the same job.
    let body_hash: [u8; 32] = Sha256::digest(body.to_string()).into();
    let key = format!("page {}", form.text("blob_name"));
    submission::queue(exchange, user, request, Some(Idempotency { key, body_hash })).await
}
