//! What the blocks are called that no client has named: those of an upload that grows at its end (`appending.rs`).

use crate::job::BlobName;
use crate::storage::BlobKey;

/// The block that begins with this byte of the video, of those that came since it was `begun`.
pub(super) fn block_at(name: &BlobName, begun: u64, first: u64) -> BlobKey {
    // Longer than any name that a client may give a block of its own.
    BlobKey::block(*name, &format!("of {begun:016x} the bytes from {first:0>140}"))
}

/// Where it is kept what was said of the whole video before its end has come. It is no part of the video.
pub(super) fn announcement(name: &BlobName) -> BlobKey {
    BlobKey::block(*name, &format!("what was announced {:0>140}", ""))
}
