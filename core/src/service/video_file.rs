//! The video of a job, or its pictures, as local files, which ffmpeg and the pipeline need: the storage's own where it has local files, else a copy.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Service;
use super::workspace::PICTURES;
use crate::control::Control;
use crate::database::UploadedVideo;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::files::{create_private_file, create_private_folder, rename, sync_file, sync_folder};
use crate::job::BlobName;
use crate::storage::{BlobKey, BlobReader};
use crate::video;

/// How much is copied between two looks whether to go on.
const PIECE: usize = 1 << 20;
/// A video of this size is copied whole to be looked at; of a larger one only its ends are.
const SMALL: u64 = 64 << 20;
/// So much of each end of a larger one. The index of a film of an hour has some MiB and lies at one of its ends.
const END: u64 = 16 << 20;

/// The cause of an error by which the input of a job has no room on the disk of this machine, which is in order otherwise.
#[derive(Debug)]
pub(super) struct NoRoomForInput;

impl fmt::Display for NoRoomForInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the input of the job has no room here")
    }
}

impl std::error::Error for NoRoomForInput {}

/// The cause of an error by which the video of the job could not be read as it came: what was made of it is not to be gone on with.
#[derive(Debug)]
pub(super) struct UnreadableVideo;

impl fmt::Display for UnreadableVideo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the video cannot be read as it came")
    }
}

impl std::error::Error for UnreadableVideo {}

/// A video that can be looked at, until this is dropped.
pub(super) struct VideoToLookAt {
    path: PathBuf,
    /// Whether all of it is there: between the ends of a large copy there are zeros.
    pub(super) is_whole: bool,
    is_copy: bool,
}

impl VideoToLookAt {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for VideoToLookAt {
    fn drop(&mut self) {
        if self.is_copy {
            // What stays is swept.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Service {
    /// The video for a look at its container.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the storage has lost it; what keeps it from being read or copied.
    pub(super) fn video_to_look_at(&self, name: &BlobName, version: u64) -> Result<VideoToLookAt> {
        let storage = &self.inner.storage;
        let key = BlobKey::Video { name: *name, version };
        if let Some(path) = storage.local_path(&key) {
            return Ok(VideoToLookAt { path, is_whole: true, is_copy: false });
        }
        let mut blob = storage.open(&key)?;
        let path = self.inner.workspaces.new_file_to_look_at()?;
        let mut copy = create_private_file(&path).map_err(|e| Error::io("create", &path, e))?;
        let is_whole = blob.size <= SMALL;
        let video = VideoToLookAt { path, is_whole, is_copy: true };
        let failed = |e| Error::io("copy the video to", video.path(), e);
        if is_whole {
            io::copy(&mut blob.file, &mut copy).map_err(failed)?;
        } else {
            io::copy(&mut (&mut blob.file).take(END), &mut copy).map_err(failed)?;
            let last = SeekFrom::Start(blob.size - END);
            blob.file.seek(last).and_then(|_| copy.seek(last)).map_err(failed)?;
            io::copy(&mut blob.file, &mut copy).map_err(failed)?;
        }
        Ok(video)
    }

    /// The video for the work on it. A copy lies in `folder`, the workspace of the job, and is made once.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the storage or its row has lost it, [`ErrorKind::DiskFull`] if there is no room for a copy, of which
    /// nothing is written then, [`ErrorKind::Cancelled`], the disk's and the storage's.
    pub(super) fn video_to_work_on(
        &self,
        name: &BlobName,
        version: u64,
        folder: &Path,
        control: &Control,
    ) -> Result<PathBuf> {
        let storage = &self.inner.storage;
        let key = BlobKey::Video { name: *name, version };
        if let Some(path) = storage.local_path(&key) {
            return Ok(path);
        }
        let row = self.inner.database.upload(name)?.and_then(|upload| upload.video);
        let video = row.filter(|video| video.version == version);
        let video = video.ok_or_else(|| Error::new(ErrorKind::NotFound, "the video of this job is gone"))?;
        let path = copy_in(folder, name);
        // A copy has its name only when it is complete.
        if fs::metadata(&path).is_ok_and(|file| file.len() == video.size) {
            return Ok(path);
        }
        let unfinished = folder.join("video.part");
        // What another attempt has left of it takes room.
        removed(fs::remove_file(&unfinished), &unfinished)?;
        self.check_room_for_input(name, &video)?;
        copy_checked(&mut storage.open(&key)?, &video, &unfinished, control)?;
        rename(&unfinished, &path)?;
        Ok(path)
    }

    /// Reads all of a job's file, which lies at `file`, and holds it to what came. Nothing is known of one without a row.
    ///
    /// # Errors
    /// With the cause [`UnreadableVideo`]: [`ErrorKind::Io`] if it cannot be read or has other bytes, [`ErrorKind::NotFound`]. Without:
    /// [`ErrorKind::Cancelled`], the database's.
    pub(super) fn check_video(
        &self,
        name: &BlobName,
        version: u64,
        file: &Path,
        control: &Control,
    ) -> Result<()> {
        let row = self.inner.database.upload(name)?.and_then(|upload| upload.video);
        let Some(video) = row.filter(|video| video.version == version) else { return Ok(()) };
        let opened = File::open(file).map_err(|e| Error::io("open", file, e));
        opened
            .and_then(|from| read_checked(from, &video, control, |e| Error::io("read", file, e), |_| Ok(())))
            .map_err(|e| if e.kind() == ErrorKind::Cancelled { e } else { e.caused_by(UnreadableVideo) })
    }

    /// What the pipeline is given of a job's file: a video as it is, of an archive the folder of its pictures. They are unpacked into
    /// `folder`, the workspace of the job, once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMedia`] for an archive that is not what it should be, [`ErrorKind::DiskFull`] if there is no room for its
    /// pictures, of which none is written then, nor stays a copy of the archive; [`ErrorKind::Cancelled`], the disk's.
    pub(super) fn input_of(&self, file: PathBuf, folder: &Path, control: &Control) -> Result<PathBuf> {
        if !video::is_archive(&file)? {
            return Ok(file);
        }
        let pictures = folder.join(PICTURES);
        // The folder has its name only when it is complete.
        if pictures.is_dir() {
            return Ok(pictures);
        }
        let unfinished = folder.join("pictures.part");
        removed(fs::remove_dir_all(&unfinished), &unfinished)?;
        if let Err(error) = self.check_room_to_work(video::unpacked_size(&file)?) {
            // It only takes room here while another machine does the job.
            if error.kind() == ErrorKind::DiskFull && file.starts_with(folder) {
                removed(fs::remove_file(&file), &file)?;
            }
            return Err(error);
        }
        create_private_folder(&unfinished)?;
        video::unpack_pictures(&file, &unfinished, control)?;
        flush(&unfinished, control)?;
        rename(&unfinished, &pictures)?;
        Ok(pictures)
    }

    /// Makes sure that the video has room where the work is done, and beside an archive its pictures. How large those are stands at the end
    /// of the archive: where they may not fit it is read before all of it comes, which would be in vain, and again at each attempt.
    fn check_room_for_input(&self, name: &BlobName, video: &UploadedVideo) -> Result<()> {
        self.check_room_to_work(video.size)?;
        let with_pictures = |bytes: u64| self.check_room_to_work(video.size.saturating_add(bytes));
        if with_pictures(video::most_unpacked(video.size)).is_ok() {
            return Ok(());
        }
        // Whatever it is called.
        let blob = self.inner.storage.open(&BlobKey::Video { name: *name, version: video.version })?;
        let first = video::begins_as_archive(blob.file);
        if !first.map_err(|e| Error::io("read", Path::new("the input of the job"), e))? {
            return Ok(());
        }
        let ends = self.video_to_look_at(name, video.version)?;
        // What is wrong with it is told when all of it is there.
        video::unpacked_size(ends.path()).map_or(Ok(()), with_pictures)
    }

    /// Makes sure that `bytes` may be written where the work is done, beside what must stay free: on a disk that is filled to its end
    /// no other job can be worked on either.
    fn check_room_to_work(&self, bytes: u64) -> Result<()> {
        let needed = bytes.saturating_add(self.inner.options.min_free_bytes);
        match self.inner.workspaces.free_space()? {
            Some(free) if free < needed => Err(Error::new(
                ErrorKind::DiskFull,
                format!(
                    "{free} bytes are free where this machine works; {needed} are needed for the input of the job and what must stay \
                     free"
                ),
            )
            .hint("free some space there, or work on a larger disk")
            .caused_by(NoRoomForInput)),
            _ => Ok(()),
        }
    }
}

/// What came of removing what was at `path`: nothing to have been there is as good.
fn removed(removed: io::Result<()>, path: &Path) -> Result<()> {
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Brings the files in `folder`, and their names, to the disk. All have been written before the first is flushed: the system writes many
/// at once then, which is several times as fast with thousands of small ones.
fn flush(folder: &Path, control: &Control) -> Result<()> {
    failpoints::pass("workspace.pictures").map_err(|e| Error::io("flush", folder, e))?;
    let list = |e| Error::io("list", folder, e);
    for entry in fs::read_dir(folder).map_err(list)? {
        control.check()?;
        let path = entry.map_err(list)?.path();
        sync_file(&path).map_err(|e| Error::io("flush", &path, e))?;
    }
    sync_folder(folder)
}

/// Reads all pictures and clips that were unpacked into `folder`, the workspace of a job, if any were.
///
/// # Errors
/// The disk's, with the cause [`UnreadableVideo`]; [`ErrorKind::Cancelled`].
pub(super) fn check_pictures(folder: &Path, control: &Control) -> Result<()> {
    let pictures = folder.join(PICTURES);
    let failed = |path: &Path, e| Error::io("read", path, e).caused_by(UnreadableVideo);
    let entries = match fs::read_dir(&pictures) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| failed(&pictures, e))?,
    };
    for entry in entries {
        control.check()?;
        let path = entry.map_err(|e| failed(&pictures, e))?.path();
        File::open(&path)
            .and_then(|mut picture| io::copy(&mut picture, &mut io::sink()))
            .map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// Where in the workspace `folder` a copy of the video lies.
pub(super) fn copy_in(folder: &Path, name: &BlobName) -> PathBuf {
    folder.join(format!("video.{}", name.extension))
}

/// Copies the video to the new file `to`, and holds it to the size and, where it is known, the hash that it had when it came.
fn copy_checked(blob: &mut BlobReader, video: &UploadedVideo, to: &Path, control: &Control) -> Result<()> {
    let mut copy = File::create(to).map_err(|e| Error::io("create", to, e))?;
    let failed = |e| Error::io("copy the video to", to, e);
    read_checked(&mut blob.file, video, control, failed, |piece| {
        copy.write_all(piece).map_err(|e| Error::io("write", to, e))
    })?;
    copy.sync_all().map_err(|e| Error::io("write", to, e))
}

/// Reads all of the video `from` somewhere, gives `take` what comes, and holds it to the size and, where it is known, the hash that it had
/// when it came. `failed` says what could not be read.
fn read_checked(
    mut from: impl Read,
    video: &UploadedVideo,
    control: &Control,
    failed: impl Fn(io::Error) -> Error,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (mut sha256, mut buffer, mut size) = (Sha256::new(), vec![0; PIECE], 0);
    loop {
        control.check()?;
        let count = from.read(&mut buffer).map_err(&failed)?;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else { break };
        sha256.update(piece);
        size += count as u64;
        take(piece)?;
    }
    let sha256 = <[u8; 32]>::from(sha256.finalize());
    if size != video.size || video.sha256.is_some_and(|expected| expected != sha256) {
        // Whether the way here or the stored file is to blame cannot be told; another attempt may.
        return Err(Error::new(
            ErrorKind::Io,
            format!("the video came with {size} bytes that are not the {} that were uploaded", video.size),
        )
        .hint("`reconstruct doctor` looks through the storage"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ServiceOptions;
    use super::super::test_machines;
    use super::super::test_world::{self, folder};
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_video_is_not_copied_to_a_disk_without_room_for_it() {
        let world = test_machines::World::new();
        let name = world.machine().upload(b"a video");
        let small = world.machine_with(|_, _| Ok(()), |options| options.min_free_bytes = u64::MAX);
        let version = small.service.inner.database.upload(&name).unwrap().unwrap().video.unwrap().version;
        let workspace = folder();
        let copy =
            |service: &Service| service.video_to_work_on(&name, version, workspace.path(), &Control::new());
        fs::write(workspace.path().join("video.part"), "of an earlier attempt").unwrap();
        assert_eq!(copy(&small.service).unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(names(workspace.path()), [""; 0]);
        assert_eq!(fs::read(copy(&world.machine().service).unwrap()).unwrap(), b"a video");
    }

    fn write_archive(path: &Path) {
        let mut archive = rawzip::ZipArchiveWriter::new(File::create(path).unwrap());
        for name in ["1.png", "2.png", "3.png"] {
            let new = archive.new_file(rawzip::path::EntryPath::verbatim(name.as_bytes()));
            let (mut entry, config) =
                new.compression_method(rawzip::CompressionMethod::STORE).start().unwrap();
            let mut writer = config.wrap(&mut entry);
            writer.write_all(b"a picture").unwrap();
            let (_, descriptor) = writer.finish().unwrap();
            entry.finish(descriptor).unwrap();
        }
        archive.finish().unwrap();
    }

    #[test]
    fn an_archive_that_is_called_otherwise_is_not_copied_to_a_disk_without_room_for_its_pictures() {
        let world = test_machines::World::new();
        let machine = world.machine();
        let workspace = folder();
        let path = workspace.path().join("pictures.zip");
        write_archive(&path);
        let bytes = fs::read(&path).unwrap();
        let name = machine.upload(&bytes);
        let version = machine.service.inner.database.upload(&name).unwrap().unwrap().video.unwrap().version;
        let copy = || machine.service.video_to_work_on(&name, version, workspace.path(), &Control::new());
        let free = |beside: u64| {
            *machine.service.inner.workspaces.told_free.lock().unwrap() = Some(bytes.len() as u64 + beside);
        };
        free(3 * 9 - 1);
        assert_eq!(copy().unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(names(workspace.path()), ["pictures.zip"]);
        free(3 * 9);
        assert_eq!(fs::read(copy().unwrap()).unwrap(), bytes);
    }

    /// After a loss of power a name without its content would be taken for complete pictures for ever.
    #[cfg(feature = "failpoints")]
    #[test]
    fn unpacked_pictures_are_flushed_before_they_have_their_name() {
        use std::sync::{Arc, Mutex};
        const FLUSH: &str = "workspace.pictures";
        let w = test_world::World::new();
        let workspace = folder();
        let path = w.folder.path().join("pictures.zip");
        write_archive(&path);
        let seen = Arc::new(Mutex::new(vec![]));
        let (noted, at, here) = (seen.clone(), workspace.path().to_owned(), std::thread::current().id());
        // Other tests unpack pictures at the same time, on threads of their own.
        let note = move || {
            if std::thread::current().id() == here {
                let unfinished = names(&at.join("pictures.part")).len();
                noted.lock().unwrap().push((unfinished, at.join(PICTURES).exists()));
            }
        };
        fail::cfg_callback(FLUSH, note).unwrap();
        let pictures = w.service.input_of(path, workspace.path(), &Control::new());
        fail::remove(FLUSH);
        assert_eq!(names(&pictures.unwrap()).len(), 3);
        assert_eq!(*seen.lock().unwrap(), [(3, false)]);
    }

    /// What cannot be flushed gets no name.
    #[test]
    fn pictures_that_are_not_flushed_are_not_taken_for_complete() {
        let (parent, control) = (folder(), Control::new());
        let unpacked = parent.path().join("pictures.part");
        assert_eq!(flush(&unpacked, &control).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir(&unpacked).unwrap();
        fs::write(unpacked.join("1.png"), b"a picture").unwrap();
        flush(&unpacked, &control).unwrap();
        control.cancel_token().cancel();
        assert_eq!(flush(&unpacked, &control).unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn pictures_are_not_unpacked_to_a_disk_without_room_for_them() {
        let w = test_world::World::new();
        let workspace = folder();
        let path = w.folder.path().join("pictures.zip");
        write_archive(&path);
        let input = |service: &Service| service.input_of(path.clone(), workspace.path(), &Control::new());
        let small = w.reopen_with(ServiceOptions { min_free_bytes: u64::MAX, ..ServiceOptions::default() });
        assert_eq!(input(&small).unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(names(workspace.path()), [""; 0]);
        // A copy of the archive is not needed then; what the storage has is.
        let copy = workspace.path().join("video.mp4");
        fs::copy(&path, &copy).unwrap();
        let refused = small.input_of(copy.clone(), workspace.path(), &Control::new()).unwrap_err();
        assert_eq!((refused.kind(), copy.exists()), (ErrorKind::DiskFull, false));
        assert_eq!(names(&input(&w.service).unwrap()).len(), 3);
    }
}
