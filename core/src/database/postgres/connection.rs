//! How PostgreSQL is reached, and what its errors mean.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, ErrorKind, Result};

/// Connections of one process at most.
const CONNECTIONS: usize = 16;
/// How long a connection may take to be made, or to become free.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a peer may say nothing while something was sent to it.
const SILENCE: Duration = Duration::from_secs(20);
/// What holds in every session: no statement and no lock may keep others waiting for long, and who stops in the middle of a
/// transaction loses it. Statements are not compiled: ours are short, and where many jobs wait that takes longer than they do.
const SESSION: &str =
    "-c statement_timeout=30s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s -c jit=off";
/// Where Debian, and most others, keep the certificates that everybody trusts.
const SYSTEM_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Result inside a transaction.
pub(super) type Sql<T> = std::result::Result<T, Fault>;

/// What goes wrong inside a transaction: PostgreSQL's errors are translated once, at its end.
#[derive(Debug)]
pub(super) enum Fault {
    Postgres(tokio_postgres::Error),
    NoConnection(String),
    Ours(Error),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(source: tokio_postgres::Error) -> Self {
        Fault::Postgres(source)
    }
}

impl From<PoolError> for Fault {
    fn from(source: PoolError) -> Self {
        match source {
            PoolError::Backend(source) => Fault::Postgres(source),
            PoolError::Timeout(_) => Fault::NoConnection(format!(
                "none of {CONNECTIONS} connections was made or became free in time"
            )),
            other => Fault::NoConnection(other.to_string()),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Ours(error)
    }
}

impl Fault {
    /// Whether the same may succeed on a new connection: nothing that the statement says is wrong.
    pub(super) fn is_passing(&self) -> bool {
        let source = match self {
            Fault::Ours(_) => return false,
            Fault::NoConnection(_) => return true,
            Fault::Postgres(source) => source,
        };
        match source.code() {
            // Transactions that got in each other's way, and deadlocks; a server that stops, starts, or has no place left; one that became a
            // standby.
            Some(code) => {
                [
                    SqlState::T_R_SERIALIZATION_FAILURE,
                    SqlState::T_R_DEADLOCK_DETECTED,
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::TOO_MANY_CONNECTIONS,
                    SqlState::READ_ONLY_SQL_TRANSACTION,
                    SqlState::LOCK_NOT_AVAILABLE,
                    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                ]
                .contains(code)
                    || code.code().starts_with("08")
            }
            None => source.is_closed() || is_of_the_network(source),
        }
    }

    /// The fault in our words.
    pub(super) fn translate(self) -> Error {
        let source = match self {
            Fault::Ours(error) => return error,
            Fault::NoConnection(why) => {
                return Error::new(ErrorKind::Io, format!("cannot reach the database: {why}"))
                    .hint("see whether PostgreSQL runs, and how many connections it allows");
            }
            Fault::Postgres(source) => source,
        };
        let Some(database) = source.as_db_error() else {
            // "db error" and the like stand in front: the cause says more.
            let why = innermost(&source);
            return Error::new(ErrorKind::Io, format!("cannot reach the database: {why}"))
                .hint("see whether PostgreSQL runs at the address that is set, and can be reached from here")
                .caused_by(source);
        };
        let message = database.message().to_owned();
        let (kind, message) = match database.code() {
            &SqlState::DISK_FULL => {
                (ErrorKind::DiskFull, "cannot write the database: its disk is full".to_owned())
            }
            &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => {
                (ErrorKind::InvalidFile, format!("the database is damaged: {message}"))
            }
            &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                (ErrorKind::Io, format!("the database does not let us in: {message}"))
            }
            &SqlState::UNDEFINED_DATABASE => (ErrorKind::Io, format!("cannot use the database: {message}")),
            // 08: connection; 53: no resources; 55: locks; 57: an operator; 58: the system; 25: a standby.
            code if ["08", "25", "40", "53", "55", "57", "58"].iter().any(|c| code.code().starts_with(c)) => {
                (ErrorKind::Io, format!("cannot use the database: {message}"))
            }
            _ => (ErrorKind::Internal, format!("the database refused: {message}")),
        };
        Error::new(kind, message).caused_by(source)
    }
}

fn is_of_the_network(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    // Without a cause it is the time in which a connection must be made.
    std::error::Error::source(error).is_none()
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Where the database is, without what opens it: what may be shown.
#[derive(Clone)]
pub(super) struct Place(String);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Connections to the database at `address`; none is made yet.
pub(super) fn pool(address: &str) -> Result<(Pool, Place)> {
    let (address, certificates) = without_certificates(address);
    // The driver's message may show what it could not read.
    let mut config: Config = address.parse().map_err(|_| {
        Error::argument("the address of the database cannot be read")
            .hint("it looks like postgres://user:password@host:5432/database?sslmode=require; letters like @ and / in a password are written as %40 and %2F")
    })?;
    let options = [config.get_options().unwrap_or_default(), SESSION].join(" ");
    config
        .options(options.trim())
        .application_name("libreconstruct")
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .connect_timeout(CONNECT)
        .tcp_user_timeout(SILENCE)
        .keepalives_idle(SILENCE);
    let place = Place(shown(&config));
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match certificates.needs_tls(&config) {
        true => Manager::from_config(config, MakeRustlsConnect::new(certificates.client()?), manager),
        false => Manager::from_config(config, NoTls, manager),
    };
    let pool = Pool::builder(manager)
        .max_size(CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(CONNECT))
        .create_timeout(Some(CONNECT))
        .build()
        .map_err(|e| {
            Error::new(ErrorKind::Internal, "connections to the database cannot be kept").caused_by(e)
        })?;
    Ok((pool, place))
}

fn shown(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    format!("{} on {}", config.get_dbname().unwrap_or("the standard database"), hosts.join(", "))
}

/// Whom to believe that the server is who it says.
struct Certificates(Option<PathBuf>);

/// Takes `sslrootcert` out of the address: the driver does not know it. `verify-ca` and `verify-full` become `require`, since we
/// always verify the server in full.
fn without_certificates(address: &str) -> (String, Certificates) {
    let Some((head, query)) = address.split_once('?') else {
        return (address.to_owned(), Certificates(None));
    };
    let mut file = None;
    let kept: Vec<String> = query
        .split('&')
        .filter_map(|pair| match pair.split_once('=') {
            Some(("sslrootcert", path)) => {
                file = Some(PathBuf::from(path.replace("%2F", "/").replace("%2f", "/")));
                None
            }
            Some(("sslmode", "verify-ca" | "verify-full")) => Some("sslmode=require".to_owned()),
            _ => Some(pair.to_owned()),
        })
        .collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    (format!("{head}{query}"), Certificates(file))
}

impl Certificates {
    /// With `prefer`, the driver's default, TLS is used if a certificate was named: else a server on the same machine, whose
    /// certificate nobody signed, could not be used.
    fn needs_tls(&self, config: &Config) -> bool {
        use tokio_postgres::config::SslMode;
        match config.get_ssl_mode() {
            SslMode::Disable => false,
            SslMode::Prefer => self.0.is_some(),
            _ => true,
        }
    }

    fn client(&self) -> Result<ClientConfig> {
        let path = self.0.clone().unwrap_or_else(|| PathBuf::from(SYSTEM_CERTIFICATES));
        let cannot = |e: rustls::pki_types::pem::Error| {
            Error::new(ErrorKind::Io, format!("certificates cannot be read from {}: {e}", path.display()))
                .hint("name a PEM file with the certificate that signed the database's: ?sslrootcert=FILE")
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&path).map_err(cannot)? {
            // Among those of a system there may be one that this library does not understand.
            let _ = roots.add(certificate.map_err(cannot)?);
        }
        if roots.is_empty() {
            return Err(Error::new(ErrorKind::InvalidFile, format!("{} has no certificate", path.display())));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::new(ErrorKind::Internal, "TLS cannot be set up").caused_by(e))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_does_not_know_is_taken_out() {
        let (address, certificates) =
            without_certificates("postgres://a@h/d?sslmode=verify-full&sslrootcert=%2Fca.pem&keepalives=1");
        assert_eq!(address, "postgres://a@h/d?sslmode=require&keepalives=1");
        assert_eq!(certificates.0, Some("/ca.pem".into()));
        let (address, certificates) = without_certificates("postgres://a@h/d?sslrootcert=/ca.pem");
        assert_eq!((address.as_str(), certificates.0.is_some()), ("postgres://a@h/d", true));
    }

    #[test]
    fn a_password_is_never_shown() {
        for address in ["postgres://a:s3cret@h:x/d", "postgres://a:s3cret@h/d?nonsense=1", "s3cret"] {
            let Err(error) = pool(address) else { panic!("{address} was read") };
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
        }
        let (_, place) = pool("postgres://a:s3cret@h/d").unwrap();
        assert_eq!(place.to_string(), "d on h");
    }
}
