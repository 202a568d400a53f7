//! The changes of a job as they come: server-sent events (rule 86 of docs/rest.md; WHATWG HTML, section 9.2).
//!
//! Each event is a whole report, and its id the version of the job. So a client that was cut off says which version it has seen and
//! misses nothing, though not every state between two events is sent. Where a job stands in the queue changes with other jobs, and is in no
//! version of its own: that is told now and then.

use std::io;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use libreconstruct::job::{Job, JobId, JobStatus, UserId};
use libreconstruct::service::Caller;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::api::Api;
use super::body::ResponseBody;
use super::error::ApiError;
use super::exchange::Exchange;
use super::response::{Answer, response};

/// How often a job is looked at whose change somebody waits for.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// That a job has another place in the queue, and nothing else, is told no more often than this: a long queue moves all the time, and
/// everybody in it would have a report made, or a request counted by the rate limit, at each look.
const MOVES: Duration = Duration::from_secs(10);
/// When it may be told, the place is sought no more often than this: it is counted by the jobs before it, for each who waits.
const PLACES: Duration = Duration::from_millis(2500);
/// A stream ends after so long, and the client asks again: that is a request which the rate limit counts.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// Something is sent at least so often, so that nobody in between takes the line for dead.
const SILENCE: Duration = Duration::from_secs(15);
/// The client is to ask again after so many milliseconds.
const RETRY: &str = "retry: 2000\n\n";
/// For nginx: not to gather what is to arrive at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether the request is for events.
pub(crate) fn are_wanted(method: &Method, headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted.flat_map(|value| value.split(',')).filter_map(|part| part.split(';').next());
    method == Method::GET && types.any(|name| name.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The version of the job that the client has seen, as far as it says one.
fn last_seen(headers: &HeaderMap) -> Option<u64> {
    headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.trim().parse().ok())
}

/// What a client that has seen `seen` knows of a job of this version and status. Of one that waits it does not know where.
fn known(seen: Option<u64>, version: u64, status: JobStatus) -> Option<(u64, JobStatus)> {
    let is_waiting = matches!(status, JobStatus::Queued { .. });
    (seen == Some(version) && !is_waiting).then_some((version, status))
}

/// Whether a job of this version and status (`now`) is news for a client that knows of another, for so long already.
pub(crate) fn is_news(told: (u64, JobStatus), now: (u64, JobStatus), since: Duration) -> bool {
    let has_changed = told.0 != now.0 || discriminant(&told.1) != discriminant(&now.1);
    has_changed || (told.1 != now.1 && since >= MOVES)
}

/// When the place of a waiting job was last sought for somebody.
pub(crate) struct Sought(Instant);

impl Sought {
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// Whether the place of a job of which somebody knows for so long is to be sought now.
    pub(crate) fn is_due(&mut self, since: Duration) -> bool {
        let is_due = since >= MOVES && self.0.elapsed() >= PLACES;
        if is_due {
            *self = Self::now();
        }
        is_due
    }
}

/// The job, with its place in the queue; nothing if it still has the version that is known.
pub(crate) async fn look(
    api: &Api,
    user: UserId,
    job_id: JobId,
    known: Option<u64>,
) -> Result<Option<Job>, ApiError> {
    if let Some(known) = known
        && api.quick(|service| service.job_version(user, job_id)).await? == known
    {
        return Ok(None);
    }
    api.quick(|service| service.job(user, job_id)).await.map(Some)
}

/// Answers with the events of a job of the caller's.
pub(crate) async fn follow(exchange: &Exchange<'_>, caller: Caller, job_id: JobId) -> Answer {
    let user = caller.user_id;
    let seen = last_seen(&exchange.parts.headers);
    let job = exchange.api.quick(|service| service.job(user, job_id)).await?;
    if job.status.is_terminal() && seen == Some(job.details.version) {
        // There is nothing more to come: a client is not to ask again.
        return Ok(response(StatusCode::NO_CONTENT, ResponseBody::empty()));
    }
    let place = exchange.api.waits.begin(user)?;
    let (sender, chunks) = mpsc::channel(1);
    let told = known(seen, job.details.version, job.status);
    let sends = send(exchange.api.clone(), caller, job_id, told, sender);
    tokio::spawn(async move {
        sends.await;
        drop(place);
    });
    let mut response = response(StatusCode::OK, ResponseBody::Stream { chunks, remaining: None });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Sends what changes until the job has ended, the caller has left or may not ask any more, or the server stops.
async fn send(
    api: Arc<Api>,
    caller: Caller,
    job_id: JobId,
    mut told: Option<(u64, JobStatus)>,
    to: mpsc::Sender<io::Result<Bytes>>,
) {
    let user = caller.user_id;
    let end = Instant::now() + LONGEST;
    let mut last = Instant::now();
    let mut sought = Sought::now();
    let mut text = RETRY.to_owned();
    loop {
        let known = told.filter(|_| !sought.is_due(last.elapsed())).map(|(version, _)| version);
        let has_ended = match look(&api, user, job_id, known).await {
            Ok(None) => {
                text.push_str(sign_of_life(last));
                false
            }
            Ok(Some(job))
                if told.is_some_and(|told| {
                    !is_news(told, (job.details.version, job.status), last.elapsed())
                }) =>
            {
                text.push_str(sign_of_life(last));
                job.status.is_terminal()
            }
            Ok(_) => {
                let Ok(report) = api.report(user, job_id).await else { return };
                let Ok(data) = serde_json::to_string(&report) else { return };
                // JSON without line breaks: one line of data is all of it.
                text.push_str(&format!("id: {}\nevent: report\ndata: {data}\n\n", report.version));
                told = Some((report.version, report.status));
                report.status.is_terminal()
            }
            Err(error) if error.status == StatusCode::NOT_FOUND => {
                text.push_str("event: deleted\ndata: {}\n\n");
                true
            }
            // The client asks again, and is told what is the matter.
            Err(_) => return,
        };
        if !text.is_empty() {
            // Last of all, so that nothing is told that happened after the key was revoked or the tier lost.
            if api.quick(|service| service.authorize_again(&caller)).await.is_err() {
                return;
            }
            last = Instant::now();
            if to.send(Ok(std::mem::take(&mut text).into())).await.is_err() {
                return;
            }
        }
        if has_ended || api.waits.have_ended() || Instant::now() >= end {
            return;
        }
        tokio::select! {
            () = to.closed() => return,
            () = sleep(LOOK) => {}
        }
    }
}

/// What is sent where there is nothing to tell since `last`.
fn sign_of_life(last: Instant) -> &'static str {
    if last.elapsed() >= SILENCE { ":\n\n" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_86_events_are_for_those_who_ask() {
        let headers = |text: &str| HeaderMap::from_iter([(ACCEPT, text.parse().unwrap())]);
        for text in ["text/event-stream", "application/json, Text/Event-Stream;q=0.5"] {
            assert!(are_wanted(&Method::GET, &headers(text)), "{text}");
            assert!(!are_wanted(&Method::HEAD, &headers(text)));
        }
        assert!(!are_wanted(&Method::GET, &headers("*/*")));
        assert!(!are_wanted(&Method::GET, &HeaderMap::new()));
    }

    #[test]
    fn rule_86_who_comes_back_does_not_know_where_a_job_waits() {
        let runs = JobStatus::ProcessingVideo;
        assert_eq!(known(Some(7), 7, runs), Some((7, runs)));
        for (seen, status) in [
            (None, runs),
            (Some(6), runs),
            (Some(8), runs),
            (Some(7), JobStatus::Queued { position: Some(2) }),
        ] {
            assert_eq!(known(seen, 7, status), None, "{seen:?} {status:?}");
        }
    }

    #[test]
    fn rule_86_another_place_in_the_queue_is_told_now_and_then() {
        let queued = |version, place| (version, JobStatus::Queued { position: Some(place) });
        let runs = JobStatus::ProcessingVideo;
        for (now, at_once, later) in [
            (queued(7, 3), false, false),
            (queued(7, 2), false, true),
            ((7, JobStatus::Queued { position: None }), false, true),
            (queued(8, 3), true, true),
            ((7, runs), true, true),
        ] {
            assert_eq!(is_news(queued(7, 3), now, MOVES - LOOK), at_once, "{now:?}");
            assert_eq!(is_news(queued(7, 3), now, MOVES), later, "{now:?}");
        }
    }

    #[test]
    fn rule_86_a_place_in_the_queue_is_sought_when_it_may_be_told_and_not_at_each_look() {
        let mut sought = Sought(Instant::now() - PLACES);
        assert!(!sought.is_due(MOVES - LOOK));
        assert!(sought.is_due(MOVES));
        assert!(!sought.is_due(MOVES + LOOK));
    }

    #[test]
    fn rule_86_what_a_client_has_seen_is_a_version_or_nothing() {
        let headers = |text: &str| {
            HeaderMap::from_iter([(HeaderName::from_static("last-event-id"), text.parse().unwrap())])
        };
        assert_eq!(last_seen(&headers("17")), Some(17));
        for other in ["", "-1", "x", "99999999999999999999"] {
            assert_eq!(last_seen(&headers(other)), None, "{other}");
        }
        assert_eq!(last_seen(&HeaderMap::new()), None);
    }
}
