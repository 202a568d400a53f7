//! Videos come in: whole, or in blocks that are put together at the end (`blocks.rs`). What is known of a transfer, and when
//! one may begin.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use super::Service;
use super::secrets::random;
use super::space::Reservation;
use super::upload_facts::{UploadFacts, UploadTicket};
use super::upload_writer::{Target, UploadWriter};
use crate::database::{Upload, UploadedVideo};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BLOB_NOT_FOUND, BlobName, UserId, VideoExtension};
use crate::storage::{BlobKey, UploadAddress};

impl Service {
    /// Makes a name under which the user can upload a video.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] ("Invalid file format") for a kind of file that is no video; what keeps the storage from
    /// signing its address; [`ErrorKind::Conflict`] where that is another one than that of the rows
    /// ([`WrongStorage`](super::WrongStorage)).
    pub fn create_upload(&self, user: UserId, file_extension: &str) -> Result<UploadTicket> {
        let (name, lifetime) = (new_name(file_extension)?, self.limits().upload_lifetime_minutes * 60);
        let address = self.inner.storage.upload_address(&name, Duration::from_secs(lifetime))?;
        self.new_upload(user, name, lifetime, address)
    }

    /// The same for as long as a video may wait for its job: for a sender that stops and comes back, as a person's browser does. It
    /// comes through the server, whatever the storage is: no store signs an address for more than a week.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] as for [`Service::create_upload`].
    pub fn create_patient_upload(&self, user: UserId, file_extension: &str) -> Result<UploadTicket> {
        self.new_upload(user, new_name(file_extension)?, self.limits().upload_retention_hours * 3600, None)
    }

    fn new_upload(
        &self,
        user: UserId,
        name: BlobName,
        lifetime: u64,
        address: Option<UploadAddress>,
    ) -> Result<UploadTicket> {
        self.check_takes_in()?;
        let upload = self.inner.database.create_upload(user, name, lifetime)?;
        Ok(UploadTicket { blob_name: upload.name, expires_at: upload.expires_at, address })
    }

    /// Begins the transfer of a whole video. The caller has checked that the sender is allowed to; to know the name is
    /// not enough, as it is no secret.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown or expired upload, [`ErrorKind::Conflict`] if a job uses it already, or as for
    /// [`Service::create_upload`], [`ErrorKind::TooLarge`], [`ErrorKind::DiskFull`].
    pub fn begin_upload(&self, name: &BlobName, facts: UploadFacts) -> Result<UploadWriter> {
        let upload = self.open_upload(name)?;
        self.begin_video(&upload, None, facts, None)
    }

    /// Whose upload it is, if a transfer to it may begin.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Conflict`], as for [`Service::begin_upload`].
    pub fn upload_owner(&self, name: &BlobName) -> Result<UserId> {
        self.open_upload(name).map(|upload| upload.user)
    }

    /// Begins to write the content of the upload, to which a transfer has begun in time.
    pub(super) fn begin_video(
        &self,
        upload: &Upload,
        block_list: Option<[u8; 32]>,
        facts: UploadFacts,
        promised: Option<Reservation>,
    ) -> Result<UploadWriter> {
        let version = u64::from_le_bytes(random()?);
        let target = Target::Video { version, block_list };
        let most = self.limits().max_upload_bytes;
        let key = BlobKey::Video { name: upload.name, version };
        UploadWriter::begin(self, upload, key, target, facts, most, promised)
    }

    /// Takes a video from the local disk; it is copied, so that what happens to the file later does not matter.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::InvalidArgument`] for a file that is no video by its name,
    /// [`ErrorKind::TooLarge`], [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
    pub fn import_video(&self, user: UserId, path: &Path) -> Result<BlobName> {
        self.import_video_with(user, path, |_, _| Ok(()))
    }

    /// The same; `tell` is called again and again with the bytes that are copied and those that there are, and ends it by an
    /// error.
    ///
    /// # Errors
    /// As for [`Service::import_video`], and those of `tell`.
    pub fn import_video_with(
        &self,
        user: UserId,
        path: &Path,
        mut tell: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<BlobName> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let mut file = std::fs::File::open(path).map_err(|e| Error::io("open", path, e))?;
        let size = file.metadata().map_err(|e| Error::io("open", path, e))?.len();
        let ticket = self.create_upload(user, extension)?;
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let facts = UploadFacts { file_name, size: Some(size), ..UploadFacts::default() };
        let mut writer = self.begin_upload(&ticket.blob_name, facts)?;
        let mut buffer = vec![0; 1 << 20];
        let mut copied = 0;
        loop {
            let count = file.read(&mut buffer).map_err(|e| Error::io("read", path, e))?;
            if count == 0 {
                break;
            }
            writer.append(&buffer[..count])?;
            copied += count as u64;
            tell(copied, size)?;
        }
        writer.finish()?;
        Ok(ticket.blob_name)
    }

    /// Removes an upload of the user that no job uses, with all that was sent to it: a video that was imported and could not be
    /// submitted, say, which else lies there until its time is over.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown upload, [`ErrorKind::Conflict`] if a job uses it.
    pub fn discard_upload(&self, user: UserId, name: &BlobName) -> Result<()> {
        if !self.inner.database.discard_upload(user, name)? {
            let is_used = self
                .inner
                .database
                .upload(name)?
                .is_some_and(|upload| upload.user == user && !upload.deleted);
            return Err(if is_used { used_by_a_job() } else { upload_not_found() });
        }
        // It is gone for its owner. If a file cannot be removed now, maintenance tries again.
        if let Err(error) = self.remove_upload(name) {
            log::warn!("files of the upload {name}, which is not wanted any more: {error:?}");
        }
        Ok(())
    }

    /// The upload, if a transfer to it may begin.
    pub(super) fn open_upload(&self, name: &BlobName) -> Result<Upload> {
        let upload = self.unused_upload(name)?;
        if upload.expires_at < self.inner.clock.now() {
            return Err(upload_not_found().hint("ask for a new upload address"));
        }
        // Without a question to the storage: a server asks this where it must not wait.
        self.inner.refusal.check()?;
        Ok(upload)
    }

    /// The upload, if it is there and no job uses it yet.
    pub(super) fn unused_upload(&self, name: &BlobName) -> Result<Upload> {
        let upload = self.inner.database.upload(name)?.filter(|u| !u.deleted);
        let upload = upload.ok_or_else(upload_not_found)?;
        if upload.submitted {
            return Err(used_by_a_job());
        }
        Ok(upload)
    }

    /// The video of an upload for a job of its owner.
    pub(super) fn uploaded_video(&self, user: UserId, name: &BlobName) -> Result<UploadedVideo> {
        let upload = self.inner.database.upload(name)?.filter(|u| u.user == user && !u.deleted);
        upload.and_then(|u| u.video).ok_or_else(|| Error::argument(BLOB_NOT_FOUND))
    }
}

fn new_name(file_extension: &str) -> Result<BlobName> {
    Ok(BlobName::random(file_extension.parse::<VideoExtension>()?))
}

fn used_by_a_job() -> Error {
    Error::new(ErrorKind::Conflict, "The video is already used by a job")
}

fn upload_not_found() -> Error {
    Error::new(ErrorKind::NotFound, "Upload not found")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use md5::{Digest, Md5};
    use sha2::Sha256;

    use super::super::ServiceOptions;
    use super::*;
    use crate::database::{Clock, ManualClock};
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

    #[test]
    fn a_copy_tells_how_far_it_is_and_can_be_ended() {
        let w = world();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mp4");
        std::fs::write(&path, [7u8; 900]).unwrap();
        let mut told = Vec::new();
        let heard = |copied: u64, size: u64| {
            told.push((copied, size));
            Ok(())
        };
        let name = w.service.import_video_with(w.user, &path, heard).unwrap();
        assert_eq!((told, w.content(&name)), (vec![(900, 900)], vec![7; 900]));
        let enough = |_: u64, _: u64| Err(Error::new(ErrorKind::Cancelled, "enough"));
        let ended = w.service.import_video_with(w.user, &path, enough);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(w.files(BlobKind::Video), 1);
        assert_eq!(w.service.inner.storage.sweep_staged(std::time::Duration::ZERO).unwrap(), 0);
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

    #[test]
    fn a_patient_upload_takes_blocks_for_a_day() {
        let w = world();
        let ticket = w.service.create_patient_upload(w.user, "mp4").unwrap();
        let left = ticket.expires_at.as_micros() - w.clock.now().as_micros();
        assert!((left - 24 * 3_600_000_000).abs() < 1_000_000, "{left}");
        w.clock.advance(20 * 3600);
        assert_eq!(w.service.maintain().unwrap().deleted_uploads, 0);
        w.send(&ticket.blob_name, b"late", UploadFacts::default()).unwrap();
        w.clock.advance(5 * 3600);
        assert!(w.service.begin_upload(&ticket.blob_name, UploadFacts::default()).is_err());
        assert_eq!(
            w.service.create_patient_upload(w.user, "exe").unwrap_err().message(),
            "Invalid file format"
        );
    }

    /// Rule 26: a transfer does not outlive its upload, and does not go on for one that a job uses.
    #[test]
    fn a_transfer_ends_with_its_upload() {
        let w = world();
        let name = w.name();
        let mut slow = w.service.begin_upload(&name, UploadFacts::default()).unwrap();
        w.clock.advance(23 * 3600);
        slow.append(b"slow").unwrap();
        w.clock.advance(2 * 3600);
        assert_eq!(slow.append(b"er").unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        drop(slow);

        let name = w.name();
        let mut late = w.service.begin_upload(&name, UploadFacts::default()).unwrap();
        late.append(b"too").unwrap();
        w.send(&name, b"a video", UploadFacts::default()).unwrap();
        w.service.submit(w.user, crate::job::JobRequest::new(name), None).unwrap();
        w.clock.advance(31);
        assert_eq!(late.append(b"late").unwrap_err().kind(), ErrorKind::Conflict);
        drop(late);
        assert_eq!(w.service.inner.storage.sweep_staged(std::time::Duration::ZERO).unwrap(), 0);
    }

    #[test]
    fn an_upload_that_is_not_wanted_leaves_nothing_unless_a_job_uses_it() {
        let w = world();
        let eve = w.service.add_user("eve", Tier::Enterprise).unwrap().user_id;
        let name = w.name();
        w.send(&name, b"a video", UploadFacts::default()).unwrap();
        let mut block = w.service.put_block(&name, "a", UploadFacts::default()).unwrap();
        block.append(b"x").unwrap();
        block.finish().unwrap();
        let discard =
            |user: UserId, name: &BlobName| w.service.discard_upload(user, name).map_err(|e| e.kind());
        assert_eq!(discard(eve, &name), Err(ErrorKind::NotFound));
        discard(w.user, &name).unwrap();
        assert_eq!(w.service.inner.storage.list_upload(&name).unwrap(), []);
        assert_eq!(w.service.inner.database.upload(&name).unwrap(), None);
        assert_eq!(discard(w.user, &name), Err(ErrorKind::NotFound));
        let used = w.name();
        w.send(&used, b"a video", UploadFacts::default()).unwrap();
        w.service.submit(w.user, crate::job::JobRequest::new(used), None).unwrap();
        assert_eq!(discard(w.user, &used), Err(ErrorKind::Conflict));
        assert_eq!(w.content(&used), b"a video");
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
}
