//! Uploads, and jobs as their owners see them: submitted, listed, changed, deleted.

use super::{HOUR, LEASE, PATIENCE, World, added, at, failure, new_job, publication, video};
use crate::database::{
    FileOwner, Inserted, JobDatabase, LeaseState, NewJob, Rate, Reclaimed, Return, Returned, Usage,
};
use crate::error::ErrorKind;
use crate::job::{
    ArtifactKind, BlobName, CameraData, CameraType, CameraUpdate, JobId, JobState, JobStatus, JobUpdate,
    Limits, ListQuery, VideoExtension, Xyz,
};
use crate::stage::Stage;

pub(in crate::database) fn uploads<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let name = BlobName::random(VideoExtension::Mov);
    let made = d.create_upload(w.anna, name, 7200).unwrap();
    assert_eq!(d.upload(&name).unwrap().unwrap(), made);
    assert_eq!(d.finish_upload(&name, &video(u64::MAX)).unwrap(), None);
    assert_eq!(d.finish_upload(&name, &video(2)).unwrap(), Some(u64::MAX));
    assert_eq!(d.upload(&name).unwrap().unwrap().video, Some(video(2)));
    let unknown = BlobName::random(VideoExtension::Mov);
    assert_eq!(d.finish_upload(&unknown, &video(1)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(d.upload(&unknown).unwrap(), None);

    // Nobody used it for a day: it goes, in two steps; not before its address goes out of use.
    let day = 24 * 3600;
    w.clock.advance(HOUR);
    assert_eq!(d.expire_uploads(0).unwrap(), []);
    w.clock.advance(22 * HOUR);
    assert_eq!(d.expire_uploads(day).unwrap(), []);
    w.clock.advance(2 * HOUR);
    let fresh = w.upload(w.anna);
    let gone = d.expire_uploads(day).unwrap();
    assert_eq!((gone.len(), gone[0].name, gone[0].deleted), (1, name, true));
    assert_eq!(d.expire_uploads(day).unwrap(), gone);
    assert_eq!(d.finish_upload(&name, &video(3)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(w.insert(&new_job(w.anna, name)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    d.forget_upload(&name).unwrap();
    d.forget_upload(&fresh).unwrap();
    assert_eq!(d.expire_uploads(day).unwrap(), []);
    assert_eq!(d.upload(&name).unwrap(), None);
    assert!(d.upload(&fresh).unwrap().is_some());

    // Its owner does not want it any more. One that a job uses goes with that.
    assert!(!d.discard_upload(w.eve, &fresh).unwrap());
    assert!(d.discard_upload(w.anna, &fresh).unwrap());
    assert!(!d.discard_upload(w.anna, &fresh).unwrap());
    assert_eq!(d.expire_uploads(day).unwrap().iter().map(|u| u.name).collect::<Vec<_>>(), [fresh]);
    let used = w.upload(w.anna);
    w.insert(&new_job(w.anna, used)).unwrap();
    assert!(!d.discard_upload(w.anna, &used).unwrap());
}

pub(in crate::database) fn submissions<D: JobDatabase>(mut w: World<D>) {
    let blob = w.upload(w.anna);
    let new = new_job(w.anna, blob);
    let submitted = added(w.insert(&new).unwrap());
    assert_eq!((submitted.title.as_str(), submitted.status.as_str()), ("garden.mp4", "queued"));
    let job = w.job(new.job_id);
    assert_eq!(job.uploaded_at, submitted.uploaded_at);
    assert_eq!(job.camera_data, CameraData::default());
    let fields = serde_json::to_value(&job).unwrap();
    let names = [
        "job_id",
        "title",
        "status",
        "percent_complete",
        "uploaded_at",
        "public",
        "reconstruction_method",
        "training_max_num_gaussians",
        "training_num_steps",
        "remove_background",
        "has_ply",
        "has_spz",
        "camera_data",
    ];
    assert_eq!(fields.as_object().unwrap().len(), names.len());
    assert!(names.iter().all(|name| fields.get(name).is_some()), "{fields}");
    assert_eq!(
        (&fields["status"], &fields["percent_complete"]),
        (&"Queued - position: 1".into(), &().into())
    );
    assert_eq!(fields["reconstruction_method"], "glomap");
    assert_eq!(serde_json::to_value(&submitted).unwrap().as_object().unwrap().len(), 10);
    // A video in use is not replaced; one that was replaced since it was looked at is not taken.
    assert_eq!(w.database.finish_upload(&blob, &video(2)).unwrap_err().kind(), ErrorKind::Conflict);
    let other = NewJob { video_version: 9, ..new_job(w.anna, blob) };
    assert_eq!(w.insert(&other).unwrap(), Inserted::VideoChanged);
    // Foreign, unknown, empty and forgotten ones read the same.
    let empty = BlobName::random(VideoExtension::Mp4);
    w.database.create_upload(w.anna, empty, 7200).unwrap();
    for (user, name) in [(w.eve, blob), (w.anna, BlobName::random(VideoExtension::Mp4)), (w.anna, empty)] {
        let error = w.insert(&new_job(user, name)).unwrap_err();
        assert_eq!(error.message(), "Blob not found. Please verify the upload.");
    }
    // The queue of one user is bounded, that of another is not concerned.
    w.limits.max_queued_jobs = 2;
    w.submit(w.anna);
    let third = w.insert(&new_job(w.anna, blob)).unwrap_err();
    assert_eq!(third.kind(), ErrorKind::TooManyRequests);
    w.submit(w.eve);
    w.take();
    w.submit(w.anna);
    // Bytes are bounded too.
    w.limits = Limits { max_stored_bytes: Some(39), ..Limits::default() };
    w.submit(w.eve);
    let full = w.insert(&new_job(w.anna, w.upload(w.anna))).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::InvalidArgument);
    assert_eq!(w.database.statistics().unwrap().queued, 4);
}

pub(in crate::database) fn idempotency<D: JobDatabase>(w: World<D>) {
    let blob = w.upload(w.anna);
    let new = |user, hash| NewJob { idempotency: Some(("key".into(), [hash; 32])), ..new_job(user, blob) };
    let first = added(w.insert(&new(w.anna, 1)).unwrap());
    assert_eq!(w.insert(&new(w.anna, 1)).unwrap(), Inserted::Before(first.clone()));
    assert_eq!(w.insert(&new(w.anna, 2)).unwrap_err().kind(), ErrorKind::IdempotencyMismatch);
    let answer = |user, hash| w.database.idempotent_answer(user, "key", &[hash; 32], 24);
    assert_eq!(answer(w.anna, 1).unwrap(), Some(first.clone()));
    assert_eq!(answer(w.anna, 2).unwrap_err().kind(), ErrorKind::IdempotencyMismatch);
    assert_eq!(answer(w.eve, 2).unwrap(), None);
    // The answer is forgotten after a day.
    w.clock.advance(25 * HOUR);
    assert_eq!(answer(w.anna, 2).unwrap(), None);
    let blob = w.upload(w.anna);
    let again = NewJob { idempotency: Some(("key".into(), [2; 32])), ..new_job(w.anna, blob) };
    assert_ne!(added(w.insert(&again).unwrap()).job_id, first.job_id);
    // With the job goes its answer: nobody is told of what is gone.
    let other = w.upload(w.anna);
    let once = NewJob { idempotency: Some(("once".into(), [1; 32])), ..new_job(w.anna, other) };
    added(w.insert(&once).unwrap());
    assert!(w.database.idempotent_answer(w.anna, "once", &[1; 32], 24).unwrap().is_some());
    w.database.mark_deleted(w.anna, once.job_id).unwrap();
    assert_eq!(w.database.idempotent_answer(w.anna, "once", &[1; 32], 24).unwrap(), None);
}

pub(in crate::database) fn lists<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let all: Vec<JobId> = (0..5).map(|k| w.submit_as(w.anna, |r| r.public = k == 3)).collect();
    w.submit(w.eve);
    let ids = |query: ListQuery| {
        d.list_jobs(w.anna, &query).unwrap().jobs.iter().map(|j| j.job_id).collect::<Vec<_>>()
    };
    let newest: Vec<JobId> = all.iter().rev().copied().collect();
    assert_eq!(ids(ListQuery::default()), newest);
    // Page by page it is the same list, even if one is added meanwhile.
    let mut query = ListQuery { limit: Some(2), ..ListQuery::default() };
    let mut seen = Vec::new();
    loop {
        let page = d.list_jobs(w.anna, &query).unwrap();
        assert!(page.jobs.len() <= 2);
        seen.extend(page.jobs.iter().map(|j| j.job_id));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
        w.submit(w.anna);
    }
    assert_eq!(seen, newest);
    assert_eq!(ids(ListQuery { public: Some(true), ..Default::default() }), [all[3]]);
    let lease = w.take();
    d.progress(&lease, &at(Stage::Sfm, 0.5, None)).unwrap();
    let state = |state| ids(ListQuery { status: Some(state), limit: Some(10), ..Default::default() });
    assert_eq!(state(JobState::ProcessingVideo), [lease.job]);
    assert_eq!(state(JobState::Queued).len(), 6);
    d.progress(&lease, &at(Stage::Train, 0.0, Some(0))).unwrap();
    assert_eq!(state(JobState::GeneratingScene), [lease.job]);
    d.publish(&lease, &publication()).unwrap();
    assert_eq!(state(JobState::Finished), [lease.job]);
    let lease = w.take();
    d.fail(&lease, &failure("invalid_media"), None).unwrap();
    assert_eq!(state(JobState::Failed), [lease.job]);
    assert!(d.mark_deleted(w.anna, lease.job).unwrap());
    assert_eq!(state(JobState::Failed), []);
    assert_eq!(d.all_jobs().unwrap().len(), 7);
}

pub(in crate::database) fn updates<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit_as(w.anna, |r| r.camera_type = Some(CameraType::Orbital));
    let update = |update: JobUpdate| d.update_job(w.anna, job, &update).unwrap().unwrap();
    let before = w.job(job);
    assert_eq!(update(JobUpdate::default()), before);
    let title = JobUpdate { title: Some("New".into()), ..Default::default() };
    assert_eq!(d.update_job(w.eve, job, &title).unwrap(), None);
    let after = update(title);
    assert_eq!((after.title.as_str(), after.public), ("New", false));
    assert!(after.details.version > before.details.version);
    assert!(update(JobUpdate { public: Some(true), ..Default::default() }).public);
    let set = |x: f64, camera_type| {
        let (position, look_at, up) =
            (Xyz { x, y: 0.0, z: 0.0 }, Xyz::default(), Xyz { x: 0.0, y: 1.0, z: 0.0 });
        let camera_data = Some(CameraUpdate::Set { position, look_at, up, camera_type });
        JobUpdate { camera_data, ..Default::default() }
    };
    // Rule 62 of docs/rest.md: it replaces as a whole, but the type stays if it is left out.
    let camera = update(set(5.0, None)).camera_data;
    assert_eq!((camera.position.x, camera.camera_type), (5.0, CameraType::Orbital));
    assert_eq!(update(set(6.0, Some(CameraType::Drone))).camera_data.camera_type, CameraType::Drone);
    assert_eq!(update(set(7.0, None)).camera_data.camera_type, CameraType::Drone);
    // Rule 59: what the reconstruction finds does not take the place of what the user set.
    d.publish(&w.take(), &publication()).unwrap();
    let finished = w.job(job);
    assert_eq!((finished.camera_data.position.x, finished.title.as_str()), (7.0, "New"));
    let reset = update(JobUpdate { camera_data: Some(CameraUpdate::Reset), ..Default::default() });
    assert_eq!((reset.camera_data.position.x, reset.camera_data.camera_type), (1.0, CameraType::Orbital));
}

pub(in crate::database) fn cancel_and_delete<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let cancelled = failure("cancelled");
    let (waiting, running) = (w.submit(w.anna), w.submit(w.anna));
    let version = |user| d.job_version(user, waiting).unwrap();
    let before = version(w.anna);
    assert_eq!((before, version(w.eve)), (Some(w.job(waiting).details.version), None));
    assert_eq!(d.cancel_job(w.eve, waiting, &cancelled).unwrap(), None);
    assert_eq!(version(w.anna), before);
    assert_eq!(d.cancel_job(w.anna, waiting, &cancelled).unwrap().unwrap().status, JobStatus::Failed);
    assert!(version(w.anna) > before);
    let lease = w.take();
    assert_eq!(lease.job, running);
    assert_eq!(
        d.cancel_job(w.anna, running, &cancelled).unwrap().unwrap().details.failure,
        Some(cancelled.clone())
    );
    assert_eq!(d.heartbeat(&lease, LEASE).unwrap(), LeaseState::Lost);
    assert_eq!(d.file_owner(running).unwrap(), FileOwner::Ended(vec![]));
    // What has ended is not cancelled.
    let done = w.submit(w.anna);
    d.publish(&w.take(), &publication()).unwrap();
    assert_eq!(d.cancel_job(w.anna, done, &cancelled).unwrap().unwrap().status, JobStatus::Finished);
    let kept = vec![(ArtifactKind::Ply, 1), (ArtifactKind::Spz, 1)];
    assert_eq!(d.file_owner(done).unwrap(), FileOwner::Ended(kept));

    // A deleted job is gone for everybody but its worker, who is told and lets go.
    let job = w.submit(w.anna);
    assert_eq!(d.file_owner(job).unwrap(), FileOwner::Unfinished);
    let lease = w.take();
    assert!(!d.mark_deleted(w.eve, job).unwrap());
    assert!(d.mark_deleted(w.anna, job).unwrap());
    assert!(!d.mark_deleted(w.anna, job).unwrap());
    assert_eq!((d.job(w.anna, job).unwrap(), d.job_version(w.anna, job).unwrap()), (None, None));
    assert_eq!(
        d.update_job(w.anna, job, &JobUpdate { public: Some(true), ..Default::default() }).unwrap(),
        None
    );
    assert_eq!(d.cancel_job(w.anna, job, &cancelled).unwrap(), None);
    assert_eq!(d.heartbeat(&lease, LEASE).unwrap(), LeaseState::Deleted);
    assert_eq!(d.lease_state(&lease).unwrap(), LeaseState::Deleted);
    assert_eq!(d.progress(&lease, &at(Stage::Train, 0.9, Some(90))).unwrap(), LeaseState::Deleted);
    assert_eq!(d.publish(&lease, &publication()).unwrap(), LeaseState::Deleted);
    assert_eq!(d.deleted_jobs().unwrap(), []);
    assert_eq!(d.release(&lease, Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Gone);
    assert_eq!(d.deleted_jobs().unwrap().iter().map(|j| (j.job, j.attempt)).collect::<Vec<_>>(), [(job, 1)]);
    d.forget_job(job).unwrap();
    assert_eq!((d.deleted_jobs().unwrap(), d.file_owner(job).unwrap()), (vec![], FileOwner::Nobody));
    // If that worker is dead, it need not let go; a waiting job needs nobody.
    let job = w.submit(w.anna);
    w.take();
    d.mark_deleted(w.anna, job).unwrap();
    assert_eq!(
        d.reclaim(&|_| false, &PATIENCE).unwrap(),
        Reclaimed { deleted: vec![job], ..Default::default() }
    );
    assert_eq!(d.reclaim(&|_| false, &PATIENCE).unwrap(), Default::default(), "once");
    assert_eq!(d.deleted_jobs().unwrap().len(), 1);
    let job = w.submit(w.anna);
    d.mark_deleted(w.anna, job).unwrap();
    assert_eq!(w.claim(), None);
    assert_eq!(d.deleted_jobs().unwrap().len(), 2);
    // What is not marked is not forgotten.
    d.forget_job(done).unwrap();
    assert_eq!(w.status(done), "Finished");
    assert!(d.integrity_check().unwrap().is_empty());
}

/// Rule 72.
pub(in crate::database) fn public_jobs<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit_as(w.anna, |request| request.public = true);
    let seen = || (d.public_job(job).unwrap(), d.public_artifact(job, ArtifactKind::Spz).unwrap());
    assert_eq!(seen(), (None, None), "waiting");
    let lease = w.take();
    d.progress(&lease, &at(Stage::Train, 0.5, Some(50))).unwrap();
    assert_eq!(seen(), (None, None), "running");
    d.publish(&lease, &publication()).unwrap();
    let (shown, spz) = seen();
    assert_eq!(shown, d.job(w.anna, job).unwrap());
    assert_eq!(spz, d.artifact(w.anna, job, ArtifactKind::Spz).unwrap());
    assert!(spz.is_some());
    assert_eq!(d.public_artifact(job, ArtifactKind::Preview).unwrap(), None);
    let show = |public: bool| {
        d.update_job(w.anna, job, &JobUpdate { public: Some(public), ..Default::default() }).unwrap();
    };
    show(false);
    assert_eq!(seen(), (None, None), "private");
    show(true);
    assert!(seen().0.is_some());
    d.mark_deleted(w.anna, job).unwrap();
    assert_eq!(seen(), (None, None), "deleted");
    let failed = w.submit_as(w.anna, |request| request.public = true);
    d.fail(&w.take(), &failure("x"), Some(5)).unwrap();
    assert_eq!(d.public_job(failed).unwrap(), None);
    assert_eq!(d.public_artifact(failed, ArtifactKind::Log).unwrap(), None);
}

pub(in crate::database) fn shared_rates<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let rate = Rate { class: "requests", per_second: 2.0, burst: 10 };
    let take = |wanted| {
        let tokens = d.take_tokens(w.anna, &rate, wanted, 0).unwrap();
        (tokens.taken, (tokens.next.as_secs_f64() * 10.0).round() / 10.0)
    };
    // A new bucket is full.
    assert_eq!(take(4), (4, 0.0));
    assert_eq!(take(100), (6, 0.5));
    assert_eq!(take(1), (0, 0.5));
    w.clock.advance_micros(200_000);
    assert_eq!(take(1), (0, 0.3), "part of one is none, and is kept");
    w.clock.advance_micros(300_000);
    assert_eq!(take(5), (1, 0.5));
    w.clock.advance(2);
    assert_eq!(take(3), (3, 0.0));
    w.clock.advance(1000);
    assert_eq!(take(11), (10, 0.5), "no more than the bucket holds");
    // What comes back can be taken again, and the bucket does not grow by it.
    assert_eq!(d.take_tokens(w.anna, &rate, 3, 4).unwrap().taken, 3);
    assert_eq!(d.take_tokens(w.anna, &rate, 20, 100).unwrap().taken, 10);
    // Others have their own.
    assert_eq!(d.take_tokens(w.eve, &rate, 10, 5).unwrap().taken, 10);
    assert_eq!(d.take_tokens(w.anna, &Rate { class: "submits", ..rate }, 10, 0).unwrap().taken, 10);
    // The clock was ahead, and is set back.
    w.clock.advance(1000 * HOUR);
    assert_eq!(take(8), (8, 0.0));
    w.clock.advance(-30);
    assert_eq!(take(5), (2, 0.5), "by a little: nothing comes meanwhile");
    w.clock.advance(-1000 * HOUR);
    assert_eq!(take(8), (8, 0.0), "as new");
    assert_eq!(take(5), (2, 0.5));
    w.clock.advance(1);
    assert_eq!(take(5), (2, 0.5), "it fills as ever");
    // An operator has made the bucket smaller.
    w.clock.advance(1000);
    assert_eq!(d.take_tokens(w.anna, &Rate { burst: 3, ..rate }, 10, 0).unwrap().taken, 3);
}

/// What a user has of what is limited.
pub(in crate::database) fn usage<D: JobDatabase>(w: World<D>) {
    assert_eq!(w.database.usage(w.anna).unwrap(), Usage::default());
    w.submit(w.anna);
    let second = w.submit(w.anna);
    w.submit(w.eve);
    assert_eq!(w.database.usage(w.anna).unwrap(), Usage { waiting_jobs: 2, stored_bytes: 20 });
    w.database.mark_deleted(w.anna, second).unwrap();
    assert_eq!(w.database.usage(w.anna).unwrap().waiting_jobs, 1);
    w.take();
    assert_eq!(w.database.usage(w.anna).unwrap().waiting_jobs, 0);
    assert_eq!(w.database.usage(w.eve).unwrap(), Usage { waiting_jobs: 1, stored_bytes: 10 });
    // What has come of a video counts before the rest has, and no longer than until a job uses the video.
    let blob = w.upload(w.eve);
    w.database.note_waiting_bytes(&blob, 7).unwrap();
    assert_eq!(w.database.usage(w.eve).unwrap().stored_bytes, 27);
    w.database.add_waiting_bytes(&blob, 5).unwrap();
    assert_eq!(w.database.usage(w.eve).unwrap().stored_bytes, 32);
    w.database.add_waiting_bytes(&blob, -4).unwrap();
    assert_eq!(w.database.usage(w.eve).unwrap().stored_bytes, 28);
    w.database.add_waiting_bytes(&blob, -100).unwrap();
    assert_eq!(w.database.usage(w.eve).unwrap().stored_bytes, 20);
    w.database.note_waiting_bytes(&blob, 7).unwrap();
    w.database.note_waiting_bytes(&blob, 0).unwrap();
    assert_eq!(w.database.usage(w.eve).unwrap().stored_bytes, 20);
    w.database.note_waiting_bytes(&blob, 7).unwrap();
    added(w.insert(&new_job(w.eve, blob)).unwrap());
    assert_eq!(w.database.usage(w.eve).unwrap().stored_bytes, 20);
    w.database.note_waiting_bytes(&BlobName::random(VideoExtension::Mp4), 7).unwrap();
}
