//! Several machines with one database and one storage, each with a folder of its own, and what must hold among them.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::machine::try_storage;
use super::maintenance::AWAY;
use super::needed::ORPHAN_AGE;
use super::place::Place;
use super::secrets::Secrets;
use super::test_world::{Hungry, SmallScenes, folder};
use super::worker::{Worked, Worker};
use super::{Environment, Runner, Service, ServiceOptions, UploadFacts, WorkerOptions};
use crate::control::CancelToken;
use crate::database::{Abilities, Clock, ManualClock, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ArtifactKind, BlobName, JobId, JobRequest, JobStatus, Tier, UserId};
use crate::storage::{
    BlobKey, BlobKind, BlobMetadata, BlobReader, DownloadAnswer, LocalStorage, StagedBlob, Storage,
    UploadAddress,
};

/// What every client calls the file that it sends to the storage.
pub(super) const ANNOUNCED: &str = "films/kitchen tour.mp4";

/// The longest time for which stores sign.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// What such a storage is asked to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// To make it whole.
    Put,
    /// To say whether it is there.
    Find,
    Delete,
}

/// What happens before: there such a storage may take its time, or be away.
pub(super) type Before = Arc<dyn Fn(Asked, &BlobKey) -> Result<()> + Send + Sync>;

/// A storage without local files and with addresses of its own, as one at the other end of a network is.
struct FarStorage(LocalStorage, Before);

impl Storage for FarStorage {
    fn create(&self, key: &BlobKey) -> Result<Box<dyn StagedBlob>> {
        Ok(Box::new(FarBlob { blob: self.0.create(key)?, key: *key, before: self.1.clone() }))
    }
    fn put_file(&self, key: &BlobKey, path: &Path) -> Result<BlobMetadata> {
        (self.1)(Asked::Put, key)?;
        self.0.put_file(key, path)
    }
    fn copy(&self, from: &BlobKey, to: &BlobKey) -> Result<BlobMetadata> {
        (self.1)(Asked::Put, to)?;
        self.0.copy(from, to)
    }
    fn open(&self, key: &BlobKey) -> Result<BlobReader> {
        self.0.open(key)
    }
    fn metadata(&self, key: &BlobKey) -> Result<Option<BlobMetadata>> {
        (self.1)(Asked::Find, key)?;
        self.0.metadata(key)
    }
    fn delete(&self, key: &BlobKey) -> Result<()> {
        (self.1)(Asked::Delete, key)?;
        self.0.delete(key)
    }
    fn service_id(&self) -> Result<Option<String>> {
        self.0.service_id()
    }
    fn note_service_id(&self, id: &str) -> Result<()> {
        self.0.note_service_id(id)
    }
    fn list(&self, kind: BlobKind, older_than: Duration) -> Result<Vec<BlobKey>> {
        self.0.list(kind, older_than)
    }
    fn list_upload(&self, name: &BlobName) -> Result<Vec<BlobKey>> {
        self.0.list_upload(name)
    }
    fn blocks(&self, name: &BlobName) -> Result<Vec<(BlobKey, u64)>> {
        self.0.blocks(name)
    }
    fn artifacts(&self, job: JobId) -> Result<Vec<BlobKey>> {
        self.0.artifacts(job)
    }
    fn checkpoints(&self, job: JobId) -> Result<Vec<(BlobKey, u64)>> {
        self.0.checkpoints(job)
    }
    fn sweep_staged(&self, older_than: Duration) -> Result<u64> {
        self.0.sweep_staged(older_than)
    }
    fn local_path(&self, _key: &BlobKey) -> Option<PathBuf> {
        None
    }
    fn announced_file_name(&self, _name: &BlobName) -> Result<Option<String>> {
        Ok(Some(ANNOUNCED.to_owned()))
    }
    fn upload_address(&self, name: &BlobName, lifetime: Duration) -> Result<Option<UploadAddress>> {
        if lifetime > WEEK {
            return Err(Error::argument("no address is good for more than a week"));
        }
        let url = format!("far://{}?for={}", BlobKey::Incoming { name: *name }, lifetime.as_secs());
        Ok(Some(UploadAddress { url, headers: vec![("x-far", "1")] }))
    }
    fn download_address(
        &self,
        key: &BlobKey,
        lifetime: Duration,
        answer: &DownloadAnswer<'_>,
    ) -> Result<Option<String>> {
        Ok(Some(format!("far://{key}?for={}&as={}", lifetime.as_secs(), answer.content_type)))
    }
    fn free_space(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// A blob that is sent there when all of it has come.
struct FarBlob {
    blob: Box<dyn StagedBlob>,
    key: BlobKey,
    before: Before,
}

impl Write for FarBlob {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.blob.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.blob.flush()
    }
}

impl StagedBlob for FarBlob {
    fn append_blob(&mut self, key: &BlobKey, first: u64, length: u64) -> Result<()> {
        self.blob.append_blob(key, first, length)
    }
    fn commit(self: Box<Self>) -> Result<BlobMetadata> {
        let Self { blob, key, before } = *self;
        before(Asked::Put, &key)?;
        blob.commit()
    }
}

/// What the machines share.
pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) shared: tempfile::TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let shared = folder();
        Secrets::open(&shared.path().join("secrets.json")).unwrap();
        Self { clock: Arc::new(ManualClock::new()), shared }
    }

    pub(super) fn machine(&self) -> Machine {
        self.machine_that_looks(|_, _| Ok(()))
    }

    pub(super) fn machine_that_looks(&self, look: super::Look) -> Machine {
        self.machine_with(look, |_| {})
    }

    pub(super) fn machine_with(&self, look: super::Look, set: impl FnOnce(&mut ServiceOptions)) -> Machine {
        self.open(self.shared.path(), look, set, Arc::new(|_, _| Ok(())))
    }

    /// One whose storage is asked for nothing before `before` has heard of it.
    pub(super) fn machine_that_hears(
        &self,
        before: impl Fn(Asked, &BlobKey) -> Result<()> + Send + Sync + 'static,
    ) -> Machine {
        self.open(self.shared.path(), |_, _| Ok(()), |_| {}, Arc::new(before))
    }

    /// One whose files are in the folder `files`, not beside the rows.
    pub(super) fn machine_over(&self, files: &Path) -> Machine {
        self.open(files, |_, _| Ok(()), |_| {}, Arc::new(|_, _| Ok(())))
    }

    fn open(
        &self,
        files: &Path,
        look: super::Look,
        set: impl FnOnce(&mut ServiceOptions),
        before: Before,
    ) -> Machine {
        let folder = folder();
        let mut options = ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() };
        set(&mut options);
        let environment = Environment { clock: self.clock.clone(), look };
        let shared = self.shared.path();
        let secrets = shared.join("secrets.json");
        let service =
            Service::open_at(folder.path(), Some(&secrets), options, environment, |_, clock, options| {
                let place = Place::in_folder(shared, clock, options)?;
                let storage = Box::new(FarStorage(LocalStorage::open(files)?, before));
                Ok(Place { storage, has_other_machines: true, ..place })
            });
        Machine { service: service.unwrap(), folder }
    }
}

pub(super) struct Machine {
    pub(super) service: Service,
    pub(super) folder: tempfile::TempDir,
}

impl Machine {
    pub(super) fn user(&self) -> UserId {
        self.service.user_or_new("anna", Tier::Enterprise).unwrap().user_id
    }

    pub(super) fn upload(&self, bytes: &[u8]) -> BlobName {
        let name = self.service.create_upload(self.user(), "mp4").unwrap().blob_name;
        let mut writer = self.service.begin_upload(&name, UploadFacts::default()).unwrap();
        writer.append(bytes).unwrap();
        writer.finish().unwrap();
        name
    }

    pub(super) fn submit(&self, bytes: &[u8]) -> JobId {
        let request = JobRequest::new(self.upload(bytes));
        self.service.submit(self.user(), request, None).unwrap().body.job_id
    }

    pub(super) fn work_once(&self) -> Result<Worked> {
        let options = WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() };
        Worker::new(&self.service, &options, &CancelToken::new(), &SmallScenes).unwrap().work_once()
    }

    pub(super) fn status(&self, job: JobId) -> JobStatus {
        self.service.job(self.user(), job).unwrap().status
    }

    /// What lies in its folder of workspaces.
    pub(super) fn work(&self) -> usize {
        fs::read_dir(self.folder.path().join("work")).unwrap().count()
    }
}

#[test]
fn machines_that_share_rows_share_their_secrets() {
    let world = World::new();
    let (here, there) = (world.machine(), world.machine());
    let (_, key) = here.service.create_key(here.user(), "laptop").unwrap();
    there.service.authenticate(key.reveal()).unwrap();
    fs::remove_file(world.shared.path().join("secrets.json")).unwrap();
    let place = |_: &Path, clock, options: &ServiceOptions| {
        let place = Place::in_folder(world.shared.path(), clock, options)?;
        Ok(Place { has_other_machines: true, ..place })
    };
    let (own, options) = (folder(), ServiceOptions::default());
    let environment = Environment { clock: world.clock.clone(), look: |_, _| Ok(()) };
    let refused = Service::open_at(own.path(), None, options, environment, place).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(refused.hint_text().unwrap().contains("secrets.json"), "{refused}");
}

#[test]
fn a_job_is_submitted_here_and_done_there() {
    let world = World::new();
    let (here, there) = (world.machine(), world.machine());
    let job = here.submit(b"a video");
    assert_eq!(here.work(), 0, "what was looked at is gone");
    assert_eq!(there.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(job), JobStatus::Finished);
    let scene = here.service.artifact(here.user(), job, ArtifactKind::Ply).unwrap();
    assert_eq!(here.service.open_blob(&scene.key).unwrap().size, scene.size);
    assert_eq!(there.work(), 0, "the copy of the video is gone");
}

#[test]
fn a_job_of_another_machine_is_left_alone_until_its_lease_ends() {
    let world = World::new();
    let (here, there) = (world.machine(), world.machine());
    let job = here.submit(b"a video");
    let inner = &here.service.inner;
    let claim = inner.database.claim(inner.process.id(), "w", 30, &Abilities::ALL).unwrap();
    assert_eq!(claim.unwrap().lease.job, job);
    assert_eq!(there.work_once().unwrap(), Worked::Nothing, "its process has no lock there");
    world.clock.advance(31);
    assert_eq!(there.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(job), JobStatus::Finished);
    // Of a process on the same machine it is seen at once that it is dead.
    let job = here.submit(b"a video");
    let dead = super::process::ProcessLock::take(&here.folder.path().join("processes")).unwrap();
    inner.database.claim(dead.id(), "w", 30, &Abilities::ALL).unwrap().unwrap();
    let file = here.folder.path().join("processes").join(dead.id());
    drop(dead);
    fs::write(file, "").unwrap();
    assert_eq!(there.work_once().unwrap(), Worked::Nothing);
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(job), JobStatus::Finished);
}

/// A machine with the shortest lease there is, whose storage takes two leases for artifacts of the kind `slow`; `before_put` hears of
/// each artifact before.
fn slow_machine(
    world: &World,
    slow: ArtifactKind,
    before_put: impl Fn(&BlobKey) + Send + Sync + 'static,
) -> Machine {
    let clock = world.clock.clone();
    let take_long = move |asked: Asked, key: &BlobKey| -> Result<()> {
        let (Asked::Put, BlobKey::Artifact { kind, .. }) = (asked, key) else { return Ok(()) };
        before_put(key);
        if *kind == slow {
            for _ in 0..6 {
                clock.advance(2);
                std::thread::sleep(Duration::from_millis(1200));
            }
        }
        Ok(())
    };
    let shared = world.shared.path();
    world.open(shared, |_, _| Ok(()), |options| options.lease_seconds = 6, Arc::new(take_long))
}

/// Does one job `here`, while another machine takes back all jobs whose leases have ended: there must be none.
fn work_and_keep(here: &Machine, there: &Machine) {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| here.work_once().unwrap());
        while !worker.is_finished() {
            let reclaimed = there.service.reclaim().unwrap();
            assert_eq!((reclaimed.requeued_jobs, reclaimed.failed_jobs), (0, 0), "its worker lives");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn a_job_stays_with_its_worker_while_its_scene_goes_to_a_slow_storage() {
    let world = World::new();
    let there = world.machine();
    let here = slow_machine(&world, ArtifactKind::Ply, |_| {});
    let job = here.submit(b"a video");
    work_and_keep(&here, &there);
    assert_eq!(there.status(job), JobStatus::Finished);
    assert_eq!(there.service.job(there.user(), job).unwrap().details.attempt, 1);
}

#[test]
fn a_job_stays_with_its_worker_while_the_log_of_its_failure_goes_to_a_slow_storage() {
    let world = World::new();
    let there = world.machine();
    let here = slow_machine(&world, ArtifactKind::Log, |_| {});
    let job = here.submit(b"a video");
    let video = fs::read_dir(world.shared.path().join("videos")).unwrap().next().unwrap().unwrap().path();
    fs::write(&video, b"a vidEo").unwrap();
    work_and_keep(&here, &there);
    assert!(matches!(here.status(job), JobStatus::Queued { .. }));
    fs::write(&video, b"a video").unwrap();
    world.clock.advance(3600);
    there.work_once().unwrap();
    assert_eq!(there.status(job), JobStatus::Finished);
}

#[test]
fn a_job_that_is_deleted_while_its_scene_is_stored_leaves_nothing() {
    let world = World::new();
    let there = world.machine();
    let (user, rows) = (there.user(), there.service.inner.database.clone());
    let stored = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, service) = (stored.clone(), there.service.clone());
    let here = slow_machine(&world, ArtifactKind::Ply, move |key| {
        let BlobKey::Artifact { job, kind, .. } = key else { return };
        seen.lock().unwrap().push(*kind);
        // Of another process: nobody tells the worker.
        let _ = service.inner.database.mark_deleted(user, *job).unwrap();
    });
    let job = here.submit(b"a video");
    here.work_once().unwrap();
    assert_eq!(*stored.lock().unwrap(), [ArtifactKind::Ply], "nothing is begun for a job that is gone");
    assert_eq!(rows.file_owner(job).unwrap(), crate::database::FileOwner::Nobody);
    assert_eq!(fs::read_dir(world.shared.path().join("scenes")).unwrap().count(), 0);
    assert_eq!(here.work(), 0);
}

/// Each try takes long while the storage is away.
#[test]
fn whoever_deletes_a_job_does_not_wait_for_the_files_of_others() {
    let world = World::new();
    let (asked, found) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let is_away = Arc::new(AtomicBool::new(false));
    let (count, finds, away) = (asked.clone(), found.clone(), is_away.clone());
    let here = world.machine_that_hears(move |asked, _| {
        match asked {
            Asked::Delete => count.fetch_add(1, Ordering::Relaxed),
            Asked::Find => finds.fetch_add(1, Ordering::Relaxed),
            Asked::Put => 0,
        };
        match away.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Io, "the storage is away")),
            false => Ok(()),
        }
    });
    let jobs = [(); 4].map(|()| here.submit(b"a video"));
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    is_away.store(true, Ordering::Relaxed);
    // The scene of the first, the videos of the others.
    for (others, job) in jobs.into_iter().enumerate() {
        asked.store(0, Ordering::Relaxed);
        here.service.delete(here.user(), job).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{others} others wait");
    }
    for count in [&asked, &found] {
        count.store(0, Ordering::Relaxed);
    }
    assert!(here.service.maintain().is_err());
    assert_eq!((asked.load(Ordering::Relaxed), found.load(Ordering::Relaxed)), (AWAY, 1));
    is_away.store(false, Ordering::Relaxed);
    let report = here.service.maintain().unwrap();
    assert_eq!((report.deleted_jobs, report.deleted_uploads), (1, 4));
    for place in ["videos", "scenes"] {
        assert_eq!(fs::read_dir(world.shared.path().join(place)).unwrap().count(), 0, "{place}");
    }
}

/// It is read all the same, and each deletion is waited for.
#[test]
fn a_storage_that_deletes_nothing_keeps_neither_the_opening_nor_maintenance_for_long() {
    let world = World::new();
    let here = world.machine();
    let jobs = [(); 4].map(|()| here.submit(b"a video"));
    for job in jobs {
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        assert!(here.service.inner.database.mark_deleted(here.user(), job).unwrap());
    }
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let there = world.machine_that_hears(move |asked, _| match asked {
        Asked::Delete => {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Error::new(ErrorKind::Io, "it deletes nothing"))
        }
        Asked::Put | Asked::Find => Ok(()),
    });
    assert_eq!(asked.swap(0, Ordering::Relaxed), AWAY, "to open it");
    assert!(there.service.maintain().is_err());
    assert_eq!(asked.load(Ordering::Relaxed), AWAY + 1, "and one that is not there");
    assert_eq!(here.service.maintain().unwrap().deleted_jobs, 4);
}

/// Its account may not delete, say. To list all files again in a minute would be in vain, and so would it be to leave one more there.
#[test]
fn a_storage_that_deletes_nothing_is_listed_once_an_hour_and_not_filled() {
    let world = World::new();
    let (deletions, is_away) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, away) = (deletions.clone(), is_away.clone());
    let here = world.machine_that_hears(move |asked, _| match asked {
        Asked::Delete => {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Error::new(ErrorKind::Io, "it deletes nothing"))
        }
        Asked::Find if away.load(Ordering::Relaxed) => Err(Error::new(ErrorKind::Io, "it is away")),
        Asked::Put | Asked::Find => Ok(()),
    });
    let inner = &here.service.inner;
    here.user();
    here.service.check_storage().unwrap();
    for _ in 0..AWAY {
        let stray = BlobKey::Artifact { job: JobId::random(), attempt: 1, kind: ArtifactKind::Ply };
        let mut blob = inner.storage.create(&stray).unwrap();
        blob.write_all(b"stray").unwrap();
        blob.commit().unwrap();
    }
    inner.sweeps.look_again();
    assert!(here.service.sweep(Duration::ZERO).is_err());
    assert_eq!(deletions.swap(0, Ordering::Relaxed), AWAY + 1, "and one that is not there");
    assert!(!inner.sweeps.are_due(ORPHAN_AGE));
    here.service.maintain().unwrap();
    assert_eq!(deletions.load(Ordering::Relaxed), 0);
    // One that is away may be back in a minute.
    is_away.store(true, Ordering::Relaxed);
    inner.sweeps.look_again();
    assert!(here.service.sweep(Duration::ZERO).is_err());
    assert!(inner.sweeps.are_due(ORPHAN_AGE));
    is_away.store(false, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(here.work_once().is_err());
    }
    assert_eq!(inner.storage.list(BlobKind::Checkpoint, Duration::ZERO).unwrap().len(), 1);
}

/// Else one would delete what another is about to make whole.
#[test]
fn workers_of_one_process_try_the_storage_one_after_the_other() {
    let world = World::new();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, seen) = (now.clone(), most.clone());
    let here = world.machine_that_hears(move |asked, key| {
        let is_try = matches!(key, BlobKey::Checkpoint { .. });
        match asked {
            Asked::Put if is_try => {
                seen.fetch_max(count.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
            Asked::Delete if is_try => {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            Asked::Put | Asked::Find | Asked::Delete => {}
        }
        Ok(())
    });
    here.user();
    let service = &here.service;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| try_storage(service).unwrap());
        }
    });
    assert_eq!((now.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (0, 1));
}

/// Of a thousand, say, of a job that has no room on any machine.
#[test]
fn attempts_that_left_nothing_cost_nothing_when_their_job_is_deleted() {
    let world = World::new();
    let here = world.machine();
    let job = here.submit(b"a video");
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    let storage = &here.service.inner.storage;
    let of_attempt = |attempt| BlobKey::Artifact { job, attempt, kind: ArtifactKind::Log };
    // As workers leave it that are fenced off, or killed before they can remove it.
    for attempt in [2, 700] {
        storage.create(&of_attempt(attempt)).unwrap().commit().unwrap();
    }
    let rows = rusqlite::Connection::open(world.shared.path().join("jobs.db")).unwrap();
    let set = "UPDATE jobs SET attempt = 1000 WHERE job_id = ?1";
    assert_eq!(rows.execute(set, [job.to_string()]).unwrap(), 1);
    assert!(here.service.inner.database.mark_deleted(here.user(), job).unwrap());
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let there = world.machine_that_hears(move |asked, _| {
        if asked == Asked::Delete {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    assert!((1..50).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
    assert_eq!(storage.artifacts(job).unwrap(), []);
    assert_eq!(there.service.inner.database.deleted_jobs().unwrap(), []);
}

/// Whoever opens a service waits for it.
#[test]
fn what_takes_long_to_remove_is_left_by_the_opening() {
    let world = World::new();
    let here = world.machine();
    let job = here.submit(b"a video");
    assert!(here.service.inner.database.mark_deleted(here.user(), job).unwrap());
    here.service.recover_until(Instant::now());
    assert_eq!(here.service.inner.database.deleted_jobs().unwrap().len(), 1);
    let report = here.service.maintain().unwrap();
    assert_eq!((report.deleted_jobs, report.deleted_uploads), (1, 1));
}

/// The storage answers: only these files stay.
#[test]
fn files_that_cannot_be_deleted_keep_no_others() {
    let world = World::new();
    let stuck = Arc::new(Mutex::new(HashSet::<JobId>::new()));
    let held = stuck.clone();
    let here = world.machine_that_hears(move |asked, key| match (asked, key) {
        (Asked::Delete, BlobKey::Artifact { job, .. }) if held.lock().unwrap().contains(job) => {
            Err(Error::new(ErrorKind::Io, "it may not be deleted"))
        }
        _ => Ok(()),
    });
    let inner = &here.service.inner;
    let jobs = [(); 3].map(|()| here.submit(b"a video"));
    for _ in jobs {
        assert_eq!(here.work_once().unwrap(), Worked::Done);
    }
    let expired = here.upload(b"a video");
    stuck.lock().unwrap().extend([jobs[0], jobs[1]]);
    for job in jobs {
        assert!(inner.database.mark_deleted(here.user(), job).unwrap());
    }
    world.clock.advance(27 * 3600);
    inner.sweeps.look_again();
    assert!(here.service.maintain().is_err());
    let left: Vec<JobId> = inner.database.deleted_jobs().unwrap().into_iter().map(|left| left.job).collect();
    assert_eq!(left, [jobs[0], jobs[1]]);
    assert_eq!(inner.database.upload(&expired).unwrap(), None);
    assert!(!inner.sweeps.are_due(ORPHAN_AGE), "all lists were read");
    // Of files without rows those stay that come first in their list.
    let mut strays = [(); 3].map(|()| JobId::random());
    strays.sort();
    let key = |job| BlobKey::Artifact { job, attempt: 1, kind: ArtifactKind::Ply };
    for job in strays {
        let mut blob = inner.storage.create(&key(job)).unwrap();
        blob.write_all(b"stray").unwrap();
        blob.commit().unwrap();
    }
    stuck.lock().unwrap().extend([strays[0], strays[1]]);
    inner.sweeps.look_again();
    assert!(here.service.sweep(Duration::ZERO).is_err());
    let left = inner.storage.list(BlobKind::Artifact, Duration::ZERO).unwrap();
    assert_eq!(strays.map(|job| left.contains(&key(job))), [true, true, false]);
    assert!(!inner.sweeps.are_due(ORPHAN_AGE));
    // When they can be, they go.
    stuck.lock().unwrap().clear();
    assert_eq!(here.service.maintain().unwrap().deleted_jobs, 2);
    here.service.sweep(Duration::ZERO).unwrap();
    assert_eq!(inner.storage.list(BlobKind::Artifact, Duration::ZERO).unwrap(), []);
}

/// It can be read all the same.
#[test]
fn a_storage_that_takes_nothing_any_more_costs_no_job() {
    let world = World::new();
    let (is_mended, takes_nothing) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (mended, refuses) = (is_mended.clone(), takes_nothing.clone());
    let here = world.machine_that_hears(move |asked, key| {
        if asked != Asked::Put {
            return Ok(());
        }
        // It begins with the first file of a scene.
        if matches!(key, BlobKey::Artifact { .. }) && !mended.load(Ordering::Relaxed) {
            refuses.store(true, Ordering::Relaxed);
        }
        match refuses.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Io, "the storage takes nothing")),
            false => Ok(()),
        }
    });
    let jobs = [(); 2].map(|()| here.submit(b"a video"));
    for _ in 0..2 {
        assert_eq!(here.work_once().unwrap_err().kind(), ErrorKind::Io);
    }
    let rows = rusqlite::Connection::open(world.shared.path().join("jobs.db")).unwrap();
    let counts = |job: JobId| {
        let sql = "SELECT attempt, disturbances FROM jobs WHERE job_id = ?1";
        rows.query_row(sql, [job.to_string()], |r| Ok((r.get::<_, u32>(0)?, r.get::<_, u32>(1)?))).unwrap()
    };
    assert_eq!(
        jobs.map(counts),
        [(1, 0), (0, 0)],
        "nothing is held against the first, the second was not taken"
    );
    assert!(jobs.iter().all(|job| matches!(here.status(*job), JobStatus::Queued { .. })));
    is_mended.store(true, Ordering::Relaxed);
    takes_nothing.store(false, Ordering::Relaxed);
    for job in jobs {
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        assert_eq!(here.status(job), JobStatus::Finished);
    }
    let tried = here.service.inner.storage.list(BlobKind::Checkpoint, Duration::ZERO).unwrap();
    assert_eq!(tried, [], "what was tried is gone");
}

#[test]
fn a_video_that_comes_in_wrong_is_no_fault_of_the_job() {
    let world = World::new();
    let machine = world.machine();
    let job = machine.submit(b"a video");
    let video = fs::read_dir(world.shared.path().join("videos")).unwrap().next().unwrap().unwrap().path();
    fs::write(&video, b"a vidEo").unwrap();
    machine.work_once().unwrap();
    assert!(matches!(machine.status(job), JobStatus::Queued { .. }));
    fs::write(&video, b"a video").unwrap();
    world.clock.advance(3600);
    machine.work_once().unwrap();
    assert_eq!(machine.status(job), JobStatus::Finished);
}

/// A larger machine may do it, whatever this one finds how often.
#[test]
fn a_job_whose_video_has_no_room_on_one_machine_is_left_to_another_and_stops_no_other_job() {
    let world = World::new();
    let machine = world.machine();
    let large = machine.submit(b"a video");
    let others = [(); 12].map(|()| machine.submit(b"another video"));
    let rows = rusqlite::Connection::open(world.shared.path().join("jobs.db")).unwrap();
    // As if it had so many bytes.
    let set_size = |size: i64| {
        let sql =
            "UPDATE uploads SET size = ?2 WHERE blob_name = (SELECT blob_name FROM jobs WHERE job_id = ?1)";
        assert_eq!(rows.execute(sql, (large.to_string(), size)).unwrap(), 1);
    };
    set_size(1 << 60);
    for other in others {
        for _ in 0..2 {
            assert_eq!(machine.work_once().unwrap(), Worked::Done);
        }
        assert_eq!(machine.status(other), JobStatus::Finished);
        assert!(matches!(machine.status(large), JobStatus::Queued { .. }));
        world.clock.advance(Patience::OCCUPIED_SECONDS as i64);
    }
    let sql = "SELECT attempt, disturbances FROM jobs WHERE job_id = ?1";
    let counts: (u32, u32) =
        rows.query_row(sql, [large.to_string()], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
    assert_eq!(counts, (12, 0));
    set_size(7);
    assert_eq!(machine.work_once().unwrap(), Worked::Done);
    assert_eq!(machine.status(large), JobStatus::Finished);
}

/// It would be fetched at each attempt, and lie where it is of no use.
#[test]
fn an_archive_is_not_fetched_to_where_its_pictures_have_no_room() {
    let world = World::new();
    let machine = world.machine();
    // Three files of a megabyte that pack well.
    let path = machine.folder.path().join("pictures.zip");
    let mut archive = rawzip::ZipArchiveWriter::new(fs::File::create(&path).unwrap());
    for name in ["1.png", "2.png", "3.png"] {
        let new = archive.new_file(rawzip::path::EntryPath::verbatim(name.as_bytes()));
        let (mut entry, config) = new.compression_method(rawzip::CompressionMethod::DEFLATE).start().unwrap();
        let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
        let mut writer = config.wrap(encoder);
        writer.write_all(&[0; 1 << 20]).unwrap();
        let (encoder, descriptor) = writer.finish().unwrap();
        encoder.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    let archive = fs::read(&path).unwrap();
    let free = |bytes: u64| *machine.service.inner.workspaces.told_free.lock().unwrap() = Some(bytes);
    // Also one that is called otherwise.
    for extension in ["zip", "mp4"] {
        let name = machine.service.create_upload(machine.user(), extension).unwrap().blob_name;
        let mut writer = machine.service.begin_upload(&name, UploadFacts::default()).unwrap();
        writer.append(&archive).unwrap();
        writer.finish().unwrap();
        let job = machine.service.submit(machine.user(), JobRequest::new(name), None).unwrap().body.job_id;
        free(2 << 20);
        assert_eq!(machine.work_once().unwrap(), Worked::Done);
        assert!(matches!(machine.status(job), JobStatus::Queued { .. }), "{extension}");
        let workspace = fs::read_dir(machine.folder.path().join(format!("work/{job}"))).unwrap();
        let mut left: Vec<_> = workspace.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["job.log", "worker.lock"], "{extension}");
        free(4 << 20);
        world.clock.advance(Patience::OCCUPIED_SECONDS as i64);
        assert_eq!(machine.work_once().unwrap(), Worked::Done);
        assert_eq!(machine.status(job), JobStatus::Finished, "{extension}");
    }
    assert_eq!(machine.work(), 0);
}

/// Else it would stop one machine after the other.
#[test]
fn a_job_that_fills_disks_keeps_no_other_from_being_done_and_fails_in_the_end() {
    let world = World::new();
    let machines = [world.machine(), world.machine()];
    let [first, second] = &machines;
    let greedy = first.submit(b"a video");
    let hungry = machines.each_ref().map(|machine| Hungry::of(greedy, machine.folder.path()));
    let (options, cancel) =
        (WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() }, CancelToken::new());
    let mut workers: Vec<Worker<'_>> = machines
        .iter()
        .zip(&hungry)
        .map(|(machine, hungry)| Worker::new(&machine.service, &options, &cancel, hungry).unwrap())
        .collect();
    let eve = first.service.user_or_new("eve", Tier::Enterprise).unwrap().user_id;
    let submit = || {
        let name = first.service.create_upload(eve, "mp4").unwrap().blob_name;
        let mut writer = first.service.begin_upload(&name, UploadFacts::default()).unwrap();
        writer.append(b"another video").unwrap();
        writer.finish().unwrap();
        first.service.submit(eve, JobRequest::new(name), None).unwrap().body.job_id
    };
    while !first.status(greedy).is_terminal() {
        let other = submit();
        while !second.service.job(eve, other).unwrap().status.is_terminal() {
            for worker in &mut workers {
                worker.work_once().unwrap();
            }
        }
        assert_eq!(second.service.job(eve, other).unwrap().status, JobStatus::Finished);
        assert!(hungry.iter().all(|hungry| !hungry.left.exists()));
        world.clock.advance(3600);
    }
    let failed = first.service.job(first.user(), greedy).unwrap().details;
    assert_eq!((failed.attempt, failed.failure.unwrap().code.as_str()), (10, "disk_full"));
    assert!(first.service.log(first.user(), greedy).unwrap().contains("failed: disk_full"));
}

#[test]
fn of_a_large_video_only_the_ends_are_looked_at() {
    fn has_both_ends(path: &Path, _: Duration) -> Result<()> {
        let bytes = fs::read(path).unwrap();
        assert_eq!(bytes.len(), 70 << 20);
        assert_eq!((bytes[0], bytes[bytes.len() - 1], bytes[35 << 20]), (1, 2, 0));
        Err(Error::new(ErrorKind::InvalidMedia, "what it needs lies in the middle"))
    }
    let world = World::new();
    let machine = world.machine_that_looks(has_both_ends);
    let mut video = vec![3; 70 << 20];
    (video[0], video[(70 << 20) - 1]) = (1, 2);
    // The worker sees all of it, and decides.
    let job = machine.submit(&video);
    assert!(matches!(machine.status(job), JobStatus::Queued { .. }));
    // A small one is there as a whole.
    let machine = world.machine_that_looks(|path, _| {
        assert_eq!(fs::read(path).unwrap(), b"no video");
        Err(Error::new(ErrorKind::InvalidMedia, "no video"))
    });
    let request = JobRequest::new(machine.upload(b"no video"));
    let refused = machine.service.submit(machine.user(), request, None).unwrap_err();
    assert_eq!(refused.message(), "Invalid file format");
    assert_eq!(machine.work(), 0);
}

#[test]
fn a_machine_keeps_nothing_of_jobs_that_were_done_elsewhere() {
    let world = World::new();
    let (here, there) = (world.machine(), world.machine());
    let done = here.submit(b"a video");
    here.work_once().unwrap();
    let waits = here.submit(b"another");
    // As workers leave it that were killed.
    for job in [done, waits] {
        drop(there.service.inner.workspaces.enter(job).unwrap().unwrap());
    }
    let locks = there.folder.path().join("processes");
    fs::write(locks.join("dead"), "").unwrap();
    there.service.tidy_machine();
    assert_eq!(there.service.inner.workspaces.list().unwrap(), [waits], "it may go on there");
    assert!(!locks.join("dead").exists() && locks.join(there.service.inner.process.id()).exists());
    // A worker does so by itself.
    let third = world.machine();
    drop(third.service.inner.workspaces.enter(done).unwrap().unwrap());
    let end = super::WorkerEnd::Idle(Duration::ZERO);
    let options = WorkerOptions { threads: 1, niceness: 0, end, ..WorkerOptions::default() };
    third.service.run_worker_with(&options, &CancelToken::new(), &SmallScenes).unwrap();
    assert_eq!((third.work(), third.status(waits)), (0, JobStatus::Finished));
}

#[test]
fn of_a_job_whose_workers_die_the_log_of_the_last_attempt_is_kept() {
    let world = World::new();
    let (first, last) = (world.machine(), world.machine());
    let job = first.submit(b"a video");
    let attempt = |machine: &Machine| {
        let inner = &machine.service.inner;
        let dead = super::process::ProcessLock::take(&machine.folder.path().join("processes")).unwrap();
        let claim = inner.database.claim(dead.id(), "w", 30, &Abilities::ALL).unwrap().unwrap();
        let workspace = inner.workspaces.enter(job).unwrap().unwrap();
        workspace.log(world.clock.now(), &super::workspace::first_line(claim.lease.attempt, "w"));
    };
    for _ in 1..10 {
        attempt(&first);
        world.clock.advance(31);
        assert_eq!(first.service.reclaim().unwrap().requeued_jobs, 1);
        world.clock.advance(2 * 3600);
    }
    attempt(&last);
    world.clock.advance(31);
    // Whoever finds out has another log, or none.
    assert_eq!(first.service.reclaim().unwrap().failed_jobs, 1);
    assert_eq!(first.service.log(first.user(), job).unwrap(), "");
    last.service.tidy_machine();
    let log = first.service.log(first.user(), job).unwrap();
    assert!(log.contains("attempt 10 by w") && !log.contains("attempt 9 by w"), "{log}");
    assert_eq!((first.work(), last.work()), (0, 0));
}

/// The database has done it, and its answer did not arrive.
#[test]
fn a_publication_that_was_not_heard_of_keeps_its_files() {
    let world = World::new();
    let machine = world.machine();
    let job = machine.submit(b"a video");
    let (options, cancel) =
        (WorkerOptions { threads: 1, niceness: 0, ..Default::default() }, CancelToken::new());
    let mut worker = Worker::new(&machine.service, &options, &cancel, &SmallScenes).unwrap();
    let inner = &machine.service.inner;
    let claim = inner.database.claim(inner.process.id(), "w", 30, &Abilities::ALL).unwrap().unwrap();
    let workspace = worker.enter(&claim.lease).unwrap().unwrap();
    let (control, reconstruction) = (crate::control::Control::new(), Default::default());
    let outcome = SmallScenes.run(Path::new(""), &workspace.pipeline_folder(), &reconstruction, &control);
    worker.publish(&claim.lease, workspace, outcome.unwrap()).unwrap();
    let before = machine.service.log(machine.user(), job).unwrap();
    assert!(before.contains("the scene is done"), "{before}");
    let workspace = worker.enter(&claim.lease).unwrap();
    let unheard = Error::new(ErrorKind::Io, "it is not known whether a change was made");
    worker.fail(&claim, workspace, &unheard).unwrap();
    assert_eq!(machine.status(job), JobStatus::Finished);
    assert_eq!(machine.service.log(machine.user(), job).unwrap(), before);
    assert_eq!(machine.work(), 0);
}
