//! How our values stand in columns.

use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde::de::{DeserializeOwned, IntoDeserializer, value::StrDeserializer};

use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, DeliveryId, JobId, Timestamp, UserId, WebhookId};

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.to_string().into())
            }
        }
        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                Self::from_str(value.as_str()?).map_err(FromSqlError::other)
            }
        }
    )*};
}
as_text!(JobId, UserId, BlobName, WebhookId, DeliveryId);

impl ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_micros().into())
    }
}

impl FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(Timestamp::from_micros)
    }
}

/// How many jobs of its user run, in a query of `jobs`.
pub(super) const RUNNING: &str =
    "(SELECT count(*) FROM jobs AS busy WHERE busy.user_id = jobs.user_id AND busy.state = 'running')";

/// A value of an enumeration without fields, under its serialised name.
pub(super) struct Name<T>(pub(super) T);

impl<T: Serialize> ToSql for Name<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match serde_json::to_value(&self.0) {
            Ok(serde_json::Value::String(name)) => Ok(name.into()),
            _ => Err(rusqlite::Error::ToSqlConversionFailure("not a plain name".into())),
        }
    }
}

impl<T: DeserializeOwned> FromSql for Name<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name: StrDeserializer<'_, serde::de::value::Error> = value.as_str()?.into_deserializer();
        T::deserialize(name).map(Name).map_err(FromSqlError::other)
    }
}

/// A value written as JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Json).map_err(FromSqlError::other)
    }
}

/// JSON for a column.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::new(ErrorKind::Internal, "a value cannot be written as JSON").caused_by(e))
}

/// A version of a video: all 64 bits, which SQLite keeps as a signed number.
pub(super) fn version_column(version: u64) -> i64 {
    version.cast_signed()
}
