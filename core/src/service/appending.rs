//! A video that grows at its end, as resumable uploads have it: whoever was cut off asks how much has come, and goes on from
//! there (rule 100 of docs/rest.md).
//!
//! What comes is stored in blocks of [`BLOCK_BYTES`] as it comes, and the last one when the transfer ends, however it ends. Each
//! is named by the place of its first byte in the video, so that the blocks themselves say how much there is: no row has to be kept
//! in step with them, and a process that is killed loses what has not filled its block. At the end they are put together as those
//! that a client named (`blocks.rs`).
//!
//! Whoever begins at the first byte draws a number that is part of the names of all blocks that follow, and notes it beside them.
//! So what was left of an earlier beginning, or still comes at another server, never continues what is new.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::Service;
use super::block_names::{announcement, block_at};
use super::secrets::random;
use super::senders::Sender;
use super::space::Reservation;
use super::upload_facts::UploadFacts;
use super::upload_writer::{Target, UploadWriter, as_title, check_size, entity_tag};
use crate::control::CancelToken;
use crate::database::Upload;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, Timestamp};
use crate::storage::BlobKey;

/// Bytes of a block: so much is sent once more after the process was killed.
const BLOCK_BYTES: u64 = 8 << 20;
/// The most that is read of what was announced; a name of 255 characters fits many times.
const LONGEST_ANNOUNCEMENT: u64 = 64 << 10;

/// How much of an upload has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// Bytes that are stored, from the first one on: where the next transfer begins.
    pub bytes: u64,
    /// Bytes that the whole video has, if the sender has said so.
    pub length: Option<u64>,
    /// Whether that is all, and a job may use it.
    pub is_complete: bool,
    /// The strong entity tag of a complete one, with quotes, unless only the storage has seen its bytes.
    pub tag: Option<String>,
    /// Until when a transfer may begin.
    pub expires_at: Timestamp,
}

/// What became of the wish to add to an upload.
pub enum Appended {
    /// The bytes may come.
    Begun(Box<Appending>),
    /// They would not begin where the upload ends.
    Elsewhere(Arrived),
}

/// What is kept of the whole video before its end has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Announced {
    /// Tells this beginning from others.
    begun: u64,
    length: Option<u64>,
    file_name: Option<String>,
}

/// A transfer that adds to the end of an upload. What it has brought stays when it is dropped, but for the bytes since the last
/// [`Appending::store`].
pub struct Appending {
    service: Service,
    upload: Upload,
    sender: Sender,
    announced: Announced,
    facts: UploadFacts,
    /// Where it began, and where its last stored block ends.
    first: u64,
    stored: u64,
    /// What is being filled.
    block: Option<UploadWriter>,
    /// What was promised for the bytes that are to come.
    space: Reservation,
    /// What was promised for the video that is made of the blocks while they still lie there.
    whole: Reservation,
    sha256: Option<Sha256>,
    md5: Option<Md5>,
}

impl Service {
    /// How much of an upload has come. Whoever is adding to it is asked to end first, because the sender has turned to this.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown or expired upload; [`ErrorKind::Conflict`] if a job uses it already, while its
    /// video is put together, or if somebody else turns to it while this waits; those of the storage.
    pub fn arrived(&self, name: &BlobName) -> Result<Arrived> {
        let upload = self.open_upload(name)?;
        let _sender = self.take_turn(name)?;
        self.how_far(&upload)
    }

    /// Begins to add to the end of an upload, at the byte `offset`. `length` is what the whole video has, if the sender says so;
    /// `facts` are those of this transfer.
    ///
    /// # Errors
    /// As for [`Service::arrived`]; [`ErrorKind::InvalidArgument`] if the lengths do not fit together, [`ErrorKind::TooLarge`],
    /// [`ErrorKind::DiskFull`].
    pub fn append(
        &self,
        name: &BlobName,
        offset: u64,
        length: Option<u64>,
        facts: UploadFacts,
    ) -> Result<Appended> {
        let upload = self.open_upload(name)?;
        let sender = self.take_turn(name)?;
        let arrived = self.how_far(&upload)?;
        if offset != arrived.bytes || arrived.is_complete {
            return Ok(Appended::Elsewhere(arrived));
        }
        self.begin_at(upload, sender, offset, length, facts).map(|begun| Appended::Begun(Box::new(begun)))
    }

    /// Begins an upload anew: what has come and is not complete is forgotten, and the bytes begin at the first.
    ///
    /// # Errors
    /// As for [`Service::append`].
    pub fn append_anew(&self, name: &BlobName, length: Option<u64>, facts: UploadFacts) -> Result<Appending> {
        let upload = self.open_upload(name)?;
        let sender = self.take_turn(name)?;
        self.remove_blocks(name)?;
        self.begin_at(upload, sender, 0, length, facts)
    }

    /// Forgets what has come of an upload and is not complete.
    ///
    /// # Errors
    /// As for [`Service::arrived`].
    pub fn forget_arrived(&self, name: &BlobName) -> Result<()> {
        self.open_upload(name)?;
        let _sender = self.take_turn(name)?;
        self.remove_blocks(name)
    }

    fn take_turn(&self, name: &BlobName) -> Result<Sender> {
        self.inner.senders.take(*name).ok_or_else(|| {
            Error::new(ErrorKind::Conflict, "Another request is at work on this upload")
                .hint("ask again in a few seconds how much has come")
        })
    }

    /// How much of it has come; one that has all its bytes is put together now, if a killed process has left that.
    fn how_far(&self, upload: &Upload) -> Result<Arrived> {
        let Some(announced) = self.announced(&upload.name)? else { return self.whole(&upload.name) };
        let bytes: u64 = self.chain(&upload.name, announced.begun)?.iter().map(|(_, size)| size).sum();
        let length = announced.length;
        // Also one of which nothing has come: it may have been begun anew after it was complete.
        if length != Some(bytes) {
            // Another server may have put its blocks together, which are being removed, or have begun it anew.
            match self.announced(&upload.name)? {
                None => return self.whole(&upload.name),
                Some(now) if now.begun != announced.begun => return Err(elsewhere()),
                Some(_) => {}
            }
            let expires_at = upload.expires_at;
            return Ok(Arrived { bytes, length, is_complete: false, tag: None, expires_at });
        }
        self.put_arrived_together(upload, announced, bytes, None)?;
        self.whole(&upload.name)
    }

    /// What is said of an upload of which no block waits: it is complete, or nothing has come.
    fn whole(&self, name: &BlobName) -> Result<Arrived> {
        // Its address may have expired since this transfer began.
        let upload = self.unused_upload(name)?;
        let expires_at = upload.expires_at;
        Ok(match upload.video {
            None => Arrived { bytes: 0, length: None, is_complete: false, tag: None, expires_at },
            Some(video) => Arrived {
                bytes: video.size,
                length: Some(video.size),
                is_complete: true,
                tag: video.sha256.map(|sha256| entity_tag(&sha256)),
                expires_at,
            },
        })
    }

    fn begin_at(
        &self,
        upload: Upload,
        sender: Sender,
        offset: u64,
        length: Option<u64>,
        facts: UploadFacts,
    ) -> Result<Appending> {
        let name = upload.name;
        let before = self.announced(&name)?.unwrap_or_default();
        let announced = Announced {
            begun: if offset == 0 { u64::from_le_bytes(random()?) } else { before.begun },
            length: length.or(before.length),
            file_name: facts.file_name.as_deref().and_then(as_title).or_else(|| before.file_name.clone()),
        };
        if let (Some(first), Some(now)) = (before.length, announced.length)
            && first != now
        {
            return Err(Error::argument(format!(
                "The video was announced with {first} bytes, and now with {now}: its length cannot change"
            )));
        }
        let end = offset.saturating_add(facts.size.unwrap_or(0));
        check_size(announced.length.unwrap_or(0).max(end), self.limits().max_upload_bytes)?;
        if let Some(length) = announced.length.filter(|length| end > *length) {
            return Err(beyond(end, length));
        }
        // All that is still to come lies in blocks first, and once more in the video that is made of them: whoever has said how long
        // that is hears now that there is no space, and not after the last byte.
        let to_come = announced.length.unwrap_or(end).saturating_sub(offset);
        let (transfer, length) = ((upload.user, name), announced.length.unwrap_or(0));
        let (space, whole) = match offset {
            0 => (self.reserve(transfer, to_come)?, self.reserve(transfer, length)?),
            // What goes on is not broken off for what else its user has announced. So nothing is promised to it before it comes, or
            // a byte in each of many uploads would be enough to announce all that there is.
            _ => {
                self.check_room_for(transfer, to_come.saturating_add(length))?;
                (self.reserve(transfer, 0)?, self.reserve(transfer, 0)?)
            }
        };
        if announced != before {
            self.announce(&name, &announced)?;
        }
        if offset == 0 {
            // What is left of other beginnings would only take room. In this order: what comes after the list, when another server may
            // have begun it anew, is not touched.
            let others = self.other_blocks(&name)?;
            if !others.is_empty() {
                self.check_begun(&name, announced.begun)?;
                self.remove_listed(&name, &others)?;
            }
        }
        Ok(Appending {
            service: self.clone(),
            sha256: facts.sha256.map(|_| Sha256::new()),
            md5: facts.md5.map(|_| Md5::new()),
            upload,
            sender,
            announced,
            facts,
            first: offset,
            stored: offset,
            block: None,
            space,
            whole,
        })
    }

    /// The blocks that follow each other from the first byte on, with their sizes.
    fn chain(&self, name: &BlobName, begun: u64) -> Result<Vec<(BlobKey, u64)>> {
        let sizes: HashMap<BlobKey, u64> = self.inner.storage.blocks(name)?.into_iter().collect();
        let (mut chain, mut end) = (Vec::new(), 0);
        loop {
            let key = block_at(name, begun, end);
            match sizes.get(&key) {
                // An empty one would be followed by itself for ever; none is written.
                Some(size) if *size > 0 => {
                    chain.push((key, *size));
                    end += size;
                }
                _ => return Ok(chain),
            }
        }
    }

    fn announced(&self, name: &BlobName) -> Result<Option<Announced>> {
        let blob = match self.inner.storage.open(&announcement(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            blob => blob?,
        };
        let mut text = Vec::new();
        blob.file
            .take(LONGEST_ANNOUNCEMENT)
            .read_to_end(&mut text)
            .map_err(|e| Error::io("read", Path::new("what was announced of the upload"), e))?;
        let announced = serde_json::from_slice(&text).map_err(|e| {
            Error::new(
                ErrorKind::InvalidFile,
                format!("what was announced of the upload {name} is not readable: {e}"),
            )
        })?;
        Ok(Some(announced))
    }

    fn announce(&self, name: &BlobName, announced: &Announced) -> Result<()> {
        let text = serde_json::to_vec(announced)
            .map_err(|e| Error::new(ErrorKind::Internal, format!("what was announced: {e}")))?;
        let mut blob = self.inner.storage.create(&announcement(name))?;
        blob.write_all(&text)
            .map_err(|e| Error::io("write", Path::new("what was announced of the upload"), e))?;
        blob.commit().map(drop)
    }

    /// Makes the video of all `length` bytes, unless another server has done it since `upload` was read.
    fn put_arrived_together(
        &self,
        upload: &Upload,
        announced: Announced,
        length: u64,
        promised: Option<Reservation>,
    ) -> Result<()> {
        let Announced { begun, file_name, .. } = announced;
        let name = &upload.name;
        let chain = self.chain(name, begun)?;
        // Blocks of which some are missing are being removed.
        if chain.iter().map(|(_, size)| size).sum::<u64>() != length {
            return self.check_made_elsewhere(upload, length);
        }
        let keys: Vec<BlobKey> = chain.into_iter().map(|(key, _)| key).collect();
        let facts = UploadFacts { file_name, size: Some(length), ..UploadFacts::default() };
        let _held = self.hold_list(name, None, &CancelToken::new())?;
        // All bytes are here: who sent them may leave, and need not send them again.
        match self.put_together(name, &keys, None, facts, promised, &|| true) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.check_made_elsewhere(upload, length),
            made => made.map(drop),
        }
    }

    /// Whether another server has made a video of `length` bytes since `upload` was read.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if none has: then it has begun the upload anew, or ended it. [`ErrorKind::NotFound`] if the upload is gone.
    fn check_made_elsewhere(&self, upload: &Upload, length: u64) -> Result<()> {
        let before = upload.video.as_ref().map(|video| video.version);
        let now = self.unused_upload(&upload.name)?.video;
        let is_made = now.is_some_and(|video| Some(video.version) != before && video.size == length);
        if is_made { Ok(()) } else { Err(elsewhere()) }
    }

    /// Another server may have begun the upload anew meanwhile, or ended it.
    fn check_begun(&self, name: &BlobName, begun: u64) -> Result<()> {
        let now = self.announced(name)?;
        if now.is_some_and(|now| now.begun == begun) { Ok(()) } else { Err(elsewhere()) }
    }

    /// Removes all blocks of an upload.
    pub(super) fn remove_blocks(&self, name: &BlobName) -> Result<()> {
        // First what says that others are of any use.
        self.inner.storage.delete(&announcement(name))?;
        self.remove_listed(name, &self.other_blocks(name)?)
    }

    /// All blocks of an upload but the note of its beginning.
    fn other_blocks(&self, name: &BlobName) -> Result<Vec<BlobKey>> {
        let blocks = self.inner.storage.blocks(name)?.into_iter().map(|(key, _)| key);
        Ok(blocks.filter(|key| *key != announcement(name)).collect())
    }

    /// Removes blocks of an upload after which none is left.
    fn remove_listed(&self, name: &BlobName, blocks: &[BlobKey]) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let removed = blocks.iter().try_for_each(|key| self.inner.storage.delete(key));
        self.inner.block_counts.forget(name);
        removed?;
        self.inner.database.note_waiting_bytes(name, 0)
    }
}

impl Appending {
    /// Raised when the sender has turned to another transfer: what has come is to be stored then, and this one to end.
    pub fn superseded(&self) -> CancelToken {
        self.sender.superseded.clone()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// As for [`UploadWriter::append`]; [`ErrorKind::InvalidArgument`] beyond the length that was announced.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Some(hash) = &mut self.sha256 {
            hash.update(bytes);
        }
        if let Some(hash) = &mut self.md5 {
            hash.update(bytes);
        }
        while !bytes.is_empty() {
            let mut block = match self.block.take() {
                Some(block) => block,
                None => self.new_block()?,
            };
            let room = usize::try_from(BLOCK_BYTES.saturating_sub(block.size())).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let end = self.stored + block.size() + now.len() as u64;
            if let Some(length) = self.announced.length.filter(|length| end > *length) {
                return Err(beyond(end, length));
            }
            block.promise_from(&mut self.space, now.len() as u64);
            block.append(now)?;
            let is_full = block.size() >= BLOCK_BYTES;
            self.block = Some(block);
            if is_full {
                self.store()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// The block that comes next.
    fn block_key(&self) -> BlobKey {
        block_at(&self.upload.name, self.announced.begun, self.stored)
    }

    fn new_block(&self) -> Result<UploadWriter> {
        let key = self.block_key();
        let room = self.service.room_for(&key, BLOCK_BYTES)?;
        let facts = UploadFacts::default();
        let mut block =
            UploadWriter::begin(&self.service, &self.upload, key, Target::Block, facts, room, None)?;
        block.look_now()?;
        Ok(block)
    }

    /// Stores what has come. Returns where the upload ends now.
    ///
    /// # Errors
    /// Those of the storage; [`ErrorKind::Conflict`] if another server has stored these bytes meanwhile.
    pub fn store(&mut self) -> Result<u64> {
        let Some(block) = self.block.take().filter(|block| block.size() > 0) else { return Ok(self.stored) };
        self.check_still_begun()?;
        // Who was told that these bytes are there has sent what follows them.
        if self.service.inner.storage.metadata(&self.block_key())?.is_some() {
            return Err(elsewhere());
        }
        let size = block.size();
        block.finish()?;
        self.stored += size;
        Ok(self.stored)
    }

    /// Ends a transfer whose bytes have all come. With the last byte of the video, which `is_last` or the announced length tells,
    /// the video is put together: it is durable when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the bytes are not those that were announced: none of them is kept. As for
    /// [`UploadWriter::finish`].
    pub fn finish(mut self, is_last: bool) -> Result<Arrived> {
        if let Err(error) = self.check_hashes() {
            self.take_back()?;
            return Err(error);
        }
        let bytes = self.store()?;
        self.check_still_begun()?;
        let length = self.announced.length;
        if let Some(length) = length.filter(|length| is_last && *length != bytes) {
            return Err(Error::argument(format!(
                "The end of the video came after {bytes} bytes; {length} were announced"
            )));
        }
        if !is_last && length != Some(bytes) {
            let expires_at = self.upload.expires_at;
            return Ok(Arrived { bytes, length, is_complete: false, tag: None, expires_at });
        }
        // If this is cut off, whoever asks next puts them together.
        if length.is_none() {
            self.announced.length = Some(bytes);
            self.service.announce(&self.upload.name, &self.announced)?;
        }
        self.service.put_arrived_together(&self.upload, self.announced, bytes, Some(self.whole))?;
        self.service.whole(&self.upload.name)
    }

    /// Another server may have begun the upload anew meanwhile, or ended it.
    fn check_still_begun(&self) -> Result<()> {
        self.service.check_begun(&self.upload.name, self.announced.begun)
    }

    fn check_hashes(&mut self) -> Result<()> {
        let sha256 = self.sha256.take().map(|hash| <[u8; 32]>::from(hash.finalize()));
        if sha256 != self.facts.sha256 {
            return Err(Error::argument("The content does not have the announced SHA-256"));
        }
        let md5 = self.md5.take().map(|hash| <[u8; 16]>::from(hash.finalize()));
        if md5 != self.facts.md5 {
            return Err(Error::argument("The content does not have the announced MD5"));
        }
        Ok(())
    }

    /// Removes what this transfer has stored.
    fn take_back(&mut self) -> Result<()> {
        self.block = None;
        let mut end = 0;
        let mut own = Vec::new();
        for (key, size) in self.service.chain(&self.upload.name, self.announced.begun)? {
            if end >= self.first {
                own.push(key);
            }
            end += size;
        }
        own.iter().rev().try_for_each(|key| self.service.inner.storage.delete(key))?;
        self.service.count_waiting_bytes(&self.upload.name)
    }
}

fn elsewhere() -> Error {
    Error::new(ErrorKind::Conflict, "Another transfer has gone on with this upload")
        .hint("ask how much has come, and go on from there")
}

fn beyond(end: u64, length: u64) -> Error {
    Error::argument(format!("The video was announced with {length} bytes, and {end} are sent"))
}
