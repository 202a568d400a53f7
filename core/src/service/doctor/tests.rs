//! Every fault is found, explained and, where that is safe, mended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Diagnosis, Finding, Severity};
use crate::error::ErrorKind;
use crate::job::{ArtifactKind, JobId, JobStatus};
use crate::service::job_changes::hearing;
use crate::service::needed::ORPHAN_AGE;
use crate::service::test_world::{World, open};
use crate::service::{Service, ServiceOptions, layout};
use crate::storage::BlobKey;

fn options() -> ServiceOptions {
    ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() }
}

fn diagnose(folder: &Path) -> Vec<Finding> {
    diagnose_at(folder, ORPHAN_AGE)
}

fn diagnose_at(folder: &Path, age: Duration) -> Vec<Finding> {
    let findings = Service::diagnose_at(folder, &options(), age).unwrap().findings;
    for finding in &findings {
        assert!(!finding.message.is_empty() && !finding.advice.is_empty(), "{finding:?}");
    }
    findings
}

fn codes(folder: &Path) -> Vec<&'static str> {
    diagnose(folder).iter().map(|finding| finding.code).collect()
}

/// A service that nobody has open.
fn closed(world: World) -> tempfile::TempDir {
    let World { service, folder, .. } = world;
    drop(service);
    folder
}

/// Sees to all findings; returns what was done.
fn repair(folder: &Path) -> Vec<String> {
    let diagnosis = Diagnosis { findings: diagnose(folder) };
    let repaired = Service::repair(folder, &options(), &diagnosis).unwrap();
    assert!(repaired.iter().all(|r| r.done), "{repaired:?}");
    repaired.into_iter().map(|r| r.message).collect()
}

/// Where the video of a job lies.
fn video(w: &World, job: JobId) -> PathBuf {
    let name = w.job(job).details.blob_name;
    let version = w.service.inner.database.upload(&name).unwrap().unwrap().video.unwrap().version;
    w.folder.path().join(BlobKey::Video { name, version }.to_string())
}

fn key(job: JobId, kind: ArtifactKind) -> BlobKey {
    BlobKey::Artifact { job, attempt: 1, kind }
}

/// Every file with its size and the time of its last change.
fn snapshot(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let mut all = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            all.push((path.clone(), metadata.len(), metadata.modified().unwrap()));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_sound_service_has_no_findings_and_is_left_as_it_is() {
    let w = World::new();
    w.service.create_key(w.anna, "laptop").unwrap();
    w.finished(w.anna);
    w.submit(w.eve);
    w.upload(w.eve);
    // A server may be at it.
    assert_eq!(codes(w.folder.path()), ["in_use"]);
    let folder = closed(w);
    let before = snapshot(folder.path());
    assert_eq!(codes(folder.path()), [] as [&str; 0]);
    assert_eq!(snapshot(folder.path()), before);
    let missing = Service::diagnose(&folder.path().join("none"), &options()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn a_finished_job_without_its_scene_is_taken_back() {
    let w = World::new();
    let (again, never, whole) = (w.finished(w.anna), w.finished(w.anna), w.finished(w.anna));
    let waits = w.submit(w.anna);
    let folder = w.folder.path().to_owned();
    let at = |key: BlobKey| folder.join(key.to_string());
    fs::remove_file(at(key(again, ArtifactKind::Ply))).unwrap();
    fs::write(at(key(never, ArtifactKind::Spz)), "damaged").unwrap();
    fs::remove_file(at(key(whole, ArtifactKind::Preview))).unwrap();
    fs::remove_file(video(&w, never)).unwrap();
    fs::remove_file(video(&w, waits)).unwrap();
    let found = diagnose(&folder);
    let mut problems: Vec<_> =
        found.iter().filter(|f| f.severity == Severity::Problem).map(|f| f.code).collect();
    problems.sort_unstable();
    assert_eq!(problems, ["artifact_lost", "scene_lost", "scene_lost", "video_lost", "video_lost"]);
    assert!(found.iter().any(|f| f.message.contains("has 7 bytes and should have")), "{found:?}");

    hearing::begin();
    let done = repair(&folder);
    assert!(done.iter().any(|m| *m == format!("the job {again} is in the queue again")), "{done:?}");
    assert_eq!(hearing::of(again, "given_back"), [format!("job {again}: given_back (files_lost)")]);
    for job in [never, waits] {
        assert_eq!(hearing::of(job, "failed"), [format!("job {job}: failed (files_lost)")]);
    }
    assert_eq!(codes(&folder), ["in_use"]);
    assert_eq!(w.job(again).status, JobStatus::Queued { position: Some(1) });
    assert_eq!(w.job(whole).status, JobStatus::Finished);
    for job in [never, waits] {
        assert_eq!(w.job(job).details.failure.map(|f| f.code), Some("files_lost".to_owned()));
    }
    // What there was of the damaged file is kept, and what was whole can still be fetched.
    let aside = folder.join(layout::SET_ASIDE).join(key(never, ArtifactKind::Spz).to_string());
    assert_eq!(fs::read_to_string(aside).unwrap(), "damaged");
    assert!(w.service.artifact(w.anna, never, ArtifactKind::Ply).is_ok());
    // The one in the queue is made again.
    w.finish_one();
    assert_eq!(w.job(again).status, JobStatus::Finished);
    assert_eq!(codes(&folder), ["in_use"]);
}

#[test]
fn where_no_file_is_left_the_rows_are_believed() {
    let w = World::new();
    let jobs = [w.finished(w.anna), w.finished(w.anna)];
    let aside = w.folder.path().join("aside");
    fs::create_dir(&aside).unwrap();
    let (videos, scenes) = (w.folder.path().join("videos"), w.folder.path().join("scenes"));
    for (name, folder) in [("videos", &videos), ("scenes", &scenes)] {
        fs::rename(folder, aside.join(name)).unwrap();
        fs::create_dir(folder).unwrap();
    }
    let found = diagnose(w.folder.path());
    let lost = found.iter().find(|f| f.severity == Severity::Problem).unwrap();
    assert!(lost.code == "all_files_lost" && !lost.repairable, "{found:?}");
    let repaired = Service::repair(w.folder.path(), &options(), &Diagnosis { findings: found }).unwrap();
    assert_eq!(repaired, []);
    // One that came back is enough to see that it is the right place.
    let key = key(jobs[0], ArtifactKind::Ply).to_string();
    fs::create_dir_all(w.folder.path().join(&key).parent().unwrap()).unwrap();
    fs::rename(aside.join(&key), w.folder.path().join(&key)).unwrap();
    let found = diagnose(w.folder.path());
    assert!(found.iter().any(|f| f.code == "scene_lost" && f.repairable), "{found:?}");
    assert_eq!(jobs.map(|job| w.job(job).status), [JobStatus::Finished, JobStatus::Finished]);
}

#[test]
fn a_file_that_comes_back_is_not_given_up() {
    let w = World::new();
    let job = w.finished(w.anna);
    let path = w.folder.path().join(key(job, ArtifactKind::Ply).to_string());
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let diagnosis = Diagnosis { findings: diagnose(w.folder.path()) };
    // The operator copies it from a backup, and repairs only then.
    fs::write(&path, bytes).unwrap();
    let repaired = Service::repair(w.folder.path(), &options(), &diagnosis).unwrap();
    assert!(repaired.iter().any(|r| r.message.contains("nothing was to be done")), "{repaired:?}");
    assert_eq!(w.job(job).status, JobStatus::Finished);
}

#[test]
fn nobodys_files_are_put_aside_and_leftovers_removed() {
    let w = World::new();
    let job = w.finished(w.anna);
    let lost = key(JobId::random(), ArtifactKind::Ply);
    let folder = closed(w);
    let put = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "whose?").unwrap();
        path
    };
    let orphan = put(&lost.to_string());
    let staged = put("staged/half");
    // Their rows may be about to be written.
    assert_eq!(codes(folder.path()), [] as [&str; 0]);
    let workspace = put(&format!("work/{job}/job.log"));
    let lock = put("processes/0123456789abcdef");
    let strange = put("holiday.jpg");
    let findings = diagnose_at(folder.path(), Duration::ZERO);
    let mut found: Vec<_> = findings.iter().map(|f| (f.code, f.severity)).collect();
    found.sort_unstable();
    let note = |code| (code, Severity::Note);
    let expected = [
        note("dead_processes"),
        note("ended_workspaces"),
        ("orphans", Severity::Problem),
        note("staged_leftovers"),
        note("strange_files"),
    ];
    assert_eq!(found, expected);
    let diagnosis = Diagnosis { findings };
    assert_eq!(diagnosis.problems(), 1);
    let repaired = Service::repair(folder.path(), &options(), &diagnosis).unwrap();
    assert!(repaired.len() == 4 && repaired.iter().all(|r| r.done), "{repaired:?}");
    let left = diagnose_at(folder.path(), Duration::ZERO);
    assert_eq!(left.iter().map(|f| f.code).collect::<Vec<_>>(), ["strange_files"]);
    assert!([&orphan, &staged, &workspace, &lock].iter().all(|path| !path.exists()) && strange.exists());
    // Not removed: it may be somebody's.
    let aside = folder.path().join(layout::SET_ASIDE).join(lost.to_string());
    assert_eq!(fs::read_to_string(aside).unwrap(), "whose?");
}

#[test]
fn what_cannot_be_opened_is_looked_at() {
    let w = World::new();
    w.service.create_key(w.anna, "laptop").unwrap();
    let folder = closed(w);
    let database = folder.path().join(layout::DATABASE);
    let secrets = folder.path().join(layout::SECRETS);
    let kept = fs::read(&secrets).unwrap();
    fs::write(&secrets, "{").unwrap();
    assert_eq!(codes(folder.path()), ["secrets_unreadable"]);
    fs::remove_file(&secrets).unwrap();
    assert_eq!(codes(folder.path()), ["secrets_lost"]);
    assert!(!secrets.exists(), "a look makes no new ones");
    fs::write(&secrets, kept).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&secrets, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();

    let whole = fs::read(&database).unwrap();
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99i32.to_be_bytes()); // user_version
    fs::write(&database, newer).unwrap();
    assert_eq!(codes(folder.path()), ["newer_database"]);
    let mut damaged = whole.clone();
    let page = damaged.len() - 4096;
    damaged[page..].fill(0xa5);
    fs::write(&database, damaged).unwrap();
    assert_eq!(codes(folder.path()), ["database_damaged"]);
    fs::write(&database, "this is no database, whatever its name says").unwrap();
    assert_eq!(codes(folder.path()), ["database_unreadable"]);
    fs::remove_file(&database).unwrap();
    assert_eq!(codes(folder.path()), ["no_database"]);
    fs::write(&database, whole).unwrap();
    assert_eq!(codes(folder.path()), [] as [&str; 0]);
}

#[test]
fn an_older_database_is_not_compared_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let old = rusqlite::Connection::open(folder.path().join(layout::DATABASE)).unwrap();
    old.execute_batch(include_str!("../../database/sqlite/version_1.sql")).unwrap();
    old.execute_batch("PRAGMA application_id = 0x7265636e; PRAGMA user_version = 1").unwrap();
    drop(old);
    #[cfg(unix)]
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(codes(folder.path()), ["older_database"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_full_disk_and_a_device_that_is_not_there() {
    let w = World::new();
    let mut options = options();
    options.min_free_bytes = u64::MAX;
    options.reconstruction.device = crate::raster::DeviceChoice::Adapter("no such adapter".into());
    let of_the_folder = Service::diagnose(w.folder.path(), &options).unwrap();
    let findings = of_the_folder.and(Service::diagnose_machine(&options)).findings;
    assert!(findings.is_sorted_by_key(|f| f.severity));
    for code in ["disk_full", "no_device"] {
        assert!(findings.iter().any(|f| f.code == code && f.severity == Severity::Problem), "{findings:?}");
    }
}

#[cfg(unix)]
#[test]
fn rights_that_others_have_are_taken_away() {
    use std::os::unix::fs::PermissionsExt;
    let w = World::new();
    let set = |mode| fs::set_permissions(w.folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    set(0o755);
    let found = diagnose(w.folder.path());
    assert!(found[0].code == "open_to_others" && found[0].message.contains("755"), "{found:?}");
    repair(w.folder.path());
    assert_eq!(fs::metadata(w.folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(codes(w.folder.path()), ["in_use"]);
    // It still opens.
    drop(open(w.folder.path(), options(), &w.clock));
}

#[cfg(feature = "postgres")]
mod shared {
    use super::*;
    use crate::database::test_database;
    use crate::service::Addresses;

    /// Where rows and files of `w` are.
    fn addresses(w: &World, database: &str) -> Addresses {
        let folder = w.folder.path();
        Addresses {
            database: Some(database.to_owned()),
            storage: Some(format!("file://{}", folder.display())),
            secrets: Some(folder.join(layout::SECRETS)),
            secrets_json: None,
        }
    }

    fn found(addresses: &Addresses) -> Vec<Finding> {
        // Nothing of this machine's own folder is looked at.
        let folder = Path::new("/nowhere");
        let diagnosis = Service::diagnose_shared_at(folder, addresses, &options(), Duration::ZERO);
        let findings = diagnosis.unwrap().findings;
        for finding in &findings {
            assert!(!finding.message.is_empty() && !finding.advice.is_empty(), "{finding:?}");
            assert_eq!(finding.repairable, finding.advice.contains("--repair"), "{finding:?}");
        }
        findings
    }

    fn codes(addresses: &Addresses) -> Vec<&'static str> {
        found(addresses).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn rows_and_files_of_many_machines_are_compared_too() {
        let Some(database) = test_database() else { return };
        let w = World::with_rows_in(Some(database.clone()), options());
        let (gone, cut, whole) = (w.finished(w.anna), w.finished(w.anna), w.finished(w.anna));
        w.submit(w.anna);
        let addresses = addresses(&w, &database);
        let before = snapshot(w.folder.path());
        assert_eq!(codes(&addresses), [] as [&str; 0]);
        assert_eq!(snapshot(w.folder.path()), before);

        let at = |key: BlobKey| w.folder.path().join(key.to_string());
        fs::remove_file(at(key(gone, ArtifactKind::Ply))).unwrap();
        fs::write(at(key(cut, ArtifactKind::Spz)), "damaged").unwrap();
        fs::remove_file(at(key(whole, ArtifactKind::Preview))).unwrap();
        let stray = at(BlobKey::Artifact { job: gone, attempt: 9, kind: ArtifactKind::Ply });
        fs::write(stray, "of an attempt that nobody knows").unwrap();
        let mut problems = codes(&addresses);
        problems.sort_unstable();
        assert_eq!(problems, ["artifact_lost", "orphans", "scene_lost", "scene_lost"]);
    }

    #[test]
    fn rows_that_many_machines_share_no_longer_name_what_is_lost() {
        let Some(database) = test_database() else { return };
        let w = World::with_rows_in(Some(database.clone()), options());
        let (again, never, whole) = (w.finished(w.anna), w.finished(w.anna), w.finished(w.anna));
        let at = |key: BlobKey| w.folder.path().join(key.to_string());
        fs::remove_file(at(key(again, ArtifactKind::Ply))).unwrap();
        fs::write(at(key(never, ArtifactKind::Spz)), "damaged").unwrap();
        fs::remove_file(video(&w, never)).unwrap();
        fs::remove_file(at(key(whole, ArtifactKind::Preview))).unwrap();
        let stray = at(BlobKey::Artifact { job: whole, attempt: 9, kind: ArtifactKind::Ply });
        fs::write(&stray, "perhaps another service's").unwrap();

        // From a machine of its own.
        let here = tempfile::tempdir().unwrap();
        let addresses = addresses(&w, &database);
        let diagnosis = Diagnosis { findings: found(&addresses) };
        let repaired = Service::repair_shared(here.path(), &addresses, &options(), &diagnosis).unwrap();
        assert!(repaired.len() == 4 && repaired.iter().all(|r| r.done), "{repaired:?}");
        assert_eq!(codes(&addresses), ["orphans"]);
        assert!(stray.exists(), "not moved");
        assert_eq!(w.job(again).status, JobStatus::Queued { position: Some(1) });
        assert_eq!(w.job(never).details.failure.map(|f| f.code), Some("files_lost".to_owned()));
        assert_eq!(w.job(whole).status, JobStatus::Finished);
        let damaged = key(never, ArtifactKind::Spz);
        let aside = here.path().join(layout::SET_ASIDE).join(damaged.to_string());
        assert_eq!(fs::read_to_string(aside).unwrap(), "damaged");
        assert!(!at(damaged).exists());
        w.finish_one();
        assert_eq!(w.job(again).status, JobStatus::Finished);
    }

    #[test]
    fn the_storage_of_another_service_is_told() {
        let Some(database) = test_database() else { return };
        let w = World::with_rows_in(Some(database.clone()), options());
        w.finished(w.anna);
        let addresses = addresses(&w, &database);
        let own = tempfile::tempdir().unwrap();
        let service = Service::open_shared(own.path(), &addresses, options()).unwrap();
        service.check_storage().unwrap();
        assert_eq!(codes(&addresses), [] as [&str; 0]);
        let note = w.folder.path().join(crate::storage::SERVICE_ID);
        fs::write(&note, "another").unwrap();
        assert_eq!(codes(&addresses), ["storage_of_another_service"]);
        assert_eq!(service.sweep(Duration::ZERO).unwrap_err().kind(), ErrorKind::Conflict);
        fs::remove_file(&note).unwrap();
        assert_eq!(codes(&addresses), ["storage_of_nobody"]);
        service.sweep(Duration::ZERO).unwrap();
        assert_eq!(codes(&addresses), [] as [&str; 0]);
    }

    /// Its files are safe elsewhere.
    #[test]
    fn in_the_storage_of_another_service_no_job_is_believed_to_be_without_its_files() {
        let Some(database) = test_database() else { return };
        let w = World::with_rows_in(Some(database.clone()), options());
        let job = w.finished(w.anna);
        let addresses = addresses(&w, &database);
        let own = tempfile::tempdir().unwrap();
        Service::open_shared(own.path(), &addresses, options()).unwrap().check_storage().unwrap();
        fs::remove_file(w.folder.path().join(key(job, ArtifactKind::Ply).to_string())).unwrap();
        let mends_nothing = |code: &'static str| {
            let diagnosis = Diagnosis { findings: found(&addresses) };
            let told: Vec<_> = diagnosis.findings.iter().map(|f| (f.code, f.repairable)).collect();
            assert_eq!(told, [(code, false)]);
            let repaired = Service::repair_shared(own.path(), &addresses, &options(), &diagnosis).unwrap();
            assert!(repaired.is_empty(), "{repaired:?}");
            assert_eq!(w.job(job).status, JobStatus::Finished);
        };
        let note = w.folder.path().join(crate::storage::SERVICE_ID);
        fs::write(&note, "another").unwrap();
        mends_nothing("storage_of_another_service");
        fs::remove_file(&note).unwrap();
        mends_nothing("storage_of_nobody");
    }

    #[test]
    fn what_cannot_be_reached_is_said_and_not_made() {
        let Some(database) = test_database() else { return };
        let w = World::with_rows_in(Some(database.clone()), options());
        let whole = addresses(&w, &database);
        let nowhere = w.folder.path().join("nowhere");
        let storage = Some(format!("file://{}", nowhere.display()));
        assert_eq!(codes(&Addresses { storage, ..whole.clone() }), ["no_storage"]);
        assert!(!nowhere.exists());
        let secrets = Some(nowhere);
        assert_eq!(codes(&Addresses { secrets, ..whole.clone() }), ["secrets_unreadable"]);
        let unreachable = Some("postgres://nobody:secret@127.0.0.1:1/none".to_owned());
        let findings = found(&Addresses { database: unreachable, ..whole.clone() });
        assert_eq!(findings.iter().map(|f| f.code).collect::<Vec<_>>(), ["database_unreachable"]);
        assert!(!format!("{findings:?}").contains("secret@"), "{findings:?}");
        let empty = test_database();
        assert_eq!(codes(&Addresses { database: empty.clone(), ..whole.clone() }), ["no_database"]);
        assert_eq!(
            codes(&Addresses { database: empty, ..whole.clone() }),
            ["no_database"],
            "nothing was made"
        );

        let one = Addresses { storage: None, ..whole };
        let refused = Service::diagnose_shared(w.folder.path(), &one, &options()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
}
