//! `reconstruct worker`: runs the jobs of a service beside its server, on this machine.

use clap::Args;
use libreconstruct::service::{Service, WorkerOptions};
use libreconstruct::{CancelToken, Result};
use toml::{Table, Value};

use super::data::DataArguments;
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
  reconstruct worker --data /srv/scenes --threads 8")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Name in the log and on the jobs that it holds [default: worker/PROCESS_ID]
    #[arg(long)]
    name: Option<String>,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let threads = global.threads.map(|n| ("worker_threads".to_owned(), Value::Integer(n.into())));
        let config = self.data.config(Table::from_iter(threads))?;
        log::start(&config.log, config.log_format)?;
        let service = Service::open(&config.data, config.service_options())?;
        let options = WorkerOptions {
            name: self.name.clone().unwrap_or_else(|| format!("worker/{}", std::process::id())),
            threads: config.worker_threads.into(),
            ..WorkerOptions::default()
        };
        tracing::info!(name = options.name, data = %config.data.display(), "working");
        service.run_worker(&options, cancel)?;
        tracing::info!("stopped");
        Ok(())
    }
}
