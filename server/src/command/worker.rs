//! `reconstruct worker`: runs the jobs of a service beside its server, on this machine.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use libreconstruct::raster::DeviceChoice;
use libreconstruct::service::{Service, WorkerEnd, WorkerOptions};
use libreconstruct::{CancelToken, Error, ErrorKind, Result};
use toml::Value;

use super::data::DataArguments;
use crate::config::Config;
use crate::context::Global;
use crate::http::{log, metrics};
use crate::telemetry::{self, scrape};

/// How often it is looked whether the worker is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Beside the time to store the job: to give it back and to close what is open.
const STOP: Duration = Duration::from_secs(3);
/// As after the second interrupt of any command.
const EXIT_CANCELLED: i32 = 130;
/// As after any error.
const EXIT_STUCK: i32 = 1;

/// Run the jobs of a service
///
/// Takes waiting jobs from the folder of a server, one after the other, until it is stopped. SIGTERM keeps the progress of the
/// running job and lets the next worker continue it. For servers that were started with --workers 0, and for more workers
/// than the server has. Where many machines share a database, the next worker may be on another machine: how far the job is
/// is stored first, for which there are `drain_seconds` (see `reconstruct serve --print-config`).
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct worker --data /srv/scenes
  reconstruct worker --data /srv/scenes --threads 8
  reconstruct worker --data /srv/scenes --metrics-listen 127.0.0.1:9464
  reconstruct worker --data /scratch --once --exit-when-idle 60   as a job of a batch system")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Name in the log and on the jobs that it holds [default: worker/PROCESS_ID]
    #[arg(long)]
    name: Option<String>,
    /// Where to train: auto, cpu, gpu, or part of a graphics adapter's name (see `reconstruct devices`)
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// When asked to end, take at most so many seconds to store the job for other machines [default: 25]
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u32>,
    /// End after one job
    #[arg(long)]
    once: bool,
    /// End when there was no job for so many seconds, or, with an error, when this machine could work on none for so long
    #[arg(long, value_name = "SECONDS")]
    exit_when_idle: Option<u64>,
    /// Answer /metrics (Prometheus) and /healthz here; port 0 takes a free one [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// A server started this: its configuration is the first line of the input, and when the input ends, so does this
    #[arg(long, hide = true)]
    supervised: bool,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let config = if self.supervised {
            by_server(cancel.clone())?
        } else {
            let integers = [
                ("worker_threads", global.threads.map(Into::into)),
                ("drain_seconds", self.drain.map(Into::into)),
            ];
            let given =
                integers.into_iter().filter_map(|(name, n)| Some((name.to_owned(), Value::Integer(n?))));
            let mut config = self.data.config(given.collect())?;
            if let Some(device) = &self.device {
                config.reconstruction.device = device.clone();
            }
            config
        };
        log::start(&config.log, config.log_format)?;
        telemetry::start(&config)?;
        // Counted from here on, so that nothing is missing in the counts.
        let counts =
            self.metrics_listen.map(|address| Ok::<_, Error>((address, metrics::start()?))).transpose()?;
        let service = config.open_service()?;
        if let Some((address, counts)) = counts {
            let address = scrape::start(address, counts, service.clone())?;
            tracing::info!(%address, "metrics");
        }
        let name = self.name.clone().unwrap_or_else(|| format!("worker/{}", std::process::id()));
        let options = WorkerOptions { end: self.end(), ..config.worker_options(name) };
        if let Some(drain) = config.drain() {
            end_for_good(cancel.clone(), drain + STOP)?;
        }
        tracing::info!(name = options.name, data = %config.data.display(), "working");
        // A server has told its own, and starts its workers where it is itself.
        if !self.supervised {
            log::tell_containment();
        }
        let done = CancelToken::new();
        let watching = end_when_stuck(service.clone(), done.clone())?;
        let ended = service.run_worker(&options, cancel);
        done.cancel();
        watching.thread().unpark();
        // So that nobody else has the service when this lets go of it.
        let _ = watching.join();
        telemetry::traces::flush();
        ended?;
        tracing::info!("stopped");
        Ok(())
    }
}

impl Arguments {
    fn end(&self) -> WorkerEnd {
        match (self.once, self.exit_when_idle.map(Duration::from_secs)) {
            (false, None) => WorkerEnd::Never,
            (false, Some(limit)) => WorkerEnd::Idle(limit),
            (true, None) => WorkerEnd::OneJob,
            (true, Some(limit)) => WorkerEnd::OneJobOrIdle(limit),
        }
    }
}

/// Ends the process `limit` after `cancel` was raised, if it is still there: what does not stop by then (a driver that hangs, a
/// network that is gone) is stopped as a loss of power would. The job goes on elsewhere when its lease has run out.
fn end_for_good(cancel: CancelToken, limit: Duration) -> Result<()> {
    let watch = move || {
        while !cancel.is_cancelled() {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(limit);
        tracing::error!("the worker did not stop in time; its job continues when its lease has run out");
        std::process::exit(EXIT_CANCELLED);
    };
    let watching = std::thread::Builder::new().name("drain".into()).spawn(watch);
    watching.map(drop).map_err(|e| Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}")))
}

/// Ends the process if its work does not stop though it should have long ago, unless `done` is raised: only a new process, which a server,
/// systemd or Kubernetes begins, can work again.
fn end_when_stuck(service: Service, done: CancelToken) -> Result<JoinHandle<()>> {
    let watch = move || {
        while service.stuck_workers() == 0 {
            if done.is_cancelled() {
                return;
            }
            std::thread::park_timeout(LOOK);
        }
        tracing::error!("the worker's work does not stop: its process ends, and should be started again");
        telemetry::traces::flush();
        std::process::exit(EXIT_STUCK);
    };
    let watching = std::thread::Builder::new().name("stuck".into()).spawn(watch);
    watching.map_err(|e| Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}")))
}

/// The configuration that the server passes on. When the server is gone, however it ended, `cancel` is raised.
fn by_server(cancel: CancelToken) -> Result<Config> {
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|e| Error::new(ErrorKind::Io, format!("the server's configuration did not come: {e}")))?;
    let config = Config::of_server(&line).map_err(|e| {
        Error::argument(format!("the first line of the input is no configuration of a server: {e}"))
    })?;
    let wait = move || {
        // Nothing more comes but the end.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        cancel.cancel();
    };
    let waiting = std::thread::Builder::new().name("server's end".into()).spawn(wait);
    waiting.map_err(|e| Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}")))?;
    Ok(config)
}
