//! What this process tells of its work while it works: a line in the log and a count for every change of a job, spans for a
//! collector of traces, and, for workers, a place from which Prometheus reads.

mod jobs;
pub(crate) mod scrape;
pub(crate) mod traces;

use libreconstruct::Result;

use crate::config::Config;

/// Starts telling; once in a process, before the service is opened.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn start(config: &Config) -> Result<()> {
    if let Some(collector) = &config.otlp_endpoint {
        traces::start(collector)?;
    }
    jobs::start();
    Ok(())
}
