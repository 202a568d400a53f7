//! `reconstruct status`: what a job on a server is doing.

use clap::Args;
use libreconstruct::{CancelToken, Result};

use super::on_server::{ServerArguments, job, wait};
use crate::context::{Global, print_result};
use crate::ui;

/// Say what a job on a server is doing
///
/// Prints its status: `Queued - position: 3`, `Processing video`, `Generating 3D scene (47 %)`, `Finished`, `Failed`, or
/// `Not found` where the storage has lost its video. With --json all that the server shows of it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct status 0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70 --server https://scenes.example.org
  reconstruct status \"$JOB\" --wait && echo done
  reconstruct status \"$JOB\" --json

Exit codes: 0 it was told (with --wait: it is finished), 2 wrong use, 3 there is no such job,
6 the connection or the server failed, 7 refused (key, limits), 130 stopped. With --wait, if the
job failed, what `reconstruct run` would end with: 3 bad input, 4 missing program or device,
5 the scene cannot be reconstructed, 6 system. Stopping the command does not stop the job.")]
pub(crate) struct Arguments {
    /// The job's id
    job_id: String,
    #[command(flatten)]
    server: ServerArguments,
    /// Wait until the job has ended; fail if it does
    #[arg(long)]
    wait: bool,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let client = self.server.client(global)?;
        let job = self.server.run(cancel, &client, |client| async move {
            match self.wait {
                true => wait(client, &self.job_id, global, false).await,
                false => job(client, &self.job_id).await,
            }
        })?;
        print_result(global, &job, &ui::job_line(&job));
        Ok(())
    }
}
