//! What the commands share that work on a server as one of its users do.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

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
/// The longest pause where the server finds that its user asks too often: as many may wait at the same time.
const LONGEST_OF_MANY: Duration = Duration::from_secs(30);
/// So long a server may be away while a job is waited for: it may be started anew.
const AWAY: Duration = Duration::from_secs(600);

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
    /// Who talks to the server, and says as `global` has it where that takes longer.
    pub(super) fn client(&self, global: Global) -> Result<Client> {
        let variable = || std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
        let server = self.server.clone().or_else(variable).ok_or_else(|| {
            Error::argument("no server is named")
                .hint(format!("name one with --server https://scenes.example.org, or in {VARIABLE}"))
        })?;
        let mode = ui::Mode::choose(global.json, global.quiet);
        let client =
            Client::new(&server, &key::read(self.api_key_file.as_deref())?, self.ca_file.as_deref())?;
        Ok(client.telling(move |why| ui::waiting(mode, why)))
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

/// What to do about a job that was submitted, for who does not wait for it any longer.
pub(super) fn goes_on(job_id: &str) -> String {
    format!(
        "job {job_id} goes on: reconstruct status {job_id} --wait; reconstruct download {job_id} -o FOLDER"
    )
}

/// The pauses between looks at one job.
struct Pauses {
    next: Duration,
    longest: Duration,
    /// How often the server found that its user asks too often.
    refusals: u32,
    /// Not the same for all jobs, which may be waited for since the same moment: 0.7 to 1.
    share: f64,
}

impl Pauses {
    fn of(job_id: &str) -> Self {
        let sum = job_id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let share = 0.7 + 0.3 * f64::from(sum % 256) / 255.0;
        Self { next: FIRST_PAUSE, longest: LONGEST_PAUSE, refusals: 0, share }
    }

    /// The pause after a look.
    fn usual(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 3 / 2).min(self.longest);
        pause
    }

    /// The pause after one look too many; those that follow are as long.
    fn longer(&mut self) -> Duration {
        self.refusals = (self.refusals + 1).min(4);
        let doubled = (LONGEST_PAUSE * 2_u32.pow(self.refusals)).min(LONGEST_OF_MANY);
        self.longest = doubled.mul_f64(self.share);
        self.next = self.longest;
        self.next
    }
}

/// Looks at the job until it has ended, and shows it meanwhile. A server that is away is waited for, once it `has_answered`: before
/// that its address may be wrong.
///
/// # Errors
/// Those of the server; why the job failed.
pub(super) async fn wait(
    client: &Client,
    job_id: &str,
    global: Global,
    mut has_answered: bool,
) -> Result<Value> {
    let mut shown = ui::job(ui::Mode::choose(global.json, global.quiet));
    let mut pauses = Pauses::of(job_id);
    let (mut failures, mut away_since) = (0, Instant::now());
    loop {
        let looked = match has_answered {
            true => client.look(&path(job_id)).await,
            false => job(client, job_id).await,
        };
        let pause = match looked {
            Ok(job) => {
                (has_answered, failures) = (true, 0);
                shown(&job);
                match job["status"].as_str().unwrap_or_default() {
                    "Finished" => return Ok(job),
                    "Failed" | "Not found" => return Err(failure(client, job_id).await),
                    _ => pauses.usual(),
                }
            }
            Err(error) if has_answered && error.kind() == ErrorKind::TooManyRequests => {
                // It is there.
                failures = 0;
                pauses.longer()
            }
            Err(error) if has_answered && error.kind() == ErrorKind::Io => {
                if failures == 0 {
                    away_since = Instant::now();
                }
                failures += 1;
                if away_since.elapsed() >= AWAY {
                    return Err(error.hint(goes_on(job_id)));
                }
                // One failure may be that of a connection that was idle.
                if failures == 2 {
                    client.tell(&format!("{}; job {job_id} goes on", error.message()));
                }
                pauses.usual()
            }
            Err(error) => return Err(error),
        };
        sleep(pause).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_who_wait_ask_less_often() {
        let ids: Vec<String> = (0..100).map(|_| uuid::Uuid::new_v4().to_string()).collect();
        let mut a_minute = 0.0;
        for id in &ids {
            let mut pauses = Pauses::of(id);
            let usual: Vec<Duration> = (0..10).map(|_| pauses.usual()).collect();
            assert_eq!((usual[0], usual[9]), (FIRST_PAUSE, LONGEST_PAUSE));
            let longer: Vec<f64> = (0..6).map(|_| pauses.longer().as_secs_f64()).collect();
            assert!(longer[0] > LONGEST_PAUSE.as_secs_f64() && longer.is_sorted() && longer[5] <= 30.0);
            let after: Vec<f64> = (0..2).map(|_| pauses.usual().as_secs_f64()).collect();
            assert_eq!(after, [longer[5]; 2]);
            a_minute += 60.0 / longer[5];
        }
        // All that a user may have waiting stay below the requests that a user has.
        assert!(a_minute < 600.0);
    }
}
