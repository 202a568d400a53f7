//! What the commands share that work on a server as one of its users do.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use libreconstruct::{CancelToken, Error, ErrorKind, Result};
use reqwest::Method;
use serde_json::Value;
use tokio::time::sleep;

use crate::context::Global;
use crate::remote::client::{Client, kind_of};
use crate::remote::key;
use crate::ui;

/// The environment variable with the server's address.
const VARIABLE: &str = "RECONSTRUCT_SERVER";
/// The first pause between two looks at a job: short jobs should not seem long. Each further one is half as long again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Which server, and as whom.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// Address of the server, without /api/v1 [default: what RECONSTRUCT_SERVER says]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// File that has the API key alone [default: the key in RECONSTRUCT_API_KEY]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// PEM file of certificates to trust instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl ServerArguments {
    pub(super) fn client(&self) -> Result<Client> {
        let variable = || std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
        let server = self.server.clone().or_else(variable).ok_or_else(|| {
            Error::argument("no server is named")
                .hint(format!("name one with --server https://scenes.example.org, or in {VARIABLE}"))
        })?;
        Client::new(&server, &key::read(self.api_key_file.as_deref())?, self.ca_file.as_deref())
    }

    /// Runs `work` with the server until it is done or cancelled.
    pub(super) fn run<'a, T, F: Future<Output = Result<T>>>(
        &self,
        cancel: &CancelToken,
        client: &'a Client,
        work: impl FnOnce(&'a Client) -> F,
    ) -> Result<T> {
        crate::remote::run(cancel, work(client))
    }
}

/// The path of a job. What is no id names no job: the server says so.
pub(super) fn path(job_id: &str) -> String {
    let id = percent_encoding::utf8_percent_encode(job_id, percent_encoding::NON_ALPHANUMERIC).to_string();
    // Hyphens are what ids are written with.
    format!("jobs/{}/", id.replace("%2D", "-"))
}

/// The job as it is now.
pub(super) async fn job(client: &Client, job_id: &str) -> Result<Value> {
    client.api(Method::GET, &path(job_id), None, &[]).await
}

/// Looks at the job until it has ended, and shows it meanwhile.
///
/// # Errors
/// Those of the server; why the job failed.
pub(super) async fn wait(client: &Client, job_id: &str, global: Global) -> Result<Value> {
    let mut shown = ui::job(ui::Mode::choose(global.json, global.quiet));
    let mut pause = FIRST_PAUSE;
    loop {
        let job = job(client, job_id).await?;
        shown(&job);
        match job["status"].as_str().unwrap_or_default() {
            "Finished" => return Ok(job),
            "Failed" | "Not found" => return Err(failure(client, job_id).await),
            _ => sleep(pause).await,
        }
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Why a job failed. The exit code is that of the same failure on this machine.
async fn failure(client: &Client, job_id: &str) -> Error {
    // A server that only does what the specification says has no reports.
    let report = client.api(Method::GET, &format!("{}report/", path(job_id)), None, &[]).await;
    let failure = report.unwrap_or_default()["failure"].take();
    let message = failure["message"].as_str().unwrap_or("the server does not tell why");
    let kind = kind_of(failure["code"].as_str().unwrap_or_default()).unwrap_or(ErrorKind::Io);
    Error::new(kind, format!("job {job_id} failed: {message}"))
}
