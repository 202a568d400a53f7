//! Blobs in an object store: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage.
//!
//! A blob is an object of the bucket below the prefix of the storage. It is written by one request, or in parts that the last
//! request puts together, so nobody sees half of it; what the store has confirmed is durable. A list is never older than what was
//! confirmed before it was asked for: all three stores promise that.
//!
//! What a store cannot promise: a blob that is deleted while somebody reads it is delivered as far as the store goes on with an
//! answer that it has begun. Whose connection breaks, or who goes elsewhere in the blob, then hears that it does not exist; nobody
//! gets bytes of another version. Parts of a writer that was killed stay where only the bucket's own rule removes them.

mod address;
mod answers;
mod azure_delegation;
mod azure_sas;
mod calls;
mod connect;
mod reader;
mod signing;
mod store;
#[cfg(test)]
mod test_stores;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStoreExt, PutPayload};

use super::{
    BlobKey, BlobKind, BlobMetadata, BlobReader, DownloadAnswer, SERVICE_ID, StagedBlob, Storage,
    UploadAddress,
};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::{BlobName, JobId, file_name_in_disposition};
use address::{Address, Kind};
use answers::Said;
use calls::{CALL, Calls, TRANSFER};
use connect::Connected;
use signing::Signing;
use store::Store;
use writer::Writer;

/// Bytes that S3 copies by one request; more go through this process.
const S3_COPY: u64 = 5 << 30;
/// How often a copy is looked at that Azure makes behind the answer.
const LOOK: Duration = Duration::from_millis(200);
/// The most that is read of the id of a service: those that we make have 36.
const LONGEST_ID: u64 = 1000;

/// Blobs in a bucket. Any number of processes on any machines may use it.
pub struct ObjectStorage {
    address: Address,
    store: Arc<dyn Store>,
    signing: Signing,
    calls: Calls,
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectStorage({})", self.address)
    }
}

/// What is known of an object.
struct Found {
    meta: ObjectMeta,
    said: Said,
}

impl From<&ObjectMeta> for BlobMetadata {
    fn from(meta: &ObjectMeta) -> Self {
        Self { size: meta.size, modified: meta.last_modified.into() }
    }
}

impl ObjectStorage {
    /// Whether `address` is meant for an object store: `s3://…`, `gs://…`, `az://…`.
    pub fn is_meant(address: &str) -> bool {
        Address::is_meant(address)
    }

    /// Opens the storage at `address`: `s3://bucket/prefix?region=…&endpoint=…&public_endpoint=…&path_style=true`,
    /// `gs://bucket/prefix?endpoint=…&public_endpoint=…`, `az://account/container/prefix?endpoint=…&public_endpoint=…`. Its
    /// credentials are those of the environment: `AWS_…`, `GOOGLE_…`, `AZURE_…`, or the machine's own. The bucket must be there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an address that cannot be read, or credentials; [`ErrorKind::Io`] if the store cannot be
    /// reached within a minute, does not let us in, or has no such bucket.
    pub fn open(address: &str) -> Result<Self> {
        let address = Address::parse(address)?;
        let Connected { store, signing } = connect::connect(&address)?;
        let storage = Self { calls: Calls::to(&address), address, store, signing };
        // Whoever starts a service wants to hear now what would keep it from working.
        let one = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
        storage.calls.wait(CALL, "list", "blobs", storage.store.list_paginated(None, one))?;
        Ok(storage)
    }

    fn path(&self, key: &BlobKey) -> Result<Path> {
        self.path_of(&key.to_string())
    }

    fn path_of(&self, name: &str) -> Result<Path> {
        let full = self.address.full(name);
        Path::parse(&full).map_err(|e| {
            Error::new(ErrorKind::Internal, format!("{full} cannot be the name of a blob")).caused_by(e)
        })
    }

    /// What is known of the object of `key`, if there is one.
    fn find(&self, key: &BlobKey) -> Result<Option<Found>> {
        let found = self.find_once(key)?;
        // An answer without a body does not tell a blob that is missing from a bucket that is: a list does. One that is listed has
        // come between the two.
        if found.is_none() && self.listed(&key.to_string())?.iter().any(|(listed, _)| listed == key) {
            return self.find_once(key);
        }
        Ok(found)
    }

    fn find_once(&self, key: &BlobKey) -> Result<Option<Found>> {
        let path = self.path(key)?;
        let head = GetOptions { head: true, ..GetOptions::default() };
        match self.calls.wait(CALL, "find", &key.to_string(), self.store.get_opts(&path, head)) {
            Ok(got) => Ok(Some(Found { said: Said::of(&got.extensions), meta: got.meta })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn found(&self, key: &BlobKey, doing: &str) -> Result<Found> {
        self.find(key)?.ok_or_else(|| self.missing(key, doing))
    }

    fn missing(&self, key: &BlobKey, doing: &str) -> Error {
        let message = format!("cannot {doing} {key}: it does not exist in {}", self.address);
        Error::new(ErrorKind::NotFound, message)
    }

    /// Our blobs whose names begin with `prefix`, in the order of their names.
    fn listed(&self, prefix: &str) -> Result<Vec<(BlobKey, ObjectMeta)>> {
        let (all, ours) = (self.address.full(prefix), self.address.full(""));
        let mut blobs = Vec::new();
        let mut page = None;
        loop {
            let options = PaginatedListOptions { page_token: page.take(), ..PaginatedListOptions::default() };
            let listed =
                self.calls.wait(CALL, "list", prefix, self.store.list_paginated(Some(&all), options))?;
            blobs.extend(listed.result.objects.into_iter().filter_map(|meta| {
                let key = BlobKey::parse(meta.location.as_ref().strip_prefix(&ours)?)?;
                Some((key, meta))
            }));
            page = listed.page_token;
            if page.is_none() {
                break;
            }
        }
        blobs.sort_by_key(|(key, _)| *key);
        Ok(blobs)
    }

    fn sized(&self, prefix: &str) -> Result<Vec<(BlobKey, u64)>> {
        Ok(self.listed(prefix)?.into_iter().map(|(key, meta)| (key, meta.size)).collect())
    }

    fn writer(&self, key: &BlobKey) -> Result<Writer> {
        Ok(Writer::new(&self.store, &self.calls, self.path(key)?, key.to_string()))
    }

    /// Makes what was written the blob of `key`; `at` names the failpoint before it.
    fn finish(&self, key: &BlobKey, writer: Writer, at: &'static str) -> Result<BlobMetadata> {
        failpoints::pass(at).map_err(|e| Error::io("write", FilePath::new(&key.to_string()), e))?;
        let size = writer.finish()?;
        let found = self.found(key, "find")?;
        // Another writer may have replaced it already, as on a disk.
        Ok(BlobMetadata { size, ..BlobMetadata::from(&found.meta) })
    }

    /// Waits until Azure has copied what it began to: until then the blob is there, but empty.
    fn wait_for_copy(&self, from: &BlobKey, to: &BlobKey) -> Result<Found> {
        let begin = Instant::now();
        loop {
            let found = self.found(to, "copy")?;
            match found.said.copy.as_deref() {
                Some("pending") if begin.elapsed() < TRANSFER => thread::sleep(LOOK),
                Some(state @ ("pending" | "aborted" | "failed")) => {
                    // What came of it is no blob.
                    self.delete(to)?;
                    return Err(self.calls.failed(
                        "copy",
                        &from.to_string(),
                        &format!("the copy is {state}"),
                    ));
                }
                _ => return Ok(found),
            }
        }
    }
}

impl Storage for ObjectStorage {
    fn create(&self, key: &BlobKey) -> Result<Box<dyn StagedBlob>> {
        let path = key.to_string();
        failpoints::pass("storage.create.open").map_err(|e| Error::io("create", FilePath::new(&path), e))?;
        let storage = Self {
            address: self.address.clone(),
            store: Arc::clone(&self.store),
            signing: Signing::None,
            calls: self.calls.clone(),
        };
        Ok(Box::new(ObjectBlob { writer: self.writer(key)?, storage, key: *key }))
    }

    fn put_file(&self, key: &BlobKey, source: &FilePath) -> Result<BlobMetadata> {
        let mut file = File::open(source).map_err(|e| Error::io("open", source, e))?;
        let mut writer = self.writer(key)?;
        writer.append_all(&mut file).map_err(|e| ours_or(e, |e| Error::io("read", source, e)))?;
        self.finish(key, writer, "storage.put.rename")
    }

    fn copy(&self, from: &BlobKey, to: &BlobKey) -> Result<BlobMetadata> {
        let source = self.found(from, "copy")?;
        if self.address.kind == Kind::S3 && source.meta.size > S3_COPY {
            let mut writer = self.writer(to)?;
            let mut reader = self.open(from)?;
            let name = from.to_string();
            writer
                .append_all(&mut reader.file)
                .map_err(|e| ours_or(e, |e| Error::io("copy", FilePath::new(&name), e)))?;
            return self.finish(to, writer, "storage.put.rename");
        }
        let (source, target) = (self.path(from)?, self.path(to)?);
        self.calls.wait(TRANSFER, "copy", &from.to_string(), self.store.copy(&source, &target))?;
        Ok(BlobMetadata::from(&self.wait_for_copy(from, to)?.meta))
    }

    /// What has come of it is read even if it is deleted meanwhile; see the head of this file.
    fn open(&self, key: &BlobKey) -> Result<BlobReader> {
        let opened = reader::open(&self.store, &self.calls, self.path(key)?, key.to_string())?;
        Ok(BlobReader { file: Box::new(opened.reader), size: opened.size, modified: opened.modified })
    }

    fn metadata(&self, key: &BlobKey) -> Result<Option<BlobMetadata>> {
        Ok(self.find(key)?.map(|found| BlobMetadata::from(&found.meta)))
    }

    fn delete(&self, key: &BlobKey) -> Result<()> {
        let (path, name) = (self.path(key)?, key.to_string());
        failpoints::pass("storage.delete.unlink")
            .map_err(|e| Error::io("remove", FilePath::new(&name), e))?;
        match self.calls.wait(CALL, "remove", &name, self.store.delete(&path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn list(&self, kind: BlobKind, older_than: Duration) -> Result<Vec<BlobKey>> {
        let now = SystemTime::now();
        // The store's clock may go before ours: what is as old as nothing is old enough for nothing.
        let is_old = |meta: &ObjectMeta| {
            let modified = SystemTime::from(meta.last_modified);
            older_than.is_zero() || now.duration_since(modified).is_ok_and(|age| age >= older_than)
        };
        let listed = self.listed(&format!("{}/", kind.prefix()))?;
        Ok(listed.into_iter().filter(|(_, meta)| is_old(meta)).map(|(key, _)| key).collect())
    }

    fn list_upload(&self, name: &BlobName) -> Result<Vec<BlobKey>> {
        let prefix = format!("{}/{}.", BlobKind::Video.prefix(), name.id.as_hyphenated());
        let videos = self.listed(&prefix)?.into_iter().map(|(key, _)| key);
        let mut keys: Vec<BlobKey> = videos.filter(|key| key.upload() == Some(name)).collect();
        keys.extend(self.blocks(name)?.into_iter().map(|(key, _)| key));
        let incoming = BlobKey::Incoming { name: *name };
        keys.extend(self.find(&incoming)?.map(|_| incoming));
        keys.sort();
        Ok(keys)
    }

    fn blocks(&self, name: &BlobName) -> Result<Vec<(BlobKey, u64)>> {
        let any_block = BlobKey::block(*name, "").to_string();
        let folder = any_block.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.sized(&format!("{folder}/"))
    }

    fn artifacts(&self, job: JobId) -> Result<Vec<BlobKey>> {
        let artifacts = self.listed(&format!("{}/{job}/", BlobKind::Artifact.prefix()))?;
        Ok(artifacts.into_iter().map(|(key, _)| key).collect())
    }

    fn checkpoints(&self, job: JobId) -> Result<Vec<(BlobKey, u64)>> {
        self.sized(&format!("{}/{job}/", BlobKind::Checkpoint.prefix()))
    }

    fn announced_file_name(&self, name: &BlobName) -> Result<Option<String>> {
        let found = self.find(&BlobKey::Incoming { name: *name })?;
        let Some(Found { said, .. }) = found else { return Ok(None) };
        let in_disposition = said.disposition.and_then(|value| file_name_in_disposition(&value));
        Ok(in_disposition.or(said.file_name))
    }

    fn upload_address(&self, name: &BlobName, lifetime: Duration) -> Result<Option<UploadAddress>> {
        let path = self.path(&BlobKey::Incoming { name: *name })?;
        self.signing.upload(&self.calls, &path, lifetime)
    }

    fn download_address(
        &self,
        key: &BlobKey,
        lifetime: Duration,
        answer: &DownloadAnswer<'_>,
    ) -> Result<Option<String>> {
        self.signing.download(&self.calls, &self.path(key)?, lifetime, answer)
    }

    fn service_id(&self) -> Result<Option<String>> {
        let opened = reader::open(&self.store, &self.calls, self.path_of(SERVICE_ID)?, SERVICE_ID.to_owned());
        let opened = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut id = String::new();
        opened
            .reader
            .take(LONGEST_ID)
            .read_to_string(&mut id)
            .map_err(|e| ours_or(e, |e| Error::io("read", FilePath::new(SERVICE_ID), e)))?;
        Ok(Some(id.trim().to_owned()))
    }

    fn note_service_id(&self, id: &str) -> Result<()> {
        if self.service_id()?.is_some() {
            return Ok(());
        }
        let (path, text) = (self.path_of(SERVICE_ID)?, PutPayload::from(id.as_bytes().to_vec()));
        self.calls.wait_to_write(CALL, SERVICE_ID, self.store.put(&path, text)).map(drop)
    }

    /// Nothing: parts of writers that were killed are no objects, and no interface that all three have lists them. The bucket's
    /// rules remove them.
    fn sweep_staged(&self, _older_than: Duration) -> Result<u64> {
        Ok(0)
    }

    fn local_path(&self, _key: &BlobKey) -> Option<PathBuf> {
        None
    }

    fn free_space(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// What a writer's error was before it went through the system's type, or else what `otherwise` makes of it.
fn ours_or(error: std::io::Error, otherwise: impl FnOnce(std::io::Error) -> Error) -> Error {
    match error.downcast::<Error>() {
        Ok(ours) => ours,
        Err(other) => otherwise(other),
    }
}

/// A blob that is being written.
struct ObjectBlob {
    writer: Writer,
    storage: ObjectStorage,
    key: BlobKey,
}

impl Write for ObjectBlob {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

impl StagedBlob for ObjectBlob {
    /// The bytes pass through this process: no store copies parts of objects in a way that all three have.
    fn append_blob(&mut self, key: &BlobKey, first: u64, length: u64) -> Result<()> {
        use std::io::{Seek, SeekFrom};

        let name = key.to_string();
        let fails = |e| ours_or(e, |e| Error::io("read", FilePath::new(&name), e));
        let mut reader = self.storage.open(key)?;
        if first.checked_add(length).is_none_or(|end| end > reader.size) {
            let message = format!("{name} has {} bytes, not {length} from byte {first} on", reader.size);
            return Err(Error::new(ErrorKind::Io, message));
        }
        if first > 0 {
            reader.file.seek(SeekFrom::Start(first)).map_err(fails)?;
        }
        self.writer.append_all(&mut reader.file.take(length)).map_err(fails)?;
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<BlobMetadata> {
        self.storage.finish(&self.key, self.writer, "storage.commit.rename")
    }
}
