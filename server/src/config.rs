//! The configuration of `serve`, `worker` and the commands for users, keys and jobs: defaults, then a TOML file, then
//! environment variables, then options of the command line.

mod keys;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use libreconstruct::database::QueueOrder;
use libreconstruct::job::Limits;
use libreconstruct::service::{Addresses, ReconstructionDefaults, Service, ServiceOptions, WorkerOptions};
use libreconstruct::{Error, Result};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::hidden::Hidden;
use crate::http::log::LogFormat;
use crate::http::rate_limit::RateLimits;
use crate::oidc::OidcSettings;
use crate::telemetry::traces::Collector;
use crate::webhook::address::WebhookSettings;
use keys::KEYS;

/// What every environment variable begins with.
pub(crate) const PREFIX: &str = "LIBRECONSTRUCT_";
/// The variable with the content of the file of secrets, without [`PREFIX`].
const SECRETS_JSON: &str = "SECRETS_JSON";
/// The variable with what shows the service by which users sign in that it is us who asks, without [`PREFIX`].
const OIDC_CLIENT_SECRET: &str = "OIDC_CLIENT_SECRET";

/// All settings. What each means is said once, in `keys.rs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) database: Option<String>,
    pub(crate) storage: Option<String>,
    pub(crate) secrets: Option<PathBuf>,
    /// From the environment alone, so that it stands in no file of settings and is never printed.
    #[serde(skip)]
    pub(crate) secrets_json: Option<Hidden>,
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) workers: u16,
    pub(crate) worker_threads: u16,
    pub(crate) separate_workers: bool,
    pub(crate) insecure_http: bool,
    pub(crate) tls_certificate: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) h2c: bool,
    pub(crate) trusted_proxies: Vec<IpAddr>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) web: bool,
    pub(crate) public_view: bool,
    pub(crate) error_details: bool,
    pub(crate) extra_fields: bool,
    pub(crate) metrics: bool,
    pub(crate) operators: Vec<IpNet>,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) max_attempts: u32,
    pub(crate) lease_seconds: u64,
    pub(crate) min_free_bytes: u64,
    pub(crate) queue: QueueOrder,
    pub(crate) max_job_hours: u64,
    pub(crate) checkpoint_seconds: u64,
    pub(crate) drain_seconds: u32,
    pub(crate) stop_delay_seconds: u32,
    pub(crate) connections: ConnectionLimits,
    pub(crate) rate_limits: RateLimits,
    pub(crate) limits: Limits,
    pub(crate) webhooks: WebhookSettings,
    pub(crate) oidc: OidcSettings,
    pub(crate) reconstruction: ReconstructionDefaults,
}

impl Default for Config {
    fn default() -> Self {
        let service = ServiceOptions::default();
        Self {
            data: PathBuf::from("reconstruct-data"),
            database: None,
            storage: None,
            secrets: None,
            secrets_json: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            public_url: None,
            workers: 1,
            worker_threads: 0,
            separate_workers: true,
            insecure_http: false,
            tls_certificate: None,
            tls_key: None,
            h2c: false,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            web: true,
            public_view: false,
            error_details: false,
            extra_fields: false,
            metrics: true,
            operators: Vec::new(),
            log: "info".to_owned(),
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
            max_attempts: service.max_attempts,
            lease_seconds: service.lease_seconds,
            min_free_bytes: service.min_free_bytes,
            queue: service.queue,
            max_job_hours: service.max_job_hours,
            checkpoint_seconds: service.checkpoint_seconds,
            drain_seconds: u32::try_from(WorkerOptions::default().drain.as_secs()).unwrap_or(u32::MAX),
            stop_delay_seconds: 0,
            connections: ConnectionLimits::default(),
            rate_limits: RateLimits::default(),
            limits: service.limits,
            webhooks: WebhookSettings::default(),
            oidc: OidcSettings::default(),
            reconstruction: service.reconstruction,
        }
    }
}

/// Bounds on what clients hold open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConnectionLimits {
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) max_uploads: usize,
    pub(crate) max_uploads_per_user: usize,
    pub(crate) header_timeout_seconds: u64,
    pub(crate) idle_timeout_seconds: u64,
    pub(crate) max_age_seconds: u64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_connections_per_address: 256,
            max_uploads: 64,
            max_uploads_per_user: 16,
            header_timeout_seconds: 10,
            idle_timeout_seconds: 75,
            max_age_seconds: 3600,
        }
    }
}

impl ConnectionLimits {
    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_secs(self.header_timeout_seconds.max(1))
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        // No client keeps a connection for longer without a request.
        Duration::from_secs(self.idle_timeout_seconds.clamp(1, 3600))
    }

    pub(crate) fn max_age(&self) -> Duration {
        Duration::from_secs(self.max_age_seconds.max(1))
    }
}

impl Config {
    /// Reads `file`, or the one that `LIBRECONSTRUCT_CONFIG` names, then the environment; `options` goes before both.
    pub(crate) fn load(file: Option<&Path>, options: Table) -> Result<Self> {
        let environment: Vec<(String, String)> = std::env::vars()
            .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let named =
            environment.iter().find(|(name, _)| name == "CONFIG").map(|(_, path)| PathBuf::from(path));
        let table = match file.map(Path::to_owned).or(named) {
            Some(path) => read_table(&path)?,
            None => Table::new(),
        };
        Self::merge(table, &environment, options)
    }

    fn merge(mut table: Table, environment: &[(String, String)], options: Table) -> Result<Self> {
        for (name, text) in environment {
            let key = KEYS.iter().find(|key| key.environment() == *name);
            if name == "SECRETS" && text.trim_start().starts_with('{') {
                return Err(Error::argument(format!(
                    "{PREFIX}SECRETS has the secrets themselves: it names their file"
                ))
                .hint(format!("give them as {PREFIX}{SECRETS_JSON}")));
            }
            if let Some(key) = key {
                set_from_text(&mut table, key.path, text)
                    .map_err(|e| Error::argument(format!("{PREFIX}{name} is {text:?}: {e}")))?;
            }
        }
        table.extend(options);
        let mut config: Self = table.try_into().map_err(|e| Error::argument(describe(&e)))?;
        let secrets = environment.iter().find(|(name, _)| name == SECRETS_JSON);
        config.secrets_json = secrets.map(|(_, text)| Hidden::new(text));
        let secret = environment.iter().find(|(name, _)| name == OIDC_CLIENT_SECRET);
        config.oidc.client_secret = secret.map(|(_, text)| Hidden::new(text));
        config.check()?;
        Ok(config)
    }

    /// The configuration that a server wrote down for a worker of its own. Secrets that the server has as text are not in it: the
    /// worker has them where the server has them, in the environment.
    pub(crate) fn of_server(text: &str) -> serde_json::Result<Self> {
        let mut config: Self = serde_json::from_str(text)?;
        let secrets = std::env::var(format!("{PREFIX}{SECRETS_JSON}")).ok();
        config.secrets_json = secrets.filter(|text| !text.is_empty()).map(|text| Hidden::new(&text));
        Ok(config)
    }

    /// What the address of this server begins with where people are sent to it: the configured one, else `listening` as this machine
    /// reaches it.
    pub(crate) fn base(&self, listening: SocketAddr) -> String {
        if let Some(base) = &self.public_url {
            return base.trim_end_matches('/').to_owned();
        }
        let scheme = if self.tls_certificate.is_some() { "https" } else { "http" };
        // "Any" is no address to go to.
        let ip = match listening.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        format!("{scheme}://{}", SocketAddr::new(ip, listening.port()))
    }

    /// Opens the service.
    pub(crate) fn open_service(&self) -> Result<Service> {
        Service::open_shared(&self.data, &self.addresses(), self.service_options())
    }

    /// Where rows, files and secrets are, if many machines share them.
    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            database: self.database.clone(),
            storage: self.storage.clone(),
            secrets: self.secrets.clone(),
            secrets_json: self.secrets_json.as_ref().map(|text| text.reveal().to_owned()),
        }
    }

    /// What the service itself is opened with.
    pub(crate) fn service_options(&self) -> ServiceOptions {
        ServiceOptions {
            limits: self.limits.clone(),
            reconstruction: self.reconstruction.clone(),
            max_attempts: self.max_attempts,
            lease_seconds: self.lease_seconds,
            min_free_bytes: self.min_free_bytes,
            queue: self.queue,
            max_job_hours: self.max_job_hours,
            checkpoint_seconds: self.checkpoint_seconds,
        }
    }

    /// How long workers may take to store their jobs when they are asked to end; nothing where that has no use, as all that
    /// they have done stays in the folder.
    pub(crate) fn drain(&self) -> Option<Duration> {
        self.database.is_some().then(|| Duration::from_secs(self.drain_seconds.into()))
    }

    /// For how long the server goes on as ever after it has said that it stops.
    pub(crate) fn stop_delay(&self) -> Duration {
        Duration::from_secs(self.stop_delay_seconds.into())
    }

    /// Those of a worker.
    pub(crate) fn worker_options(&self, name: String) -> WorkerOptions {
        let threads = self.worker_threads.into();
        let drain = self.drain().unwrap_or_default();
        // Where there are no pages, nobody would see them.
        WorkerOptions { name, threads, drain, live_pictures: self.web, ..WorkerOptions::default() }
    }

    fn check(&self) -> Result<()> {
        self.service_options().check()?;
        self.oidc.check()?;
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err(Error::argument("tls_certificate and tls_key belong together: give both or neither"));
        }
        if let Some(collector) = &self.otlp_endpoint {
            Collector::parse(collector)?;
        }
        if let Some(url) = &self.public_url {
            let uri: Option<hyper::Uri> = url.parse().ok();
            let scheme = uri.as_ref().and_then(|u| u.scheme_str());
            if !matches!(scheme, Some("http" | "https")) || url.contains(['?', '#']) {
                return Err(Error::argument(format!(
                    "public_url is {url:?}: http://… or https://… is expected"
                )));
            }
        }
        Ok(())
    }

    /// Keys travel in clear text over plain HTTP, so only this machine may use it unless the operator says otherwise.
    pub(crate) fn check_transport(&self) -> Result<()> {
        if self.tls_certificate.is_none() && !self.listen.ip().is_loopback() && !self.insecure_http {
            return Err(Error::argument(format!(
                "{} can be reached from other machines, and plain HTTP would show API keys to everybody in between",
                self.listen
            ))
            .hint(
                "give --tls-certificate and --tls-key, or listen on 127.0.0.1 behind a proxy that does TLS, or say \
                 --insecure-http if the network is trusted",
            ));
        }
        Ok(())
    }

    /// The configuration as a file that says what every setting means.
    pub(crate) fn to_documented_toml(&self) -> Result<String> {
        let table = Table::try_from(self).map_err(|e| Error::argument(e.to_string()))?;
        let mut text = String::from(
            "# Configuration of reconstruct serve and worker. Everything may be left out: what stands here is in force.\n\
             # Each setting is an environment variable too: LIBRECONSTRUCT_ and the names of its section and itself in\n\
             # capitals, as in LIBRECONSTRUCT_LISTEN or LIBRECONSTRUCT_LIMITS_MAX_QUEUED_JOBS.\n",
        );
        let mut section = "";
        for key in KEYS {
            let (own, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
            if own != section {
                section = own;
                text += &format!("\n[{section}]\n");
            }
            text += &format!("\n# {}\n", key.meaning.replace('\n', "\n# "));
            match find(&table, key.path) {
                Some(value) => text += &format!("{name} = {value}\n"),
                None => text += &format!("# {name} =\n"),
            }
        }
        Ok(text)
    }
}

fn read_table(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let wrong =
        |e: &toml::de::Error| Error::argument(format!("{}: {}", path.display(), e.to_string().trim()));
    let table: Table = text.parse().map_err(|e| wrong(&e))?;
    // Alone first, so that the message can name the file and its line.
    toml::from_str::<Config>(&text).map_err(|e| wrong(&e))?;
    Ok(table)
}

fn describe(error: &toml::de::Error) -> String {
    format!("configuration: {}", error.message())
}

/// Sets `path` (`section.name` or `name`) to `text`, read as TOML where that fits the setting, else as a plain string.
fn set_from_text(table: &mut Table, path: &str, text: &str) -> std::result::Result<(), String> {
    let literal = format!("value = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("value"));
    // Lists may be written with commas alone.
    let list = Value::Array(text.split(',').map(|t| Value::String(t.trim().to_owned())).collect());
    let candidates = literal.into_iter().chain([Value::String(text.to_owned()), list]);
    let mut first_error = None;
    for value in candidates {
        let mut attempt = Table::new();
        set(&mut attempt, path, value.clone());
        match attempt.try_into::<Config>() {
            Ok(_) => {
                set(table, path, value);
                return Ok(());
            }
            Err(error) => {
                first_error.get_or_insert(error.message().to_owned());
            }
        }
    }
    Err(first_error.unwrap_or_default())
}

fn set(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((section, rest)) => find(table.get(section)?.as_table()?, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
    }

    fn merged(file: &str, pairs: &[(&str, &str)], options: &str) -> Result<Config> {
        Config::merge(file.parse().unwrap(), &environment(pairs), options.parse().unwrap())
    }

    #[test]
    fn options_go_before_the_environment_and_that_before_the_file() {
        let file = "listen = '127.0.0.1:1'\nworkers = 1\n[limits]\nmax_queued_jobs = 1";
        let pairs =
            [("WORKERS", "2"), ("LISTEN", "127.0.0.1:2"), ("LIMITS_MAX_QUEUED_JOBS", "2"), ("OTHER", "x")];
        let config = merged(file, &pairs, "listen = '127.0.0.1:3'").unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!((config.workers, config.limits.max_queued_jobs), (2, 2));
    }

    #[test]
    fn workers_drain_where_others_can_go_on() {
        assert_eq!(merged("drain_seconds = 90", &[], "").unwrap().drain(), None);
        let config = merged("database = 'postgres://h/j'", &[("DRAIN_SECONDS", "90")], "").unwrap();
        assert_eq!(config.drain(), Some(Duration::from_secs(90)));
        assert_eq!(config.worker_options("w".into()).drain, Duration::from_secs(90));
    }

    #[test]
    fn workers_show_what_they_train_where_there_are_pages() {
        for (file, live) in [("", true), ("web = false", false)] {
            assert_eq!(merged(file, &[], "").unwrap().worker_options("w".into()).live_pictures, live);
        }
        assert!(
            merged("checkpoint_seconds = 0", &[], "")
                .unwrap_err()
                .message()
                .contains("checkpoint_seconds is 0")
        );
    }

    #[test]
    fn the_environment_is_plain_text() {
        let pairs = [
            ("TRUSTED_PROXIES", "10.0.0.1, ::1"),
            ("DATA", "123"),
            ("INSECURE_HTTP", "true"),
            ("LOG", "debug"),
        ];
        let config = merged("", &pairs, "").unwrap();
        assert_eq!(config.trusted_proxies.len(), 2);
        assert_eq!(config.data, Path::new("123"));
        assert!(config.insecure_http);
        let error = merged("", &[("WORKERS", "many")], "").unwrap_err();
        assert!(error.message().contains("LIBRECONSTRUCT_WORKERS is \"many\""), "{error}");
    }

    #[test]
    fn every_setting_is_documented_and_every_documented_setting_is_one() {
        let table = Table::try_from(Config::default()).unwrap();
        let mut paths = Vec::new();
        leaves(&table, "", &mut paths);
        for path in paths {
            assert!(KEYS.iter().any(|key| key.path == path), "{path} is not documented");
        }
        for key in KEYS {
            if find(&table, key.path).is_some() {
                continue;
            }
            // One that is absent by default: some kind of value fits it.
            let fits = ["1", "\"http://a\"", "\"x\""].iter().any(|text| {
                let mut table = Table::new();
                set(
                    &mut table,
                    key.path,
                    format!("v = {text}").parse::<Table>().unwrap().remove("v").unwrap(),
                );
                table.try_into::<Config>().is_ok()
            });
            assert!(fits, "{} is no setting", key.path);
        }
    }

    fn leaves(table: &Table, prefix: &str, into: &mut Vec<String>) {
        for (name, value) in table {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Table(inner) => leaves(inner, &path, into),
                _ => into.push(path),
            }
        }
    }

    #[test]
    fn what_is_printed_is_what_is_in_force() {
        let config = merged("workers = 3", &[], "public_url = 'https://a.example/x'").unwrap();
        let text = config.to_documented_toml().unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn plain_http_stays_on_this_machine_unless_told_otherwise() {
        let listen = |address: &str| Config { listen: address.parse().unwrap(), ..Config::default() };
        assert!(listen("127.0.0.1:80").check_transport().is_ok());
        assert!(listen("[::1]:80").check_transport().is_ok());
        assert!(listen("0.0.0.0:80").check_transport().is_err());
        let told = Config { insecure_http: true, ..listen("0.0.0.0:80") };
        assert!(told.check_transport().is_ok());
        let tls =
            Config { tls_certificate: Some("a".into()), tls_key: Some("b".into()), ..listen("0.0.0.0:80") };
        assert!(tls.check_transport().is_ok());
    }

    #[test]
    fn secrets_come_from_the_environment_and_are_never_shown() {
        let text = "{\"pepper\": \"s3cret\"}";
        let config = merged("", &[("SECRETS_JSON", text)], "").unwrap();
        assert_eq!(config.secrets_json, Some(Hidden::new(text)));
        let misplaced = merged("", &[("SECRETS", text)], "").unwrap_err();
        assert!(misplaced.hint_text().unwrap().contains("LIBRECONSTRUCT_SECRETS_JSON"), "{misplaced}");
        let as_setting = merged("secrets_json = 's3cret'", &[], "").unwrap_err();
        let opened = Config { data: "/dev/null/none".into(), ..config.clone() }.open_service().err().unwrap();
        for shown in [
            format!("{config:?}"),
            config.to_documented_toml().unwrap(),
            format!("{misplaced:?}"),
            format!("{as_setting:?}"),
            format!("{opened:?}"),
        ] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(merged("", &[], "public_url = 'ftp://x'").unwrap_err().message().contains("ftp://x"));
        assert!(merged("", &[], "tls_key = 'x'").unwrap_err().message().contains("tls_certificate"));
        assert!(merged("speed = 1", &[], "").unwrap_err().message().contains("speed"));
    }
}
