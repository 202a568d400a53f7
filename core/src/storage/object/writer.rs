//! Writing a blob in parts, of which a few are in memory. A small one is a single request. Nothing is to be seen of it before the
//! last request, which makes it whole.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutMultipartOptions, PutPayload};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::calls::{CALL, Calls, TRANSFER};
use super::reader::into_io;
use super::store::Store;
use crate::async_runtime::{handle, wait_for};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;

/// Bytes of a part. Stores allow 5 MiB to some GiB, and R2 wants all the same; a slow line must be able to send one before the store
/// takes it for dead.
pub(super) const PART: usize = 8 << 20;
/// Parts that S3 and Google allow; Azure allows more.
const PARTS: u32 = 10_000;
/// Parts on their way at once, if the line is fast.
const PARALLEL: usize = 4;
/// A part that took longer tells that the line is slow: then one is sent after the other, since all together would take too long.
const SLOW: Duration = Duration::from_secs(10);
/// How long somebody who gives up waits for the store to forget the parts. What it keeps goes by the bucket's rule for unfinished
/// uploads.
const ABORT: Duration = Duration::from_secs(5);

/// A blob that is being written.
pub(super) struct Writer {
    store: Arc<dyn Store>,
    calls: Calls,
    path: Path,
    /// Its name in messages.
    name: String,
    /// What was not sent yet; less than [`PART`] between two calls.
    rest: Vec<u8>,
    /// If it has more than one part.
    upload: Option<Upload>,
    written: u64,
}

struct Upload {
    parts: Box<dyn MultipartUpload>,
    begun: u32,
    /// On their way; each says how long it took.
    sending: JoinSet<object_store::Result<Duration>>,
    parallel: usize,
}

impl Writer {
    pub(super) fn new(store: &Arc<dyn Store>, calls: &Calls, path: Path, name: String) -> Self {
        Self {
            store: Arc::clone(store),
            calls: calls.clone(),
            path,
            name,
            rest: Vec::new(),
            upload: None,
            written: 0,
        }
    }

    /// Appends all that is left in `source`; its errors come back as they are.
    pub(super) fn append_all(&mut self, mut source: impl Read) -> io::Result<u64> {
        let mut count = 0;
        loop {
            let room = PART - self.rest.len();
            let more = source.by_ref().take(room as u64).read_to_end(&mut self.rest)?;
            count += more as u64;
            self.written += more as u64;
            if more < room {
                return Ok(count);
            }
            self.send_part().map_err(into_io)?;
        }
    }

    /// Makes the blob whole: its size in bytes.
    pub(super) fn finish(mut self) -> Result<u64> {
        let rest = PutPayload::from(std::mem::take(&mut self.rest));
        if self.upload.is_none() {
            self.calls.wait_to_write(TRANSFER, &self.name, self.store.put(&self.path, rest))?;
            return Ok(self.written);
        }
        if rest.content_length() > 0 {
            self.send(rest)?;
        }
        // In `self` until it is complete: given up on the way, its parts are removed.
        while self.upload.as_ref().is_some_and(|upload| !upload.sending.is_empty()) {
            self.join_part()?;
        }
        if let Some(upload) = &mut self.upload {
            self.calls.wait_to_write(TRANSFER, &self.name, upload.parts.complete())?;
        }
        self.upload = None;
        Ok(self.written)
    }

    /// Sends what is there as a part.
    fn send_part(&mut self) -> Result<()> {
        let part = std::mem::take(&mut self.rest);
        self.send(PutPayload::from(part))
    }

    fn send(&mut self, part: PutPayload) -> Result<()> {
        if self.upload.is_none() {
            let begin = self.store.put_multipart_opts(&self.path, PutMultipartOptions::default());
            let parts = self.calls.wait_to_write(CALL, &self.name, begin)?;
            // The first goes alone: it tells whether the line is slow.
            self.upload = Some(Upload { parts, begun: 0, sending: JoinSet::new(), parallel: 1 });
        }
        while self.upload.as_ref().is_some_and(|upload| upload.sending.len() >= upload.parallel) {
            self.join_part()?;
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        if upload.begun == PARTS {
            let most = (u64::from(PARTS) * PART as u64) >> 30;
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{} is larger than {most} GiB, which is the most that is stored as one", self.name),
            ));
        }
        upload.begun += 1;
        let sent = upload.parts.put_part(part);
        let timed = async {
            let begin = Instant::now();
            sent.await.map(|()| begin.elapsed())
        };
        upload.sending.spawn_on(timed, handle()?);
        Ok(())
    }

    /// Waits until one of the parts that are on their way has come.
    fn join_part(&mut self) -> Result<()> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let sending = &mut upload.sending;
        let next = async {
            match sending.join_next().await {
                None => Ok(Duration::ZERO),
                Some(Ok(took)) => took,
                Some(Err(source)) => Err(object_store::Error::JoinError { source }),
            }
        };
        let took = self.calls.wait_to_write(TRANSFER, &self.name, next)?;
        upload.parallel = if took > SLOW { 1 } else { PARALLEL };
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        failpoints::pass("storage.write")?;
        let count = bytes.len().min(PART - self.rest.len());
        self.rest.extend_from_slice(&bytes[..count]);
        self.written += count as u64;
        if self.rest.len() == PART {
            self.send_part().map_err(into_io)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        // A part that comes after the upload was given up would stay.
        let abort = async {
            upload.sending.shutdown().await;
            upload.parts.abort().await
        };
        match wait_for(async { timeout(ABORT, abort).await }) {
            Ok(Ok(Ok(()))) => {}
            _ => log::warn!(
                "the parts of {} that was not finished may be left in the store: see that its rule for unfinished uploads removes them",
                self.name
            ),
        }
    }
}
