//! Transactions: each is tried again where the connection, not the work, was at fault.

use std::time::{Duration, Instant};

use deadpool_postgres::{Client, Object, Pool};
use tokio_postgres::types::ToSql;

use super::connection::{Fault, Sql};
use super::values::{FromColumn, Value};
use crate::async_runtime::wait_for;
use crate::error::Error;

/// How long a transaction is tried again while the database cannot be reached or has no room: so long takes the restart of a
/// server, or a stand-by that takes over.
const TRIES: Duration = Duration::from_secs(15);
/// The first rest between two tries; each further one is twice as long.
const FIRST_REST: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// A connection in use.
pub(super) struct Session {
    /// Absent only while it is dropped.
    client: Option<Client>,
    /// Between the beginning of a transaction and its end.
    in_transaction: bool,
}

/// A row that was found.
pub(super) struct Row(tokio_postgres::Row);

impl Row {
    /// The value of a column, counted from 0.
    pub(super) fn get<T: FromColumn>(&self, column: usize) -> Sql<T> {
        T::of(self.0.try_get::<_, Value>(column)?)
    }

    /// How many columns there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value as it came.
    pub(super) fn value(&self, column: usize) -> Sql<Value> {
        Ok(self.0.try_get(column)?)
    }
}

impl Session {
    fn open(pool: &Pool) -> Sql<Self> {
        Ok(Self { client: Some(wait_for(pool.get())??), in_transaction: false })
    }

    fn client(&self) -> Sql<&Client> {
        self.client.as_ref().ok_or_else(|| Fault::NoConnection("it is closed".to_owned()))
    }

    /// Runs statements without parameters, one after the other.
    pub(super) fn batch(&self, sql: &str) -> Sql<()> {
        let client = self.client()?;
        Ok(wait_for(client.batch_execute(sql))??)
    }

    fn query(&self, sql: &str, values: &[Value]) -> Sql<Vec<tokio_postgres::Row>> {
        let client = self.client()?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let query = async {
            // The connection keeps it prepared.
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, &values).await
        };
        Ok(wait_for(query)??)
    }

    /// Runs a statement; number of rows that it changed.
    pub(super) fn run(&self, sql: &str, values: &[Value]) -> Sql<u64> {
        let client = self.client()?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let execute = async {
            let statement = client.prepare_cached(sql).await?;
            client.execute(&statement, &values).await
        };
        Ok(wait_for(execute)??)
    }

    /// The first row that a statement finds.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: &[Value],
        of_row: impl FnOnce(&Row) -> Sql<T>,
    ) -> Sql<Option<T>> {
        self.query(sql, values)?.into_iter().next().map(|row| of_row(&Row(row))).transpose()
    }

    /// All rows that a statement finds.
    pub(super) fn all<T>(&self, sql: &str, values: &[Value], of_row: impl Fn(&Row) -> Sql<T>) -> Sql<Vec<T>> {
        self.query(sql, values)?.into_iter().map(|row| of_row(&Row(row))).collect()
    }

    /// The same for a statement that is not worth preparing.
    pub(super) fn all_unprepared<T>(&self, sql: &str, of_row: impl Fn(&Row) -> Sql<T>) -> Sql<Vec<T>> {
        let client = self.client()?;
        wait_for(client.query(sql, &[]))??.into_iter().map(|row| of_row(&Row(row))).collect()
    }

    /// Whether a statement finds anything.
    pub(super) fn exists(&self, sql: &str, values: &[Value]) -> Sql<bool> {
        Ok(!self.query(sql, values)?.is_empty())
    }

    fn begin(&mut self, how: &str) -> Sql<()> {
        self.in_transaction = true;
        self.batch(how)
    }

    fn end(&mut self, how: &str) -> Sql<()> {
        self.batch(how)?;
        self.in_transaction = false;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nobody may get a connection in the middle of a transaction: the server ends that when the connection is closed.
        if self.in_transaction
            && let Some(client) = self.client.take()
        {
            drop(Object::take(client));
        }
    }
}

/// Runs `work` on a connection, each statement by itself; it only reads.
pub(super) fn read<T>(pool: &Pool, mut work: impl FnMut(&Session) -> Sql<T>) -> Sql<T> {
    again_and_again(|| {
        let session = Session::open(pool)?;
        work(&session)
    })
}

/// Runs `work`, which only reads, so that it sees one moment.
pub(super) fn read_at_one_moment<T>(pool: &Pool, mut work: impl FnMut(&Session) -> Sql<T>) -> Sql<T> {
    again_and_again(|| {
        let mut session = Session::open(pool)?;
        session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let value = work(&session)?;
        session.end("COMMIT")?;
        Ok(value)
    })
}

/// Runs `work` in a transaction of its own and makes it durable; `before_commit` is called before that. It is run again from its
/// beginning where it has left nothing.
pub(super) fn write<T>(
    pool: &Pool,
    mut work: impl FnMut(&Session) -> Sql<T>,
    before_commit: impl Fn() -> std::result::Result<(), Error>,
) -> Sql<T> {
    again_and_again(|| {
        let mut session = Session::open(pool)?;
        session.begin("BEGIN")?;
        let done = work(&session).and_then(|value| before_commit().map_err(Fault::Ours).map(|()| value));
        let value = match done {
            Ok(value) => value,
            Err(fault) => {
                // The work's own error counts; a connection that cannot even do this is closed.
                let _ = session.end("ROLLBACK");
                return Err(fault);
            }
        };
        const NUMBER: &str = "SELECT pg_current_xact_id_if_assigned()::text";
        let number: Option<String> = session.first(NUMBER, &[], |r| r.get(0))?.flatten();
        match session.end("COMMIT") {
            Ok(()) => Ok(value),
            Err(fault) => match number {
                // The connection broke while the answer was on its way: whether it was committed, the server knows.
                Some(number) if fault.is_passing() => match committed(pool, &number)? {
                    true => Ok(value),
                    false => Err(fault),
                },
                _ => Err(fault),
            },
        }
    })
}

/// Whether the transaction of this number was committed; waits until it has ended.
fn committed(pool: &Pool, number: &str) -> Sql<bool> {
    again_and_again(|| {
        let session = Session::open(pool)?;
        const STATUS: &str = "SELECT pg_xact_status($1::text::xid8)";
        let status: Option<String> =
            session.first(STATUS, &[Value::Text(number.to_owned())], |r| r.get(0))?.flatten();
        match status.as_deref() {
            Some("committed") => Ok(true),
            Some("aborted") => Ok(false),
            _ => Err(Fault::NoConnection("a transaction that was cut off has not ended yet".to_owned())),
        }
    })
}

/// Does `work` until it succeeds or fails for a reason that does not pass.
fn again_and_again<T>(mut work: impl FnMut() -> Sql<T>) -> Sql<T> {
    let end = Instant::now() + TRIES;
    let mut rest = FIRST_REST;
    loop {
        match work() {
            Err(fault) if fault.is_passing() && Instant::now() + rest < end => {
                std::thread::sleep(rest);
                rest = (2 * rest).min(LONGEST_REST);
            }
            done => return done,
        }
    }
}
