//! What arrives on many machines, and what is left in the folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::Migration;
use crate::database::{Abilities, test_database};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ArtifactKind, BlobName, JobId, JobRequest, JobStatus, Limits, UserId};
use crate::service::test_world::{World, open};
use crate::service::{Addresses, CopyProgress, Idempotency, Service, ServiceOptions, UploadFacts, layout};
use crate::storage::{BlobKey, LocalStorage, Storage};

fn go_on(_: CopyProgress) -> Result<()> {
    Ok(())
}

fn options() -> ServiceOptions {
    ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() }
}

/// A service whose processes have ended, with something of everything.
struct Old {
    world: World,
    done: JobId,
    running: JobId,
    waiting: JobId,
    unfinished: BlobName,
    key: String,
}

impl Old {
    fn new() -> Self {
        let mut world = World::new();
        let (_, key) = world.service.create_key(world.anna, "laptop").unwrap();
        let key = key.reveal().to_owned();
        let done = world.finished(world.anna);
        let running = world.submit(world.anna);
        let waiting = world
            .submit_with(JobRequest::new(world.upload(world.eve)), world.eve, Some(idempotency()))
            .unwrap()
            .body
            .job_id;
        let inner = &world.service.inner;
        let taken = inner.database.claim(inner.process.id(), "w", 30, &Abilities::ALL).unwrap();
        assert_eq!(taken.unwrap().lease.job, running);
        let unfinished = world.service.create_upload(world.eve, "mp4").unwrap().blob_name;
        let mut block = world.service.put_block(&unfinished, "a", UploadFacts::default()).unwrap();
        block.append(b"half").unwrap();
        block.finish().unwrap();
        // Another service takes its place, so that nobody is at this one.
        let aside = World::new();
        world.service = aside.service;
        Self { world, done, running, waiting, unfinished, key }
    }

    fn folder(&self) -> &Path {
        self.world.folder.path()
    }
}

fn idempotency() -> Idempotency {
    Idempotency { key: "once".into(), body_hash: [5; 32] }
}

/// A new place.
struct New {
    folder: tempfile::TempDir,
    addresses: Addresses,
}

impl New {
    fn place() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let addresses = Addresses {
            database: Some(test_database()?),
            storage: Some(format!("file://{}", folder.path().join("files").display())),
            secrets: Some(folder.path().join("secrets.json")),
            secrets_json: None,
        };
        Some(Self { folder, addresses })
    }

    fn open(&self) -> Service {
        // The clock of the old service is not that of the world.
        let limits = Limits { idempotency_hours: 1_000_000, ..Limits::default() };
        let options = ServiceOptions { limits, ..options() };
        Service::open_shared(&self.folder.path().join("own"), &self.addresses, options).unwrap()
    }

    fn migrate(&self, from: &Path) -> Result<Migration> {
        Service::migrate(from, &self.addresses, &mut go_on)
    }
}

fn bytes(service: &Service, user: UserId, job: JobId, kind: ArtifactKind) -> Vec<u8> {
    let artifact = service.artifact(user, job, kind).unwrap();
    let mut bytes = Vec::new();
    service.open_blob(&artifact.key).unwrap().file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

#[test]
fn everything_goes_and_nothing_is_removed() {
    let Some(new) = New::place() else { return };
    let old = Old::new();
    let before: Vec<PathBuf> = files(old.folder());
    let mut seen = vec![];
    let done = Service::migrate(old.folder(), &new.addresses, &mut |progress| {
        seen.push(progress);
        Ok(())
    })
    .unwrap();
    assert!(!done.before);
    assert_eq!((done.moved.users, done.moved.jobs), (2, 3));
    // Three videos, a scene with its preview and its log, and the block of an upload that is not complete.
    assert_eq!(done.moved.files, 3 + 4 + 1);
    assert!(seen.is_sorted_by_key(|p| p.bytes) && seen.last().is_some_and(|p| p.bytes == p.total_bytes));
    let after = files(old.folder());
    assert!(before.iter().all(|file| after.contains(file)));
    assert_eq!(after.iter().filter(|file| !before.contains(file)).count(), 1, "{after:?}");

    // Before it is opened: by the clock of the new service that upload has expired long ago.
    let there = LocalStorage::to_look_at(&new.folder.path().join("files"));
    assert_eq!(there.blocks(&old.unfinished).unwrap().len(), 1);

    let service = new.open();
    let (anna, eve) = (old.world.anna, old.world.eve);
    assert_eq!(service.authenticate(&old.key).unwrap().user_id, anna);
    assert_eq!(service.job(anna, old.done).unwrap().status, JobStatus::Finished);
    assert!(!bytes(&service, anna, old.done, ArtifactKind::Ply).is_empty());
    assert_eq!(service.job(anna, old.running).unwrap().status, JobStatus::Queued { position: Some(1) });
    assert_eq!(service.job(eve, old.waiting).unwrap().status, JobStatus::Queued { position: Some(2) });
    let again = service.submit(
        eve,
        JobRequest::new(BlobName::random(crate::job::VideoExtension::Mp4)),
        Some(idempotency()),
    );
    assert_eq!(again.unwrap().body.job_id, old.waiting, "the answer is kept");
    let lease = service.inner.database.claim("p", "w", 30, &Abilities::ALL).unwrap().unwrap().lease;
    assert_eq!((lease.job, lease.attempt), (old.running, 2));

    // The folder says where it went, is told by the doctor, and goes on as it was if somebody wants that.
    let error = Service::open(old.folder(), options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    for words in ["was moved on", "postgres://", "moved.json", "reconstruct restore"] {
        assert!(error.to_string().contains(words) || error.hint_text().unwrap().contains(words), "{error:?}");
    }
    let found = Service::diagnose(old.folder(), &options()).unwrap();
    assert!(found.findings.iter().any(|f| f.code == "moved"), "{found:?}");
    // On the same machine its own folder may be that of the new service.
    drop(Service::open_shared(old.folder(), &new.addresses, options()).unwrap());
    fs::remove_file(old.folder().join(layout::MOVED)).unwrap();
    let back = open(old.folder(), options(), &old.world.clock);
    assert_eq!(back.job(anna, old.done).unwrap().status, JobStatus::Finished);
}

#[test]
fn a_backup_of_many_machines_is_a_folder_again() {
    let Some(new) = New::place() else { return };
    let old = Old::new();
    new.migrate(old.folder()).unwrap();
    let service = new.open();
    service.check_storage().unwrap();
    let (backup, folder) = (new.folder.path().join("backup"), new.folder.path().join("back"));
    let manifest = service.backup(&backup, None, &mut go_on).unwrap();
    assert_eq!((manifest.users, manifest.jobs, manifest.lost.len()), (2, 3, 0));
    Service::restore(&backup, &folder, &mut go_on).unwrap();
    let back = open(&folder, options(), &old.world.clock);
    assert_eq!(back.authenticate(&old.key).unwrap().user_id, old.world.anna);
    let ply = |service: &Service| bytes(service, old.world.anna, old.done, ArtifactKind::Ply);
    assert_eq!(ply(&back), ply(&service));
    assert_eq!(back.all_jobs().unwrap().len(), 3);
    // It is the same service, whose files the storage has.
    let id = |service: &Service| service.inner.database.service_id().unwrap().unwrap();
    assert_eq!(id(&back), id(&service));
    assert_eq!(service.inner.storage.service_id().unwrap(), Some(id(&service)));
    drop(back);
    let Some(again) = New::place() else { return };
    let here = Addresses { storage: new.addresses.storage.clone(), ..again.addresses.clone() };
    Service::migrate(&folder, &here, &mut go_on).unwrap();
    let service = Service::open_shared(&again.folder.path().join("own"), &here, options()).unwrap();
    service.check_storage().unwrap();
}

#[test]
fn nothing_comes_to_the_storage_of_another_service() {
    let (Some(new), Some(other)) = (New::place(), New::place()) else { return };
    let old = Old::new();
    let secrets = |place: &New| {
        fs::copy(old.folder().join(layout::SECRETS), place.folder.path().join(layout::SECRETS)).unwrap();
    };
    secrets(&other);
    let service = other.open();
    service.check_storage().unwrap();
    let id = service.inner.storage.service_id().unwrap().unwrap();
    let wrong = Addresses { storage: other.addresses.storage.clone(), ..new.addresses.clone() };
    let refused = Service::migrate(old.folder(), &wrong, &mut go_on).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
    assert!(refused.message().contains(&id), "{refused}");
    assert!(!old.folder().join(layout::MOVING).exists());
    let there = LocalStorage::to_look_at(&other.folder.path().join("files"));
    assert_eq!(there.blocks(&old.unfinished).unwrap().len(), 0);
    // Where it is its own server that was started too early, all is well.
    secrets(&new);
    new.open().check_storage().unwrap();
    new.migrate(old.folder()).unwrap();
    new.open().check_storage().unwrap();
}

#[test]
fn it_can_be_stopped_at_any_point_and_repeated() {
    let Some(new) = New::place() else { return };
    let old = Old::new();
    let (mut stop_at, mut stopped) = (0, 0);
    let done = loop {
        let mut calls = 0;
        let done = Service::migrate(old.folder(), &new.addresses, &mut |_| {
            calls += 1;
            match calls > stop_at {
                true => Err(Error::new(ErrorKind::Cancelled, "enough")),
                false => Ok(()),
            }
        });
        match done {
            Ok(done) => break done,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}"),
        }
        // In between the folder is as it was, and may even be used.
        if stop_at == 3 {
            drop(open(old.folder(), options(), &old.world.clock));
        }
        (stop_at, stopped) = (stop_at + 1, stopped + 1);
    };
    assert!(stopped > 8 && !done.before, "{stopped}");
    assert_eq!(done.moved.jobs, 3);
    // Done is done: said again, unless another place is named.
    let again = new.migrate(old.folder()).unwrap();
    assert_eq!(again, Migration { before: true, ..done });
    let other = New::place().unwrap();
    assert_eq!(other.migrate(old.folder()).unwrap_err().kind(), ErrorKind::Conflict);
    let service = new.open();
    assert_eq!(service.all_jobs().unwrap().len(), 3);
}

/// Else there are two services with the same users, keys and jobs.
#[test]
fn a_folder_whose_rows_may_have_gone_stays_closed() {
    let Some(new) = New::place() else { return };
    let old = Old::new();
    let key = BlobKey::Artifact { job: old.done, attempt: 1, kind: ArtifactKind::Spz };
    let arrived = new.folder.path().join("files").join(key.to_string());
    // As a server does that is started there too early: when all has arrived, something is gone again.
    let failed = Service::migrate(old.folder(), &new.addresses, &mut |progress| {
        if progress.bytes == progress.total_bytes {
            let _ = fs::remove_file(&arrived);
        }
        Ok(())
    })
    .unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io, "{failed:?}");
    assert!(failed.message().contains("is not there any more"), "{failed}");
    let cancelled = Service::migrate(old.folder(), &new.addresses, &mut |_| {
        Err(Error::new(ErrorKind::Cancelled, "enough"))
    });
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    let closed = Service::open(old.folder(), options()).err().unwrap();
    assert_eq!(closed.kind(), ErrorKind::Conflict);
    assert!(closed.message().contains("is being moved"), "{closed}");
    let done = new.migrate(old.folder()).unwrap();
    assert!(!done.before && !old.folder().join(layout::MOVING).exists());
    let service = new.open();
    assert_eq!(service.all_jobs().unwrap().len(), 3);
    assert!(!bytes(&service, old.world.anna, old.done, ArtifactKind::Spz).is_empty());
}

#[test]
fn what_cannot_go_is_refused_and_left_as_it_is() {
    let Some(new) = New::place() else { return };
    let refused = |from: &Path, to: &Addresses, kind: ErrorKind, words: &str| {
        let error = Service::migrate(from, to, &mut go_on).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        let all = format!("{error} {}", error.hint_text().unwrap_or_default());
        assert!(all.contains(words), "{all}");
        assert!(!from.join(layout::MOVING).exists());
    };
    let w = World::new();
    let job = w.finished(w.anna);
    refused(w.folder.path(), &new.addresses, ErrorKind::Conflict, "1 processes work on");
    refused(&new.folder.path().join("none"), &new.addresses, ErrorKind::NotFound, "no service");
    let key = BlobKey::Artifact { job, attempt: 1, kind: ArtifactKind::Spz };
    let video = w.job(job).details.blob_name;
    let version = w.service.inner.database.upload(&video).unwrap().unwrap().video.unwrap().version;
    let (folder, clock) = (w.folder, w.clock);
    drop(w.service);

    let inside = Addresses {
        storage: Some(format!("file://{}", folder.path().join("more/files").display())),
        ..new.addresses.clone()
    };
    refused(folder.path(), &inside, ErrorKind::InvalidArgument, "lies in the folder");
    let alone = Addresses { storage: None, ..new.addresses.clone() };
    refused(folder.path(), &alone, ErrorKind::InvalidArgument, "none of the storage");

    let spz = folder.path().join(key.to_string());
    fs::rename(&spz, folder.path().join("aside")).unwrap();
    refused(folder.path(), &new.addresses, ErrorKind::InvalidFile, "doctor --repair");
    fs::rename(folder.path().join("aside"), &spz).unwrap();
    // As long as it should be, but not what was sent.
    let video = folder.path().join(BlobKey::Video { name: video, version }.to_string());
    fs::write(&video, "a VIDEO").unwrap();
    refused(folder.path(), &new.addresses, ErrorKind::InvalidFile, "is damaged");
    fs::write(&video, "a video").unwrap();

    fs::write(new.folder.path().join("secrets.json"), fs::read(folder.path().join("secrets.json")).unwrap())
        .unwrap();
    let service = new.open();
    service.add_user("somebody", crate::job::Tier::Free).unwrap();
    refused(folder.path(), &new.addresses, ErrorKind::Conflict, "name an empty database");
    // After all that the folder is as good as before.
    let back = open(folder.path(), options(), &clock);
    assert_eq!(back.all_jobs().unwrap().len(), 1);
}
