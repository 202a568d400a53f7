//! Errors of the core as exceptions. The classes live in Python (`libreconstruct._errors`), where they are typed and
//! picklable; here is only the way there.

use std::io::Write;

use libreconstruct::{Error, ErrorKind};
use pyo3::prelude::*;

/// The exception of an error. Works with and without the GIL.
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| {
        let stage = error.stage().map(|stage| stage.name());
        let make = || -> PyResult<PyErr> {
            let from_kind = py.import("libreconstruct._errors")?.getattr("from_kind")?;
            let arguments = (error.kind().slug(), error.message(), error.hint_text(), stage);
            Ok(PyErr::from_value(from_kind.call1(arguments)?))
        };
        make().unwrap_or_else(|unexpected| unexpected)
    })
}

/// Results of the core as results of Python.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception of the error.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for libreconstruct::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raise)
    }
}

/// A value as JSON. What we serialise has string keys and finite numbers only, so this does not fail.
pub(crate) fn to_json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| {
        raise(Error::new(ErrorKind::Internal, format!("a value cannot be written as JSON: {e}")))
    })
}

/// Reads options that Python wrote as JSON; the message of a refusal names the field.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text)
        .map_err(|e| raise(Error::argument(format!("the options cannot be taken: {e}"))))
}

/// The value of an enumeration, by the name that it has in JSON.
pub(crate) fn by_name<T: serde::de::DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

/// The slugs of all kinds of errors.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<&'static str> {
    ErrorKind::ALL.iter().map(|kind| kind.slug()).collect()
}

/// Warnings and errors of background work (workers, maintenance), for which there is no caller, go to standard error.
pub(crate) fn log_to_stderr() {
    struct StandardError;
    impl log::Log for StandardError {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.target().starts_with("libreconstruct") && metadata.level() <= log::Level::Warn
        }
        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                // There may be no standard error, and nobody else to tell.
                let _ = writeln!(std::io::stderr(), "libreconstruct: {}: {}", record.level(), record.args());
            }
        }
        fn flush(&self) {}
    }
    // In a program that embeds Python somebody else may have set a logger: theirs stays.
    if log::set_logger(&StandardError).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}
