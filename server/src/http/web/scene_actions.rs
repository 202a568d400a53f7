//! What is done to a job of who is signed in. Somebody else's is answered as one that does not exist.

use hyper::StatusCode;
use libreconstruct::job::JobUpdate;
use maud::html;

use super::form::Form;
use super::page::{Page, go_to, prefix};
use super::session;
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::rate_limit::Class;
use crate::http::response::Answer;

/// Asks whether a job is to be deleted.
pub(super) async fn ask_to_delete(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let job = exchange.api.blocking(move |service| service.job(user, job_id)).await?;
    let prefix = prefix(exchange.api);
    let content = html! {
        h1 { "Delete “" (job.title) "”?" }
        p { "The scene and all its files are removed for good." }
        form.actions method="post" {
            button.danger { "Delete it" }
            a href={ (prefix) "/scenes" } { "Keep it" }
        }
    };
    let title = "Delete a scene";
    Page { prefix, title, user: Some(&signed_in.user), path: "", script: None }
        .answer(StatusCode::OK, &content)
}

/// Deletes it.
pub(super) async fn delete(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    exchange.api.blocking(move |service| service.delete(user, job_id)).await?;
    go_to(exchange.api, "/scenes")
}

/// Stops it and keeps it. One that has ended meanwhile stays as it is.
pub(super) async fn cancel(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let cancelled = exchange.api.blocking(move |service| match service.job(user, job_id)?.status {
        status if status.is_terminal() => Ok(()),
        _ => service.cancel(user, job_id).map(drop),
    });
    cancelled.await?;
    go_to(exchange.api, "/scenes")
}

/// Makes a new job of the same video with the same options.
pub(super) async fn restart(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Submit).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let again = exchange.api.blocking(move |service| {
        let request = service.request_again(user, job_id)?;
        service.submit(user, request, None)
    });
    exchange.facts.job = Some(again.await?.body.job_id);
    go_to(exchange.api, "/scenes")
}

/// Shows it to everybody, or no longer.
pub(super) async fn set_public(exchange: &mut Exchange<'_>, job_id: &str, form: Form) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let public = match form.text("public") {
        "true" => true,
        "false" => false,
        _ => return Err(ApiError::bad_request("public must be true or false")),
    };
    let update = JobUpdate { public: Some(public), ..JobUpdate::default() };
    exchange.api.blocking(move |service| service.update(user, job_id, &update)).await?;
    go_to(exchange.api, "/scenes")
}
