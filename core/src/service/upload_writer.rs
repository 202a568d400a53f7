//! A transfer that is going on.
//!
//! It is written aside and becomes the content of the upload, or one of its blocks, in one step when it is complete and its
//! hashes are right; one that was cut off leaves nothing. Until a job uses the upload, another transfer replaces it.

use std::io::{self, Read, Write};
use std::path::Path;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::Service;
use super::space::Reservation;
use super::upload_facts::UploadFacts;
use crate::database::{Upload, UploadedVideo};
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::job::{BlobName, Timestamp};
use crate::storage::{BlobKey, StagedBlob};

/// How often a transfer looks whether its upload is still there, seconds.
const LOOK_SECONDS: u64 = 30;
/// How much of a block is copied before it is looked at whether the client is still there.
const COPIED_AT_ONCE: u64 = 64 << 20;

/// A transfer that is going on. Dropped before [`UploadWriter::finish`], it leaves nothing.
pub struct UploadWriter {
    service: Service,
    name: BlobName,
    target: Target,
    facts: UploadFacts,
    key: BlobKey,
    blob: Box<dyn StagedBlob>,
    space: Reservation,
    /// More bytes it must not have.
    most: u64,
    size: u64,
    sha256: Sha256,
    md5: Option<Md5>,
    /// When it is looked at next whether the upload is still there.
    next_look: Timestamp,
    /// When it must have ended.
    deadline: Timestamp,
}

/// What a transfer becomes.
pub(super) enum Target {
    /// The content of the upload; put together of this list of blocks, if it was.
    Video { version: u64, block_list: Option<[u8; 32]> },
    /// A block of it.
    Block,
}

impl UploadWriter {
    /// Begins a transfer of at most `most` bytes. Space for those that are announced is promised to it, unless it has a promise from
    /// before: that grows as bytes come.
    pub(super) fn begin(
        service: &Service,
        upload: &Upload,
        key: BlobKey,
        target: Target,
        facts: UploadFacts,
        most: u64,
        promised: Option<Reservation>,
    ) -> Result<Self> {
        let size = facts.size.unwrap_or(0);
        check_size(size, most)?;
        service.check_stored(&upload.name, &target)?;
        let space = match promised {
            Some(promised) => promised,
            None => service.reserve((upload.user, upload.name), size)?,
        };
        let blob = service.inner.storage.create(&key)?;
        let md5 = facts.md5.map(|_| Md5::new());
        let limits = service.limits();
        let asked_for = upload.expires_at.minus_seconds(limits.upload_lifetime_minutes * 60);
        let kept_until = asked_for.plus_seconds(limits.upload_retention_hours * 3600);
        Ok(Self {
            service: service.clone(),
            name: upload.name,
            target,
            facts,
            key,
            blob,
            space,
            most,
            size: 0,
            sha256: Sha256::new(),
            md5,
            next_look: service.inner.clock.now().plus_seconds(LOOK_SECONDS),
            // Later the upload may be removed, as one that nobody has touched.
            deadline: kept_until.max(upload.expires_at),
        })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the limit, [`ErrorKind::DiskFull`], [`ErrorKind::Io`]; [`ErrorKind::NotFound`] if the
    /// upload was removed meanwhile, [`ErrorKind::Conflict`] if a job has begun to use it, [`ErrorKind::DeadlineExceeded`]
    /// if the transfer takes longer than an upload without a job is kept.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.look()?;
        let more = bytes.len() as u64;
        check_size(self.size.saturating_add(more), self.most)?;
        self.space.cover(&self.service, more)?;
        self.blob.write_all(bytes).map_err(|e| Error::io("write", Path::new("the upload"), e))?;
        self.count(bytes);
        Ok(())
    }

    /// Takes all bytes of a block that was sent before.
    ///
    /// # Errors
    /// As for [`UploadWriter::append`]; [`ErrorKind::Cancelled`] soon after `is_wanted` says no.
    pub(super) fn append_block(&mut self, key: &BlobKey, is_wanted: &dyn Fn() -> bool) -> Result<()> {
        // The bytes are read for their hash, and copied by the storage, which may know how to share them.
        let storage = &self.service.inner.storage;
        let mut block = storage.open(key)?;
        let mut buffer = vec![0; 1 << 20];
        let mut left = block.size;
        while left > 0 {
            if !is_wanted() {
                return Err(Error::new(ErrorKind::Cancelled, "the client has left"));
            }
            self.look()?;
            let more = left.min(COPIED_AT_ONCE);
            check_size(self.size.saturating_add(more), self.most)?;
            self.space.cover(&self.service, more)?;
            self.blob.append_blob(key, block.size - left, more)?;
            left -= more;
            let mut unread = more;
            while unread > 0 {
                let part = buffer.len().min(usize::try_from(unread).unwrap_or(usize::MAX));
                block
                    .file
                    .read_exact(&mut buffer[..part])
                    .map_err(|e| Error::io("read", Path::new("a block"), e))?;
                self.count(&buffer[..part]);
                unread -= part as u64;
            }
        }
        Ok(())
    }

    /// Takes note of bytes that were written.
    fn count(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.space.spend(bytes.len() as u64);
        self.sha256.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    /// Looks now and then whether there is a point in going on.
    fn look(&mut self) -> Result<()> {
        let now = self.service.inner.clock.now();
        if now < self.next_look {
            return Ok(());
        }
        self.look_now()
    }

    /// Looks whether there is a point in going on.
    pub(super) fn look_now(&mut self) -> Result<()> {
        let now = self.service.inner.clock.now();
        self.next_look = now.plus_seconds(LOOK_SECONDS);
        if now > self.deadline {
            return Err(Error::new(ErrorKind::DeadlineExceeded, "The upload took too long")
                .hint("send the video over a faster line, or in blocks"));
        }
        self.service.unused_upload(&self.name).map(drop)
    }

    /// Takes over what was promised to another for the next `bytes`.
    pub(super) fn promise_from(&mut self, other: &mut Reservation, bytes: u64) {
        self.space.take_over(other, bytes);
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the transfer: the content is durable when this returns. Returns its strong entity tag, with quotes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the bytes are not those that were announced, or the user stores more than is allowed
    /// already; [`ErrorKind::Conflict`] if a job has begun to use the upload meanwhile, [`ErrorKind::NotFound`] if it is gone,
    /// [`ErrorKind::DiskFull`], [`ErrorKind::Io`]; [`ErrorKind::TooLarge`] if the blocks of the upload are too many or too large
    /// together.
    pub fn finish(self) -> Result<String> {
        let Self { service, name, target, facts, key, blob, space, size, sha256, md5, .. } = self;
        let sha256: [u8; 32] = sha256.finalize().into();
        if facts.size.is_some_and(|expected| expected != size) {
            return Err(Error::argument(format!(
                "{size} bytes came; {} were announced",
                facts.size.unwrap_or_default()
            )));
        }
        if facts.sha256.is_some_and(|expected| expected != sha256) {
            return Err(Error::argument("The content does not have the announced SHA-256"));
        }
        if let (Some(expected), Some(md5)) = (facts.md5, md5)
            && expected != <[u8; 16]>::from(md5.finalize())
        {
            return Err(Error::argument("The content does not have the announced MD5"));
        }
        // The storage may have turned out to be another one meanwhile, and other transfers may have ended.
        service.inner.refusal.check()?;
        service.check_stored(&name, &target)?;
        let tag = entity_tag(&sha256);
        let Target::Video { version, block_list } = target else {
            service.commit_block(&key, blob, size)?;
            return Ok(tag);
        };
        blob.commit()?;
        drop(space);
        let file_name = facts.file_name.and_then(|n| as_title(&n));
        let video = UploadedVideo { version, size, sha256: Some(sha256), file_name, block_list };
        match service.inner.database.finish_upload(&name, &video) {
            Ok(replaced) => {
                if let Some(old) = replaced {
                    // What cannot be removed now is an orphan, which is swept.
                    if let Err(error) = service.inner.storage.delete(&BlobKey::Video { name, version: old }) {
                        log::warn!("the replaced video of {name}: {error:?}");
                    }
                }
                // The last complete transfer counts, whichever way it came.
                service.forget_incoming(&name);
                Ok(tag)
            }
            Err(error) => {
                // Only a clear refusal says that no row names the file; else the sweep finds out.
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) {
                    service.inner.storage.delete(&key)?;
                }
                Err(error)
            }
        }
    }
}

impl Write for UploadWriter {
    /// Like [`UploadWriter::append`]; the error of that is inside the one of this.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The strong entity tag of content with this hash.
pub(super) fn entity_tag(sha256: &[u8]) -> String {
    format!("\"{}\"", hex(sha256))
}

/// # Errors
/// [`ErrorKind::TooLarge`] for more than `most` bytes.
pub(super) fn check_size(size: u64, most: u64) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TooLarge, format!("The video is larger than {most} bytes")))
}

/// A client's file name as a title: no folders, no control characters, not too long; nothing if nothing is left.
pub(super) fn as_title(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|c| !c.is_control()).take(255).collect();
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_become_titles() {
        assert_eq!(as_title("C:\\Users\\me\\walk.mp4").as_deref(), Some("walk.mp4"));
        assert_eq!(as_title("../../etc/passwd").as_deref(), Some("passwd"));
        assert_eq!(as_title("a\r\nb.mp4").as_deref(), Some("ab.mp4"));
        assert_eq!(as_title(&"x".repeat(300)).unwrap().len(), 255);
        assert_eq!(as_title(" / "), None);
    }
}
