//! `reconstruct serve`: the REST server, and the workers that belong to it.

#[path = "serve/courier.rs"]
mod courier;
#[path = "serve/crew.rs"]
mod crew;
#[cfg(unix)]
#[path = "serve/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "serve/windows.rs"]
mod system;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use libreconstruct::job::Tier;
use libreconstruct::pipeline::{Quality, ReconstructionOptions};
use libreconstruct::service::{ReconstructionDefaults, Service};
use libreconstruct::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{interval, sleep};
use toml::{Table, Value};

use self::crew::Crew;
use self::system::Signals;
use super::data::DataArguments;
use crate::context::Global;
use crate::http::api::Api;
use crate::http::tls::Tls;
use crate::http::{INVITATION, blocking_threads, listener, log, metrics};
use crate::{telemetry, ui};

/// Workers may take this long to write a checkpoint and let go of their jobs.
const WORKERS_STOP_WITHIN: Duration = Duration::from_secs(20);
/// How often expired uploads and leftovers are removed.
const MAINTENANCE: Duration = Duration::from_secs(60);
/// How often buckets of clients that are gone are forgotten.
const UPKEEP: Duration = Duration::from_secs(60);

/// Serve the REST interface, and run its jobs
///
/// Uploads, jobs and scenes are kept in one folder (--data), which this command makes; `reconstruct worker` and the commands
/// `users`, `keys` and `jobs` work on the same folder, also while the server runs. Whoever may use the interface is added with
/// `reconstruct users add` and gets a key with `reconstruct keys create`, or an invitation to the web application with
/// `reconstruct users invite`, where one makes keys oneself. The interface describes itself at /docs.
///
/// Every setting has a place in the configuration file and an environment variable: --print-config shows all of them with
/// their meaning. SIGTERM stops the server: requests end, running jobs keep their progress for the next start.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct serve --demo                       try it: makes a user and a key, prints a link that is signed in, and a
                                                 session for curl
  reconstruct serve --print-config > serve.toml  a configuration file to start from
  reconstruct serve --config serve.toml
  reconstruct serve --data /srv/scenes --public-url https://scenes.example.org   behind a proxy that does TLS")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Address and port [default: 127.0.0.1:8080]; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// What addresses of uploads and downloads begin with [default: the host by which the client came]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Jobs that run at once, each in a process of its own [default: 1]; 0 leaves them to `reconstruct worker`
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// PEM file with the chain of certificates
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with the private key
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Allow plain HTTP on addresses that other machines can reach
    #[arg(long)]
    insecure_http: bool,
    /// Let everybody look at public jobs in a browser, at /view/JOB_ID
    #[arg(long)]
    public_view: bool,
    /// When asked to stop, say so at /readyz and go on serving for so many seconds, until balancers have heard of it [default: 0]
    #[arg(long, value_name = "SECONDS")]
    stop_delay: Option<u32>,
    /// Make a user and a key, and print a link that is signed in and a session for curl; scenes are small, for machines without a GPU
    #[arg(long)]
    demo: bool,
    /// Print the configuration that is in force, as a file with explanations, and end
    #[arg(long)]
    print_config: bool,
}

impl Arguments {
    /// What was given on the command line, as settings.
    fn options(&self, global: Global) -> Table {
        let path = |path: &PathBuf| Value::String(path.to_string_lossy().into_owned());
        let given = [
            ("listen", self.listen.map(|a| Value::String(a.to_string()))),
            ("public_url", self.public_url.clone().map(Value::String)),
            ("workers", self.workers.map(|n| Value::Integer(n.into()))),
            ("worker_threads", global.threads.map(|n| Value::Integer(n.into()))),
            ("tls_certificate", self.tls_certificate.as_ref().map(path)),
            ("tls_key", self.tls_key.as_ref().map(path)),
            ("insecure_http", self.insecure_http.then_some(Value::Boolean(true))),
            ("stop_delay_seconds", self.stop_delay.map(|n| Value::Integer(n.into()))),
            ("public_view", self.public_view.then_some(Value::Boolean(true))),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    pub(crate) fn run(&self, global: Global) -> Result<()> {
        let mut config = self.data.config(self.options(global))?;
        if self.demo {
            small(&mut config.reconstruction);
        }
        if self.print_config {
            ui::say(config.to_documented_toml()?.trim_end());
            return Ok(());
        }
        config.check_transport()?;
        log::start(&config.log, config.log_format)?;
        telemetry::start(&config)?;
        system::raise_file_limit();
        let tls = match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => Some(Arc::new(Tls::open(certificate, key)?)),
            _ => None,
        };
        let service = config.open_service()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("http")
            .max_blocking_threads(blocking_threads(config.connections.max_uploads))
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
        let api = Arc::new(Api::new(service, config, metrics::start()?)?);
        let result = runtime.block_on(self.serve(global, &api, tls));
        telemetry::traces::flush();
        // What still waits for a disk that hangs must not keep the process.
        runtime.shutdown_timeout(Duration::from_secs(1));
        result
    }

    async fn serve(&self, global: Global, api: &Arc<Api>, tls: Option<Arc<Tls>>) -> Result<()> {
        let config = api.config();
        let cannot = |e: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot listen on {}: {e}", config.listen))
                .hint("choose another address with --listen; port 0 takes a free one")
        };
        let socket = TcpListener::bind(config.listen).await.map_err(cannot)?;
        let address = socket.local_addr().map_err(cannot)?;
        let (stop, stopped) = watch::channel(false);
        let mut signals = Signals::new()?;
        let workers = Crew::start(api.service(), config, address)?;
        let maintenance = tokio::spawn(maintain(api.clone(), stopped.clone()));
        let courier = tokio::spawn(courier::deliver(api.clone(), stopped.clone()));

        let base = config.base(address);
        tracing::info!(address = %address, base, workers = config.workers, data = %config.data.display(), "serving");
        log::tell_containment();
        if self.demo {
            demo(global, api.service(), &base, config.web)?;
        }
        let server = tokio::spawn(listener::serve(socket, api.clone(), tls.clone(), stopped));
        signals.stop(tls.as_deref()).await;
        tracing::info!("stopping; a second signal stops at once");
        api.stop();
        workers.cancel();
        let limit = WORKERS_STOP_WITHIN + api.config().drain().unwrap_or_default();
        let workers = tokio::task::spawn_blocking(move || workers.stop(limit));
        let ended = async {
            // Who chooses among servers hears of it first, and whoever waits for a change goes on doing so until then.
            sleep(config.stop_delay()).await;
            api.waits.end();
            let _ = stop.send(true);
            let _ = server.await;
            let _ = maintenance.await;
            let _ = courier.await;
            if !workers.await.unwrap_or(false) {
                tracing::warn!("a worker did not stop in time; its job continues when its lease has run out");
            }
        };
        tokio::select! {
            () = ended => {}
            () = signals.stop(None) => {
                tracing::warn!("stopped at once");
                std::process::exit(130);
            }
        }
        let service = api.service().clone();
        let flushed = tokio::task::spawn_blocking(move || service.flush_last_used()).await;
        if let Ok(Err(error)) = flushed {
            tracing::error!(%error, "cannot write when keys were last used");
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Removes what has expired, and forgets idle clients. Neither waits for the other: a sweep may take long.
async fn maintain(api: Arc<Api>, mut stopped: watch::Receiver<bool>) {
    let remove_expired = async {
        let mut round = interval(MAINTENANCE);
        loop {
            round.tick().await;
            let service = api.service().clone();
            match tokio::task::spawn_blocking(move || service.maintain()).await {
                Ok(Ok(report)) => tracing::debug!(?report, "maintenance"),
                Ok(Err(error)) => tracing::error!(%error, "maintenance failed"),
                Err(error) => tracing::error!(%error, "maintenance failed"),
            }
        }
    };
    let forget_idle = async {
        let mut round = interval(UPKEEP);
        loop {
            round.tick().await;
            api.limiters.forget_idle();
            api.metrics.run_upkeep();
        }
    };
    tokio::select! {
        () = remove_expired => {}
        () = forget_idle => {}
        _ = stopped.wait_for(|stop| *stop) => {}
    }
}

/// Makes a user and a key, and shows how to use them, and a link to the pages, where there are any.
fn demo(global: Global, service: &Service, base: &str, has_pages: bool) -> Result<()> {
    const NAME: &str = "demo";
    /// The keys of so many starts work.
    const STARTS: usize = 10;
    let user = service.user_or_new(NAME, Tier::Enterprise)?;
    // A user has no room for one from every start.
    let mut old = service.keys(user.user_id)?;
    old.retain(|key| key.name == NAME && key.revoked_at.is_none());
    for key in old.iter().rev().skip(STARTS - 1) {
        service.revoke_key(user.user_id, &key.prefix)?;
    }
    let (_, key) = service.create_key(user.user_id, NAME)?;
    let key = key.reveal();
    let link = has_pages.then(|| service.sign_in_link(user.user_id)).transpose()?;
    let link = link.map(|link| format!("{base}{INVITATION}{}", link.token.reveal()));
    if global.json {
        let mut told = serde_json::json!({ "event": "demo", "url": base, "user": NAME, "api_key": key });
        told["sign_in"] = link.into();
        ui::print_json(&told);
    } else {
        let link = link.map(|link| format!("# In a browser, signed in (the link works once): {link}\n"));
        // In one piece: somebody may wait for the file to which this is written.
        ui::say(&format!("{}{}", link.unwrap_or_default(), session(base, key)));
    }
    Ok(())
}

/// A script with a whole session, from the upload to the scene.
fn session(base: &str, key: &str) -> String {
    format!(
        r#"# The interface is described at {base}/docs
# A session with it, for another terminal; VIDEO is yours.
VIDEO=${{VIDEO:-kitchen.mp4}}
BASE={base}
AUTH="Authorization: Api-Key {key}"
TYPE="Content-Type: application/json"
field() {{ sed 's/.*"'$1'":"\([^"]*\)".*/\1/'; }}

UPLOAD=$(curl -sS $BASE/api/v1/generate-upload-url/ -H "$AUTH" -H "$TYPE" -d '{{"file_extension": "mp4"}}')
curl -sS -T "$VIDEO" "$(echo "$UPLOAD" | field url)"
JOB=$(curl -sS $BASE/api/v1/submit-job/ -H "$AUTH" -H "$TYPE" -d '{{
  "blob_name": "'$(echo "$UPLOAD" | field blob_name)'",
  "training_max_num_gaussians": 30000, "training_num_steps": 1000}}' | field job_id)
while :; do
  STATUS=$(curl -sS $BASE/api/v1/jobs/$JOB/ -H "$AUTH" | field status); echo "$STATUS"
  case "$STATUS" in Queued*|Processing*|Generating*) sleep 2;; *) break;; esac
done
curl -sSfL -o scene.ply $BASE/api/v1/jobs/$JOB/download/ply/ -H "$AUTH"
curl -sSfL -o scene.spz $BASE/api/v1/jobs/$JOB/download/spz/ -H "$AUTH"
curl -sSfL -o preview.jpg $BASE/api/v1/jobs/$JOB/preview/ -H "$AUTH"
"#
    )
}

/// A demonstration should end in minutes, also without a GPU: what nobody has set is that of the preset for previews.
fn small(reconstruction: &mut ReconstructionDefaults) {
    let default = ReconstructionDefaults::default();
    let preview = ReconstructionOptions::with_quality(Quality::Preview);
    if reconstruction.max_frames == default.max_frames {
        reconstruction.max_frames = preview.max_frames;
    }
    if reconstruction.max_resolution == default.max_resolution {
        reconstruction.max_resolution = preview.max_resolution;
    }
    if reconstruction.training_max_resolution == default.training_max_resolution {
        reconstruction.training_max_resolution = preview.training_max_resolution;
    }
}
