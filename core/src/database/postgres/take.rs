//! All rows of a file of SQLite into PostgreSQL: the way from one folder to many machines. Text is in the same order on both sides,
//! so that rows can be compared one by one.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::PostgresDatabase;
use super::connection::{Fault, Sql};
use super::session::Session;
use super::transfer::{AT_ONCE, TABLES, Table};
use super::upkeep::release_all;
use super::values::{Value, values};
use crate::database::{SqliteDatabase, SystemClock};
use crate::error::{Error, ErrorKind, Result};

/// Rows that one statement adds: a round trip for each row would take minutes for a hundred thousand of them. The widest table has
/// 44 columns, and a statement may have 65,535 parameters.
const ADDED_AT_ONCE: usize = 100;

/// What [`PostgresDatabase::take_rows`] found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsTaken {
    /// Rows of all tables.
    pub rows: u64,
    /// Whether all of them were there already, and nothing else.
    pub before: bool,
}

impl PostgresDatabase {
    /// Takes over all rows of the SQLite file `from`, which nobody may use meanwhile, into this database, and compares them one by
    /// one before they count: all or none. Jobs that ran there wait here. Where the same rows are there already, nothing is
    /// changed, so that a call that was cut off can be repeated.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if there are other rows; both databases'.
    pub fn take_rows(&self, from: &Path) -> Result<RowsTaken> {
        // Brings an older file to the columns that are asked for.
        drop(SqliteDatabase::open(from, Arc::new(SystemClock::new()))?);
        self.write("database.take_rows.commit", |t| {
            let source = Connection::open(from).map_err(|e| unreadable(&e))?;
            // Nobody else may begin to fill it.
            t.batch("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE")?;
            if t.exists("SELECT 1 FROM users LIMIT 1", &[])? {
                return match compare(t, &source)? {
                    Compared::Same(rows) => Ok(RowsTaken { rows, before: true }),
                    Compared::Different(what) => {
                        Err(Error::new(ErrorKind::Conflict, format!("{} has other rows already: {what}", self.place))
                            .hint("name an empty database, or another schema in it (?options=-csearch_path%3Dname)")
                            .into())
                    }
                };
            }
            for table in TABLES {
                add_all(t, &source, table)?;
            }
            take_service_id(t, &source)?;
            let rows = match compare(t, &source)? {
                Compared::Same(rows) => rows,
                Compared::Different(what) => {
                    let message = format!("the rows did not arrive as they were: {what}");
                    return Err(Error::new(ErrorKind::Internal, message).into());
                }
            };
            // The next numbers follow those that were taken over.
            t.batch(
                "SELECT setval(pg_get_serial_sequence('jobs', 'seq'), (SELECT coalesce(max(seq), 0) + 1 FROM jobs), FALSE);
                 SELECT setval(pg_get_serial_sequence('webhook_deliveries', 'seq'),
                    (SELECT coalesce(max(seq), 0) + 1 FROM webhook_deliveries), FALSE);
                 SELECT setval('turns', (SELECT coalesce(max(served), 0) + 1 FROM users), FALSE)",
            )?;
            // Leases and rests ran by the clock of the other machine.
            release_all(t, self.now(t)?)?;
            Ok(RowsTaken { rows, before: false })
        })
    }
}

fn unreadable(e: &rusqlite::Error) -> Fault {
    Error::new(ErrorKind::InvalidFile, format!("the rows cannot be read: {e}")).into()
}

/// Hands the rows of a table of `source`, in the order of its key, to `each`.
fn each_row(
    source: &Connection,
    (table, key, columns): Table,
    mut each: impl FnMut(Vec<Value>) -> Sql<()>,
) -> Sql<()> {
    let count = columns.split(',').count();
    let select = format!("SELECT {columns} FROM {table} ORDER BY {key}");
    let mut select = source.prepare(&select).map_err(|e| unreadable(&e))?;
    let mut rows = select.query([]).map_err(|e| unreadable(&e))?;
    while let Some(row) = rows.next().map_err(|e| unreadable(&e))? {
        let values: rusqlite::Result<Vec<Value>> =
            (0..count).map(|column| Ok(row.get_ref(column)?.into())).collect();
        each(values.map_err(|e| unreadable(&e))?)?;
    }
    Ok(())
}

/// Adds all rows of a table of `source`.
fn add_all(session: &Session, source: &Connection, table: Table) -> Sql<()> {
    let (name, _, columns) = table;
    let width = columns.split(',').count();
    let insert = |values: &[Value]| {
        let row = |k: usize| {
            let marks: Vec<String> = (1..=width).map(|n| format!("${}", k * width + n)).collect();
            format!("({})", marks.join(", "))
        };
        let rows: Vec<String> = (0..values.len() / width).map(row).collect();
        session.run(&format!("INSERT INTO {name} ({columns}) VALUES {}", rows.join(", ")), values)
    };
    let mut waiting = Vec::new();
    each_row(source, table, |row| {
        waiting.extend(row);
        if waiting.len() >= ADDED_AT_ONCE * width {
            insert(&waiting)?;
            waiting.clear();
        }
        Ok(())
    })?;
    if !waiting.is_empty() {
        insert(&waiting)?;
    }
    Ok(())
}

/// The service keeps its id, if it has one, whatever a server has noted here that was started before. It is not compared as rows are:
/// one that has none gets it here.
fn take_service_id(session: &Session, source: &Connection) -> Sql<()> {
    let id: Option<String> = source
        .query_row("SELECT id FROM service_id", [], |r| r.get(0))
        .optional()
        .map_err(|e| unreadable(&e))?;
    if let Some(id) = id {
        session.run("DELETE FROM service_id", &[])?;
        session.run("INSERT INTO service_id (one, id) VALUES (1, $1)", values![id])?;
    }
    Ok(())
}

/// How the rows of two databases differ.
enum Compared {
    /// Not at all; how many there are.
    Same(u64),
    /// Where first.
    Different(String),
}

/// Compares all rows of this database with those of `source`: how many there are, and each by itself.
fn compare(session: &Session, source: &Connection) -> Sql<Compared> {
    let mut all = 0;
    for (table, key, columns) in TABLES {
        let count = format!("SELECT count(*) FROM {table}");
        let there: i64 = source.query_row(&count, [], |r| r.get(0)).map_err(|e| unreadable(&e))?;
        let here: Option<i64> = session.first(&count, &[], |r| r.get(0))?;
        let here = here.unwrap_or_default();
        if here != there {
            return Ok(Compared::Different(format!("{here} in {table} instead of {there}")));
        }
        session.batch(&format!(
            "DECLARE compared_{table} NO SCROLL CURSOR FOR SELECT {columns} FROM {table} ORDER BY {key}"
        ))?;
        let fetch = format!("FETCH {AT_ONCE} FROM compared_{table}");
        let (mut piece, mut different) = (Vec::new().into_iter(), None);
        each_row(source, (table, key, columns), |row| {
            if different.is_some() {
                return Ok(());
            }
            if piece.len() == 0 {
                let rows = session.all_unprepared(&fetch, |row| {
                    (0..row.len()).map(|column| row.value(column)).collect::<Sql<Vec<Value>>>()
                })?;
                piece = rows.into_iter();
            }
            let here: Option<Vec<Value>> = piece.next();
            if !here.is_some_and(|here| here.iter().zip(&row).all(|(here, there)| is_same(here, there))) {
                let key: Vec<String> =
                    row.iter().take(key.split(',').count()).map(|value| format!("{value:?}")).collect();
                different = Some(format!("the row {} of {table} differs", key.join(", ")));
            }
            Ok(())
        })?;
        session.batch(&format!("CLOSE compared_{table}"))?;
        if let Some(different) = different {
            return Ok(Compared::Different(different));
        }
        all += there.unsigned_abs();
    }
    Ok(Compared::Same(all))
}

/// Whether a value of PostgreSQL and one of SQLite, which has no truth values, are the same.
fn is_same(here: &Value, there: &Value) -> bool {
    match (here, there) {
        (Value::Bool(here), Value::Int(there)) => i64::from(*here) == *there,
        _ => here == there,
    }
}
