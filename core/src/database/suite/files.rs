//! Which files rows name, and what becomes of those that are lost.

use super::{HOUR, PATIENCE, World, at, failure, new_job, publication, video};
use crate::database::{
    FileOwner, JobDatabase, LeaseState, Lost, NamedFile, Return, RowsFile, SqliteDatabase, UpkeepRows,
};
use crate::error::ErrorKind;
use crate::job::{
    ArtifactKind, BlobName, Failure, JobId, JobState, JobStatus, ListQuery, UserId, VideoExtension,
};
use crate::stage::Stage;

/// Rule 46 of docs/rest.md.
pub(in crate::database) fn shared_videos<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let blob = w.upload(w.anna);
    let (first, second) = (new_job(w.anna, blob), new_job(w.anna, blob));
    w.insert(&first).unwrap();
    w.insert(&second).unwrap();
    let forget = |job| {
        d.mark_deleted(w.anna, job).unwrap();
        d.forget_job(job).unwrap();
        d.expire_uploads(3600).unwrap().iter().map(|u| u.name).collect::<Vec<_>>()
    };
    w.clock.advance(1000 * HOUR);
    assert_eq!(forget(first.job_id), []);
    let third = new_job(w.anna, blob);
    w.insert(&third).unwrap();
    assert_eq!(forget(second.job_id), []);
    // From the deletion of its last job on, nobody can submit it, and it goes when that job is gone.
    d.mark_deleted(w.anna, third.job_id).unwrap();
    assert_eq!(w.insert(&new_job(w.anna, blob)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(d.expire_uploads(3600).unwrap(), []);
    assert_eq!(forget(third.job_id), [blob]);
}

fn video_of(user: UserId, name: BlobName) -> NamedFile {
    NamedFile { user, file: RowsFile::Video { name, version: 1 }, size: 10, sha256: Some([7; 32]) }
}

fn artifact_of(user: UserId, job: JobId, kind: ArtifactKind, size: u64) -> NamedFile {
    NamedFile { user, file: RowsFile::Artifact { job, attempt: 1, kind }, size, sha256: None }
}

pub(in crate::database) fn named_files<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(d.named_files().unwrap(), []);
    let empty = BlobName::random(VideoExtension::Mp4);
    d.create_upload(w.anna, empty, 7200).unwrap();
    assert_eq!(d.named_files().unwrap(), [], "an upload without content names no file");
    let unused = w.upload(w.eve);
    assert_eq!(d.named_files().unwrap(), [video_of(w.eve, unused)]);
    let job = w.submit(w.anna);
    let blob = w.job(job).details.blob_name;
    d.publish(&w.take(), &publication()).unwrap();
    let mut videos = [video_of(w.eve, unused), video_of(w.anna, blob)];
    videos.sort_by_key(|video| match video.file {
        RowsFile::Video { name, .. } => name.to_string(),
        RowsFile::Artifact { .. } => unreachable!(),
    });
    let scene = [(ArtifactKind::Ply, 100), (ArtifactKind::Spz, 10)]
        .map(|(kind, size)| artifact_of(w.anna, job, kind, size));
    assert_eq!(d.named_files().unwrap(), [&videos[..], &scene].concat());
    // From the mark of its deletion on, nobody may count on a file.
    d.mark_deleted(w.anna, job).unwrap();
    assert_eq!(d.named_files().unwrap(), [video_of(w.eve, unused)]);
}

pub(in crate::database) fn newest_files<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    w.upload(w.eve);
    assert_eq!(d.newest_files(9).unwrap(), [], "no job uses it");
    let [first, second, last] = [(); 3].map(|()| w.submit(w.anna));
    let [of_first, of_second, of_last] =
        [first, second, last].map(|job| video_of(w.anna, w.job(job).details.blob_name));
    assert_eq!(d.newest_files(2).unwrap(), [of_last.clone(), of_second.clone()]);
    let lease = w.take();
    assert_eq!(lease.job, first);
    d.publish(&lease, &publication()).unwrap();
    let [ply, spz] = [(ArtifactKind::Ply, 100), (ArtifactKind::Spz, 10)]
        .map(|(kind, size)| artifact_of(w.anna, first, kind, size));
    assert_eq!(d.newest_files(1).unwrap(), [of_last, ply.clone()]);
    assert_eq!(d.oldest_files(1).unwrap(), [of_first.clone(), ply.clone()]);
    d.mark_deleted(w.anna, last).unwrap();
    let newest = [of_second.clone(), of_first.clone(), ply.clone(), spz.clone()];
    assert_eq!(d.newest_files(9).unwrap(), newest);
    assert_eq!(d.oldest_files(9).unwrap(), [of_first, of_second, ply, spz]);
}

/// It is drawn once, and a copy is that of the same service.
pub(in crate::database) fn service_id<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(d.service_id().unwrap(), None);
    let folder = tempfile::tempdir().unwrap();
    let id_of_copy = |name: &str| {
        d.copy_to(&folder.path().join(name)).unwrap();
        SqliteDatabase::open(&folder.path().join(name), w.clock.clone()).unwrap().service_id().unwrap()
    };
    assert_eq!(id_of_copy("before"), None);
    assert_eq!(d.note_service_id("first").unwrap(), "first");
    assert_eq!(d.note_service_id("second").unwrap(), "first");
    assert_eq!(d.service_id().unwrap().as_deref(), Some("first"));
    assert_eq!(id_of_copy("after").as_deref(), Some("first"));
}

pub(in crate::database) fn copies_at_rest<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let (running, deleted) = (w.submit(w.anna), w.submit(w.anna));
    let lease = w.take();
    d.progress(&lease, &at(Stage::Train, 0.5, Some(50))).unwrap();
    w.take();
    d.mark_deleted(w.anna, deleted).unwrap();
    let rests = w.submit(w.anna);
    for _ in 0..3 {
        w.clock.advance(HOUR);
        d.release(&w.take(), Return::Disturbed(&failure("io")), &PATIENCE, None).unwrap();
    }
    assert_eq!(d.release_all().unwrap(), 1);
    assert_eq!(d.release_all().unwrap(), 0);
    assert_eq!(d.lease_state(&lease).unwrap(), LeaseState::Lost);
    let job = w.job(running);
    assert_eq!((job.percent_complete, job.details.stage, job.details.failure), (None, None, None));
    // At their old places, with no rest left, and nothing that was held by a dead worker.
    assert_eq!([w.take().job, w.take().job], [running, rests]);
    assert_eq!(w.claim(), None);
    assert_eq!(d.deleted_jobs().unwrap().len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    d.copy_to(&copy).unwrap();
    assert!(copy.metadata().unwrap().len() > 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the copy");
    let error = d.copy_to(&folder.path().join("none/copy")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub(in crate::database) fn lost_videos<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let why = failure("files_lost");
    let blob = w.upload(w.anna);
    let [done, waiting] = [new_job(w.anna, blob), new_job(w.anna, blob)];
    w.insert(&done).unwrap();
    let lease = w.take();
    w.insert(&waiting).unwrap();
    assert_eq!(d.lose_video(&blob, 2, &why).unwrap(), Lost::Unchanged, "another version");
    assert_eq!(d.lose_video(&blob, 1, &why).unwrap(), Lost::Unchanged, "a worker is at it");
    d.publish(&lease, &publication()).unwrap();
    assert_eq!(d.lose_video(&blob, 1, &why).unwrap(), Lost::Failed(vec![waiting.job_id]));
    assert_eq!(d.lose_video(&blob, 1, &why).unwrap(), Lost::Unchanged);
    assert_eq!(w.status(done.job_id), "Finished");
    let failed = w.job(waiting.job_id);
    assert_eq!((failed.status, failed.details.failure), (JobStatus::Failed, Some(why.clone())));
    assert_eq!(w.claim(), None);
    assert_eq!(d.upload(&blob).unwrap().unwrap().video, None);
    assert_eq!(w.insert(&new_job(w.anna, blob)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let unused = w.upload(w.anna);
    assert_eq!(d.lose_video(&unused, 1, &why).unwrap(), Lost::Forgotten);
    // The same address takes the video again.
    d.finish_upload(&unused, &video(5)).unwrap();
    assert_eq!(d.upload(&unused).unwrap().unwrap().video, Some(video(5)));
}

pub(in crate::database) fn lost_artifacts<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let why = failure("files_lost");
    let finished = || {
        let job = w.submit(w.anna);
        let mut all = publication();
        all.artifacts.push((ArtifactKind::Preview, 5));
        d.publish(&w.take(), &all).unwrap();
        job
    };
    let lose = |job, kind| d.lose_artifact(job, 1, kind, &why).unwrap();
    let has = |job, kind| d.artifact(w.anna, job, kind).unwrap().is_some();
    // What is no part of the scene is missed by nobody.
    let job = finished();
    assert_eq!(d.lose_artifact(job, 2, ArtifactKind::Preview, &why).unwrap(), Lost::Unchanged);
    assert_eq!(lose(job, ArtifactKind::Preview), Lost::Forgotten);
    assert!(!has(job, ArtifactKind::Preview) && has(job, ArtifactKind::Ply));
    assert_eq!(w.status(job), "Finished");
    // Without its scene it is done again, in its old place, and as if nothing had been.
    let later = w.submit(w.anna);
    assert_eq!(lose(job, ArtifactKind::Spz), Lost::Queued(job));
    assert_eq!(lose(job, ArtifactKind::Spz), Lost::Unchanged);
    let again = w.job(job);
    assert_eq!(again.status, JobStatus::Queued { position: Some(1) });
    assert_eq!((again.has_ply, again.has_spz, again.percent_complete), (false, false, None));
    assert_eq!(again.details.finished_at, None);
    assert!(!has(job, ArtifactKind::Ply));
    assert_eq!(d.file_owner(job).unwrap(), FileOwner::Unfinished, "what is left may be needed");
    let lease = w.take();
    assert_eq!((lease.job, lease.attempt), (job, 2));
    d.publish(&lease, &publication()).unwrap();
    assert_eq!(w.status(job), "Finished");
    d.publish(&w.take(), &publication()).unwrap();
    assert_eq!(w.status(later), "Finished");
    // Without its video, too, it cannot be done again; what is left of it can be fetched.
    let job = finished();
    assert_eq!(d.lose_video(&w.job(job).details.blob_name, 1, &why).unwrap(), Lost::Forgotten);
    assert_eq!(lose(job, ArtifactKind::Spz), Lost::Failed(vec![job]));
    let failed = w.job(job);
    assert_eq!((failed.status, failed.details.failure.clone()), (JobStatus::Failed, Some(why.clone())));
    assert_eq!((failed.has_ply, failed.has_spz), (true, false));
    assert!(has(job, ArtifactKind::Ply) && !has(job, ArtifactKind::Spz));
    assert_eq!(lose(job, ArtifactKind::Ply), Lost::Forgotten);
    assert!(!w.job(job).has_ply);
    // Of a deleted job there is nothing to lose.
    let job = finished();
    d.mark_deleted(w.anna, job).unwrap();
    assert_eq!(lose(job, ArtifactKind::Ply), Lost::Unchanged);
    assert!(d.integrity_check().unwrap().is_empty());
}

pub(in crate::database) fn missing_videos<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let (why, blob, other) = (failure(Failure::VIDEO_MISSING), w.upload(w.anna), w.upload(w.eve));
    assert_eq!(d.waiting_videos().unwrap(), []);
    let [first, second] = [new_job(w.anna, blob), new_job(w.anna, blob)];
    for new in [&first, &second, &new_job(w.eve, other)] {
        w.insert(new).unwrap();
    }
    let mut waiting = vec![(blob, 1), (other, 1)];
    waiting.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(d.waiting_videos().unwrap(), waiting);
    assert_eq!(d.fail_waiting(&blob, 2, &why).unwrap(), [], "another version");
    let lease = w.take();
    assert_eq!(lease.job, first.job_id);
    assert_eq!(d.fail_waiting(&blob, 1, &why).unwrap(), [second.job_id], "the other one is worked on");
    assert_eq!(w.job(second.job_id).details.failure, Some(why.clone()));
    d.fail(&lease, &why, None).unwrap();
    for job in [first.job_id, second.job_id] {
        assert_eq!((w.job(job).status, w.status(job).as_str()), (JobStatus::NotFound, "Not found"));
    }
    assert_eq!(d.waiting_videos().unwrap(), [(other, 1)]);
    assert!(d.upload(&blob).unwrap().unwrap().video.is_some());
    let listed = |status| {
        let query = ListQuery { status: Some(status), ..ListQuery::default() };
        d.list_jobs(w.anna, &query).unwrap().jobs.len()
    };
    assert_eq!((listed(JobState::NotFound), listed(JobState::Failed)), (2, 0));
    let cancelled = w.submit(w.anna);
    d.cancel_job(w.anna, cancelled, &failure("cancelled")).unwrap();
    assert_eq!((listed(JobState::NotFound), listed(JobState::Failed)), (2, 1));
    assert_eq!(d.statistics().unwrap().failed, 3);
}
