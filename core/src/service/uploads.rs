//! Videos come in: whole, or in blocks that are put together at the end.
//!
//! A transfer is written aside and becomes the content of the upload in one step when it is complete and its hashes are
//! right; one that was cut off leaves nothing. Until a job uses the upload, another transfer replaces it.

use std::io::{self, Read, Write};
use std::path::Path;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::Service;
use super::secrets::random;
use crate::database::{Upload, UploadedVideo};
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::job::{BLOB_NOT_FOUND, BlobName, Timestamp, UserId, VideoExtension};
use crate::storage::{BlobKey, BlobKind, StagedBlob};

/// Most blocks of one video, as with Azure's block blobs.
const MAX_BLOCKS: usize = 50_000;
/// Longest name of a block, bytes; Azure's is 64 before base64.
const LONGEST_BLOCK_ID: usize = 128;

/// Where a video may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadTicket {
    /// Name of the video, for [`crate::job::JobRequest`].
    pub blob_name: BlobName,
    /// Until when a transfer may begin.
    pub expires_at: Timestamp,
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

/// A transfer that is going on. Dropped before [`UploadWriter::finish`], it leaves nothing.
pub struct UploadWriter {
    service: Service,
    target: Target,
    facts: UploadFacts,
    blob: Box<dyn StagedBlob>,
    size: u64,
    sha256: Sha256,
    md5: Option<Md5>,
}

/// What a transfer becomes.
enum Target {
    Video { name: BlobName, version: u64, block_list: Option<[u8; 32]> },
    Block,
}

impl Service {
    /// Makes a name under which the user can upload a video.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] ("Invalid file format") for a kind of file that is no video.
    pub fn create_upload(&self, user: UserId, file_extension: &str) -> Result<UploadTicket> {
        let name = BlobName::random(file_extension.parse::<VideoExtension>()?);
        let lifetime = self.limits().upload_lifetime_minutes * 60;
        let upload = self.inner.database.create_upload(user, name, lifetime)?;
        Ok(UploadTicket { blob_name: upload.name, expires_at: upload.expires_at })
    }

    /// Begins the transfer of a whole video. The caller has checked that the sender is allowed to; to know the name is
    /// not enough, as it is no secret.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown or expired upload, [`ErrorKind::Conflict`] if a job uses it already,
    /// [`ErrorKind::TooLarge`], [`ErrorKind::DiskFull`].
    pub fn begin_upload(&self, name: &BlobName, facts: UploadFacts) -> Result<UploadWriter> {
        self.begin_video(name, None, facts)
    }

    fn begin_video(
        &self,
        name: &BlobName,
        block_list: Option<[u8; 32]>,
        facts: UploadFacts,
    ) -> Result<UploadWriter> {
        self.open_upload(name)?;
        let version = u64::from_le_bytes(random()?);
        let target = Target::Video { name: *name, version, block_list };
        self.writer(BlobKey::Video { name: *name, version }, target, facts)
    }

    /// Begins the transfer of a block; it takes the place of an earlier one of the same name.
    ///
    /// # Errors
    /// As for [`Service::begin_upload`]; [`ErrorKind::InvalidArgument`] for a name that is empty or too long.
    pub fn put_block(&self, name: &BlobName, block_id: &str, facts: UploadFacts) -> Result<UploadWriter> {
        check_block_id(block_id)?;
        self.open_upload(name)?;
        self.writer(BlobKey::block(*name, block_id), Target::Block, facts)
    }

    /// Makes the video of blocks that were sent before, in this order, and returns its entity tag. Blocks that are not
    /// named are forgotten. The same list once more, with no block sent in between, changes nothing: whoever did not
    /// get the answer may ask again.
    ///
    /// # Errors
    /// As for [`Service::begin_upload`]; [`ErrorKind::InvalidArgument`] if a block was not sent.
    pub fn commit_blocks(&self, name: &BlobName, block_ids: &[String], facts: UploadFacts) -> Result<String> {
        if block_ids.is_empty() || block_ids.len() > MAX_BLOCKS {
            return Err(Error::argument(format!(
                "the list has {} blocks: 1 to {MAX_BLOCKS} are allowed",
                block_ids.len()
            )));
        }
        // First of all: a video that a job uses has no blocks any more, and the sender should hear of the job, not of
        // missing blocks.
        let upload = self.open_upload(name)?;
        let list = hash_of_list(block_ids);
        if let Some(video) = upload.video.filter(|video| video.block_list == Some(list))
            && self.inner.storage.list_upload(name)?.iter().all(|key| key.kind() != BlobKind::Block)
        {
            return Ok(entity_tag(&video.sha256));
        }
        let keys: Vec<BlobKey> = block_ids.iter().map(|id| BlobKey::block(*name, id)).collect();
        let mut size = 0;
        for (key, id) in keys.iter().zip(block_ids) {
            check_block_id(id)?;
            let block = self.inner.storage.metadata(key)?;
            size += block.ok_or_else(|| Error::argument(format!("the block {id:?} was not sent")))?.size;
        }
        let facts = UploadFacts { size: Some(size), ..facts };
        let mut writer = self.begin_video(name, Some(list), facts)?;
        let mut buffer = vec![0; 1 << 20];
        for key in &keys {
            let mut block = self.inner.storage.open(key)?;
            loop {
                let count = block
                    .file
                    .read(&mut buffer)
                    .map_err(|e| Error::io("read", Path::new(&key.to_string()), e))?;
                if count == 0 {
                    break;
                }
                writer.append(&buffer[..count])?;
            }
        }
        let tag = writer.finish()?;
        self.remove_blocks(name)?;
        Ok(tag)
    }

    /// Takes a video from the local disk; it is copied, so that what happens to the file later does not matter.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::InvalidArgument`] for a file that is no video by its name,
    /// [`ErrorKind::TooLarge`], [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
    pub fn import_video(&self, user: UserId, path: &Path) -> Result<BlobName> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let mut file = std::fs::File::open(path).map_err(|e| Error::io("open", path, e))?;
        let size = file.metadata().map_err(|e| Error::io("open", path, e))?.len();
        let ticket = self.create_upload(user, extension)?;
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let facts = UploadFacts { file_name, size: Some(size), ..UploadFacts::default() };
        let mut writer = self.begin_upload(&ticket.blob_name, facts)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut buffer).map_err(|e| Error::io("read", path, e))?;
            if count == 0 {
                break;
            }
            writer.append(&buffer[..count])?;
        }
        writer.finish()?;
        Ok(ticket.blob_name)
    }

    /// The upload, if a transfer to it may begin.
    fn open_upload(&self, name: &BlobName) -> Result<Upload> {
        let upload = self.inner.database.upload(name)?.filter(|u| !u.deleted);
        let not_found = || Error::new(ErrorKind::NotFound, "Upload not found");
        let upload = upload.ok_or_else(not_found)?;
        if upload.submitted {
            return Err(Error::new(ErrorKind::Conflict, "The video is already used by a job"));
        }
        if upload.expires_at < self.inner.clock.now() {
            return Err(not_found().hint("ask for a new upload address"));
        }
        Ok(upload)
    }

    fn writer(&self, key: BlobKey, target: Target, facts: UploadFacts) -> Result<UploadWriter> {
        let size = facts.size.unwrap_or(0);
        check_size(size, self.limits().max_upload_bytes)?;
        self.check_free_space(size)?;
        let blob = self.inner.storage.create(&key)?;
        let md5 = facts.md5.map(|_| Md5::new());
        Ok(UploadWriter { service: self.clone(), target, facts, blob, size: 0, sha256: Sha256::new(), md5 })
    }

    /// The video of an upload for a job of its owner.
    pub(super) fn uploaded_video(&self, user: UserId, name: &BlobName) -> Result<UploadedVideo> {
        let upload = self.inner.database.upload(name)?.filter(|u| u.user == user && !u.deleted);
        upload.and_then(|u| u.video).ok_or_else(|| Error::argument(BLOB_NOT_FOUND))
    }

    /// Whether `more` bytes fit and leave what must stay free.
    pub(super) fn check_free_space(&self, more: u64) -> Result<()> {
        let needed = more.saturating_add(self.inner.options.min_free_bytes);
        match self.inner.storage.free_space()? {
            Some(free) if free < needed => {
                Err(Error::new(ErrorKind::DiskFull, format!("{free} bytes are free; {needed} are needed"))
                    .hint("free some space on the disk of the service"))
            }
            _ => Ok(()),
        }
    }
}

impl UploadWriter {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the limit, [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        check_size(self.size, self.service.limits().max_upload_bytes)?;
        self.sha256.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.blob.write_all(bytes).map_err(|e| Error::io("write", Path::new("the upload"), e))
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the transfer: the content is durable when this returns. Returns its strong entity tag, with quotes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the bytes are not those that were announced, [`ErrorKind::Conflict`] if a job has
    /// begun to use the upload meanwhile, [`ErrorKind::NotFound`] if it is gone, [`ErrorKind::DiskFull`],
    /// [`ErrorKind::Io`].
    pub fn finish(self) -> Result<String> {
        let Self { service, target, facts, blob, size, sha256, md5 } = self;
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
        let tag = entity_tag(&sha256);
        blob.commit()?;
        let Target::Video { name, version, block_list } = target else { return Ok(tag) };
        let file_name = facts.file_name.and_then(|n| as_title(&n));
        let video = UploadedVideo { version, size, sha256, file_name, block_list };
        let key = |version| BlobKey::Video { name, version };
        match service.inner.database.finish_upload(&name, &video) {
            Ok(replaced) => {
                if let Some(old) = replaced {
                    // What cannot be removed now is an orphan, which is swept.
                    if let Err(error) = service.inner.storage.delete(&key(old)) {
                        log::warn!("the replaced video of {name}: {error:?}");
                    }
                }
                Ok(tag)
            }
            Err(error) => {
                // Only a clear refusal says that no row names the file; else the sweep finds out.
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) {
                    service.inner.storage.delete(&key(version))?;
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

fn entity_tag(sha256: &[u8]) -> String {
    format!("\"{}\"", hex(sha256))
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

fn check_size(size: u64, most: u64) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TooLarge, format!("The video is larger than {most} bytes")))
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

/// A client's file name as a title: no folders, no control characters, not too long; nothing if nothing is left.
fn as_title(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|c| !c.is_control()).take(255).collect();
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::ServiceOptions;
    use super::*;
    use crate::database::ManualClock;
    use crate::job::{Limits, Tier};
    use crate::storage::BlobKind;

    struct World {
        service: Service,
        user: UserId,
        clock: Arc<ManualClock>,
        _folder: tempfile::TempDir,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { max_upload_bytes: 1000, ..Limits::default() };
        let options = ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() };
        let clock = Arc::new(ManualClock::new());
        let service = super::super::test_world::open(folder.path(), options, &clock);
        let user = service.add_user("anna", Tier::Enterprise).unwrap().user_id;
        World { service, user, clock, _folder: folder }
    }

    impl World {
        fn name(&self) -> BlobName {
            self.service.create_upload(self.user, "mp4").unwrap().blob_name
        }

        fn send(&self, name: &BlobName, bytes: &[u8], facts: UploadFacts) -> Result<String> {
            let mut writer = self.service.begin_upload(name, facts)?;
            writer.append(bytes)?;
            writer.finish()
        }

        fn content(&self, name: &BlobName) -> Vec<u8> {
            let version = self.service.uploaded_video(self.user, name).unwrap().version;
            let mut bytes = Vec::new();
            let key = BlobKey::Video { name: *name, version };
            self.service.inner.storage.open(&key).unwrap().file.read_to_end(&mut bytes).unwrap();
            bytes
        }

        fn files(&self, kind: BlobKind) -> usize {
            self.service.inner.storage.list(kind, std::time::Duration::ZERO).unwrap().len()
        }
    }

    /// Rules 29 and 30 of docs/rest.md.
    #[test]
    fn the_last_complete_transfer_counts_and_a_cut_one_leaves_nothing() {
        let w = world();
        let name = w.name();
        assert!(w.service.uploaded_video(w.user, &name).is_err());
        let first = w.send(&name, b"first", UploadFacts::default()).unwrap();
        let mut cut = w.service.begin_upload(&name, UploadFacts::default()).unwrap();
        cut.append(b"ha").unwrap();
        drop(cut);
        assert_eq!(w.content(&name), b"first");
        let second = w.send(&name, b"second", UploadFacts::default()).unwrap();
        assert_eq!(w.content(&name), b"second");
        assert!(first != second && first.starts_with('"') && first.ends_with('"'));
        assert_eq!(w.files(BlobKind::Video), 1);
        assert_eq!(w.service.inner.storage.sweep_staged(std::time::Duration::ZERO).unwrap(), 0);
        let stranger = w.service.add_user("eve", Tier::Enterprise).unwrap().user_id;
        assert_eq!(w.service.uploaded_video(stranger, &name).unwrap_err().message(), BLOB_NOT_FOUND);
    }

    /// Rules 28 and 31.
    #[test]
    fn sizes_and_hashes_are_held_to() {
        let w = world();
        let name = w.name();
        let announced = UploadFacts { size: Some(1001), ..UploadFacts::default() };
        assert_eq!(w.service.begin_upload(&name, announced).err().unwrap().kind(), ErrorKind::TooLarge);
        assert_eq!(
            w.send(&name, &[0; 1001], UploadFacts::default()).unwrap_err().kind(),
            ErrorKind::TooLarge
        );
        let good = UploadFacts {
            size: Some(3),
            md5: Some(Md5::digest(b"abc").into()),
            sha256: Some(Sha256::digest(b"abc").into()),
            ..UploadFacts::default()
        };
        for wrong in [
            UploadFacts { size: Some(4), ..good.clone() },
            UploadFacts { md5: Some([0; 16]), ..good.clone() },
            UploadFacts { sha256: Some([0; 32]), ..good.clone() },
        ] {
            assert_eq!(w.send(&name, b"abc", wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(w.files(BlobKind::Video), 0);
        w.send(&name, b"abc", good).unwrap();
        assert_eq!(w.content(&name), b"abc");
        w.send(&name, &[0; 1000], UploadFacts::default()).unwrap();
    }

    /// Rule 26.
    #[test]
    fn a_transfer_begins_in_time_or_not_at_all() {
        let w = world();
        let name = w.name();
        let mut begun = w.service.begin_upload(&name, UploadFacts::default()).unwrap();
        w.clock.advance(121 * 60);
        assert_eq!(
            w.service.begin_upload(&name, UploadFacts::default()).err().unwrap().kind(),
            ErrorKind::NotFound
        );
        begun.append(b"in time").unwrap();
        begun.finish().unwrap();
        assert_eq!(w.content(&name), b"in time");
        let unknown = BlobName::random(VideoExtension::Mp4);
        assert_eq!(
            w.service.begin_upload(&unknown, UploadFacts::default()).err().unwrap().kind(),
            ErrorKind::NotFound
        );
    }

    /// Rule 32.
    #[test]
    fn blocks_make_a_video_in_the_order_of_the_list() {
        let w = world();
        let name = w.name();
        let put = |id: &str, bytes: &[u8]| {
            let mut writer = w.service.put_block(&name, id, UploadFacts::default()).unwrap();
            writer.append(bytes).unwrap();
            writer.finish().unwrap();
        };
        put("b", b"world");
        put("a", b"HELLO ");
        put("a", b"hello ");
        put("unused", b"x");
        let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let missing = w.service.commit_blocks(&name, &list(&["a", "c"]), UploadFacts::default()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::InvalidArgument);
        assert!(missing.message().contains("\"c\""));
        assert!(w.service.commit_blocks(&name, &[], UploadFacts::default()).is_err());
        assert!(w.service.put_block(&name, "", UploadFacts::default()).is_err());
        let tag = w.service.commit_blocks(&name, &list(&["a", "b", "a"]), UploadFacts::default()).unwrap();
        // The answer was lost, and the list comes again; another one is wrong still.
        let again = w.service.commit_blocks(&name, &list(&["a", "b", "a"]), UploadFacts::default()).unwrap();
        assert_eq!(again, tag);
        assert!(w.service.commit_blocks(&name, &list(&["a", "ba"]), UploadFacts::default()).is_err());
        assert_eq!(w.content(&name), b"hello worldhello ");
        assert_eq!(w.files(BlobKind::Block), 0);
        // Together they must not be more than one transfer may be.
        put("big", &[0; 600]);
        let big = w.service.commit_blocks(&name, &list(&["big", "big"]), UploadFacts::default()).unwrap_err();
        assert_eq!(big.kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn a_local_file_is_copied_and_gives_its_name() {
        let w = world();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Garden tour.MP4");
        std::fs::write(&path, b"one").unwrap();
        let name = w.service.import_video(w.user, &path).unwrap();
        std::fs::write(&path, b"two").unwrap();
        assert_eq!(w.content(&name), b"one");
        let video = w.service.uploaded_video(w.user, &name).unwrap();
        assert_eq!(video.file_name.as_deref(), Some("Garden tour.MP4"));
        let none = w.service.import_video(w.user, &folder.path().join("none.mp4")).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
        std::fs::write(folder.path().join("a.txt"), b"x").unwrap();
        let text = w.service.import_video(w.user, &folder.path().join("a.txt")).unwrap_err();
        assert_eq!(text.message(), "Invalid file format");
    }

    #[test]
    fn file_names_become_titles() {
        assert_eq!(as_title("C:\\Users\\me\\walk.mp4").as_deref(), Some("walk.mp4"));
        assert_eq!(as_title("../../etc/passwd").as_deref(), Some("passwd"));
        assert_eq!(as_title("a\r\nb.mp4").as_deref(), Some("ab.mp4"));
        assert_eq!(as_title(&"x".repeat(300)).unwrap().len(), 255);
        assert_eq!(as_title(" / "), None);
    }
}
