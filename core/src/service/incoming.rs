//! Videos that clients send to an address of the storage itself (rule 83 of docs/rest.md). No server sees them come: what has
//! arrived becomes the content of its upload when a job is submitted.
//!
//! It is copied, because the address may still be good: what somebody sends to it later must not change what a job works on. The
//! copy is looked at before a row names it, and what was sent is removed after the job is in its row. So whoever is killed in
//! between leaves a file that nobody names, or one that is named and can be taken in once more; the sweep finds the rest.

use std::path::Path;

use super::Service;
use super::secrets::random;
use super::upload_writer::{as_title, check_size};
use crate::database::UploadedVideo;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::{BlobName, UserId};
use crate::storage::{BlobKey, BlobMetadata};

impl Service {
    /// Makes what has arrived at the storage's own address the content of the upload, if the upload is the user's, no job uses it
    /// yet, and `look` finds nothing wrong with it. Returns the version that it has become, if there was something.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], then it is removed; that of `look`, then it stays until another one takes its place; the
    /// storage's and the database's.
    pub(super) fn take_in(
        &self,
        user: UserId,
        name: &BlobName,
        look: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Option<u64>> {
        let inner = &self.inner;
        if !inner.has_other_machines {
            return Ok(None);
        }
        let upload = inner.database.upload(name)?;
        if !upload.is_some_and(|u| u.user == user && !u.deleted && !u.submitted) {
            return Ok(None);
        }
        let sent = BlobKey::Incoming { name: *name };
        let Some(found) = inner.storage.metadata(&sent)? else { return Ok(None) };
        self.check_incoming(&sent, found)?;
        let version = u64::from_le_bytes(random()?);
        let copy = BlobKey::Video { name: *name, version };
        let copied = match inner.storage.copy(&sent, &copy) {
            // Another submission was quicker, or the upload was removed.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            copied => copied?,
        };
        let examined = pass("submit.copied")
            // It may have been replaced since.
            .and_then(|()| self.check_incoming(&sent, copied))
            .and_then(|()| look(version))
            .and_then(|()| inner.storage.announced_file_name(name));
        let file_name = match examined {
            Ok(file_name) => file_name.and_then(|name| as_title(&name)),
            Err(error) => {
                self.remove_unnamed(&copy);
                return Err(error);
            }
        };
        let video = UploadedVideo { version, size: copied.size, sha256: None, file_name, block_list: None };
        match inner.database.finish_upload(name, &video) {
            Ok(replaced) => {
                if let Some(version) = replaced {
                    self.remove_unnamed(&BlobKey::Video { name: *name, version });
                }
                pass("submit.taken_in").map(|()| Some(version))
            }
            // Another submission was quicker, or the upload was removed: the row says which.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => {
                self.remove_unnamed(&copy);
                Ok(None)
            }
            // Whether a row names the copy is not known.
            Err(error) => Err(error),
        }
    }

    /// Removes what was sent, after a job uses its copy, or another transfer takes its place.
    pub(super) fn forget_incoming(&self, name: &BlobName) {
        // The job is in its row: nothing that fails here may say otherwise.
        if self.inner.has_other_machines && pass("submit.added").is_ok() {
            self.remove_unnamed(&BlobKey::Incoming { name: *name });
        }
    }

    /// Refuses, and removes, what is too large.
    fn check_incoming(&self, sent: &BlobKey, found: BlobMetadata) -> Result<()> {
        let checked = check_size(found.size, self.limits().max_upload_bytes);
        if checked.is_err() {
            self.remove_unnamed(sent);
        }
        checked
    }

    /// Removes a file that no row names. What cannot be removed now is swept.
    fn remove_unnamed(&self, key: &BlobKey) {
        if let Err(error) = self.inner.storage.delete(key) {
            log::warn!("{key} is not needed any more: {error:?}");
        }
    }
}

fn pass(name: &'static str) -> Result<()> {
    failpoints::pass(name).map_err(|e| Error::io("submit", Path::new("the video"), e))
}
