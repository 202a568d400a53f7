//! Rows in PostgreSQL, for any number of machines.
//!
//! Each method is one transaction at READ COMMITTED; what it must not see change it locks first. A commit that returned survives a
//! power cut of the server. A transaction whose connection breaks is done again, and after a COMMIT whose answer was lost the
//! server is asked what became of it (`marks.rs`): who calls hears of a failure only if the database cannot be reached for a while. After a
//! fail-over this holds as far as the stand-by has what was committed: let it be a synchronous one.
//!
//! Leases run by the clock of the database, so those of the machines need not agree. A worker's attempt at a job is told from all
//! others by its number and its process together.

mod accounts;
mod connection;
mod jobs;
mod marks;
mod queue;
mod rates;
mod schema;
mod server_state;
mod session;
mod take;
#[cfg(test)]
mod test_lost_answers;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod test_tls;
#[cfg(test)]
mod tests;
mod transaction;
mod transfer;
mod upkeep;
mod uploads;
mod users;
mod values;
mod webhooks;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
pub use server_state::ServerState;
pub use take::RowsTaken;

use super::{Clock, JobDatabase, QueueOrder, SchemaVersion, Statistics, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::Timestamp;
use connection::{Fault, Place, Sql};
use marks::Marks;
use session::Session;
use transaction::{once, read, read_at_one_moment, write};

/// A database at an address.
pub struct PostgresDatabase {
    pool: Pool,
    place: Place,
    /// Whose memory the jobs of this process share: the machine's, or that of a group of its processes, which has the name of the
    /// machine before its own.
    machine: String,
    /// What a test has instead of the database's clock.
    clock: Option<Arc<dyn Clock>>,
    order: QueueOrder,
    /// How long a transaction is tried.
    tries: Duration,
    marks: Marks,
}

impl fmt::Debug for PostgresDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresDatabase({})", self.place)
    }
}

impl PostgresDatabase {
    /// Opens the database at `address` (`postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`) and brings it to
    /// the newest form. With TLS the server's certificate and name are always verified.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an address that cannot be read, [`ErrorKind::InvalidFile`] for another program's
    /// database or one of a newer version that this one cannot use, [`ErrorKind::Io`] if it cannot be reached.
    pub fn open(address: &str) -> Result<Self> {
        let database = Self::at(address, transaction::TRIES)?;
        database.migrate()?;
        Ok(database)
    }

    /// The database at `address` as it is, without changing anything. One of another version can only be asked for its version, its
    /// integrity and the state of its server.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an address that cannot be read.
    pub fn open_to_look(address: &str) -> Result<Self> {
        Self::at(address, transaction::LOOK)
    }

    fn at(address: &str, tries: Duration) -> Result<Self> {
        let (pool, place) = connection::pool(address)?;
        let machine = SystemClock::new().boot().to_owned();
        let order = QueueOrder::default();
        Ok(Self { pool, place, machine, clock: None, order, tries, marks: Marks::new() })
    }

    /// The same with another order of the queue. All processes of one database should have the same.
    #[must_use]
    pub fn with_order(self, order: QueueOrder) -> Self {
        Self { order, ..self }
    }

    /// The same for a process whose memory has a limit, which it shares with the others of this group (a container, a unit) alone.
    #[must_use]
    pub fn in_group(self, group: &str) -> Self {
        Self { machine: format!("{}/{group}", self.machine), ..self }
    }

    #[cfg(test)]
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Runs `work` in a transaction of its own and makes it durable; `name` is the failpoint before the commit.
    fn write<T>(&self, name: &'static str, work: impl FnMut(&Session) -> Sql<T>) -> Result<T> {
        let fails = || {
            failpoints::pass(name)
                .map_err(|e| Error::new(ErrorKind::Io, "cannot write the database").caused_by(e))
        };
        write(&self.pool, &self.marks, self.tries, work, fails).map_err(|e| self.told(e))
    }

    /// Runs `work`, which only reads.
    fn read<T>(&self, work: impl FnMut(&Session) -> Sql<T>) -> Result<T> {
        read(&self.pool, self.tries, work).map_err(|e| self.told(e))
    }

    /// Runs `work`, which only reads, so that all its statements see the same moment.
    fn read_at_one_moment<T>(&self, work: impl FnMut(&Session) -> Sql<T>) -> Result<T> {
        read_at_one_moment(&self.pool, self.tries, work).map_err(|e| self.told(e))
    }

    /// Runs `work`, one statement that is a transaction of its own, and does not try again.
    fn once<T>(&self, work: impl FnOnce(&Session) -> Sql<T>) -> Result<T> {
        once(&self.pool, work).map_err(|e| self.told(e))
    }

    fn told(&self, fault: Fault) -> Error {
        let is_ours = matches!(fault, Fault::Ours(_));
        let error = fault.translate();
        if is_ours || error.hint_text().is_some() {
            return error;
        }
        error.hint(format!("the database is {}", self.place))
    }

    /// The time by the clock of the database, for rows and leases alike.
    fn now(&self, session: &Session) -> Sql<Timestamp> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let now: Option<i64> = session.first(NOW, &[], |r| r.get(0))?;
        Ok(Timestamp::from_micros(now.unwrap_or_default()))
    }

    /// Of which form the database is.
    ///
    /// # Errors
    /// The database's.
    pub fn schema_version(&self) -> Result<SchemaVersion> {
        let found = self.read(schema::version)?;
        Ok(SchemaVersion { found, newest: schema::newest() })
    }

    /// Whether this program can use tables of the form that they have.
    ///
    /// # Errors
    /// The database's.
    pub fn is_usable(&self) -> Result<bool> {
        self.read(|c| schema::is_usable(c, schema::version(c)?))
    }

    /// What of its server matters to the rows.
    ///
    /// # Errors
    /// The database's.
    pub fn server_state(&self) -> Result<ServerState> {
        self.read(server_state::read)
    }

    fn migrate(&self) -> Result<()> {
        if self.is_usable()? {
            return Ok(());
        }
        self.write("database.migrate.commit", |t| schema::migrate(t, &self.place.to_string()))
    }
}

impl JobDatabase for PostgresDatabase {
    fn statistics(&self) -> Result<Statistics> {
        self.read_at_one_moment(|c| {
            const COUNTS: &str = "SELECT (SELECT count(*) FROM users),
                (SELECT count(*) FROM api_keys WHERE revoked_at IS NULL),
                (SELECT count(*) FROM uploads WHERE NOT submitted AND NOT deleted),
                (SELECT count(*) FROM jobs WHERE deleted),
                (SELECT coalesce(sum(size), 0)::bigint FROM uploads) + (SELECT coalesce(sum(size), 0)::bigint FROM artifacts)";
            let counts = c.first(COUNTS, &[], |r| {
                Ok(Statistics {
                    users: r.get(0)?,
                    keys: r.get(1)?,
                    uploads: r.get(2)?,
                    deleting: r.get(3)?,
                    stored_bytes: r.get(4)?,
                    ..Statistics::default()
                })
            })?;
            let mut statistics = counts.unwrap_or_default();
            const STATES: &str = "SELECT state, percent IS NOT NULL, count(*) FROM jobs WHERE NOT deleted GROUP BY 1, 2";
            let states = c.all(STATES, &[], |r| {
                Ok((r.get::<String>(0)?, r.get::<bool>(1)?, r.get::<u64>(2)?))
            })?;
            for (state, generating, count) in states {
                let field = match (state.as_str(), generating) {
                    ("queued", _) => &mut statistics.queued,
                    ("running", false) => &mut statistics.processing_video,
                    ("running", true) => &mut statistics.generating_scene,
                    ("finished", _) => &mut statistics.finished,
                    _ => &mut statistics.failed,
                };
                *field += count;
            }
            Ok(statistics)
        })
    }

    /// What PostgreSQL itself has marked: indexes that were not finished, conditions that were not verified. Its own tools
    /// (`pg_amcheck`, checksums) look deeper.
    fn integrity_check(&self) -> Result<Vec<String>> {
        self.read(|c| {
            const MARKED: &str = "SELECT 'the index ' || relname || ' is not valid: REINDEX it' FROM pg_index
                    JOIN pg_class ON pg_class.oid = indexrelid
                    JOIN pg_namespace ON pg_namespace.oid = relnamespace AND nspname = current_schema()
                    WHERE NOT indisvalid
                UNION ALL SELECT 'the condition ' || conname || ' was never verified' FROM pg_constraint
                    JOIN pg_namespace ON pg_namespace.oid = connamespace AND nspname = current_schema()
                    WHERE NOT convalidated";
            c.all(MARKED, &[], |r| r.get(0))
        })
    }
}

/// The address of a new, empty database of a server that the tests have started, if there is a PostgreSQL on this machine.
#[cfg(test)]
#[track_caller]
pub(crate) fn test_database() -> Option<String> {
    let server = test_server::Server::get();
    if server.is_none() {
        crate::prerequisites::Prerequisite::Postgres.is_missing("PostgreSQL's server");
    }
    server.map(test_server::Server::database)
}
