//! What the handlers of all requests share: the service, the configuration and the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::http::request::Parts;
use libreconstruct::Result;
use libreconstruct::service::Service;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;

use super::client::Connection;
use super::error::ApiError;
use super::rate_limit::RateLimiters;
use crate::config::Config;

/// Shared by all requests.
pub(crate) struct Api {
    service: Service,
    config: Config,
    pub(crate) limiters: RateLimiters,
    /// Uploads that may run at once.
    pub(crate) uploads: Arc<Semaphore>,
    pub(crate) metrics: PrometheusHandle,
    stopping: AtomicBool,
}

impl Api {
    pub(crate) fn new(service: Service, config: Config, metrics: PrometheusHandle) -> Self {
        Self {
            limiters: RateLimiters::new(&config.rate_limits),
            uploads: Arc::new(Semaphore::new(config.connections.max_uploads.max(1))),
            service,
            config,
            metrics,
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
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
    pub(crate) fn quick<T>(&self, read: impl FnOnce(&Service) -> Result<T>) -> Result<T, ApiError> {
        Ok(read(&self.service)?)
    }

    /// Runs what may wait for the disk or for a lock on a thread that may wait.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Service) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = self.service.clone();
        match tokio::task::spawn_blocking(move || work(&service)).await {
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
}
