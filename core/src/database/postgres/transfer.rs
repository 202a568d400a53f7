//! All rows from PostgreSQL into a file of SQLite, and from such a file into PostgreSQL: backups, and the way from one folder to
//! many machines. Tables and columns have the same names on both sides.

use std::path::Path;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::PostgresDatabase;
use super::connection::{Fault, Sql};
use super::session::Session;
use super::values::Value;
use crate::database::{SqliteDatabase, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::files::replace_atomically;

/// The tables, each after those that it names rows of, and their columns.
const TABLES: [(&str, &str); 6] = [
    ("users", "user_id, name, tier, created_at, served"),
    ("api_keys", "prefix, user_id, name, mac, created_at, last_used, revoked_at"),
    (
        "uploads",
        "blob_name, user_id, expires_at, version, size, sha256, file_name, touched_at, submitted, deleted, block_list",
    ),
    (
        "jobs",
        "seq, job_id, user_id, blob_name, title, uploaded_at, public, method, gaussians, steps, apriltag_size_mm, \
         remove_background, asked_camera_type, user_camera_type, user_view, found_view, state, stage, stage_fraction, percent, \
         attempt, crashes, disturbances, reach, rest_until, rest_boot, worked_micros, lease_owner, lease_worker, lease_boot, \
         lease_until, deleted, has_ply, has_spz, warnings, failure_code, failure_message, started_at, finished_at, updated_at, \
         version",
    ),
    ("artifacts", "job_id, kind, attempt, size"),
    ("idempotency", "user_id, key, body_hash, answer, created_at, job_id"),
];
/// Rows that are on their way at a time.
const AT_ONCE: usize = 1000;

/// Writes all rows that `session` sees to the new file `to`, a database of SQLite: whole or not at all, and durable when this
/// returns.
pub(super) fn copy_to(session: &Session, to: &Path) -> Sql<()> {
    let lite = |e: rusqlite::Error| {
        Fault::Ours(Error::new(ErrorKind::Io, format!("the copy of the database cannot be written: {e}")))
    };
    let mut fault = None;
    let made = replace_atomically(to, |temporary| {
        drop(SqliteDatabase::open(temporary, Arc::new(SystemClock::new()))?);
        let fill = || {
            let mut file = Connection::open(temporary).map_err(lite)?;
            let transaction = file.transaction().map_err(lite)?;
            for (table, columns) in TABLES {
                let count = columns.split(',').count();
                let marks = vec!["?"; count].join(", ");
                let insert = format!("INSERT INTO {table} ({columns}) VALUES ({marks})");
                let mut insert = transaction.prepare(&insert).map_err(lite)?;
                session
                    .batch(&format!("DECLARE rows_of_{table} CURSOR FOR SELECT {columns} FROM {table}"))?;
                loop {
                    let fetch = format!("FETCH {AT_ONCE} FROM rows_of_{table}");
                    let rows = session.all_unprepared(&fetch, |row| {
                        (0..row.len()).map(|column| row.value(column)).collect::<Sql<Vec<Value>>>()
                    })?;
                    for row in &rows {
                        insert.execute(params_from_iter(row)).map_err(lite)?;
                    }
                    if rows.len() < AT_ONCE {
                        break;
                    }
                }
            }
            transaction.commit().map_err(lite)?;
            // One file, without a log beside it.
            file.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(lite)?;
            file.close().map_err(|(_, e)| lite(e))?;
            std::fs::File::open(temporary)
                .and_then(|f| f.sync_all())
                .map_err(|e| Error::io("write", to, e))?;
            Ok(())
        };
        fill().map_err(|found: Fault| {
            // What passes is done again by who called.
            if found.is_passing() {
                fault = Some(found);
                return Error::new(ErrorKind::Io, "the database was cut off");
            }
            found.translate()
        })
    });
    match fault {
        Some(fault) => Err(fault),
        None => Ok(made?),
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => rusqlite::types::Null.into(),
            Value::Bool(value) => i64::from(*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Value::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
        })
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(value) => Value::Int(value),
            ValueRef::Real(value) => Value::Float(value),
            ValueRef::Text(value) => Value::Text(String::from_utf8_lossy(value).into_owned()),
            ValueRef::Blob(value) => Value::Bytes(value.to_vec()),
        }
    }
}

impl PostgresDatabase {
    /// Takes over all rows of the SQLite file `from`, which nobody may use meanwhile, into this database, which must be empty: all
    /// or none. Jobs that ran there wait here. Says how many rows there were.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if there are rows already; both databases'.
    pub fn take_rows(&self, from: &Path) -> Result<u64> {
        let failed = |e: rusqlite::Error| {
            Error::new(ErrorKind::InvalidFile, format!("{} cannot be read: {e}", from.display())).caused_by(e)
        };
        // Brings an older file to the columns that are asked for.
        drop(SqliteDatabase::open(from, Arc::new(SystemClock::new()))?);
        let taken = self.write("database.take_rows.commit", |t| {
            if t.exists("SELECT 1 FROM users LIMIT 1", &[])? {
                return Err(Error::new(ErrorKind::Conflict, format!("{} has rows already", self.place))
                    .hint("name an empty database")
                    .into());
            }
            let source = Connection::open(from).map_err(failed)?;
            let mut taken = 0;
            for (table, columns) in TABLES {
                let count = columns.split(',').count();
                let marks: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
                let insert = format!("INSERT INTO {table} ({columns}) VALUES ({})", marks.join(", "));
                let mut select = source.prepare(&format!("SELECT {columns} FROM {table}")).map_err(failed)?;
                let mut rows = select.query([]).map_err(failed)?;
                while let Some(row) = rows.next().map_err(failed)? {
                    let row: rusqlite::Result<Vec<Value>> =
                        (0..count).map(|column| Ok(row.get_ref(column)?.into())).collect();
                    taken += t.run(&insert, &row.map_err(failed)?)?;
                }
            }
            // The next numbers follow those that were taken over.
            t.batch(
                "SELECT setval(pg_get_serial_sequence('jobs', 'seq'), (SELECT coalesce(max(seq), 0) + 1 FROM jobs), FALSE);
                 SELECT setval('turns', (SELECT coalesce(max(served), 0) + 1 FROM users), FALSE)",
            )?;
            Ok(taken)
        })?;
        // Leases and rests ran by the clock of the other machine.
        crate::database::UpkeepRows::release_all(self)?;
        Ok(taken)
    }
}
