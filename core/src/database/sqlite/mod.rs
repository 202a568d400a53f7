//! Rows in one SQLite file, for any number of processes on one machine.
//!
//! WAL with `synchronous=FULL`: a commit that returned survives a power cut. One connection writes, in transactions that
//! take the write lock at their beginning; a pool of others reads, undisturbed by it. Every statement is kept prepared.

mod accounts;
mod connection;
mod copy;
mod jobs;
mod queue;
mod rates;
mod upkeep;
mod uploads;
mod users;
mod values;
mod webhooks;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, Row, Transaction, TransactionBehavior};

use super::{Clock, JobDatabase, QueueOrder, Statistics};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use connection::{Fault, Sql, connect, connect_to_read, create_private_file};

/// Marks the file as ours ("recn").
const APPLICATION_ID: i32 = 0x7265_636e;
/// What takes an older file to the newest form, one step a version.
const MIGRATIONS: [&str; 14] = [
    include_str!("version_1.sql"),
    include_str!("version_2.sql"),
    include_str!("version_3.sql"),
    include_str!("version_4.sql"),
    include_str!("version_5.sql"),
    include_str!("version_6.sql"),
    include_str!("version_7.sql"),
    include_str!("version_8.sql"),
    include_str!("version_9.sql"),
    include_str!("version_10.sql"),
    include_str!("version_11.sql"),
    include_str!("version_12.sql"),
    include_str!("version_13.sql"),
    include_str!("version_14.sql"),
];
/// Readers that are kept open.
const READERS: usize = 16;

/// Runs a statement, which the connection keeps prepared; number of rows that it changed.
fn run(c: &Connection, sql: &str, values: impl Params) -> Sql<usize> {
    Ok(c.prepare_cached(sql)?.execute(values)?)
}

/// The first row that a statement finds.
fn first<T>(
    c: &Connection,
    sql: &str,
    values: impl Params,
    of_row: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Sql<Option<T>> {
    Ok(c.prepare_cached(sql)?.query_row(values, of_row).optional()?)
}

/// All rows that a statement finds.
fn all<T>(
    c: &Connection,
    sql: &str,
    values: impl Params,
    of_row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Sql<Vec<T>> {
    Ok(c.prepare_cached(sql)?.query_map(values, of_row)?.collect::<rusqlite::Result<_>>()?)
}

/// A database in one file.
pub struct SqliteDatabase {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    order: QueueOrder,
    /// Whether nobody writes to the file, see [`SqliteDatabase::open_to_look`].
    still: bool,
    /// Closed before the writer: only a connection that may write takes the log into the file when it is the last to go.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
}

/// Of which form a database is, and which forms there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// That of the file.
    pub found: i32,
    /// The newest that this program knows.
    pub newest: i32,
}

impl SqliteDatabase {
    /// Opens or creates the database at `path` and brings it to the newest form.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] for another program's file or one of a newer version; the system's.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        create_private_file(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut writer = connect(path, flags)?;
        prepare(&mut writer, path).map_err(|fault| {
            let error = fault.translate();
            match error.kind() {
                ErrorKind::Io if error.hint_text().is_none() => {
                    error.hint(format!("see that this user may write {} and its folder", path.display()))
                }
                _ => error,
            }
        })?;
        Ok(Self::over(path, clock, writer, false))
    }

    /// The same with another order of the queue. All processes of one database should have the same.
    #[must_use]
    pub fn with_order(self, order: QueueOrder) -> Self {
        Self { order, ..self }
    }

    /// Opens the database at `path` as it is, without changing anything: what writes fails, and a file of an older version can
    /// only be asked for its version and its integrity. `still` says that no process writes to it meanwhile; then nothing is
    /// made beside the file either.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::InvalidFile`] for another program's file; the system's.
    pub fn open_to_look(path: &Path, clock: Arc<dyn Clock>, still: bool) -> Result<Self> {
        std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
        let reader = connect_to_read(path, still)?;
        let application: i32 = reader
            .pragma_query_value(None, "application_id", |r| r.get(0))
            .map_err(|e| Fault::from(e).translate())?;
        if application != APPLICATION_ID {
            return Err(strange(path));
        }
        Ok(Self::over(path, clock, reader, still))
    }

    fn over(path: &Path, clock: Arc<dyn Clock>, writer: Connection, still: bool) -> Self {
        let (readers, writer) = (Mutex::default(), Mutex::new(writer));
        Self { path: path.to_owned(), clock, order: QueueOrder::default(), still, readers, writer }
    }

    /// Of which form the file is.
    ///
    /// # Errors
    /// The database's.
    pub fn schema_version(&self) -> Result<SchemaVersion> {
        let found = self.read(|c| Ok(c.pragma_query_value(None, "user_version", |r| r.get(0))?))?;
        Ok(SchemaVersion { found, newest: MIGRATIONS.len() as i32 })
    }

    /// Runs `work` in a transaction of its own and makes it durable; `name` is the failpoint before the commit.
    fn write<T>(&self, name: &'static str, work: impl FnOnce(&Transaction<'_>) -> Sql<T>) -> Result<T> {
        // A panic in another transaction rolled it back when it was dropped: the connection is as good as before.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let commit = || {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            failpoints::pass(name).map_err(|e| Error::io("write", &self.path, e))?;
            transaction.commit()?;
            Ok(value)
        };
        commit().map_err(Fault::translate)
    }

    /// Runs `work`, which only reads, beside all others.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Sql<T>) -> Result<T> {
        let pooled = self.lock_readers().pop();
        let reader = match pooled {
            Some(reader) => reader,
            None => connect_to_read(&self.path, self.still)?,
        };
        let value = work(&reader);
        let mut readers = self.lock_readers();
        if readers.len() < READERS {
            readers.push(reader);
        }
        value.map_err(Fault::translate)
    }

    fn lock_readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets what the writer holds to, and brings the file to the newest form.
fn prepare(writer: &mut Connection, path: &Path) -> Sql<()> {
    let mode: String = writer.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} is on a file system on which SQLite cannot keep a write-ahead log", path.display()),
        )
        .hint("choose a folder on a disk of this machine: network file systems do not keep the promises that are needed")
        .into());
    }
    writer.pragma_update(None, "synchronous", "full")?;
    writer.pragma_update(None, "foreign_keys", true)?;
    migrate(writer, path)
}

fn migrate(connection: &mut Connection, path: &Path) -> Sql<()> {
    let number =
        |name: &str, c: &Connection| -> Sql<i32> { Ok(c.pragma_query_value(None, name, |r| r.get(0))?) };
    let newest = MIGRATIONS.len() as i32;
    // Nothing is written where nothing is to be done: on a full disk the folder still opens, and space can be freed.
    if number("application_id", connection)? == APPLICATION_ID
        && number("user_version", connection)? == newest
    {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    let (application, version) =
        (number("application_id", &transaction)?, number("user_version", &transaction)?);
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    if (version > 0 || tables > 0) && application != APPLICATION_ID {
        return Err(strange(path).into());
    }
    if version > newest {
        return Err(Error::new(
            ErrorKind::InvalidFile,
            format!("{} has version {version}; this program knows up to {newest}", path.display()),
        )
        .hint("use the newer program that wrote it")
        .into());
    }
    if version > 0 {
        // Nobody else can write now, so the copy is what the steps begin with.
        copy::keep_older(path, version, newest)?;
    }
    let done = usize::try_from(version).unwrap_or(0);
    for step in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest)?;
    transaction.commit()?;
    Ok(())
}

fn strange(path: &Path) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("{} is a database of another program", path.display()))
        .hint("choose another folder")
}

impl JobDatabase for SqliteDatabase {
    fn statistics(&self) -> Result<Statistics> {
        self.read(|c| {
            let count = |sql: &str| -> Sql<u64> { Ok(c.prepare_cached(sql)?.query_row([], |r| r.get(0))?) };
            let mut statistics = Statistics {
                users: count("SELECT count(*) FROM users")?,
                keys: count("SELECT count(*) FROM api_keys WHERE revoked_at IS NULL")?,
                uploads: count("SELECT count(*) FROM uploads WHERE submitted = 0 AND deleted = 0")?,
                deleting: count("SELECT count(*) FROM jobs WHERE deleted = 1")?,
                stored_bytes: count(
                    "SELECT (SELECT ifnull(sum(size), 0) FROM uploads) + (SELECT ifnull(sum(size), 0) FROM artifacts)",
                )?,
                ..Statistics::default()
            };
            let mut states = c.prepare_cached(
                "SELECT state, percent IS NOT NULL, count(*) FROM jobs WHERE deleted = 0 GROUP BY 1, 2",
            )?;
            let mut rows = states.query([])?;
            while let Some(row) = rows.next()? {
                let (state, generating, count): (String, bool, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
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

    fn integrity_check(&self) -> Result<Vec<String>> {
        self.read(|c| {
            let mut found = Vec::new();
            let checked = c.pragma_query(None, "integrity_check", |row| {
                found.push(row.get::<_, String>(0)?);
                Ok(())
            });
            match checked {
                // Some pages cannot even be looked at: then the check itself fails by what it is to find.
                Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
                    found.push(error.to_string());
                }
                checked => checked?,
            }
            found.retain(|line| line != "ok");
            if !found.is_empty() {
                // Rows of damaged pages cannot be read to be compared.
                return Ok(found);
            }
            c.pragma_query(None, "foreign_key_check", |row| {
                let (table, row): (String, Option<i64>) = (row.get(0)?, row.get(1)?);
                found.push(format!("row {row:?} of {table} names a row that is not there"));
                Ok(())
            })?;
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ManualClock, suite};
    use super::*;

    mod promises {
        use super::*;

        fn open(clock: Arc<dyn Clock>, order: QueueOrder) -> Option<(tempfile::TempDir, SqliteDatabase)> {
            let folder = tempfile::tempdir().unwrap();
            let database = SqliteDatabase::open(&folder.path().join("jobs.db"), clock).unwrap();
            Some((folder, database.with_order(order)))
        }

        suite::tests!(open);
    }

    #[test]
    fn where_there_can_be_no_write_ahead_log_nothing_is_written() {
        // Memory is such a place, as a network file system is.
        let mut connection = Connection::open_in_memory().unwrap();
        let refused =
            prepare(&mut connection, Path::new("/mnt/jobs.db")).map_err(Fault::translate).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.message().contains("/mnt/jobs.db"), "{refused}");
        assert!(refused.hint_text().unwrap().contains("a disk of this machine"), "{refused}");
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).unwrap();
        assert_eq!(tables, 0);
    }

    #[test]
    fn a_commit_is_durable_and_readers_do_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let database =
            SqliteDatabase::open(&folder.path().join("jobs.db"), Arc::new(ManualClock::new())).unwrap();
        let writer = database.writer.lock().unwrap();
        let text = |name: &str| writer.pragma_query_value(None, name, |r| r.get::<_, String>(0)).unwrap();
        let number = |name: &str| writer.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).unwrap();
        assert_eq!(text("journal_mode"), "wal");
        assert_eq!((number("synchronous"), number("foreign_keys")), (2, 1));
        // The writer is held by this test, and still:
        assert_eq!(database.statistics().unwrap(), Statistics::default());
        assert!(database.integrity_check().unwrap().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn opening_a_database_again_keeps_the_locks_of_those_who_have_it_open() {
        use std::os::unix::fs::MetadataExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let open = || SqliteDatabase::open(&path, Arc::new(ManualClock::new())).unwrap();
        let first = open();
        let file = format!(":{}", std::fs::metadata(&path).unwrap().ino());
        // A line of the list: number, kind, mode, access, process, device and file, from, to.
        let is_locked = || {
            let list = std::fs::read_to_string("/proc/locks").unwrap();
            list.lines()
                .any(|line| line.split_whitespace().nth(5).is_some_and(|place| place.ends_with(&file)))
        };
        assert!(is_locked());
        drop(open());
        assert!(is_locked());
        drop(first);
        assert!(!is_locked());
    }

    #[test]
    fn a_strange_or_newer_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| SqliteDatabase::open(&folder.path().join(name), Arc::new(ManualClock::new()));
        std::fs::write(folder.path().join("text"), "hello, this is no database at all").unwrap();
        assert_eq!(open("text").err().unwrap().kind(), ErrorKind::InvalidFile);
        let other = Connection::open(folder.path().join("other")).unwrap();
        other.execute_batch("CREATE TABLE mine (x)").unwrap();
        assert_eq!(open("other").err().unwrap().kind(), ErrorKind::InvalidFile);
        drop(open("ours").unwrap());
        drop(open("ours").unwrap());
        let ours = Connection::open(folder.path().join("ours")).unwrap();
        ours.pragma_update(None, "user_version", 99).unwrap();
        assert!(open("ours").err().unwrap().message().contains("99"));
    }

    #[test]
    fn an_older_file_is_brought_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute("INSERT INTO users VALUES ('a', 'anna', 'free', 0)", []).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        drop(old);
        let database = SqliteDatabase::open(&path, Arc::new(ManualClock::new())).unwrap();
        assert_eq!(database.statistics().unwrap().users, 1);
        let name = crate::job::BlobName::random(crate::job::VideoExtension::Mp4);
        assert_eq!(crate::database::UploadRows::upload(&database, &name).unwrap(), None);
    }

    #[test]
    fn a_failed_transaction_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let database =
            SqliteDatabase::open(&folder.path().join("jobs.db"), Arc::new(ManualClock::new())).unwrap();
        let failed: Result<()> = database.write("database.add_user.commit", |t| {
            let anna = "INSERT INTO users (user_id, name, tier, created_at) VALUES ('a', 'anna', 'free', 0)";
            t.execute(anna, [])?;
            Err(Error::argument("no").into())
        });
        // It came as far as to its own error, after a row was written.
        assert_eq!(failed.unwrap_err().message(), "no");
        assert_eq!(database.statistics().unwrap().users, 0);
    }
}
