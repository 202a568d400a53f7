//! A job is submitted (docs/rest.md, §4.8).

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::http::request::Parts;
use libreconstruct::job::{JobRequest, UserId};
use libreconstruct::service::{Idempotency, Submission};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::drain::or_drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::json as json_body;
use super::rate_limit::Class;
use super::response::{Answer, header_value};
use super::route;

/// Checks the request and the video, and queues the job: 201 with its address (rule 34).
pub(crate) async fn submit(exchange: &mut Exchange<'_>, body: Incoming) -> Answer {
    let (caller, body) = or_drain(exchange.caller(Class::Submit).await, body)?;
    let key = idempotency_key(exchange.parts)?;
    let body = exchange.body(&caller, json_body::read_object(&exchange.parts.headers, body)).await?;
    let body = Value::Object(body);
    let request = JobRequest::from_json(&body, exchange.api.service().limits())?;
    // Keys of objects are sorted, so that the same fields in another order are the same body.
    let idempotency = key.map(|key| Idempotency { key, body_hash: Sha256::digest(body.to_string()).into() });
    queue(exchange, caller.user_id, request, idempotency).await
}

/// Queues an ended job's video again, with the options that the body names and else those that it had: 201 as for a submission,
/// with a job of its own (rule 85).
pub(crate) async fn restart(exchange: &mut Exchange<'_>, job_id: &str, body: Incoming) -> Answer {
    let known =
        exchange.caller(Class::Submit).await.and_then(|caller| Ok((caller, exchange.job_id(job_id)?)));
    let ((caller, job_id), body) = or_drain(known, body)?;
    let key = idempotency_key(exchange.parts)?;
    let body = exchange.body(&caller, json_body::read_options(&exchange.parts.headers, body)).await?;
    let (user, body) = (caller.user_id, Value::Object(body));
    // The same key for another job, or for a submission, is another request.
    let idempotency = key
        .map(|key| Idempotency { key, body_hash: Sha256::digest(format!("restart {job_id} {body}")).into() });
    let submission = exchange
        .api
        .stored(move |service| {
            service.restart(user, job_id, idempotency, |before| before.with_json(&body, service.limits()))
        })
        .await?;
    answer(exchange, &submission)
}

/// Queues a job and answers with it.
pub(crate) async fn queue(
    exchange: &mut Exchange<'_>,
    user: UserId,
    request: JobRequest,
    idempotency: Option<Idempotency>,
) -> Answer {
    let submission = exchange.api.stored(move |service| service.submit(user, request, idempotency)).await?;
    answer(exchange, &submission)
}

/// Answers with the job, whether it was queued now or by an earlier request with the same key.
fn answer(exchange: &mut Exchange<'_>, submission: &Submission) -> Answer {
    exchange.facts.job = Some(submission.body.job_id);
    let mut response = json_body::response(StatusCode::CREATED, &submission.body)?;
    let location = format!("{}{}/jobs/{}/", exchange.api.prefix(), route::API, submission.body.job_id);
    response.headers_mut().insert(LOCATION, header_value(&location)?);
    if submission.replayed {
        let name = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// `Idempotency-Key` (rule 47), a string in quotes as the draft has it, or bare as many clients send it.
fn idempotency_key(parts: &Parts) -> Result<Option<String>, ApiError> {
    let mut values = parts.headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || ApiError::bad_request("Idempotency-Key must be one string of 1 to 255 visible characters");
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    let visible = text.bytes().all(|b| b.is_ascii_graphic());
    if !visible || !(1..=255).contains(&text.len()) || values.next().is_some() {
        return Err(wrong());
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn key_in(values: &[&str]) -> Result<Option<String>, ApiError> {
        let mut request = Request::post("/");
        for value in values {
            request = request.header("idempotency-key", *value);
        }
        idempotency_key(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn rule_47_keys_with_and_without_quotes() {
        assert_eq!(key_in(&[]).unwrap(), None);
        assert_eq!(key_in(&["\"8e03978e\""]).unwrap().as_deref(), Some("8e03978e"));
        assert_eq!(key_in(&["8e03978e"]).unwrap().as_deref(), Some("8e03978e"));
        for bad in [&[""][..], &["\"\""], &["a b"], &["a", "a"], &["x".repeat(256).as_str()]] {
            assert!(key_in(bad).is_err(), "{bad:?}");
        }
    }
}
