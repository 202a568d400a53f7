//! Where videos and scenes are kept: named blobs, each complete or absent.
//!
//! Called by [`crate::service`] only, on any thread. A blob that was committed is on the disk when the call returns, and
//! its bytes never change again: a new version gets a new key, and a row of the database says which key counts. What no
//! row names is an orphan and may be swept.

mod key;
mod local;
#[cfg(test)]
mod suite;

use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use key::{BlobKey, BlobKind};
pub use local::LocalStorage;

use crate::error::Result;
use crate::job::BlobName;

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
