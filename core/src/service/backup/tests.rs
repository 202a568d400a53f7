//! What a backup holds, and what becomes of it.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{BackupManifest, CopyProgress};
use crate::control::{CancelToken, Control};
use crate::database::Abilities;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ArtifactKind, BlobName, CameraData, JobId, JobStatus, UserId};
use crate::pipeline::ReconstructionOptions;
use crate::service::test_world::{World, open};
use crate::service::worker::{Worked, Worker};
use crate::service::{Browser, Outcome, Runner, Service, ServiceOptions, UploadFacts, WorkerOptions, layout};
use crate::storage::BlobKey;

fn go_on(_: CopyProgress) -> Result<()> {
    Ok(())
}

/// A place for backups, on the file system of the service.
struct Backups(tempfile::TempDir);

impl Backups {
    fn beside(world: &World) -> Self {
        Self(tempfile::tempdir_in(world.folder.path().parent().unwrap()).unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn restore(&self, world: &World, backup: &str, to: &str) -> Service {
        Service::restore(&self.at(backup), &self.at(to), &mut go_on).unwrap();
        let options = ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() };
        open(&self.at(to), options, &world.clock)
    }
}

fn bytes(service: &Service, user: UserId, job: JobId, kind: ArtifactKind) -> Vec<u8> {
    let artifact = service.artifact(user, job, kind).unwrap();
    let mut bytes = Vec::new();
    service.open_blob(&artifact.key).unwrap().file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn path_of(world: &World, job: JobId, kind: ArtifactKind) -> PathBuf {
    world.folder.path().join(BlobKey::Artifact { job, attempt: 1, kind }.to_string())
}

fn video_path(world: &World, name: &BlobName) -> PathBuf {
    let upload = world.service.inner.database.upload(name).unwrap().unwrap();
    let key = BlobKey::Video { name: *name, version: upload.video.unwrap().version };
    world.folder.path().join(key.to_string())
}

/// No row of the folder names a file that is not there, and no file is there that none names.
#[track_caller]
fn assert_sound(folder: &Path) {
    let options = ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() };
    let diagnosis = Service::diagnose(folder, &options).unwrap();
    let wrong: Vec<_> = diagnosis.findings.iter().filter(|f| f.code != "in_use").collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn everything_that_was_promised_comes_back() {
    let w = World::new();
    let (_, key) = w.service.create_key(w.anna, "laptop").unwrap();
    let done = w.finished(w.anna);
    let (running, waiting) = (w.submit(w.anna), w.submit(w.eve));
    let taken =
        w.service.inner.database.claim(w.service.inner.process.id(), "w", 30, &Abilities::ALL).unwrap();
    assert_eq!(taken.unwrap().lease.job, running);
    let unused = w.upload(w.eve);
    let unfinished = w.service.create_upload(w.eve, "mp4").unwrap().blob_name;
    let mut block = w.service.put_block(&unfinished, "a", UploadFacts::default()).unwrap();
    block.append(b"half").unwrap();
    block.finish().unwrap();

    let backups = Backups::beside(&w);
    let mut seen = vec![];
    let manifest = w
        .service
        .backup(&backups.at("one"), None, &mut |progress| {
            seen.push(progress);
            Ok(())
        })
        .unwrap();
    assert_eq!((manifest.users, manifest.jobs, manifest.lost.len()), (2, 3, 0));
    assert_eq!(BackupManifest::read(&backups.at("one")).unwrap(), manifest);
    assert!(seen.is_sorted_by_key(|p| p.bytes) && seen.last().is_some_and(|p| p.bytes == p.total_bytes));
    assert_eq!(backups.names(), ["one"]);
    // The videos of three jobs and one that waits for its own, the scene with its preview and its log, the rows, the secrets.
    assert_eq!(manifest.files.len(), 4 + 4 + 2, "{:?}", manifest.files);
    assert!(!backups.at("one/blocks").exists() && !backups.at("one/work").exists());
    assert!(!backups.at("one/jobs.db-wal").exists() && !backups.at("one/rows.db").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let one = fs::metadata(backups.at("one")).unwrap();
        assert_eq!(one.permissions().mode() & 0o777, 0o700);
        let file = path_of(&w, done, ArtifactKind::Ply);
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 2, "stored files take no room");
        for own in [layout::DATABASE, layout::SECRETS] {
            let meta = fs::metadata(backups.at("one").join(own)).unwrap();
            assert_eq!((meta.nlink(), meta.permissions().mode() & 0o777), (1, 0o600), "{own}");
        }
    }

    // What happens later is not in it, and does nothing to it.
    let ply = bytes(&w.service, w.anna, done, ArtifactKind::Ply);
    w.service.delete(w.anna, done).unwrap();
    let restored = backups.restore(&w, "one", "service");
    assert_eq!(bytes(&restored, w.anna, done, ArtifactKind::Ply), ply);
    assert_eq!(restored.authenticate(key.reveal()).unwrap().user_id, w.anna);
    assert_eq!(restored.job(w.anna, running).unwrap().status, JobStatus::Queued { position: Some(1) });
    assert_eq!(restored.job(w.eve, waiting).unwrap().status, JobStatus::Queued { position: Some(2) });
    assert_eq!(restored.job(w.eve, done).unwrap_err().kind(), ErrorKind::NotFound);
    let upload = restored.inner.database.upload(&unused).unwrap().unwrap();
    assert_eq!(upload.video.unwrap().size, 7);
    assert_sound(&backups.at("service"));
    // The one that ran has lost nothing by it: its worker may have been disturbed as often as before.
    let lease = restored.inner.database.claim("other", "w", 30, &Abilities::ALL).unwrap().unwrap().lease;
    assert_eq!((lease.job, lease.attempt), (running, 2));
    // And the backup can be used again.
    drop(backups.restore(&w, "one", "again"));
}

#[test]
fn what_is_deleted_meanwhile_is_not_in_it() {
    let w = World::new();
    let mut jobs = [w.finished(w.anna), w.finished(w.anna), w.finished(w.anna)];
    // Their files are copied in the order of their names.
    jobs.sort_by_key(ToString::to_string);
    let [first, second, third] = jobs;
    let waits = w.submit(w.eve);
    let replaced = w.upload(w.eve);
    let backups = Backups::beside(&w);
    let (mut calls, mut before) = (0, None);
    let manifest = w
        .service
        .backup(&backups.at("one"), None, &mut |_| {
            calls += 1;
            // After the first file, when all others are still to come; and when the first artifacts are copied.
            if calls == 1 {
                let database = &w.service.inner.database;
                before = database.upload(&replaced).unwrap().unwrap().video;
                w.service.delete(w.eve, waits).unwrap();
                let mut writer = w.service.begin_upload(&replaced, UploadFacts::default()).unwrap();
                writer.append(b"another video").unwrap();
                writer.finish().unwrap();
                w.service.delete(w.anna, third).unwrap();
            } else if calls == 7 {
                w.service.delete(w.anna, first).unwrap();
            }
            Ok(())
        })
        .unwrap();
    assert!(before.is_some() && calls >= 7, "{calls}");
    assert_eq!(manifest.lost, [] as [&str; 0]);
    let restored = backups.restore(&w, "one", "service");
    assert_sound(&backups.at("service"));
    assert!(restored.job(w.anna, second).is_ok());
    assert!(restored.all_jobs().unwrap().iter().all(|job| job.job_id != third));
    // Whatever was there when its turn came is there as a whole, or its job is not there at all.
    for job in restored.all_jobs().unwrap() {
        if job.job_id == waits {
            assert_eq!(job.status, JobStatus::Queued { position: Some(1) });
            continue;
        }
        assert_eq!(job.status, JobStatus::Finished);
        for kind in [ArtifactKind::Ply, ArtifactKind::Spz, ArtifactKind::Preview, ArtifactKind::Log] {
            assert!(!bytes(&restored, w.anna, job.job_id, kind).is_empty());
        }
    }
    let upload = restored.inner.database.upload(&replaced).unwrap().unwrap();
    assert!(upload.video.is_none() || upload.video == before);
}

#[test]
fn what_the_service_has_lost_is_told_and_not_claimed() {
    let w = World::new();
    let (scene, both, preview) = (w.finished(w.anna), w.finished(w.anna), w.finished(w.anna));
    let queued = w.submit(w.anna);
    let blob = |job| w.job(job).details.blob_name;
    fs::remove_file(path_of(&w, scene, ArtifactKind::Spz)).unwrap();
    fs::write(path_of(&w, both, ArtifactKind::Ply), "short").unwrap();
    fs::remove_file(path_of(&w, preview, ArtifactKind::Preview)).unwrap();
    for job in [both, queued] {
        fs::remove_file(video_path(&w, &blob(job))).unwrap();
    }
    // As long as it should be, but not what was sent.
    let unused = w.upload(w.eve);
    fs::write(video_path(&w, &unused), b"a VIDEO").unwrap();
    let backups = Backups::beside(&w);
    let manifest = w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    assert_eq!(manifest.lost.len(), 6, "{:?}", manifest.lost);
    assert!(
        manifest
            .lost
            .contains(&BlobKey::Artifact { job: scene, attempt: 1, kind: ArtifactKind::Spz }.to_string())
    );
    let restored = backups.restore(&w, "one", "service");
    assert_sound(&backups.at("service"));
    let job = |id| restored.job(w.anna, id).unwrap();
    assert_eq!(job(scene).status, JobStatus::Queued { position: Some(1) });
    assert_eq!(job(preview).status, JobStatus::Finished);
    for lost in [both, queued] {
        assert_eq!(job(lost).details.failure.map(|f| f.code), Some("files_lost".to_owned()));
    }
    assert_eq!(restored.inner.database.upload(&unused).unwrap().unwrap().video, None);
    // The service itself is as it was.
    assert_eq!(w.job(scene).status, JobStatus::Finished);
}

/// It would be the newest, and the last good ones would be removed after it.
#[test]
fn where_all_files_are_missing_no_backup_is_made() {
    let w = World::new();
    let backups = Backups::beside(&w);
    let refused = |service: &Service| {
        let error = service.backup(&backups.at("one"), None, &mut go_on).unwrap_err();
        assert!(error.hint_text().is_some(), "{error:?}");
        assert_eq!(backups.names(), [] as [&str; 0]);
        error
    };
    // One alone may be lost.
    let name = w.upload(w.anna);
    fs::remove_file(video_path(&w, &name)).unwrap();
    let manifest = w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    assert_eq!(manifest.lost.len(), 1);
    fs::remove_dir_all(backups.at("one")).unwrap();
    w.finished(w.anna);
    for place in ["videos", "scenes"] {
        fs::rename(w.folder.path().join(place), w.folder.path().join(format!("{place} of ours"))).unwrap();
    }
    let error = refused(&w.service);
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("none of the"), "{error}");

    // Of many machines, one with another address.
    let world = crate::service::test_machines::World::new();
    let here = world.machine();
    here.submit(b"a video");
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    let empty = crate::service::test_world::folder();
    let there = world.machine_over(empty.path());
    assert_eq!(refused(&there.service).kind(), ErrorKind::Conflict);
    fs::write(empty.path().join(crate::storage::SERVICE_ID), "another").unwrap();
    let error = refused(&there.service);
    assert!(error.kind() == ErrorKind::Conflict && error.message().contains("another service"), "{error:?}");
    let id = here.service.inner.database.service_id().unwrap().unwrap();
    fs::write(empty.path().join(crate::storage::SERVICE_ID), id).unwrap();
    assert_eq!(refused(&there.service).kind(), ErrorKind::Io);
}

#[test]
fn an_earlier_backup_saves_the_reading() {
    let w = World::new();
    let job = w.finished(w.anna);
    let backups = Backups::beside(&w);
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    // A mark in the old list shows what is taken from it.
    let key = BlobKey::Artifact { job, attempt: 1, kind: ArtifactKind::Ply }.to_string();
    let list = backups.at("one/backup.json");
    let mut manifest = BackupManifest::read(&backups.at("one")).unwrap();
    let marked = "ab".repeat(32);
    manifest.files.iter_mut().find(|f| f.name == key).unwrap().sha256.clone_from(&marked);
    fs::write(&list, serde_json::to_vec(&manifest).unwrap()).unwrap();
    let newer = w.finished(w.anna);
    let second = w.service.backup(&backups.at("two"), Some(&backups.at("one")), &mut go_on).unwrap();
    assert_eq!(second.files.iter().find(|f| f.name == key).unwrap().sha256, marked);
    assert_eq!(second.jobs, 2);
    let error = w.service.backup(&backups.at("three"), Some(&backups.at("none")), &mut go_on).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("backup.json"), "{error}");
    // A restoration reads everything, and finds that out.
    let error = Service::restore(&backups.at("two"), &backups.at("service"), &mut go_on).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
    assert!(error.message().contains(&key), "{error}");
    assert!(!backups.at("service").exists());
    assert!(w.service.job(w.anna, newer).is_ok());
}

/// Makes scenes of these bytes.
struct Scenes(&'static str);

impl Scenes {
    /// The next job of this service gets one.
    fn make_one(self, service: &Service) {
        let (options, cancel) =
            (WorkerOptions { threads: 1, niceness: 0, ..Default::default() }, CancelToken::new());
        let mut worker = Worker::new(service, &options, &cancel, &self).unwrap();
        assert!(worker.work_once().unwrap() == Worked::Done);
    }
}

impl Runner for Scenes {
    fn run(&self, _: &Path, workspace: &Path, _: &ReconstructionOptions, _: &Control) -> Result<Outcome> {
        fs::create_dir_all(workspace).unwrap();
        let file = |kind: ArtifactKind| {
            let path = workspace.join(format!("scene.{}", kind.extension()));
            fs::write(&path, self.0).unwrap();
            (kind, path)
        };
        let files = [ArtifactKind::Ply, ArtifactKind::Spz, ArtifactKind::Preview].map(file).to_vec();
        Ok(Outcome { files, camera: CameraData::default(), warnings: vec![] })
    }
}

/// A service that went back counts the attempts of a job anew: another scene has the name, and here the size, of one that the
/// earlier backup holds.
#[test]
fn an_earlier_backup_is_believed_of_the_same_file_only() {
    let w = World::new();
    let job = w.submit(w.anna);
    let backups = Backups::beside(&w);
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    Scenes("first").make_one(&w.service);
    let two = w.service.backup(&backups.at("two"), Some(&backups.at("one")), &mut go_on).unwrap();
    let back = backups.restore(&w, "one", "back");
    // The clocks by which file systems go have ticks.
    std::thread::sleep(std::time::Duration::from_millis(50));
    Scenes("other").make_one(&back);
    let three = back.backup(&backups.at("three"), Some(&backups.at("two")), &mut go_on).unwrap();
    let ply = BlobKey::Artifact { job, attempt: 1, kind: ArtifactKind::Ply }.to_string();
    let of = |manifest: &BackupManifest| manifest.files.iter().find(|f| f.name == ply).cloned().unwrap();
    assert_eq!((of(&two).size, of(&three).size), (5, 5));
    assert_ne!(of(&two).sha256, of(&three).sha256);
    let restored = backups.restore(&w, "three", "service");
    assert_eq!(bytes(&restored, w.anna, job, ArtifactKind::Ply), b"other");
    assert_sound(&backups.at("service"));
}

/// On a disk whose file system counts whole seconds, of a storage without local files.
#[cfg(unix)]
#[test]
fn an_earlier_backup_is_believed_though_its_disk_cuts_times() {
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};
    let world = crate::service::test_machines::World::new();
    let here = world.machine();
    let job = here.submit(b"a video");
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    let backups = tempfile::tempdir_in(world.shared.path().parent().unwrap()).unwrap();
    let at = |name: &str| backups.path().join(name);
    here.service.backup(&at("one"), None, &mut go_on).unwrap();
    let ply = BlobKey::Artifact { job, attempt: 1, kind: ArtifactKind::Ply }.to_string();
    let file = fs::File::options().write(true).open(at("one").join(&ply)).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    here.service.backup(&at("two"), Some(&at("one")), &mut go_on).unwrap();
    let inode = |backup: &str| fs::metadata(at(backup).join(&ply)).unwrap().ino();
    assert_eq!(inode("one"), inode("two"), "linked, not copied");
}

#[test]
fn what_is_stopped_leaves_nothing() {
    let w = World::new();
    w.finished(w.anna);
    let backups = Backups::beside(&w);
    let stop = |_: CopyProgress| Err(Error::new(ErrorKind::Cancelled, "enough"));
    assert_eq!(
        w.service.backup(&backups.at("one"), None, &mut { stop }).unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert_eq!(backups.names(), [] as [&str; 0]);
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    let stopped = Service::restore(&backups.at("one"), &backups.at("service"), &mut { stop });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(backups.names(), ["one"]);
    // A folder that was there is as empty as it was.
    fs::create_dir(backups.at("service")).unwrap();
    Service::restore(&backups.at("one"), &backups.at("service"), &mut { stop }).unwrap_err();
    assert_eq!(fs::read_dir(backups.at("service")).unwrap().count(), 0);
    drop(backups.restore(&w, "one", "service"));
}

#[test]
fn places_that_are_refused() {
    let w = World::new();
    let backups = Backups::beside(&w);
    let refused = |to: &Path| w.service.backup(to, None, &mut go_on).unwrap_err();
    let inside = refused(&w.folder.path().join("backup"));
    assert_eq!(inside.kind(), ErrorKind::InvalidArgument);
    assert!(inside.message().contains("folder of the service"), "{inside}");
    assert_eq!(refused(&backups.at("none/one")).kind(), ErrorKind::NotFound);
    fs::write(backups.at("file"), "").unwrap();
    assert!(refused(&backups.at("file")).message().contains("is there already"));
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    assert!(refused(&backups.at("one")).message().contains("is there already"));

    let restore = |to: &str| Service::restore(&backups.at("one"), &backups.at(to), &mut go_on);
    fs::create_dir(backups.at("full")).unwrap();
    fs::write(backups.at("full/mine"), "mine").unwrap();
    let full = restore("full").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::InvalidArgument);
    assert!(full.message().contains("mine is in it"), "{full}");
    assert_eq!(fs::read_to_string(backups.at("full/mine")).unwrap(), "mine");
    assert!(!backups.at("full/restoring").exists());
    assert!(restore("file").is_err());
    drop(backups.restore(&w, "one", "service"));
    assert!(restore("service").unwrap_err().message().contains("not empty"));
}

#[test]
fn a_damaged_backup_is_refused_and_leaves_nothing() {
    let w = World::new();
    let job = w.finished(w.anna);
    let backups = Backups::beside(&w);
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    let ply =
        backups.at("one").join(BlobKey::Artifact { job, attempt: 1, kind: ArtifactKind::Ply }.to_string());
    let refused = |kind: ErrorKind, words: &str| {
        let error = Service::restore(&backups.at("one"), &backups.at("service"), &mut go_on).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!backups.at("service").exists());
    };
    let whole = fs::read(&ply).unwrap();
    let replace = |bytes: &[u8]| {
        fs::remove_file(&ply).unwrap();
        fs::write(&ply, bytes).unwrap();
    };
    let mut other = whole.clone();
    other[0] ^= 1;
    replace(&other);
    refused(ErrorKind::InvalidFile, "SHA-256");
    replace(&whole[1..]);
    refused(ErrorKind::InvalidFile, "bytes");
    fs::remove_file(&ply).unwrap();
    refused(ErrorKind::InvalidFile, "is missing");
    fs::write(&ply, &whole).unwrap();

    let list = backups.at("one/backup.json");
    let text = fs::read_to_string(&list).unwrap();
    let write = |text: &str| fs::write(&list, text).unwrap();
    write(&text.replace("\"format\": 1", "\"format\": 2"));
    refused(ErrorKind::InvalidFile, "newer program");
    write(&text.replace("\"jobs.db\"", "\"../jobs.db\""));
    refused(ErrorKind::InvalidFile, "is no file of a service");
    write(&text[..text.len() / 2]);
    refused(ErrorKind::InvalidFile, "backup.json");
    fs::remove_file(&list).unwrap();
    refused(ErrorKind::NotFound, "no complete backup");
    write(&text);
    drop(backups.restore(&w, "one", "service"));
}

#[test]
fn a_folder_that_is_not_filled_yet_does_not_open() {
    let w = World::new();
    let job = w.finished(w.anna);
    let backups = Backups::beside(&w);
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    // As a restoration leaves it that is killed.
    let folder = backups.at("service");
    fs::create_dir_all(folder.join("scenes")).unwrap();
    for (name, text) in [("restoring", ""), ("jobs.db", "half"), ("scenes/x", "half")] {
        fs::write(folder.join(name), text).unwrap();
    }
    let error = Service::open(&folder, ServiceOptions::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
    assert!(error.to_string().contains("reconstruct restore"), "{error}");
    let found = Service::diagnose(&folder, &ServiceOptions::default()).unwrap();
    assert!(found.findings.iter().any(|f| f.code == "restoring"));
    // The same command begins anew.
    let restored = backups.restore(&w, "one", "service");
    assert!(restored.job(w.anna, job).is_ok());
    assert!(!folder.join("scenes/x").exists());
}

/// Secrets that were given as text have no file: the backup makes one of them, so that it opens by itself.
#[test]
fn secrets_that_were_given_as_text_are_in_the_backup() {
    let (source, options) = (World::new(), ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() });
    let text = fs::read_to_string(source.folder.path().join(layout::SECRETS)).unwrap();
    let folder = crate::service::test_world::folder();
    let addresses = crate::service::Addresses { secrets_json: Some(text), ..Default::default() };
    let service = Service::open_shared(&folder.path().join("own"), &addresses, options.clone()).unwrap();
    assert!(!folder.path().join("own").join(layout::SECRETS).exists());
    let user = service.add_user("anna", crate::job::Tier::Enterprise).unwrap().user_id;
    let (_, key) = service.create_key(user, "laptop").unwrap();
    service.backup(&folder.path().join("backup"), None, &mut go_on).unwrap();
    drop(service);
    Service::restore(&folder.path().join("backup"), &folder.path().join("new"), &mut go_on).unwrap();
    let restored = Service::open(&folder.path().join("new"), options).unwrap();
    assert_eq!(restored.authenticate(key.reveal()).unwrap().user_id, user);
}

/// Who restores a backup must not open what was closed since: nobody is signed in, no link holds. Passwords are there.
#[test]
fn passwords_come_back_and_sessions_do_not() {
    let w = World::new();
    let browser = Browser { agent: "Firefox", before: None };
    let link = w.service.invite(w.anna).unwrap();
    let (session, _) =
        w.service.accept_invitation(link.token.reveal(), Some("correct horse"), &browser).unwrap();
    let eves = w.service.invite(w.eve).unwrap();
    let backups = Backups::beside(&w);
    w.service.backup(&backups.at("one"), None, &mut go_on).unwrap();
    // The service itself goes on as it was.
    assert!(w.service.session(session.reveal()).unwrap().is_some());
    w.service.invitation(eves.token.reveal()).unwrap();

    let restored = backups.restore(&w, "one", "restored");
    assert_eq!(restored.session(session.reveal()).unwrap(), None);
    assert!(restored.invitation(eves.token.reveal()).is_err());
    let home = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    assert_eq!(restored.sign_in("anna", "correct horse", home, &browser).unwrap().1.user_id, w.anna);
    // Nor does it stand anywhere in the file.
    let rows = fs::read(backups.at("one").join(layout::DATABASE)).unwrap();
    let hash: [u8; 32] = Sha256::digest(session.reveal()).into();
    assert!(!rows.windows(32).any(|window| window == hash));
}
