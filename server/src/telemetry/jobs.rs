//! Changes of jobs: one line each in the log, counts, and the spans of attempts and their stages.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use libreconstruct::job::JobId;
use libreconstruct::service::{JobChange, JobEvent, on_job_change};

use super::traces::{self, Kind, Span};

/// Starts to listen.
pub(super) fn start() {
    let running = Mutex::new(HashMap::<JobId, Attempt>::new());
    // A second start in one process (tests) keeps the first.
    on_job_change(move |change| {
        line(change);
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        follow(&mut running, change);
        metrics::gauge!("reconstruct_jobs_at_work").set(running.len() as f64);
    });
}

/// An attempt that a worker of this process makes.
struct Attempt {
    number: u32,
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
fn follow(running: &mut HashMap<JobId, Attempt>, change: &JobChange<'_>) {
    let now = change.when;
    let Some(number) = change.attempt else { return };
    match change.what {
        JobEvent::Claimed => {
            running.insert(change.job, Attempt { number, since: now, stage: None });
        }
        JobEvent::Stage(stage) => {
            if let Some(attempt) = running.get_mut(&change.job) {
                end_stage(change.job, attempt, now);
                attempt.stage = Some((stage.name(), now));
            }
        }
        JobEvent::GivenBack { .. } | JobEvent::Failed { .. } | JobEvent::Finished => {
            let Some(mut attempt) = running.remove(&change.job) else { return };
            end_stage(change.job, &mut attempt, now);
            let failed = !matches!(change.what, JobEvent::Finished);
            traces::send(|| Span {
                trace: traces::trace_of(change.job),
                id: traces::span_of(change.job, attempt.number, "attempt"),
                parent: None,
                link: None,
                name: "attempt".to_owned(),
                kind: Kind::Consumer,
                since: attempt.since,
                until: now,
                attributes: vec![
                    ("job", change.job.to_string()),
                    ("user", change.user.map(|user| user.to_string()).unwrap_or_default()),
                    ("attempt", attempt.number.to_string()),
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

fn end_stage(job: JobId, attempt: &mut Attempt, now: SystemTime) {
    let Some((stage, since)) = attempt.stage.take() else { return };
    metrics::histogram!("reconstruct_stage_seconds", "stage" => stage)
        .record(now.duration_since(since).unwrap_or_default().as_secs_f64());
    traces::send(|| Span {
        trace: traces::trace_of(job),
        id: traces::span_of(job, attempt.number, stage),
        parent: Some(traces::span_of(job, attempt.number, "attempt")),
        link: None,
        name: stage.to_owned(),
        kind: Kind::Internal,
        since,
        until: now,
        attributes: vec![("job", job.to_string())],
        failed: false,
    });
}
