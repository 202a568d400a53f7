//! What maintenance removes, and what it leaves.

use std::fs;
use std::time::Duration;

use super::test_world::{World, folder, open};
use super::tests::work;
use crate::error::ErrorKind;
use crate::job::{ArtifactKind, JobStatus, Tier};

#[test]
fn maintenance_removes_what_nobody_needs_and_nothing_else() {
    let w = World::new();
    let (kept, dead) = (w.submit(w.anna), w.submit(w.anna));
    assert!(work(&w.service, |_, _| Ok(())));
    let needed = w.files();
    // As processes leave it that were killed between a file and its row.
    let job = w.job(kept);
    for stray in [
        format!("scenes/{kept}/7.ply"),
        format!("scenes/{}/1.ply", crate::job::JobId::random()),
        job.details.blob_name.to_string().replacen('.', ".00000000000000ff.", 1),
        "staged/0-0".to_owned(),
        format!("work/{kept}/run/frames.json"),
    ] {
        let path = w.folder.path().join(stray);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "stray").unwrap();
    }
    // Somebody's own file, and the workspace of a job that waits.
    let own = w.folder.path().join("videos/my.mp4");
    fs::write(&own, "mine").unwrap();
    drop(w.service.inner.workspaces.enter(dead).unwrap());
    assert_eq!(w.service.sweep(Duration::from_secs(3600)).unwrap(), 1);
    assert_eq!(w.service.sweep(Duration::ZERO).unwrap(), 4);
    fs::remove_file(own).unwrap();
    assert!(w.folder.path().join("work").join(dead.to_string()).exists());
    w.service.delete(w.anna, dead).unwrap();
    let left: Vec<_> = w.files();
    assert_eq!(left.iter().filter(|f| needed.contains(f)).count(), left.len());
    assert!(w.service.artifact(w.anna, kept, ArtifactKind::Spz).is_ok());
    // A video that nobody submits goes after a day.
    let unused = w.upload(w.anna);
    w.clock.advance(27 * 3600);
    let report = w.service.maintain().unwrap();
    assert_eq!(report.deleted_uploads, 1);
    assert!(w.service.begin_upload(&unused, Default::default()).is_err());
    assert_eq!(w.files(), left);
    assert!(w.service.integrity_check().unwrap().is_empty());
}

/// Also by processes that never live for the hour after which files without a row are looked for.
#[test]
fn what_a_killed_process_was_writing_goes_at_the_first_look() {
    let w = World::new();
    let staged = w.folder.path().join("staged/0-0");
    fs::write(&staged, "half").unwrap();
    assert_eq!(w.service.maintain().unwrap().orphans, 0);
    assert!(staged.exists(), "somebody may have begun it just now");
    let other = w.reopen();
    assert!(!other.inner.sweeps.are_due(Duration::ZERO));
    assert_eq!(other.tidy_folder(Duration::ZERO).unwrap(), 1);
    assert!(!staged.exists());
    // The next look is an hour later.
    fs::write(&staged, "half").unwrap();
    assert_eq!(other.tidy_folder(Duration::ZERO).unwrap(), 0);
}

/// A database that was lost and made anew, beside files that are still there.
#[test]
fn a_database_without_users_is_the_end_of_no_file() {
    let w = World::new();
    w.submit(w.anna);
    let empty = folder();
    let other = open(empty.path(), w.service.options().clone(), &w.clock);
    assert_eq!(other.sweep(Duration::ZERO).unwrap(), 0, "there is nothing yet");
    let videos = || fs::read_dir(empty.path().join("videos")).unwrap().count();
    for video in fs::read_dir(w.folder.path().join("videos")).unwrap() {
        let video = video.unwrap();
        fs::copy(video.path(), empty.path().join("videos").join(video.file_name())).unwrap();
    }
    let refused = other.sweep(Duration::ZERO).unwrap_err();
    assert_eq!((refused.kind(), videos()), (ErrorKind::Conflict, 1));
    assert!(refused.hint_text().is_some(), "{refused:?}");
    // Somebody works here: it is a file of nobody.
    other.add_user("ben", Tier::Enterprise).unwrap();
    assert_eq!((other.sweep(Duration::ZERO).unwrap(), videos()), (1, 0));
}

#[test]
fn an_interrupted_deletion_is_done_when_the_service_opens() {
    let w = World::new();
    let job = w.submit(w.anna);
    assert!(work(&w.service, |_, _| Ok(())));
    assert!(w.service.inner.database.mark_deleted(w.anna, job).unwrap());
    assert!(!w.files().is_empty());
    w.reopen();
    assert_eq!(w.files(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_file_that_cannot_be_removed_keeps_nothing_else_from_being_done() {
    let w = World::new();
    let jobs = [w.submit(w.anna), w.submit(w.anna)];
    for _ in jobs {
        assert!(work(&w.service, |_, _| Ok(())));
    }
    // A folder with something in it, where the scene of the first was: not even an administrator can unlink it.
    let scene = w.folder.path().join(format!("scenes/{}/1.ply", jobs[0]));
    fs::remove_file(&scene).unwrap();
    fs::create_dir(&scene).unwrap();
    fs::write(scene.join("own"), "").unwrap();
    for job in jobs {
        assert!(w.service.inner.database.mark_deleted(w.anna, job).unwrap());
    }
    let third = w.submit(w.anna);
    let other = w.reopen();
    assert!(!w.files().iter().any(|file| file.to_string_lossy().contains(&jobs[1].to_string())));
    assert!(other.maintain().is_err());
    assert!(work(&other, |_, _| Ok(())));
    assert_eq!(w.job(third).status, JobStatus::Finished);
    fs::remove_dir_all(&scene).unwrap();
    assert_eq!(other.maintain().unwrap().deleted_jobs, 1);
}
