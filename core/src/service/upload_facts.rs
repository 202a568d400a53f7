//! Where a video may be sent, and what is known of it before it comes.

use crate::job::{BlobName, Timestamp};
use crate::storage::UploadAddress;

/// Where a video may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadTicket {
    /// Name of the video, for [`crate::job::JobRequest`].
    pub blob_name: BlobName,
    /// Until when a transfer may begin.
    pub expires_at: Timestamp,
    /// Where the storage itself takes the video. Absent: it comes through the server, by [`Service::begin_upload`].
    ///
    /// [`Service::begin_upload`]: crate::service::Service::begin_upload
    pub address: Option<UploadAddress>,
}

/// What is known of a transfer before its first byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadFacts {
    /// The name of the file where it comes from; the title of a job that has no other.
    pub file_name: Option<String>,
    /// Size in bytes, if it is known.
    pub size: Option<u64>,
    /// MD5 that the bytes must have.
    pub md5: Option<[u8; 16]>,
    /// SHA-256 that the bytes must have.
    pub sha256: Option<[u8; 32]>,
}
