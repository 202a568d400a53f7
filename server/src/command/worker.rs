//! `reconstruct worker`: runs the jobs of a service beside its server, on this machine.

use std::io;

use clap::Args;
use libreconstruct::service::WorkerOptions;
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
  reconstruct worker --data /srv/scenes --threads 8")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Name in the log and on the jobs that it holds [default: worker/PROCESS_ID]
    #[arg(long)]
    name: Option<String>,
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
            ..WorkerOptions::default()
        };
        tracing::info!(name = options.name, data = %config.data.display(), "working");
        service.run_worker(&options, cancel)?;
        tracing::info!("stopped");
        Ok(())
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
