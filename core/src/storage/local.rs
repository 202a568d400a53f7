//! Blobs as files of a local folder.
//!
//! A blob is written under `staged/`, flushed, renamed to its place, and the folder is flushed: a reader, and a power
//! cut, sees it whole or not at all. Writers hold a lock on what they stage, so a sweep never takes a file from under one.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::{BlobKey, BlobKind, BlobMetadata, BlobReader, SERVICE_ID, StagedBlob, Storage};
use crate::error::{Error, Result};
use crate::failpoints;
use crate::files::{
    create_private_file, create_private_folder, free_space, is_older, sync_file, sync_folder,
    write_atomically,
};
use crate::job::{BlobName, JobId};

/// The folder of what is not complete yet.
const STAGED: &str = "staged";

/// Blobs below one folder. Any number of processes may use it.
pub struct LocalStorage {
    root: PathBuf,
    /// First part of the names of this object's staged files.
    writer: String,
    count: AtomicU64,
}

impl LocalStorage {
    /// Opens the folder `root`, making what is missing.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(root: &Path) -> Result<Self> {
        for name in [STAGED, BlobKind::Video.prefix(), BlobKind::Block.prefix(), BlobKind::Artifact.prefix()]
        {
            create_private_folder(&root.join(name))?;
        }
        let writer = uuid::Uuid::new_v4().as_simple().to_string();
        Ok(Self { root: root.to_owned(), writer, count: AtomicU64::new(0) })
    }

    /// The storage in `root` as it is: nothing is made.
    pub(crate) fn to_look_at(root: &Path) -> Self {
        Self { root: root.to_owned(), writer: String::new(), count: AtomicU64::new(0) }
    }

    /// What writers that are gone left half written and nobody touched for `age`.
    pub(crate) fn abandoned(&self, age: Duration) -> Result<Vec<PathBuf>> {
        let mut staged: Vec<PathBuf> =
            entries(&self.root.join(STAGED))?.into_iter().map(|(_, path)| path).collect();
        // Whoever writes it holds the lock, for as long as the process lives.
        staged.retain(|path| is_older(path, age) && open_to_lock(path).is_ok_and(|f| f.try_lock().is_ok()));
        Ok(staged)
    }

    fn path(&self, key: &BlobKey) -> PathBuf {
        self.root.join(key.to_string())
    }

    fn staged_path(&self) -> PathBuf {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.root.join(STAGED).join(format!("{}-{number}", self.writer))
    }

    /// The folder of a blob, made if it is missing.
    fn folder_for(&self, path: &Path) -> Result<PathBuf> {
        let folder = path.parent().unwrap_or(&self.root).to_owned();
        create_private_folder(&folder)?;
        Ok(folder)
    }

    /// Renames `staged` to `path` and flushes the folder; `at` names the failpoints.
    fn place(&self, staged: &Path, path: &Path, at: [&'static str; 2]) -> Result<()> {
        let mut placed = self.place_once(staged, path, at);
        // The folder of a job may be removed, empty, between its making and the rename.
        if placed.as_ref().is_err_and(|e| e.kind() == crate::ErrorKind::NotFound) && staged.exists() {
            placed = self.place_once(staged, path, at);
        }
        placed
    }

    fn place_once(&self, staged: &Path, path: &Path, at: [&'static str; 2]) -> Result<()> {
        let folder = self.folder_for(path)?;
        failpoints::pass(at[0])
            .and_then(|()| fs::rename(staged, path))
            .map_err(|e| Error::io("write", path, e))?;
        failpoints::pass(at[1])
            .map_err(|e| Error::io("flush", &folder, e))
            .and_then(|()| sync_folder(&folder))?;
        // Whoever made the folder of a job or an upload may have been killed before its name was durable.
        match folder.parent().filter(|above| *above != self.root) {
            Some(above) => sync_folder(above),
            None => Ok(()),
        }
    }

    /// The blobs in a folder of one job or upload, with their sizes in bytes.
    fn sized(&self, folder: &str) -> Result<Vec<(BlobKey, u64)>> {
        let mut blobs = Vec::new();
        for (file, path) in entries(&self.root.join(folder))? {
            let Some(key) = BlobKey::parse(&format!("{folder}/{file}")) else { continue };
            match fs::metadata(&path) {
                Ok(metadata) => blobs.push((key, metadata.len())),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("find", &path, e)),
            }
        }
        blobs.sort();
        Ok(blobs)
    }

    /// Removes the folder of a single job or upload if it is empty.
    fn remove_if_empty(&self, folder: &Path) {
        if folder.parent() != Some(self.root.as_path()) {
            // One that is gone, or has files, is as good.
            let _ = fs::remove_dir(folder);
        }
    }
}

impl Storage for LocalStorage {
    fn create(&self, key: &BlobKey) -> Result<Box<dyn StagedBlob>> {
        let (staged, path) = (self.staged_path(), self.path(key));
        let file = failpoints::pass("storage.create.open")
            .and_then(|()| create_private_file(&staged))
            .map_err(|e| Error::io("create", &path, e))?;
        let staged = Staged(staged);
        file.lock().map_err(|e| Error::io("lock", &path, e))?;
        let storage = Self { root: self.root.clone(), writer: String::new(), count: AtomicU64::new(0) };
        Ok(Box::new(LocalBlob { storage, path, staged, file }))
    }

    fn put_file(&self, key: &BlobKey, source: &Path) -> Result<BlobMetadata> {
        let (staged, path) = (Staged(self.staged_path()), self.path(key));
        failpoints::pass("storage.put.link")
            .and_then(|()| fs::hard_link(source, &staged.0))
            .or_else(|e| match e.kind() {
                io::ErrorKind::CrossesDevices
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::Unsupported => fs::copy(source, &staged.0).map(drop),
                _ => Err(e),
            })
            .map_err(|e| Error::io("copy", source, e))?;
        failpoints::pass("storage.put.sync")
            .and_then(|()| sync_file(&staged.0))
            .map_err(|e| Error::io("flush", &path, e))?;
        let metadata = fs::metadata(&staged.0).map_err(|e| Error::io("find", &path, e))?;
        self.place(&staged.0, &path, ["storage.put.rename", "storage.put.sync_folder"])?;
        Ok(BlobMetadata { size: metadata.len(), modified: modified(&metadata) })
    }

    fn copy(&self, from: &BlobKey, to: &BlobKey) -> Result<BlobMetadata> {
        // Blobs never change in place, so both names may lead to the same file.
        self.put_file(to, &self.path(from))
    }

    fn open(&self, key: &BlobKey) -> Result<BlobReader> {
        let path = self.path(key);
        let file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io("open", &path, e))?;
        Ok(BlobReader { file: Box::new(file), size: metadata.len(), modified: modified(&metadata) })
    }

    fn metadata(&self, key: &BlobKey) -> Result<Option<BlobMetadata>> {
        let path = self.path(key);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(BlobMetadata { size: metadata.len(), modified: modified(&metadata) })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("find", &path, e)),
        }
    }

    fn delete(&self, key: &BlobKey) -> Result<()> {
        let path = self.path(key);
        let Some(folder) = path.parent() else { return Ok(()) };
        match failpoints::pass("storage.delete.unlink").and_then(|()| fs::remove_file(&path)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.remove_if_empty(folder);
                return Ok(());
            }
            Err(e) => return Err(Error::io("remove", &path, e)),
        }
        failpoints::pass("storage.delete.sync_folder").map_err(|e| Error::io("flush", folder, e))?;
        match sync_folder(folder) {
            // Another one, which deleted the rest, was quicker.
            Err(e) if e.kind() == crate::ErrorKind::NotFound => return Ok(()),
            synced => synced?,
        }
        // Folders of single jobs and uploads go with their last file.
        self.remove_if_empty(folder);
        Ok(())
    }

    fn list(&self, kind: BlobKind, older_than: Duration) -> Result<Vec<BlobKey>> {
        let folder = self.root.join(kind.prefix());
        let mut keys = Vec::new();
        for (name, path) in entries(&folder)? {
            let name = format!("{}/{name}", kind.prefix());
            if path.is_dir() {
                for (file, path) in entries(&path)? {
                    keys.extend(
                        BlobKey::parse(&format!("{name}/{file}")).filter(|_| is_older(&path, older_than)),
                    );
                }
            } else {
                keys.extend(BlobKey::parse(&name).filter(|_| is_older(&path, older_than)));
            }
        }
        keys.sort();
        Ok(keys)
    }

    fn list_upload(&self, name: &BlobName) -> Result<Vec<BlobKey>> {
        let videos = BlobKind::Video.prefix();
        let files = entries(&self.root.join(videos))?;
        let all = files.into_iter().filter_map(|(file, _)| BlobKey::parse(&format!("{videos}/{file}")));
        let mut keys: Vec<BlobKey> = all.filter(|key| key.upload() == Some(name)).collect();
        keys.extend(self.blocks(name)?.into_iter().map(|(key, _)| key));
        let incoming = BlobKey::Incoming { name: *name };
        keys.extend(self.path(&incoming).exists().then_some(incoming));
        keys.sort();
        Ok(keys)
    }

    fn blocks(&self, name: &BlobName) -> Result<Vec<(BlobKey, u64)>> {
        let any_block = BlobKey::block(*name, "").to_string();
        let folder = any_block.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.sized(folder)
    }

    fn artifacts(&self, job: JobId) -> Result<Vec<BlobKey>> {
        let artifacts = self.sized(&format!("{}/{job}", BlobKind::Artifact.prefix()))?;
        Ok(artifacts.into_iter().map(|(key, _)| key).collect())
    }

    fn checkpoints(&self, job: JobId) -> Result<Vec<(BlobKey, u64)>> {
        self.sized(&format!("{}/{job}", BlobKind::Checkpoint.prefix()))
    }

    fn service_id(&self) -> Result<Option<String>> {
        let path = self.root.join(SERVICE_ID);
        match fs::read_to_string(&path) {
            Ok(id) => Ok(Some(id.trim().to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", &path, e)),
        }
    }

    fn note_service_id(&self, id: &str) -> Result<()> {
        if self.service_id()?.is_some() {
            return Ok(());
        }
        write_atomically(&self.root.join(SERVICE_ID), |file| writeln!(file, "{id}"))
    }

    fn sweep_staged(&self, older_than: Duration) -> Result<u64> {
        let mut removed = 0;
        for path in self.abandoned(older_than)? {
            match fs::remove_file(&path) {
                Ok(()) => removed += 1,
                // Another process sweeps too.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("remove", &path, e)),
            }
        }
        // A writer that was killed may have made the folder of a job or an upload, and nothing in it.
        for kind in BlobKind::ALL {
            for (_, path) in entries(&self.root.join(kind.prefix()))? {
                if is_older(&path, older_than) && path.is_dir() {
                    self.remove_if_empty(&path);
                }
            }
        }
        Ok(removed)
    }

    fn local_path(&self, key: &BlobKey) -> Option<PathBuf> {
        Some(self.path(key))
    }

    fn free_space(&self) -> Result<Option<u64>> {
        free_space(&self.root)
    }
}

/// A file under `staged/`, removed when this is dropped; after its rename there is nothing left to remove.
struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        // Best effort: what stays is swept.
        let _ = fs::remove_file(&self.0);
    }
}

struct LocalBlob {
    storage: LocalStorage,
    path: PathBuf,
    staged: Staged,
    file: File,
}

impl Write for LocalBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        failpoints::pass("storage.write")?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StagedBlob for LocalBlob {
    fn append_blob(&mut self, key: &BlobKey, first: u64, length: u64) -> Result<()> {
        let path = self.storage.path(key);
        let mut part = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        let copy = || {
            failpoints::pass("storage.write")?;
            part.seek(SeekFrom::Start(first))?;
            // Between files the system copies by itself, and shares the blocks where the file system can (`copy_file_range`).
            match io::copy(&mut part.take(length), &mut self.file)? {
                copied if copied < length => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            }
        };
        copy().map_err(|e| Error::io("copy", &path, e))
    }

    fn commit(self: Box<Self>) -> Result<BlobMetadata> {
        let Self { storage, path, staged, file } = *self;
        failpoints::pass("storage.commit.sync")
            .and_then(|()| file.sync_all())
            .map_err(|e| Error::io("write", &path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io("find", &path, e))?;
        storage.place(&staged.0, &path, ["storage.commit.rename", "storage.commit.sync_folder"])?;
        Ok(BlobMetadata { size: metadata.len(), modified: modified(&metadata) })
    }
}

/// Opens a file that is there, to see whether its lock can be had. Linux makes of a lock on NFS one of bytes, and refuses that for what
/// can only be read.
fn open_to_lock(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path)
}

/// Files and folders of `folder` whose names are text; one that is gone meanwhile is no error.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("list", folder, e)),
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry.map_err(|e| Error::io("list", folder, e))?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

fn modified(metadata: &fs::Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;
    use crate::job::{BlobName, VideoExtension};

    mod promises {
        use super::*;

        fn open() -> Option<(tempfile::TempDir, LocalStorage)> {
            let folder = tempfile::tempdir().unwrap();
            let storage = LocalStorage::open(folder.path()).unwrap();
            Some((folder, storage))
        }

        suite::tests!(open);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_and_strange_files_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let storage = LocalStorage::open(folder.path()).unwrap();
        let key = BlobKey::Video { name: BlobName::random(VideoExtension::Mp4), version: 1 };
        let mut blob = storage.create(&key).unwrap();
        blob.write_all(b"x").unwrap();
        blob.commit().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&storage.local_path(&key).unwrap()), 0o600);
        assert_eq!(mode(&folder.path().join("videos")), 0o700);
        // The sweep of orphans lists only what has one of our names.
        fs::write(folder.path().join("videos/holiday.mp4"), "mine").unwrap();
        fs::create_dir(folder.path().join("videos/more")).unwrap();
        fs::write(folder.path().join("videos/more/holiday.mp4"), "mine").unwrap();
        assert_eq!(storage.list(BlobKind::Video, Duration::ZERO).unwrap(), [key]);
    }

    /// Each of two machines finds what the other has removed at that moment, and the folder with it.
    #[test]
    fn two_may_delete_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let storage = [0, 1].map(|_| LocalStorage::open(folder.path()).unwrap());
        for _ in 0..200 {
            let name = BlobName::random(VideoExtension::Mp4);
            let blocks = [BlobKey::block(name, "a"), BlobKey::block(name, "b")];
            for key in &blocks {
                storage[0].create(key).unwrap().commit().unwrap();
            }
            std::thread::scope(|scope| {
                for (storage, [first, second]) in [(&storage[0], [0, 1]), (&storage[1], [1, 0])] {
                    let blocks = &blocks;
                    scope.spawn(move || {
                        storage.delete(&blocks[first]).unwrap();
                        storage.delete(&blocks[second]).unwrap();
                    });
                }
            });
            assert_eq!(storage[0].list_upload(&name).unwrap(), []);
        }
    }

    #[test]
    fn only_what_a_dead_writer_left_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let storage = LocalStorage::open(folder.path()).unwrap();
        let key = BlobKey::Video { name: BlobName::random(VideoExtension::Mp4), version: 1 };
        let mut live = storage.create(&key).unwrap();
        live.write_all(b"half").unwrap();
        fs::write(folder.path().join("staged/of-a-killed-process-0"), "rest").unwrap();
        assert_eq!(storage.sweep_staged(Duration::from_secs(3600)).unwrap(), 0);
        assert_eq!(storage.sweep_staged(Duration::ZERO).unwrap(), 1);
        live.commit().unwrap();
        assert_eq!(storage.metadata(&key).unwrap().unwrap().size, 4);
    }

    /// Each of two machines finds what the other removes at that moment, and both what somebody else is writing.
    #[test]
    fn two_may_sweep_at_once_beside_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let open = || LocalStorage::open(folder.path()).unwrap();
        let (sweepers, writer) = ([open(), open()], open());
        let staged = folder.path().join(STAGED);
        // A file that is put has no lock: it is its age that spares it.
        let source = folder.path().join("source");
        fs::write(&source, "whole").unwrap();
        let later = SystemTime::now() + Duration::from_secs(24 * 3600);
        File::options().write(true).open(&source).unwrap().set_modified(later).unwrap();
        // Its folder is not empty, and stays.
        let upload = BlobName::random(VideoExtension::Mp4);
        writer.create(&BlobKey::block(upload, "first")).unwrap().commit().unwrap();
        for round in 0..40 {
            for number in 0..20 {
                fs::write(staged.join(format!("of-a-killed-process-{number}")), "rest").unwrap();
            }
            let left = [0, 1, 2].map(|_| {
                let block = BlobKey::block(BlobName::random(VideoExtension::Mp4), "a");
                writer.local_path(&block).unwrap().parent().unwrap().to_owned()
            });
            for path in &left {
                fs::create_dir(path).unwrap();
            }
            let put = BlobKey::Video { name: BlobName::random(VideoExtension::Mp4), version: 1 };
            let written = [
                BlobKey::Video { name: BlobName::random(VideoExtension::Mp4), version: 1 },
                BlobKey::block(upload, &round.to_string()),
            ];
            let live = written.each_ref().map(|key| writer.create(key).unwrap());
            let begin = &std::sync::Barrier::new(3);
            let removed: u64 = std::thread::scope(|scope| {
                let sweeps = sweepers.each_ref().map(|storage| {
                    scope.spawn(move || {
                        begin.wait();
                        storage.sweep_staged(Duration::ZERO).unwrap()
                    })
                });
                begin.wait();
                writer.put_file(&put, &source).unwrap();
                for mut blob in live {
                    blob.write_all(b"whole").unwrap();
                    blob.commit().unwrap();
                }
                sweeps.map(|sweep| sweep.join().unwrap()).iter().sum()
            });
            assert_eq!(removed, 20);
            assert!(entries(&staged).unwrap().is_empty());
            assert!(left.iter().all(|path| !path.exists()));
            for key in written.iter().chain([&put]) {
                assert_eq!(writer.metadata(key).unwrap().unwrap().size, 5, "{key}");
            }
        }
    }

    #[test]
    fn what_is_looked_at_for_its_lock_can_be_written_and_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("left");
        assert_eq!(open_to_lock(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "rest").unwrap();
        let mut file = open_to_lock(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rest");
        file.write_all(b"R").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"Rest");
    }

    #[test]
    fn an_empty_folder_of_a_dead_writer_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let storage = LocalStorage::open(folder.path()).unwrap();
        let name = BlobName::random(VideoExtension::Mp4);
        let (empty, kept) =
            (BlobKey::block(name, "a"), BlobKey::block(BlobName::random(VideoExtension::Mp4), "a"));
        storage.create(&kept).unwrap().commit().unwrap();
        let of = |key: &BlobKey| storage.local_path(key).unwrap().parent().unwrap().to_owned();
        fs::create_dir(of(&empty)).unwrap();
        storage.sweep_staged(Duration::from_secs(3600)).unwrap();
        assert!(of(&empty).exists());
        storage.sweep_staged(Duration::ZERO).unwrap();
        assert!(!of(&empty).exists() && of(&kept).exists() && folder.path().join("blocks").exists());
        // Deleting the last file again takes the folder that a killed process left.
        fs::create_dir(of(&empty)).unwrap();
        storage.delete(&empty).unwrap();
        assert!(!of(&empty).exists());
    }
}
