//! A video in blocks, as Azure's clients send it: each block by itself, in any order, then the list that puts them together
//! (rule 32 of docs/rest.md).
//!
//! What waits for its list is bounded in number and in bytes, for each upload, and every block is written once more at most:
//! a short list cannot make much of a little.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use super::Service;
use super::block_counts::Waiting;
use super::block_names::announcement;
use super::lists_at_work::{COMES_BACK_SECONDS, ListAtWork};
use super::space::Reservation;
use super::upload_facts::UploadFacts;
use super::upload_writer::{Target, UploadWriter, check_size, entity_tag};
use crate::control::CancelToken;
use crate::database::UploadedVideo;
use crate::error::{Error, ErrorKind, Result};
use crate::job::BlobName;
use crate::storage::{BlobKey, StagedBlob};

/// Most blocks of one video, as with Azure's block blobs.
pub(super) const MAX_BLOCKS: usize = 50_000;
/// Longest name of a block, bytes; Azure's is 64 before base64.
const LONGEST_BLOCK_ID: usize = 128;

impl Service {
    /// Begins the transfer of a block; it takes the place of an earlier one of the same name.
    ///
    /// # Errors
    /// As for [`Service::begin_upload`]; [`ErrorKind::InvalidArgument`] for a name that is empty or too long;
    /// [`ErrorKind::TooLarge`] for too many blocks, or too many bytes in all that wait for their list; [`ErrorKind::DiskFull`]
    /// also if there is no space to put them together.
    pub fn put_block(&self, name: &BlobName, block_id: &str, facts: UploadFacts) -> Result<UploadWriter> {
        check_block_id(block_id)?;
        let upload = self.open_upload(name)?;
        let key = BlobKey::block(*name, block_id);
        let size = facts.size.unwrap_or(0);
        let room = self.room_for(&key, size)?;
        // All blocks are copied when their list comes, and it is better known now than then that there is no space for that.
        let waiting = self.limits().max_upload_bytes.saturating_sub(room);
        let (transfer, all) = ((upload.user, *name), size.saturating_mul(2).saturating_add(waiting));
        let promised = match waiting {
            0 => {
                drop(self.reserve(transfer, all)?);
                self.reserve(transfer, size)?
            }
            // As for what goes on after a break (`appending.rs`): nothing is promised before it comes.
            _ => {
                self.check_room_for(transfer, all)?;
                self.reserve(transfer, 0)?
            }
        };
        UploadWriter::begin(self, &upload, key, Target::Block, facts, room, Some(promised))
    }

    /// Bytes that the block `key` may have beside those that are there; `wanted` is how many it will have, as far as that is known.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for too many blocks.
    pub(super) fn room_for(&self, key: &BlobKey, wanted: u64) -> Result<u64> {
        let Some(name) = key.upload() else { return Ok(0) };
        let others = match self.known_beside(name, key, wanted)? {
            Some((others, _)) => others,
            None => {
                let _arriving = self.inner.arrivals.lock(name);
                self.beside(name, key, wanted)?.0
            }
        };
        check_number(others)?;
        Ok(self.limits().max_upload_bytes.saturating_sub(others.bytes))
    }

    /// What waits beside the block `key`; without a look at all blocks also the bytes of the one whose place it takes. Whoever calls it
    /// keeps others from arriving meanwhile.
    fn beside(&self, name: &BlobName, key: &BlobKey, wanted: u64) -> Result<(Waiting, Option<u64>)> {
        match self.known_beside(name, key, wanted)? {
            Some((others, replaced)) => Ok((others, Some(replaced))),
            None => Ok((self.look_beside(name, key)?, None)),
        }
    }

    /// The same without a look at all blocks: nothing if it is not known, or if `wanted` bytes would be refused for what may have
    /// changed since the last look.
    fn known_beside(&self, name: &BlobName, key: &BlobKey, wanted: u64) -> Result<Option<(Waiting, u64)>> {
        let now = self.inner.clock.now();
        let Some(known) = self.inner.block_counts.of(name, now) else { return Ok(None) };
        // The block of the same name, whose place it takes.
        let before = self.inner.storage.metadata(key)?.map(|block| block.size);
        let others = known.waiting.without(before);
        let fits = others.blocks < MAX_BLOCKS
            && others.bytes.saturating_add(wanted.max(1)) <= self.limits().max_upload_bytes;
        Ok((fits || known.is_new(now)).then_some((others, before.unwrap_or(0))))
    }

    /// The same by a look at all blocks.
    fn look_beside(&self, name: &BlobName, key: &BlobKey) -> Result<Waiting> {
        let (now, announced) = (self.inner.clock.now(), announcement(name));
        let (mut all, mut before) = (Waiting::default(), None);
        for (block, size) in self.inner.storage.blocks(name)? {
            if block == announced {
                continue;
            }
            all = all.with(size);
            if block == *key {
                before = Some(size);
            }
        }
        // The row first: to what is known is only added.
        self.inner.database.note_waiting_bytes(name, all.bytes)?;
        self.inner.block_counts.note(name, all, now);
        Ok(all.without(before))
    }

    /// Makes a block that has come appear, if there is still room for it: others may have come meanwhile.
    pub(super) fn commit_block(&self, key: &BlobKey, blob: Box<dyn StagedBlob>, size: u64) -> Result<()> {
        let Some(name) = key.upload() else { return Ok(()) };
        let _arriving = self.inner.arrivals.lock(name);
        let (others, replaced) = self.beside(name, key, size)?;
        check_number(others)?;
        check_size(size, self.limits().max_upload_bytes.saturating_sub(others.bytes))?;
        if let Err(error) = blob.commit() {
            // A storage at the other end of a network may have it all the same.
            self.inner.block_counts.forget(name);
            return Err(error);
        }
        let all = others.with(size);
        self.inner.block_counts.update(name, all);
        let database = &self.inner.database;
        let noted = match replaced {
            // The row has also what other servers have taken since the last look.
            Some(before) => {
                database.add_waiting_bytes(name, size.cast_signed().wrapping_sub(before.cast_signed()))
            }
            None => database.note_waiting_bytes(name, all.bytes),
        };
        if noted.is_err() {
            self.inner.block_counts.forget(name);
        }
        noted
    }

    /// Makes the video of blocks that were sent before, in this order, and returns its entity tag. Blocks that are not
    /// named are forgotten. The same list once more, with no block sent in between, changes nothing: whoever did not
    /// get the answer may ask again, and waits then while the first is at work.
    ///
    /// `cancel` is raised when nobody waits for this call any more. A call that waits ends soon after that; the one that works goes
    /// on for ten minutes, and for as long as others wait for the same list. What is given up has changed nothing.
    ///
    /// # Errors
    /// As for [`Service::begin_upload`]; [`ErrorKind::InvalidArgument`] if a block was not sent or is named twice;
    /// [`ErrorKind::Conflict`] while another list for the same upload is at work, or another server still removes the blocks of this
    /// one; [`ErrorKind::Cancelled`].
    pub fn commit_blocks(
        &self,
        name: &BlobName,
        block_ids: &[String],
        facts: UploadFacts,
        cancel: &CancelToken,
    ) -> Result<String> {
        if block_ids.is_empty() || block_ids.len() > MAX_BLOCKS {
            return Err(Error::argument(format!(
                "the list has {} blocks: 1 to {MAX_BLOCKS} are allowed",
                block_ids.len()
            )));
        }
        let mut seen = HashSet::new();
        for id in block_ids {
            check_block_id(id)?;
            if !seen.insert(id) {
                return Err(Error::argument(format!("the block {id:?} is named twice")));
            }
        }
        // First of all: a video that a job uses has no blocks any more, and the sender should hear of the job, not of
        // missing blocks.
        self.open_upload(name)?;
        let list = hash_of_list(block_ids);
        let held = self.hold_list(name, Some(list), cancel)?;
        // What another list has made meanwhile counts.
        let video = self.unused_upload(name)?.video;
        let sent = self.inner.storage.blocks(name)?;
        if let Some(sha256) = video.as_ref().and_then(|video| made_of(video, &list))
            && sent.is_empty()
        {
            return Ok(entity_tag(&sha256));
        }
        let last = sent.last().map(|(key, _)| *key);
        let sizes: HashMap<BlobKey, u64> = sent.into_iter().collect();
        let keys: Vec<BlobKey> = block_ids.iter().map(|id| BlobKey::block(*name, id)).collect();
        let mut size = 0;
        for (key, id) in keys.iter().zip(block_ids) {
            let Some(found) = sizes.get(key) else {
                return self.answer_without(name, &list, last, id);
            };
            size += found;
        }
        let facts = UploadFacts { size: Some(size), ..facts };
        let is_wanted = || held.is_wanted(cancel, &*self.inner.clock);
        let error = match self.put_together(name, &keys, Some(list), facts, None, &is_wanted) {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            ended => return ended,
        };
        // Another server, at which the client has asked before, may have put them together and removed them meanwhile.
        let before = video.map(|video| video.version);
        let after = self.unused_upload(name)?.video;
        if after.as_ref().map(|video| video.version) != before {
            let made = after.and_then(|video| made_of(&video, &list));
            return made.map(|sha256| entity_tag(&sha256)).ok_or(error);
        }
        // It had put them together before this began, and still removes them.
        if after.is_some_and(|video| made_of(&video, &list).is_some()) {
            for (key, id) in keys.iter().zip(block_ids) {
                if self.inner.storage.metadata(key)?.is_none() {
                    return self.answer_without(name, &list, last, id);
                }
            }
        }
        Err(error)
    }

    /// The answer to a list of which the block `missing` is not there: another server, at which the client has asked before, may have put
    /// it together and remove its blocks now, of which `last` goes last.
    fn answer_without(
        &self,
        name: &BlobName,
        list: &[u8; 32],
        last: Option<BlobKey>,
        missing: &str,
    ) -> Result<String> {
        let video = self.unused_upload(name)?.video;
        let made = video.and_then(|video| Some((video.version, made_of(&video, list)?)));
        let not_sent = || Error::argument(format!("the block {missing:?} was not sent"));
        let (version, sha256) = made.ok_or_else(not_sent)?;
        let storage = &self.inner.storage;
        let left = last.map(|key| storage.metadata(&key)).transpose()?.flatten();
        let Some(left) = left else { return Ok(entity_tag(&sha256)) };
        // What was sent after the video was made is of another attempt, which is not complete.
        let video = storage.metadata(&BlobKey::Video { name: *name, version })?;
        let Some(video) = video.filter(|video| left.modified <= video.modified) else {
            return Err(not_sent());
        };
        // Who removed them was ended meanwhile: they go with the upload, or are swept once a job uses it.
        if video.modified.elapsed().is_ok_and(|age| age.as_secs() >= COMES_BACK_SECONDS) {
            return Ok(entity_tag(&sha256));
        }
        Err(Error::new(ErrorKind::Conflict, "The blocks are being put together")
            .hint("send the list again in a few seconds: it is answered as the first was"))
    }

    /// Makes sure that the blocks of an upload are put together once at a time. The same list waits for its turn (`lists_at_work.rs`).
    pub(super) fn hold_list(
        &self,
        name: &BlobName,
        list: Option<[u8; 32]>,
        client: &CancelToken,
    ) -> Result<ListAtWork<'_>> {
        self.inner.block_lists.hold(*name, list, client, &*self.inner.clock)
    }

    /// Makes the video of these blocks, and removes all blocks of the upload. Whoever calls it holds the list, and has looked
    /// whether the upload was open when that began: its address may have expired since. Stops soon after `is_wanted` says no.
    pub(super) fn put_together(
        &self,
        name: &BlobName,
        keys: &[BlobKey],
        list: Option<[u8; 32]>,
        facts: UploadFacts,
        promised: Option<Reservation>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<String> {
        let upload = self.unused_upload(name)?;
        let promised = match promised {
            Some(promised) => promised,
            None => self.reserve((upload.user, *name), 0)?,
        };
        // All of it has come, and is copied now.
        let promised = promised.at_least(self, facts.size.unwrap_or(0))?;
        let mut writer = self.begin_video(&upload, list, facts, Some(promised))?;
        for key in keys {
            writer.append_block(key, is_wanted)?;
        }
        let tag = writer.finish()?;
        // What cannot be removed now goes with the upload, or is swept once a job uses it.
        if let Err(error) = self.remove_blocks(name) {
            log::warn!("the blocks of {name}: {error:?}");
        }
        Ok(tag)
    }
}

/// The hash of a video, if it was put together of this list.
fn made_of(video: &UploadedVideo, list: &[u8; 32]) -> Option<[u8; 32]> {
    video.sha256.filter(|_| video.block_list.as_ref() == Some(list))
}

fn check_number(others: Waiting) -> Result<()> {
    if others.blocks < MAX_BLOCKS {
        return Ok(());
    }
    let message = format!("{} blocks were sent already: {MAX_BLOCKS} are allowed", others.blocks);
    Err(Error::new(ErrorKind::TooLarge, message))
}

fn hash_of_list(block_ids: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for id in block_ids {
        // The length keeps two names from being read as one.
        hash.update((id.len() as u64).to_le_bytes());
        hash.update(id);
    }
    hash.finalize().into()
}

fn check_block_id(id: &str) -> Result<()> {
    if (1..=LONGEST_BLOCK_ID).contains(&id.len()) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "a block has a name of {} bytes: 1 to {LONGEST_BLOCK_ID} are allowed",
        id.len()
    )))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::super::ServiceOptions;
    use super::super::test_world::World;
    use super::*;
    use crate::job::Limits;
    use crate::storage::BlobKind;

    /// A world in which a video has 1000 bytes at most, and an upload in it.
    fn world() -> (World, BlobName) {
        let limits = Limits { max_upload_bytes: 1000, ..Limits::default() };
        let world = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
        let name = world.service.create_upload(world.anna, "mp4").unwrap().blob_name;
        (world, name)
    }

    fn put(w: &World, name: &BlobName, id: &str, bytes: &[u8]) -> Result<String> {
        let mut writer = w.service.put_block(name, id, UploadFacts::default())?;
        writer.append(bytes)?;
        writer.finish()
    }

    fn list(w: &World, name: &BlobName, ids: &[&str]) -> Result<String> {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        w.service.commit_blocks(name, &ids, UploadFacts::default(), &CancelToken::new())
    }

    fn content(w: &World, name: &BlobName) -> Vec<u8> {
        let version = w.service.uploaded_video(w.anna, name).unwrap().version;
        let key = BlobKey::Video { name: *name, version };
        let mut bytes = Vec::new();
        w.service.open_blob(&key).unwrap().file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn files(w: &World, kind: BlobKind) -> usize {
        w.service.inner.storage.list(kind, Duration::ZERO).unwrap().len()
    }

    /// Rule 32 of docs/rest.md.
    #[test]
    fn blocks_make_a_video_in_the_order_of_the_list() {
        let (w, name) = world();
        for (id, bytes) in [("b", &b"world"[..]), ("a", b"HELLO "), ("a", b"hello "), ("unused", b"x")] {
            put(&w, &name, id, bytes).unwrap();
        }
        let missing = list(&w, &name, &["a", "c"]).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::InvalidArgument);
        assert!(missing.message().contains("\"c\""));
        assert!(list(&w, &name, &[]).is_err());
        assert!(w.service.put_block(&name, "", UploadFacts::default()).is_err());
        let tag = list(&w, &name, &["a", "b"]).unwrap();
        // The answer was lost, and the list comes again; another one is wrong still.
        assert_eq!(list(&w, &name, &["a", "b"]).unwrap(), tag);
        assert!(list(&w, &name, &["ab"]).is_err());
        assert_eq!(content(&w, &name), b"hello world");
        assert_eq!(files(&w, BlobKind::Block), 0);
    }

    /// Rule 87.
    #[test]
    fn a_list_writes_no_block_twice() {
        let (w, name) = world();
        put(&w, &name, "a", &[1; 400]).unwrap();
        let twice = list(&w, &name, &["a", "a"]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::InvalidArgument);
        assert!(twice.message().contains("twice"), "{twice}");
        assert_eq!(files(&w, BlobKind::Video), 0);
    }

    /// Rule 87.
    #[test]
    fn what_waits_for_its_list_is_bounded_in_all() {
        let (w, name) = world();
        put(&w, &name, "a", &[1; 600]).unwrap();
        assert_eq!(put(&w, &name, "b", &[2; 401]).unwrap_err().kind(), ErrorKind::TooLarge);
        // The same block again takes the place of the first, so that it has all the room.
        put(&w, &name, "a", &[3; 1000]).unwrap();
        put(&w, &name, "a", &[1; 600]).unwrap();
        // Two that are on their way at once do not see each other, until they have come.
        let mut one = w.service.put_block(&name, "b", UploadFacts::default()).unwrap();
        let mut other = w.service.put_block(&name, "c", UploadFacts::default()).unwrap();
        one.append(&[2; 300]).unwrap();
        other.append(&[3; 300]).unwrap();
        one.finish().unwrap();
        assert_eq!(other.finish().unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(files(&w, BlobKind::Block), 2);
        list(&w, &name, &["a", "b"]).unwrap();
        assert_eq!(content(&w, &name).len(), 900);
        assert_eq!(w.service.inner.storage.sweep_staged(Duration::ZERO).unwrap(), 0);
    }

    /// Rule 87.
    #[test]
    fn a_client_that_leaves_takes_its_list_with_it() {
        let (w, name) = world();
        put(&w, &name, "a", b"hello").unwrap();
        let gone = CancelToken::new();
        gone.cancel();
        let left = w.service.commit_blocks(&name, &["a".into()], UploadFacts::default(), &gone).unwrap_err();
        assert_eq!(left.kind(), ErrorKind::Cancelled);
        assert_eq!((files(&w, BlobKind::Video), files(&w, BlobKind::Block)), (0, 1));
        assert_eq!(w.service.inner.storage.sweep_staged(Duration::ZERO).unwrap(), 0);
        list(&w, &name, &["a"]).unwrap();
    }

    /// Rule 26.
    #[test]
    fn a_list_that_began_in_time_may_end_after_its_address_has_expired() {
        let (w, name) = world();
        put(&w, &name, "a", b"hello").unwrap();
        w.clock.advance(121 * 60);
        assert_eq!(list(&w, &name, &["a"]).unwrap_err().kind(), ErrorKind::NotFound);
        let (keys, facts) = ([BlobKey::block(name, "a")], UploadFacts::default());
        w.service.put_together(&name, &keys, None, facts, None, &|| true).unwrap();
        assert_eq!(content(&w, &name), b"hello");
    }

    /// Rule 89.
    #[test]
    fn a_block_is_refused_if_there_is_no_space_to_put_all_together() {
        let limits = Limits { max_upload_bytes: u64::MAX, ..Limits::default() };
        let w = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
        let name = w.service.create_upload(w.anna, "mp4").unwrap().blob_name;
        let free = w.service.inner.storage.free_space().unwrap().unwrap();
        let begin = |size| {
            let facts = UploadFacts { size: Some(size), ..UploadFacts::default() };
            w.service.put_block(&name, "a", facts).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(begin(free / 10 * 6), Err(ErrorKind::DiskFull));
        begin(free / 10 * 3).unwrap();
    }

    /// Rule 89.
    #[test]
    fn blocks_go_on_whatever_else_their_user_has_begun_since() {
        let limits = Limits { max_upload_bytes: u64::MAX, ..Limits::default() };
        let w = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
        let [first, second, third] =
            [(); 3].map(|()| w.service.create_upload(w.anna, "mp4").unwrap().blob_name);
        put(&w, &first, "a", b"hello ").unwrap();
        let free = w.service.inner.storage.free_space().unwrap().unwrap();
        let sized = |size| UploadFacts { size: Some(size), ..UploadFacts::default() };
        let _large = w.service.begin_upload(&second, sized(free / 10 * 3)).unwrap();
        let mut writer = w.service.put_block(&first, "b", sized(5)).unwrap();
        writer.append(b"world").unwrap();
        writer.finish().unwrap();
        list(&w, &first, &["a", "b"]).unwrap();
        assert_eq!(content(&w, &first), b"hello world");
        // What begins now waits for its turn.
        let refused = w.service.put_block(&third, "a", sized(5)).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::DiskFull);
    }

    /// Rule 89.
    #[test]
    fn a_byte_in_each_of_many_uploads_holds_no_space_that_is_announced_after_it() {
        let limits = Limits { max_upload_bytes: u64::MAX, ..Limits::default() };
        let w = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
        let free = w.service.inner.storage.free_space().unwrap().unwrap();
        let sized = |size| UploadFacts { size: Some(size), ..UploadFacts::default() };
        let mut running = Vec::new();
        for _ in 0..16 {
            let name = w.service.create_upload(w.anna, "mp4").unwrap().blob_name;
            put(&w, &name, "a", b"x").unwrap();
            running.push(w.service.put_block(&name, "b", sized(free / 10 * 3)).unwrap());
        }
        assert_eq!(w.service.inner.space.all().bytes(|_| true), 0);
        let of_eve = w.service.create_upload(w.eve, "mp4").unwrap().blob_name;
        w.service.begin_upload(&of_eve, sized(free / 10 * 6)).unwrap();
        // What comes is promised a piece at a time.
        running[0].append(b"y").unwrap();
        assert!((1..64 << 20).contains(&w.service.inner.space.all().bytes(|_| true)));
    }

    #[test]
    fn one_list_of_an_upload_at_a_time() {
        let (w, name) = world();
        put(&w, &name, "a", b"hello").unwrap();
        let held = w.service.hold_list(&name, None, &CancelToken::new()).unwrap();
        assert_eq!(list(&w, &name, &["a"]).unwrap_err().kind(), ErrorKind::Conflict);
        drop(held);
        list(&w, &name, &["a"]).unwrap();
    }
}
