//! Changes of jobs: one line each in the log, counts, and the spans of attempts and their stages.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use libreconstruct::job::JobId;
use libreconstruct::service::{JobChange, JobEvent, on_job_change};

use super::traces::{self, Kind, Span};

/// Starts to listen.
pub(super) fn start() {
    let running = Mutex::new(Running::new());
    // A second start in one process (tests) keeps the first.
    on_job_change(move |change| {
        line(change);
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        follow(&mut running, change);
        metrics::gauge!("reconstruct_jobs_at_work").set(running.len() as f64);
    });
}

/// The attempts that workers of this process make, by job and number: who has lost a job may still be at it when another has begun.
type Running = HashMap<(JobId, u32), Attempt>;

/// An attempt that a worker of this process makes.
struct Attempt {
    since: SystemTime,
    stage: Option<(&'static str, SystemTime)>,
}

fn line(change: &JobChange<'_>) {
    let (event, detail) = (change.what.name(), change.what.detail());
    let user = change.user.as_ref().map(tracing::field::display);
    let (job, attempt, worker) = (change.job, change.attempt, change.worker);
    tracing::info!(target: "job", %job, event, detail, user, attempt, worker, "job");
    metrics::counter!("reconstruct_job_changes_total", "change" => event, "detail" => detail.unwrap_or("").to_owned())
        .increment(1);
}

/// Keeps what an attempt's spans are made of, and hands out those that have ended.
fn follow(running: &mut Running, change: &JobChange<'_>) {
    let now = change.when;
    let Some(number) = change.attempt else { return };
    let key = (change.job, number);
    match change.what {
        JobEvent::Claimed => {
            running.insert(key, Attempt { since: now, stage: None });
        }
        JobEvent::Stage(stage) => {
            if let Some(attempt) = running.get_mut(&key) {
                end_stage(key, attempt, now);
                attempt.stage = Some((stage.name(), now));
            }
        }
        JobEvent::GivenBack { .. } | JobEvent::Failed { .. } | JobEvent::Finished | JobEvent::Left => {
            let Some(mut attempt) = running.remove(&key) else { return };
            end_stage(key, &mut attempt, now);
            let failed = !matches!(change.what, JobEvent::Finished);
            traces::send(|| Span {
                trace: traces::trace_of(change.job),
                id: traces::span_of(change.job, number, "attempt"),
                parent: None,
                link: None,
                name: "attempt".to_owned(),
                kind: Kind::Consumer,
                since: attempt.since,
                until: now,
                attributes: vec![
                    ("job", change.job.to_string()),
                    ("user", change.user.map(|user| user.to_string()).unwrap_or_default()),
                    ("attempt", number.to_string()),
                    ("worker", change.worker.unwrap_or_default().to_owned()),
                    ("end", change.what.name().to_owned()),
                    ("detail", change.what.detail().unwrap_or_default().to_owned()),
                ],
                failed,
            });
        }
        _ => {}
    }
}

fn end_stage((job, number): (JobId, u32), attempt: &mut Attempt, now: SystemTime) {
    let Some((stage, since)) = attempt.stage.take() else { return };
    metrics::histogram!("reconstruct_stage_seconds", "stage" => stage)
        .record(now.duration_since(since).unwrap_or_default().as_secs_f64());
    traces::send(|| Span {
        trace: traces::trace_of(job),
        id: traces::span_of(job, number, stage),
        parent: Some(traces::span_of(job, number, "attempt")),
        link: None,
        name: stage.to_owned(),
        kind: Kind::Internal,
        since,
        until: now,
        attributes: vec![("job", job.to_string())],
        failed: false,
    });
}

#[cfg(test)]
mod tests {
    use libreconstruct::Stage;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_attempt_is_followed_until_its_worker_has_left_the_job() {
        let job = JobId(Uuid::from_u128(7));
        let change = |attempt: Option<u32>, what: JobEvent<'static>| JobChange {
            job,
            user: None,
            attempt,
            worker: attempt.map(|_| "w"),
            what,
            when: SystemTime::UNIX_EPOCH,
        };
        let ends = [
            JobEvent::GivenBack { why: "unharmed" },
            JobEvent::Failed { code: "io" },
            JobEvent::Finished,
            JobEvent::Left,
        ];
        for end in ends {
            let mut running = Running::new();
            follow(&mut running, &change(Some(1), JobEvent::Claimed));
            follow(&mut running, &change(Some(1), JobEvent::Stage(Stage::Sfm)));
            // What others tell of the job ends no work here.
            follow(&mut running, &change(None, JobEvent::Failed { code: "cancelled" }));
            follow(&mut running, &change(None, JobEvent::Deleted));
            assert_eq!(running.len(), 1);
            // Another worker of this process has it before the first has left it.
            follow(&mut running, &change(Some(2), JobEvent::Claimed));
            follow(&mut running, &change(Some(1), end));
            assert_eq!(running.keys().collect::<Vec<_>>(), [&(job, 2)], "{}", end.name());
            follow(&mut running, &change(Some(2), end));
            assert!(running.is_empty());
        }
    }
}
