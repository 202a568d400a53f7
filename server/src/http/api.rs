//! What the handlers of all requests share: the service, the configuration and the limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::http::request::Parts;
use libreconstruct::Result;
use libreconstruct::job::{Job, JobId, JobStatus, UserId};
use libreconstruct::service::{JobReport, Service};
use metrics_exporter_prometheus::PrometheusHandle;

use super::bodies::Bodies;
use super::client::Connection;
use super::downloads::Downloads;
use super::error::ApiError;
use super::openapi::Description;
use super::rate_limit::RateLimiters;
use super::transfers::Transfers;
use super::turns::{Turn, Turns};
use super::waits::Waits;
use crate::config::Config;
use crate::oidc::Provider;

/// Shared by all requests.
pub(crate) struct Api {
    service: Service,
    config: Config,
    pub(crate) limiters: RateLimiters,
    pub(crate) transfers: Transfers,
    pub(crate) waits: Waits,
    pub(crate) downloads: Downloads,
    pub(crate) bodies: Bodies,
    pub(crate) metrics: PrometheusHandle,
    /// When the rows were last counted for `/metrics`.
    counted: Mutex<Option<Instant>>,
    stopping: AtomicBool,
    pub(crate) turns: Arc<Turns>,
    pub(crate) description: Description,
    /// By which users sign in, if the operator has named one.
    pub(crate) provider: Option<Provider>,
}

/// How old the counts of rows in `/metrics` may be: as often as Prometheus asks by default.
const COUNTS_HOLD: Duration = Duration::from_secs(15);

impl Api {
    /// # Errors
    /// If what the configuration names cannot be read.
    pub(crate) fn new(service: Service, config: Config, metrics: PrometheusHandle) -> Result<Self> {
        let provider = if config.web { Provider::new(&config.oidc)? } else { None };
        Ok(Self {
            provider,
            limiters: RateLimiters::new(&config.rate_limits),
            transfers: Transfers::new(
                config.connections.max_uploads,
                config.connections.max_uploads_per_user,
            ),
            waits: Waits::default(),
            downloads: Downloads::default(),
            bodies: Bodies::default(),
            turns: Arc::new(Turns::new(service.has_other_machines())),
            description: Description::default(),
            service,
            config,
            metrics,
            counted: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Whether the rows are to be counted anew for `/metrics`; the caller does it then.
    pub(crate) fn statistics_are_due(&self) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let due = counted.is_none_or(|then| then.elapsed() >= COUNTS_HOLD);
        if due {
            *counted = Some(Instant::now());
        }
        due
    }

    /// Answers `/readyz` with 503 from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Runs a short read on the current thread. It takes some ten microseconds, because SQLite answers from memory and
    /// in WAL mode waits for no writer; to hand it to another thread and back would take longer than the read.
    pub(crate) async fn quick<T>(&self, read: impl FnOnce(&Service) -> Result<T>) -> Result<T, ApiError> {
        let _turn = self.turns.take().await?;
        Ok(read(&self.service)?)
    }

    /// Runs what may wait for the database or for a lock on a thread that may wait; nothing that touches the storage.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Service) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.take().await?;
        self.run(turn, work).await
    }

    /// The same for what may wait for the storage, too: of these only so many run at once, so that a storage which stands still keeps
    /// nobody from rows. None may wait for another.
    pub(crate) async fn stored<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Service) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.take_at_storage().await?;
        self.run(turn, work).await
    }

    /// The end of a transfer, for which others that have turns may wait: its place among the transfers bounds it, and the thread that
    /// wrote its bytes is free for it. To refuse it would throw away what has come.
    pub(crate) async fn ended<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Service) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.run(Turn::default(), work).await
    }

    /// The report of a job.
    pub(crate) async fn report(&self, user: UserId, job: JobId) -> Result<JobReport, ApiError> {
        let found = self.blocking(move |service| service.job(user, job)).await?;
        self.report_of(user, found).await
    }

    /// The report of a job whose row was just read. That of a finished one alone is in the storage: who follows a job that runs is
    /// told of it also while the storage stands still.
    pub(crate) async fn report_of(&self, user: UserId, found: Job) -> Result<JobReport, ApiError> {
        if found.status == JobStatus::Finished {
            return self.stored(move |service| service.report_of(user, found)).await;
        }
        Ok(self.service.report_of(user, found)?)
    }

    async fn run<T: Send + 'static>(
        &self,
        turn: Turn,
        work: impl FnOnce(&Service) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = self.service.clone();
        let work = move || {
            let _turn = turn;
            work(&service)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => Ok(result?),
            Err(error) => Err(ApiError::internal(format!("a call of the service ended: {error}"))),
        }
    }

    /// The beginning of every address that is given out: the configured public address, else the one by which the
    /// client came.
    pub(crate) fn base(&self, connection: &Connection, parts: &Parts) -> String {
        match &self.config.public_url {
            Some(base) => base.trim_end_matches('/').to_owned(),
            None => connection.base(parts, &self.config.trusted_proxies),
        }
    }

    /// What every path begins with that is given out without a host: where `public_url` has a path, a proxy serves us below it.
    pub(crate) fn prefix(&self) -> &str {
        path_of(self.config.public_url.as_deref().unwrap_or_default())
    }
}

/// The path of an address, without a slash at its end.
fn path_of(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(host..).and_then(|rest| rest.find('/')).and_then(|at| url.get(host + at..));
    path.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_address_may_have_a_path() {
        for (url, path) in [
            ("", ""),
            ("https://scenes.example.org", ""),
            ("http://[2001:db8::1]:8080/", ""),
            ("https://example.org/scans", "/scans"),
            ("https://example.org:8443/of/ours//", "/of/ours"),
        ] {
            assert_eq!(path_of(url), path, "{url}");
        }
    }
}
