//! All rows from PostgreSQL into a file of SQLite, for backups. Tables and columns have the same names on both sides.

use std::path::Path;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::connection::{Fault, Sql};
use super::session::Session;
use super::values::Value;
use crate::database::{SqliteDatabase, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::files::{replace_atomically, sync_file};

/// A table: its name, the columns of its key, all columns.
pub(super) type Table = (&'static str, &'static str, &'static str);
/// The tables, each after those that it names rows of. Not sessions and invitations: what is revoked after a copy was made must not
/// come back with it.
pub(super) const TABLES: [Table; 11] = [
    ("users", "user_id", "user_id, name, tier, created_at, served"),
    ("api_keys", "prefix", "prefix, user_id, name, mac, created_at, last_used, revoked_at"),
    ("passwords", "user_id", "user_id, hash, changed_at"),
    (
        "passkeys",
        "credential",
        "credential, user_id, name, host, public_key, sign_count, created_at, last_used",
    ),
    ("identities", "issuer, subject", "issuer, subject, user_id"),
    (
        "uploads",
        "blob_name",
        "blob_name, user_id, expires_at, version, size, sha256, file_name, touched_at, submitted, deleted, block_list, \
         waiting_bytes",
    ),
    (
        "jobs",
        "seq",
        "seq, job_id, user_id, blob_name, title, uploaded_at, public, method, gaussians, steps, apriltag_size_mm, \
         remove_background, asked_camera_type, user_camera_type, user_view, found_view, state, stage, stage_fraction, percent, \
         attempt, crashes, disturbances, reach, rest_until, rest_boot, worked_micros, lease_owner, lease_worker, lease_boot, \
         lease_until, deleted, has_ply, has_spz, warnings, failure_code, failure_message, started_at, finished_at, updated_at, \
         version, stage_ends_at, claim_number, served_before",
    ),
    ("artifacts", "job_id, kind", "job_id, kind, attempt, size"),
    ("idempotency", "user_id, key", "user_id, key, body_hash, answer, created_at, job_id"),
    ("webhooks", "webhook_id", "webhook_id, user_id, url, created_at"),
    (
        "webhook_deliveries",
        "seq",
        "seq, delivery_id, webhook_id, job_id, event, created_at, state, attempts, next_at, taken_until, last_attempt_at, \
         response_status, error",
    ),
];
/// Rows that are on their way at a time.
pub(super) const AT_ONCE: usize = 1000;

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
            for (table, _, columns) in TABLES {
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
            // The copy is that of the same service.
            let id: Option<String> = session.first("SELECT id FROM service_id", &[], |r| r.get(0))?;
            if let Some(id) = id {
                transaction.execute("INSERT INTO service_id (one, id) VALUES (1, ?1)", [id]).map_err(lite)?;
            }
            transaction.commit().map_err(lite)?;
            // One file, without a log beside it.
            file.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(lite)?;
            file.close().map_err(|(_, e)| lite(e))?;
            sync_file(temporary).map_err(|e| Error::io("write", to, e))?;
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
