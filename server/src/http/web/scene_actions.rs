//! What is done to a job of who is signed in. Somebody else's is answered as one that does not exist.

use std::time::Duration;

use hyper::StatusCode;
use libreconstruct::ErrorKind;
use libreconstruct::job::{JobId, JobUpdate};
use libreconstruct::service::Idempotency;
use maud::html;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::form::Form;
use super::page::{Page, go_to};
use super::{scene_options, session};
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::rate_limit::Class;
use crate::http::response::Answer;

/// How long the second click on a button waits for what the first one made, and how often it looks.
const FIRST_CLICK: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);

/// Asks whether a job is to be deleted.
pub(super) async fn ask_to_delete(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let job = exchange.api.blocking(move |service| service.job(user, job_id)).await?;
    let prefix = exchange.api.prefix();
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
    exchange.api.stored(move |service| service.delete(user, job_id)).await?;
    go_to(exchange.api, "/scenes")
}

/// Stops it and keeps it. One that has ended meanwhile stays as it is.
pub(super) async fn cancel(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let cancelled = exchange.api.blocking(move |service| match service.cancel(user, job_id) {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        cancelled => cancelled.map(drop),
    });
    cancelled.await?;
    go_to(exchange.api, "/scenes")
}

/// Asks with which options a video is to be reconstructed again.
pub(super) async fn ask_to_restart(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let (user, job_id) = (signed_in.user.user_id, exchange.job_id(job_id)?);
    let request = exchange.api.blocking(move |service| service.request_again(user, job_id)).await?;
    let (title, prefix) = (request.title.as_deref().unwrap_or_default(), exchange.api.prefix());
    let content = html! {
        h1 { "Run “" (title) "” again" }
        p { "Of the same video a new scene is made. This one stays as it is." }
        form.options method="post" {
            // Each time the page is asked for it is another: by this a second click is told from a second wish.
            input type="hidden" name="once" value=(Uuid::new_v4().to_string());
            div.fields {
                label for="title" { "Title" }
                input #title name="title" required maxlength="255" value=(title);
            }
            (scene_options::fields(&request, exchange.api.service().limits()))
            p.actions {
                button.main { "Run it again" }
                a href={ (prefix) "/scenes" } { "Leave it" }
            }
        }
    };
    let title = "Run a scene again";
    Page { prefix, title, user: Some(&signed_in.user), path: "", script: None }
        .answer(StatusCode::OK, &content)
}

/// Makes a new job of the same video, with the options of the form and else those that it had. The same form once more, as a second
/// click on its button sends it, is answered as the first one was.
pub(super) async fn restart(exchange: &mut Exchange<'_>, job_id: &str, form: Form) -> Answer {
    let user = session::need(exchange, Class::Submit).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let body = scene_options::read(&form);
    let drops_scale = form.has("apriltag_size_mm") && form.text("apriltag_size_mm").trim().is_empty();
    let idempotency = once(job_id, &body, &form);
    let end = Instant::now() + FIRST_CLICK;
    loop {
        let (body, idempotency) = (body.clone(), idempotency.clone());
        let again = exchange.api.stored(move |service| {
            let submission = service.restart(user, job_id, idempotency, |before| {
                let mut request = before.with_json(&body, service.limits())?;
                if drops_scale {
                    request.apriltag_size_mm = None;
                }
                Ok(request)
            });
            Ok(submission)
        });
        match again.await? {
            Ok(submission) => {
                exchange.facts.job = Some(submission.body.job_id);
                return go_to(exchange.api, "/scenes");
            }
            // The browser shows the answer to the last click, so that one waits for the first.
            Err(error) if Idempotency::is_in_use(&error) && Instant::now() < end => {
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What makes two sendings of one form one request. What it asks for is in the key: who goes back and changes something wants
/// another job, also where the browser shows the page as it was. A form without the field makes a job each time.
fn once(job: JobId, body: &Value, form: &Form) -> Option<Idempotency> {
    let field = Uuid::try_parse(form.text("once")).ok()?;
    let body_hash: [u8; 32] = Sha256::digest(format!("again {job} {body}")).into();
    let hash: String = body_hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Idempotency { key: format!("page again {field} {hash}"), body_hash })
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

/// Has viewers begin with the form's `camera_data`, or as at first if that is `null`.
pub(super) async fn begin_with(exchange: &mut Exchange<'_>, job_id: &str, form: Form) -> Answer {
    let camera: Value = serde_json::from_str(form.text("camera_data"))
        .map_err(|_| ApiError::bad_request("camera_data is no JSON: the page sends what its viewer shows"))?;
    change(exchange, job_id, &json!({ "camera_data": camera })).await
}

/// Gives it the form's `title`.
pub(super) async fn rename(exchange: &mut Exchange<'_>, job_id: &str, form: Form) -> Answer {
    change(exchange, job_id, &json!({ "title": form.text("title") })).await
}

/// Changes a job as a PATCH of the interface with this body would, and goes back to its page.
async fn change(exchange: &mut Exchange<'_>, job_id: &str, body: &Value) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let job_id = exchange.job_id(job_id)?;
    let update = JobUpdate::from_json(body)?;
    exchange.api.blocking(move |service| service.update(user, job_id, &update)).await?;
    go_to(exchange.api, &format!("/scenes/{job_id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_form_is_one_request_and_another_wish_is_another() {
        let job = JobId::random();
        let key = |job: JobId, text: &str| {
            let form = Form::of(text.as_bytes());
            once(job, &scene_options::read(&form), &form).map(|idempotency| idempotency.key)
        };
        let (field, other) = (Uuid::new_v4(), Uuid::new_v4());
        let first = key(job, &format!("once={field}&title=A")).unwrap();
        assert_eq!(key(job, &format!("title=A&once={field}")).unwrap(), first);
        assert!(first.starts_with("page again ") && first.len() <= 255, "{first}");
        for another in [format!("once={other}&title=A"), format!("once={field}&title=B")] {
            assert_ne!(key(job, &another).unwrap(), first);
        }
        assert_ne!(key(JobId::random(), &format!("once={field}&title=A")).unwrap(), first);
        assert_eq!((key(job, "title=A"), key(job, "once=x&title=A")), (None, None));
    }
}
