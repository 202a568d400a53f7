//! How a file is opened, and what SQLite's errors mean.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use crate::error::{Error, ErrorKind, Result};

/// How long a transaction waits for that of another process.
const BUSY: Duration = Duration::from_secs(5);

/// Result inside a transaction.
pub(super) type Sql<T> = std::result::Result<T, Fault>;

/// What goes wrong inside a transaction: SQLite's errors are translated once, at its end.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    Ours(Error),
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let open = || {
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    };
    open().map_err(|e| Fault::Sqlite(e).translate().hint(format!("the database is {}", path.display())))
}

/// Opens the file at `path` for reading. `still` says that nobody writes to it: then nothing is made beside it, as SQLite does
/// for a file that others may write to.
pub(super) fn connect_to_read(path: &Path, still: bool) -> Result<Connection> {
    let query = if still { "?immutable=1" } else { "" };
    let address = format!("{}{query}", file_address(path));
    connect(Path::new(&address), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

/// The address (`file:…`) by which SQLite knows the file at `path`, whatever its name is made of.
pub(super) fn file_address(path: &Path) -> String {
    let mut address = String::from("file:");
    let path = if cfg!(windows) {
        format!("/{}", path.display()).replace('\\', "/").into_bytes()
    } else {
        path.as_os_str().as_encoded_bytes().to_vec()
    };
    for byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b':' => {
                address.push(char::from(byte));
            }
            _ => address += &format!("%{byte:02X}"),
        }
    }
    address
}

/// Makes an empty file that only its owner may read, if there is none; SQLite gives its companions the same rights. One that is there
/// is not opened: closing it again would drop the locks of all connections that this process has to it (so it is with POSIX locks; see
/// <https://sqlite.org/howtocorrupt.html>), and another process could take itself for the last one and remove the log under them.
pub(super) fn create_private_file(path: &Path) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop).map_err(|e| Error::io("open", path, e))
}

impl From<rusqlite::Error> for Fault {
    fn from(source: rusqlite::Error) -> Self {
        Fault::Sqlite(source)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Ours(error)
    }
}

impl Fault {
    /// The fault in our words.
    pub(super) fn translate(self) -> Error {
        let source = match self {
            Fault::Ours(error) => return error,
            Fault::Sqlite(source) => source,
        };
        // SQLite needs room for the index of its log even to read, and does not say why it gets none.
        let index_cannot_grow = source.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE);
        let (kind, message) = match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => {
                (ErrorKind::DiskFull, "cannot write the database: the disk is full".into())
            }
            Some(ErrorCode::SystemIoFailure) if index_cannot_grow => (
                ErrorKind::DiskFull,
                format!("cannot use the database: the disk is full, or fails: {source}"),
            ),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (ErrorKind::Io, "another process kept the database for too long".into())
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                (ErrorKind::InvalidFile, format!("the database is damaged: {source}"))
            }
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied,
            ) => (ErrorKind::Io, format!("cannot use the database: {source}")),
            _ => (ErrorKind::Internal, format!("the database refused: {source}")),
        };
        Error::new(kind, message).caused_by(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_one_that_fails() {
        let kind = |code| {
            let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            Fault::Sqlite(failure).translate().kind()
        };
        assert_eq!(kind(ffi::SQLITE_FULL), ErrorKind::DiskFull);
        assert_eq!(kind(ffi::SQLITE_IOERR_SHMSIZE), ErrorKind::DiskFull);
        assert_eq!(kind(ffi::SQLITE_IOERR_WRITE), ErrorKind::Io);
    }
}
