//! Reading a blob: one request whose answer is read as it comes. Going elsewhere, or a connection that breaks, begins another one
//! from there, for the same version of the blob.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_core::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange};

use super::calls::{CALL, Calls};
use super::store::Store;
use crate::error::{Error, ErrorKind, Result};

/// How often in a row reading is begun again without a byte having come.
const TRIES: u32 = 4;
/// How long is waited before that the first time; then twice as long each time.
const PAUSE: Duration = Duration::from_millis(200);

/// The bytes of one version of a blob.
pub(super) struct Reader {
    store: Arc<dyn Store>,
    calls: Calls,
    path: Path,
    /// Its name in messages.
    name: String,
    /// Names the version.
    e_tag: Option<String>,
    size: u64,
    /// Of the next byte that the caller gets.
    position: u64,
    /// What has come and was not read yet: it begins at `position`.
    here: Bytes,
    /// What is still to come: it begins behind `here`.
    coming: Option<BoxStream<'static, object_store::Result<Bytes>>>,
}

/// A blob that was found, with its first bytes on their way.
pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) size: u64,
    pub(super) modified: std::time::SystemTime,
}

/// Asks for the blob at `path`, which messages call `name`.
pub(super) fn open(store: &Arc<dyn Store>, calls: &Calls, path: Path, name: String) -> Result<Opened> {
    let got = calls.wait(CALL, "open", &name, store.get_opts(&path, GetOptions::default()))?;
    let (size, modified) = (got.meta.size, got.meta.last_modified.into());
    let reader = Reader {
        store: Arc::clone(store),
        calls: calls.clone(),
        path,
        name,
        e_tag: got.meta.e_tag.clone(),
        size,
        position: 0,
        here: Bytes::new(),
        coming: Some(got.into_stream()),
    };
    Ok(Opened { reader, size, modified })
}

impl Reader {
    /// Waits for more bytes.
    fn fetch(&mut self) -> Result<()> {
        let mut pause = PAUSE;
        for is_last in (1..=TRIES).map(|n| n == TRIES) {
            match self.fetch_once() {
                Ok(()) => return Ok(()),
                // What is gone or was replaced does not come back.
                Err(error) if is_last || error.kind() != ErrorKind::Io => return Err(error),
                Err(_) => {}
            }
            self.coming = None;
            thread::sleep(pause);
            pause *= 2;
        }
        Err(self.broken())
    }

    fn fetch_once(&mut self) -> Result<()> {
        let mut stream = match self.coming.take() {
            Some(stream) => stream,
            None => self.continued()?,
        };
        loop {
            let next = async {
                let next = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await;
                next.transpose()
            };
            match self.calls.wait(CALL, "read", &self.name, next)? {
                // A frame may be empty.
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => {
                    self.here = bytes;
                    self.coming = Some(stream);
                    return Ok(());
                }
                None => return Err(self.broken()),
            }
        }
    }

    /// The bytes from `position` on.
    fn continued(&self) -> Result<BoxStream<'static, object_store::Result<Bytes>>> {
        let options = GetOptions {
            range: Some(GetRange::Offset(self.position)),
            if_match: self.e_tag.clone(),
            ..GetOptions::default()
        };
        let got = self.calls.wait(CALL, "read", &self.name, self.store.get_opts(&self.path, options))?;
        // A store that does not know If-Match would hand out another version.
        if got.meta.size != self.size || got.meta.e_tag != self.e_tag {
            return Err(self.calls.replaced(&self.name));
        }
        Ok(got.into_stream())
    }

    fn broken(&self) -> Error {
        let why = format!("the answer ended after {} of {} bytes", self.position, self.size);
        self.calls.failed("read", &self.name, &why)
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.position >= self.size {
            return Ok(0);
        }
        if self.here.is_empty() {
            self.fetch().map_err(into_io)?;
        }
        let count = buffer.len().min(self.here.len());
        self.here.copy_to_slice(&mut buffer[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let target = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a place before the beginning of the blob")
        })?;
        let forward = target.checked_sub(self.position).and_then(|n| usize::try_from(n).ok());
        match forward {
            Some(count) if count <= self.here.len() => self.here.advance(count),
            _ => (self.here, self.coming) = (Bytes::new(), None),
        }
        self.position = target;
        Ok(target)
    }
}

/// The same error where the signature wants the system's.
pub(super) fn into_io(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::DiskFull => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
