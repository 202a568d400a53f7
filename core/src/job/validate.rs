//! Reads the fields of a JSON object strictly, and gathers everything that is wrong with them in one message.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The fields of a request and what is wrong with those read so far. A field that is `null` counts as absent.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    problems: Vec<String>,
    /// The fields that were asked for.
    known: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    /// # Errors
    /// If `value` is no object.
    pub(super) fn of(value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(object) => Ok(Self { object, problems: Vec::new(), known: BTreeSet::new() }),
            other => Err(Error::argument(format!(
                "Request body is not valid JSON: an object is expected, not {}",
                kind(other)
            ))),
        }
    }

    pub(super) fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Whether the field is there, even if it is `null`.
    pub(super) fn names(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    pub(super) fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.insert(name);
        self.object.get(name).filter(|v| !v.is_null())
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<&'a str> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            other => self.wrong(name, "a string", other),
        }
    }

    pub(super) fn boolean(&mut self, name: &'static str) -> Option<bool> {
        match self.value(name)? {
            Value::Bool(value) => Some(*value),
            other => self.wrong(name, "true or false", other),
        }
    }

    /// A number without a fractional part, however it is written: `1000000`, `1000000.0` or `1e6`.
    pub(super) fn integer(&mut self, name: &'static str, low: u32, high: u32) -> Option<u32> {
        let value = self.value(name)?;
        let Value::Number(number) = value else {
            return self.wrong(name, "an integer", value);
        };
        // Every f64 up to 2^53 is exact; all that we accept is below.
        match number.as_f64() {
            Some(v) if v.fract() != 0.0 => self.wrong(name, "an integer", value),
            Some(v) if (f64::from(low)..=f64::from(high)).contains(&v) => Some(v as u32),
            _ => {
                self.problem(format!("{name} is {number}: {low} to {high} is allowed"));
                None
            }
        }
    }

    pub(super) fn number(&mut self, name: &'static str) -> Option<f64> {
        let value = self.value(name)?;
        match value.as_f64() {
            Some(number) => Some(number),
            None => self.wrong(name, "a number", value),
        }
    }

    /// What `parse` makes of a text field; its error becomes the problem.
    pub(super) fn parsed<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T>,
    ) -> Option<T> {
        match parse(self.text(name)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(error.message().to_owned());
                None
            }
        }
    }

    /// A title, without the spaces around it.
    pub(super) fn title(&mut self) -> Option<String> {
        self.parsed("title", |text| check_title(text).map(str::to_owned))
    }

    fn wrong<T>(&mut self, name: &str, wanted: &str, found: &Value) -> Option<T> {
        self.problem(format!("{name} must be {wanted}, not {}", kind(found)));
        None
    }

    /// Says in the log which fields nobody asked for: they are ignored, and may be misspelt.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with all problems, if there are any.
    pub(super) fn finish(self) -> Result<()> {
        let unknown = self.object.keys().filter(|key| !self.known.contains(key.as_str()));
        // Names come from outside: only some, and not all of a long one.
        let unknown: Vec<String> = unknown.take(10).map(|key| key.chars().take(40).collect()).collect();
        if !unknown.is_empty() {
            log::debug!("ignored fields of a request: {unknown:?}");
        }
        if self.problems.is_empty() { Ok(()) } else { Err(Error::argument(self.problems.join("; "))) }
    }
}

/// The title without the spaces around it.
pub(super) fn check_title(text: &str) -> Result<&str> {
    if text.chars().any(char::is_control) {
        return Err(Error::argument("title has control characters"));
    }
    let trimmed = text.trim();
    match trimmed.chars().count() {
        1..=255 => Ok(trimmed),
        0 => Err(Error::argument("title is empty: 1 to 255 characters are allowed")),
        count => Err(Error::argument(format!("title has {count} characters: 1 to 255 are allowed"))),
    }
}

/// The JSON type, for messages. Values are not repeated: they may be long or secret.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.as_f64().is_some_and(|v| v.fract() != 0.0) => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
