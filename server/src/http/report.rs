//! What is told of a job beyond its thirteen fields (docs/rest.md, rule 80).

use std::time::Duration;

use hyper::StatusCode;
use libreconstruct::job::{JobId, JobStatus, UserId};
use libreconstruct::service::JobReport;
use tokio::time::{Instant, sleep};

use super::error::ApiError;
use super::events::{self, LOOK, Sought};
use super::exchange::Exchange;
use super::json as json_body;
use super::rate_limit::Class;
use super::response::Answer;

/// The longest that a client may wait for a change, seconds: below the minute after which proxies give up.
const LONGEST_WAIT: u64 = 50;

/// The report (rule 80); with `wait` not before something has changed, and again and again for who asks for events (rule 86).
pub(crate) async fn get(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let caller = exchange.caller(Class::Request).await?;
    let job_id = exchange.job_id(job_id)?;
    if events::are_wanted(&exchange.parts.method, &exchange.parts.headers) {
        return events::follow(exchange, caller, job_id).await;
    }
    let wait = Wait::read(exchange.parts.uri.query().unwrap_or(""))?;
    let report = match wait {
        None => read(exchange, caller.user_id, job_id).await?,
        Some(wait) => {
            let changed = read_changed(exchange, caller.user_id, job_id, &wait).await;
            // As a new request: the key may be revoked or the tier lost by now, and that is said before anything of the job.
            exchange.authorize_again(&caller).await?;
            changed?
        }
    };
    json_body::response(StatusCode::OK, &report)
}

async fn read(exchange: &Exchange<'_>, user: UserId, job_id: JobId) -> Result<JobReport, ApiError> {
    exchange.api.report(user, job_id).await
}

/// The report once something has changed, or when that was waited for long enough.
async fn read_changed(
    exchange: &Exchange<'_>,
    user: UserId,
    job_id: JobId,
    wait: &Wait,
) -> Result<JobReport, ApiError> {
    let _place = exchange.api.waits.begin(user)?;
    let began = Instant::now();
    let end = began + wait.longest;
    let mut seen: Option<(u64, JobStatus)> = None;
    let mut sought = Sought::now();
    loop {
        let known = seen.filter(|_| !sought.is_due(began.elapsed())).map(|(version, _)| version);
        // A thread is held only while the row is read, however many wait.
        let found = events::look(exchange.api, user, job_id, known).await?;
        let left = end.saturating_duration_since(Instant::now());
        let has_changed = found.is_some_and(|job| {
            let now = (job.details.version, job.status);
            let seen = *seen.get_or_insert((wait.version.unwrap_or(now.0), now.1));
            events::is_news(seen, now, began.elapsed()) || job.status.is_terminal()
        });
        if has_changed || left.is_zero() || exchange.api.waits.have_ended() {
            return read(exchange, user, job_id).await;
        }
        sleep(left.min(LOOK)).await;
    }
}

/// What a client waits for.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    longest: Duration,
    /// Another version than this one; absent for another than there is now.
    version: Option<u64>,
}

impl Wait {
    /// Parameters of other names are ignored.
    fn read(query: &str) -> Result<Option<Self>, ApiError> {
        let (mut longest, mut version) = (None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "wait" => {
                    let seconds = value.parse().ok().filter(|seconds| (0..=LONGEST_WAIT).contains(seconds));
                    let wrong = || ApiError::bad_request(format!("wait must be 0 to {LONGEST_WAIT} seconds"));
                    longest = Some(Duration::from_secs(seconds.ok_or_else(wrong)?));
                }
                "version" => {
                    // As far as the description of the interface has it: databases count so far.
                    let number = value.parse().ok().filter(|number| i64::try_from(*number).is_ok());
                    let wrong = || ApiError::bad_request("version must be the version of an earlier report");
                    version = Some(number.ok_or_else(wrong)?);
                }
                _ => {}
            }
        }
        Ok(longest.map(|longest| Self { longest, version }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_86_how_long_to_wait_is_read_or_refused() {
        let wait = |longest, version| Some(Wait { longest: Duration::from_secs(longest), version });
        assert_eq!(Wait::read("").unwrap(), None);
        assert_eq!(Wait::read("version=3&other=1").unwrap(), None);
        assert_eq!(Wait::read("wait=30").unwrap(), wait(30, None));
        assert_eq!(Wait::read("wait=0&version=7").unwrap(), wait(0, Some(7)));
        for bad in
            ["wait=", "wait=51", "wait=-1", "wait=1.5", "wait=1&version=x", "version=9223372036854775808"]
        {
            assert_eq!(Wait::read(bad).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}
