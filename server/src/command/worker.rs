//! `reconstruct worker`: runs the jobs of a service beside its server, on this machine.

use std::io;
use std::time::Duration;

use clap::Args;
use libreconstruct::service::{WorkerEnd, WorkerOptions};
use libreconstruct::{CancelToken, Error, ErrorKind, Result};
use toml::{Table, Value};

use super::data::DataArguments;
use crate::config::Config;
use crate::context::Global;
use crate::http::log;

/// Run the jobs of a service
///
/// Takes waiting jobs from the folder of a server, one after the other, until it is stopped. SIGTERM keeps the progress of the
/// running job and lets the next worker continue it. For servers that were started with --workers 0, and for more workers
/// than the server has.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct worker --data /srv/scenes
  reconstruct worker --data /srv/scenes --threads 8
  reconstruct worker --data /scratch --once --exit-when-idle 60   as a job of a batch system")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Name in the log and on the jobs that it holds [default: worker/PROCESS_ID]
    #[arg(long)]
    name: Option<String>,
    /// End after one job
    #[arg(long)]
    once: bool,
    /// End when there was no job for so many seconds
    #[arg(long, value_name = "SECONDS")]
    exit_when_idle: Option<u64>,
    /// A server started this: its configuration is the first line of the input, and when the input ends, so does this
    #[arg(long, hide = true)]
    supervised: bool,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let config = if self.supervised {
            by_server(cancel.clone())?
        } else {
            let threads = global.threads.map(|n| ("worker_threads".to_owned(), Value::Integer(n.into())));
            self.data.config(Table::from_iter(threads))?
        };
        log::start(&config.log, config.log_format)?;
        let service = config.open_service()?;
        let options = WorkerOptions {
            name: self.name.clone().unwrap_or_else(|| format!("worker/{}", std::process::id())),
            threads: config.worker_threads.into(),
            end: self.end(),
            ..WorkerOptions::default()
        };
        tracing::info!(name = options.name, data = %config.data.display(), "working");
        service.run_worker(&options, cancel)?;
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

/// The configuration that the server passes on. When the server is gone, however it ended, `cancel` is raised.
fn by_server(cancel: CancelToken) -> Result<Config> {
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|e| Error::new(ErrorKind::Io, format!("the server's configuration did not come: {e}")))?;
    let config = serde_json::from_str(&line).map_err(|e| {
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
