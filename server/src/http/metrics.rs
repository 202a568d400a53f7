//! What `/metrics` shows.

use libreconstruct::service::Statistics;
use libreconstruct::{Error, ErrorKind, Result};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of the classes in which the times of requests are counted, seconds.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0];

/// The same for the stages of jobs, seconds: from a preview on a processor to a large scene.
const STAGE_SECONDS: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10_800.0, 36_000.0];

/// Begins to count; once in a process.
pub(crate) fn start() -> Result<PrometheusHandle> {
    let failed = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Internal, format!("cannot count: {e}"));
    let handle = PrometheusBuilder::new()
        .set_buckets(&SECONDS)
        .and_then(|b| {
            b.set_buckets_for_metric(Matcher::Full("reconstruct_stage_seconds".into()), &STAGE_SECONDS)
        })
        .map_err(|e| failed(&e))?
        .install_recorder()
        .map_err(|e| failed(&e))?;
    metrics::describe_counter!("reconstruct_http_requests_total", "Requests by route, method and status");
    metrics::describe_histogram!(
        "reconstruct_http_request_seconds",
        "From a request's head to its answer's head"
    );
    metrics::describe_gauge!("reconstruct_connections", "Open connections");
    metrics::describe_counter!(
        "reconstruct_connections_refused_total",
        "Connections beyond those that one address may have"
    );
    metrics::describe_gauge!("reconstruct_jobs", "Jobs by state");
    metrics::describe_gauge!(
        "reconstruct_workers_paused",
        "Workers of this folder, in whichever process, that wait because the machine cannot work; /readyz says why"
    );
    metrics::describe_counter!(
        "reconstruct_job_changes_total",
        "Changes of jobs that this process made: queued, claimed, stage, given_back, failed, finished, left, deleted"
    );
    metrics::describe_gauge!("reconstruct_jobs_at_work", "Jobs that workers of this process work on");
    metrics::describe_histogram!("reconstruct_stage_seconds", "How long stages of jobs took in this process");
    metrics::describe_counter!(
        "reconstruct_spans_dropped_total",
        "Spans that the collector of traces did not take in time"
    );
    metrics::describe_counter!(
        "reconstruct_webhook_attempts_total",
        "Tries to tell addresses of users that a job has ended, by outcome: taken, refused"
    );
    metrics::describe_gauge!("reconstruct_stored_bytes", "Bytes of videos and scenes");
    metrics::describe_gauge!("reconstruct_free_bytes", "Bytes that are free on the disk of the data");
    metrics::gauge!("reconstruct_build_info", "version" => libreconstruct::VERSION).set(1.0);
    Ok(handle)
}

/// Takes over what the database counts.
pub(crate) fn record_statistics(statistics: &Statistics) {
    let rows = &statistics.rows;
    let states = [
        ("queued", rows.queued),
        ("processing_video", rows.processing_video),
        ("generating_scene", rows.generating_scene),
        ("finished", rows.finished),
        ("failed", rows.failed),
    ];
    for (state, count) in states {
        metrics::gauge!("reconstruct_jobs", "state" => state).set(count as f64);
    }
    metrics::gauge!("reconstruct_stored_bytes").set(rows.stored_bytes as f64);
    if let Some(free) = statistics.free_bytes {
        metrics::gauge!("reconstruct_free_bytes").set(free as f64);
    }
}
