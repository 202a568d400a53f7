//! A connection in use, and what statements run on it.

use deadpool_postgres::{Client, Object, Pool};
use tokio_postgres::types::ToSql;

use super::connection::{Fault, Sql};
use super::values::{FromColumn, Value};
use crate::async_runtime::wait_for;

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
    pub(super) fn open(pool: &Pool) -> Sql<Self> {
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

    pub(super) fn begin(&mut self, how: &str) -> Sql<()> {
        self.in_transaction = true;
        self.batch(how)
    }

    pub(super) fn end(&mut self, how: &str) -> Sql<()> {
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
