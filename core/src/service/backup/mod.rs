//! Copies of a whole service, made while it runs, and a service made of one again.
//!
//! ```text
//! backup/  backup.json  what is in it, with sizes and hashes; written last   (manifest)
//!          jobs.db      the rows at one moment, with no job running          (make)
//!          secrets.json
//!          videos/ scenes/  the files that these rows name, and no others    (copying)
//! ```
//!
//! The rows are copied first. A file that one of them names may be deleted before its turn comes: then its job was deleted, and
//! it is taken out of the copied rows as well. Stored files never change, so what is on the same file system is linked. Blocks
//! of unfinished uploads and workspaces are left out: a client sends again what was not acknowledged, and a job begins anew.

mod copying;
mod make;
mod manifest;
mod restore;
#[cfg(test)]
mod tests;

pub use copying::CopyProgress;
pub use manifest::{BackedUpFile, BackupManifest};
