//! What tells whether a COMMIT was done whose answer was lost: each transaction that changes something numbers a row of its own with
//! a number that no other has.
//!
//! PostgreSQL's own numbers of transactions do not tell. After a crash it gives those again that never reached its disk, so that
//! `pg_xact_status` speaks of somebody else's transaction.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::connection::Sql;
use super::session::Session;
use super::values::values;

/// The rows of this process: as many as it has transactions at once.
pub(super) struct Marks {
    process: String,
    /// Names of rows that no transaction uses now.
    free: Mutex<Vec<String>>,
    last: AtomicI64,
}

/// A row, while a transaction uses it.
pub(super) struct Mark<'a> {
    marks: &'a Marks,
    name: String,
}

impl Marks {
    pub(super) fn new() -> Self {
        let process = uuid::Uuid::new_v4().as_simple().to_string();
        Self { process, free: Mutex::default(), last: AtomicI64::new(0) }
    }

    /// A row for one transaction, tried as often as it may be.
    pub(super) fn take(&self) -> Mark<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let name = free.unwrap_or_else(|| format!("{}-{}", self.process, self.number()));
        Mark { marks: self, name }
    }

    fn number(&self) -> i64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }
}

impl Mark<'_> {
    /// A number that was never used before.
    pub(super) fn next(&self) -> i64 {
        self.marks.number()
    }

    /// Numbers the row, last thing in a transaction; says whether that changed anything at all: one that did not needs no mark.
    pub(super) fn set(&self, session: &Session, number: i64) -> Sql<bool> {
        const SET: &str = "INSERT INTO marks (name, number, set_at)
            SELECT $1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
            WHERE pg_current_xact_id_if_assigned() IS NOT NULL
            ON CONFLICT (name) DO UPDATE SET number = excluded.number, set_at = excluded.set_at";
        Ok(session.run(SET, values![self.name, number])? > 0)
    }

    /// The number that the row has since the last transaction that set it was committed; waits for one that has not ended yet.
    pub(super) fn get(&self, session: &Session) -> Sql<Option<i64>> {
        // Waits for the first of all; the second waits for those that change the row.
        const MAKE: &str =
            "INSERT INTO marks (name, number, set_at) VALUES ($1, -1, 0) ON CONFLICT (name) DO NOTHING";
        session.run(MAKE, values![self.name])?;
        const GET: &str = "SELECT number FROM marks WHERE name = $1 FOR UPDATE";
        session.first(GET, values![self.name], |r| r.get(0))
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        self.marks.free.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }
}
