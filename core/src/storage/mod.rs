//! Where videos and scenes are kept: named blobs, each complete or absent.
//!
//! Called by [`crate::service`] only, on any thread. A blob that was committed is on the disk when the call returns, and
//! its bytes never change again: a new version gets a new key, and a row of the database says which key counts. What no
//! row names is an orphan and may be swept.

mod key;
mod local;
#[cfg(feature = "cloud")]
mod object;
#[cfg(test)]
mod suite;

use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use key::{BlobKey, BlobKind, Reached};
pub use local::LocalStorage;
#[cfg(feature = "cloud")]
pub use object::ObjectStorage;

use crate::error::Result;
use crate::job::{BlobName, JobId};

/// What says whose files a storage has. No blob has such a name, so no sweep removes it.
pub(crate) const SERVICE_ID: &str = "service-id";

/// A place for blobs. One behaviour suite (`suite.rs`) holds for every implementation.
pub trait Storage: Send + Sync {
    /// Begins a new blob. Nothing is to be seen of it until [`StagedBlob::commit`]; dropped before, it leaves nothing.
    ///
    /// # Errors
    /// A full disk, other input or output failures.
    fn create(&self, key: &BlobKey) -> Result<Box<dyn StagedBlob>>;

    /// Makes a blob of the complete local file `path`, which stays. Where it can be, it is the same file (a hard link): it
    /// must not be changed in place afterwards. On the disk when this returns.
    ///
    /// # Errors
    /// As for [`Storage::create`]; [`NotFound`](crate::ErrorKind::NotFound) if there is no such file.
    fn put_file(&self, key: &BlobKey, path: &Path) -> Result<BlobMetadata>;

    /// Makes `to` a blob with the bytes that `from` has now, without passing them through this process where that can be. A
    /// later change of `from` does not show in it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no `from`, a full disk, input or output failures.
    fn copy(&self, from: &BlobKey, to: &BlobKey) -> Result<BlobMetadata>;

    /// Opens a blob for reading; it stays readable if it is deleted meanwhile.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), input or output failures.
    fn open(&self, key: &BlobKey) -> Result<BlobReader>;

    /// Size and age of a blob, or nothing if there is none.
    ///
    /// # Errors
    /// Input or output failures.
    fn metadata(&self, key: &BlobKey) -> Result<Option<BlobMetadata>>;

    /// Removes a blob, durably; none to be there is fine.
    ///
    /// # Errors
    /// Input or output failures.
    fn delete(&self, key: &BlobKey) -> Result<()>;

    /// The blobs of `kind` that did not change for `older_than`, in the order of their names. Names that are not ours are
    /// not listed.
    ///
    /// # Errors
    /// Input or output failures.
    fn list(&self, kind: BlobKind, older_than: Duration) -> Result<Vec<BlobKey>>;

    /// All that came with one upload, versions of its video and its blocks, in the order of their names.
    ///
    /// # Errors
    /// Input or output failures.
    fn list_upload(&self, name: &BlobName) -> Result<Vec<BlobKey>>;

    /// The blocks of one upload and their sizes in bytes, in the order of their names.
    ///
    /// # Errors
    /// Input or output failures.
    fn blocks(&self, name: &BlobName) -> Result<Vec<(BlobKey, u64)>>;

    /// The results of one job, those of all its attempts, in the order of their names.
    ///
    /// # Errors
    /// Input or output failures.
    fn artifacts(&self, job: JobId) -> Result<Vec<BlobKey>>;

    /// What was stored of an unfinished job so that another machine can go on with it, with sizes in bytes, in the order of the
    /// names.
    ///
    /// # Errors
    /// Input or output failures.
    fn checkpoints(&self, job: JobId) -> Result<Vec<(BlobKey, u64)>>;

    /// The name that the client gave the file that it sent to [`Storage::upload_address`], as it came.
    ///
    /// # Errors
    /// Input or output failures.
    fn announced_file_name(&self, _name: &BlobName) -> Result<Option<String>> {
        Ok(None)
    }

    /// An address of the storage itself to which a client PUTs a video within `lifetime`; it becomes
    /// [`BlobKey::Incoming`]. Nothing if videos come through the server: where the storage has no addresses.
    ///
    /// # Errors
    /// What keeps it from being signed.
    fn upload_address(&self, _name: &BlobName, _lifetime: Duration) -> Result<Option<UploadAddress>> {
        Ok(None)
    }

    /// An address of the storage itself from which whoever holds it can GET the blob within `lifetime`. Nothing if the server
    /// sends it: where the storage has no addresses.
    ///
    /// # Errors
    /// What keeps it from being signed.
    fn download_address(
        &self,
        _key: &BlobKey,
        _lifetime: Duration,
        _answer: &DownloadAnswer<'_>,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// The id of the service whose files these are, if it was noted.
    ///
    /// # Errors
    /// Input or output failures.
    fn service_id(&self) -> Result<Option<String>>;

    /// Notes it, unless one was noted before; durable when this returns. Of two that do so in the same moment one is noted: read it.
    ///
    /// # Errors
    /// A full disk, other input or output failures.
    fn note_service_id(&self, id: &str) -> Result<()>;

    /// Removes what writers that were killed left behind, also empty folders, if nobody touched it for `older_than`; says how
    /// many files.
    ///
    /// # Errors
    /// Input or output failures.
    fn sweep_staged(&self, older_than: Duration) -> Result<u64>;

    /// The blob as a local file for programs that need one, if this storage has local files.
    fn local_path(&self, key: &BlobKey) -> Option<PathBuf>;

    /// Bytes that can still be stored, if there is a way to know.
    ///
    /// # Errors
    /// Input or output failures.
    fn free_space(&self) -> Result<Option<u64>>;
}

/// A blob that is being written.
pub trait StagedBlob: Write + Send {
    /// Appends `length` bytes of another blob of the same storage, from the byte `first`; where the storage can, they are
    /// shared or copied without passing through this process.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), a full disk, other input or output failures, also if it has fewer bytes.
    fn append_blob(&mut self, key: &BlobKey, first: u64, length: u64) -> Result<()>;

    /// Makes the blob appear, complete and durable, in place of what the key named before.
    ///
    /// # Errors
    /// A full disk, other input or output failures; then nothing has changed.
    fn commit(self: Box<Self>) -> Result<BlobMetadata>;
}

/// What is known of a blob without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobMetadata {
    /// Bytes.
    pub size: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// Where a client sends a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadAddress {
    /// The signed address.
    pub url: String,
    /// Headers that the request must have, by name and value; most storages need none.
    pub headers: Vec<(&'static str, &'static str)>,
}

/// What the answer to a signed download says of itself, as far as the storage can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadAnswer<'a> {
    /// Media type.
    pub content_type: &'a str,
    /// The whole value of `Content-Disposition`, if there is to be one.
    pub content_disposition: Option<&'a str>,
}

/// Something that can be read from any place.
pub trait BlobFile: Read + Seek + Send {}
impl<T: Read + Seek + Send> BlobFile for T {}

/// A blob that is being read.
pub struct BlobReader {
    /// Its bytes.
    pub file: Box<dyn BlobFile>,
    /// How many there are.
    pub size: u64,
    /// When it was written.
    pub modified: SystemTime,
}
