//! How our values stand in columns.

use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};

use super::connection::{Fault, Sql};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, DeliveryId, JobId, Timestamp, UserId, WebhookId};

/// Boxed, as the driver has it.
type Boxed = Box<dyn std::error::Error + Sync + Send>;

/// A value on its way to or from a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Boxed> {
        match (self, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Bool(value), _) => value.to_sql(ty, out),
            // SQLite has no type of its own for these.
            (Value::Int(value), &Type::BOOL) => (*value != 0).to_sql(ty, out),
            (Value::Int(value), &Type::FLOAT8) => (*value as f64).to_sql(ty, out),
            (Value::Int(value), _) => value.to_sql(ty, out),
            (Value::Float(value), _) => value.to_sql(ty, out),
            // PostgreSQL has no text with a NUL, and who asks for one (a name at the sign-in, a key) is not to hear of a fault: there
            // is none such. What is kept (why a job failed) has the sign for what cannot be shown.
            (Value::Text(value), _) if value.contains('\0') => {
                value.replace('\0', "\u{FFFD}").to_sql(ty, out)
            }
            (Value::Text(value), _) => value.to_sql(ty, out),
            (Value::Bytes(value), _) => value.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::BOOL | Type::INT8 | Type::FLOAT8 | Type::TEXT | Type::BYTEA)
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Boxed> {
        if !<Self as ToSql>::accepts(ty) {
            return Err(format!("a parameter has the type {ty}, which no column has").into());
        }
        self.to_sql(ty, out)
    }
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> std::result::Result<Self, Boxed> {
        Ok(match *ty {
            Type::BOOL => Value::Bool(bool::from_sql(ty, raw)?),
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Value::Int(i32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Value::Float(f64::from_sql(ty, raw)?),
            Type::BYTEA => Value::Bytes(<&[u8]>::from_sql(ty, raw)?.to_vec()),
            _ => Value::Text(<&str>::from_sql(ty, raw)?.to_owned()),
        })
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Boxed> {
        Ok(Value::Null)
    }

    fn accepts(ty: &Type) -> bool {
        <Value as ToSql>::accepts(ty) || matches!(*ty, Type::INT4 | Type::NAME | Type::VARCHAR)
    }
}

/// What goes into a column.
pub(super) trait IntoColumn {
    fn value(&self) -> Value;
}

/// What comes out of a column.
pub(super) trait FromColumn: Sized {
    fn of(value: Value) -> Sql<Self>;
}

fn strange(value: &Value, wanted: &str) -> Fault {
    // Not the value itself: it may be somebody's title.
    let kind = match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Int(_) => "a number that does not fit",
        Value::Float(_) => "a fraction",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
    };
    Error::new(
        ErrorKind::InvalidFile,
        format!("the database is damaged: a column has {kind} instead of {wanted}"),
    )
    .into()
}

macro_rules! integers {
    ($($name:ty),*) => {$(
        impl IntoColumn for $name {
            fn value(&self) -> Value {
                // What is beyond the largest number of a column cannot be reached: bytes, seconds, counts.
                Value::Int(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
        impl FromColumn for $name {
            fn of(value: Value) -> Sql<Self> {
                match &value {
                    Value::Int(number) => (*number).try_into().map_err(|_| strange(&value, stringify!($name))),
                    _ => Err(strange(&value, stringify!($name))),
                }
            }
        }
    )*};
}
integers!(i64, u64, u32, u8);

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl IntoColumn for $name {
            fn value(&self) -> Value {
                Value::Text(self.to_string())
            }
        }
        impl FromColumn for $name {
            fn of(value: Value) -> Sql<Self> {
                match &value {
                    Value::Text(text) => Self::from_str(text).map_err(|_| strange(&value, stringify!($name))),
                    _ => Err(strange(&value, stringify!($name))),
                }
            }
        }
    )*};
}
as_text!(JobId, UserId, BlobName, WebhookId, DeliveryId, String);

impl IntoColumn for str {
    fn value(&self) -> Value {
        Value::Text(self.to_owned())
    }
}

impl IntoColumn for bool {
    fn value(&self) -> Value {
        Value::Bool(*self)
    }
}

impl FromColumn for bool {
    fn of(value: Value) -> Sql<Self> {
        match value {
            Value::Bool(value) => Ok(value),
            _ => Err(strange(&value, "a truth value")),
        }
    }
}

impl IntoColumn for f64 {
    fn value(&self) -> Value {
        Value::Float(*self)
    }
}

impl FromColumn for f64 {
    fn of(value: Value) -> Sql<Self> {
        match value {
            Value::Float(value) => Ok(value),
            _ => Err(strange(&value, "a fraction")),
        }
    }
}

impl IntoColumn for f32 {
    fn value(&self) -> Value {
        Value::Float(f64::from(*self))
    }
}

impl FromColumn for f32 {
    fn of(value: Value) -> Sql<Self> {
        f64::of(value).map(|value| value as f32)
    }
}

impl IntoColumn for [u8; 32] {
    fn value(&self) -> Value {
        Value::Bytes(self.to_vec())
    }
}

impl FromColumn for [u8; 32] {
    fn of(value: Value) -> Sql<Self> {
        match &value {
            Value::Bytes(bytes) => bytes.as_slice().try_into().map_err(|_| strange(&value, "32 bytes")),
            _ => Err(strange(&value, "32 bytes")),
        }
    }
}

impl IntoColumn for [u8] {
    fn value(&self) -> Value {
        Value::Bytes(self.to_vec())
    }
}

impl FromColumn for Vec<u8> {
    fn of(value: Value) -> Sql<Self> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(strange(&value, "bytes")),
        }
    }
}

impl IntoColumn for Timestamp {
    fn value(&self) -> Value {
        Value::Int(self.as_micros())
    }
}

impl FromColumn for Timestamp {
    fn of(value: Value) -> Sql<Self> {
        i64::of(value).map(Timestamp::from_micros)
    }
}

impl<T: IntoColumn> IntoColumn for Option<T> {
    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Null, IntoColumn::value)
    }
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn of(value: Value) -> Sql<Self> {
        match value {
            Value::Null => Ok(None),
            value => T::of(value).map(Some),
        }
    }
}

impl<T: IntoColumn + ?Sized> IntoColumn for &T {
    fn value(&self) -> Value {
        (*self).value()
    }
}

/// A value of an enumeration without fields, under its serialised name.
pub(super) struct Name<T>(pub(super) T);

impl<T: Serialize> IntoColumn for Name<T> {
    fn value(&self) -> Value {
        match serde_json::to_value(&self.0) {
            Ok(serde_json::Value::String(name)) => Value::Text(name),
            // No column takes it: the statement fails.
            _ => Value::Null,
        }
    }
}

impl<T: DeserializeOwned> FromColumn for Name<T> {
    fn of(value: Value) -> Sql<Self> {
        let Value::Text(name) = &value else { return Err(strange(&value, "a name")) };
        serde_json::from_value(serde_json::Value::String(name.clone()))
            .map(Name)
            .map_err(|_| strange(&value, "one of its names"))
    }
}

/// A value written as JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromColumn for Json<T> {
    fn of(value: Value) -> Sql<Self> {
        let Value::Text(text) = &value else { return Err(strange(&value, "JSON")) };
        serde_json::from_str(text).map(Json).map_err(|_| strange(&value, "JSON"))
    }
}

/// JSON for a column.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::new(ErrorKind::Internal, "a value cannot be written as JSON").caused_by(e))
}

/// A version of a video: all 64 bits, which a column keeps as a signed number.
pub(super) fn version_column(version: u64) -> i64 {
    version.cast_signed()
}

/// The parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::database::postgres::values::IntoColumn::value(&$value)),*][..]
    };
}
pub(super) use values;
