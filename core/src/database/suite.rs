//! What every database must do.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Abilities, Claim, Clock, FileOwner, Inserted, JobDatabase, Lease, LeaseState, Lost, ManualClock,
    NamedFile, NewInvitation, NewJob, NewSession, Patience, Progress, Publication, QueueOrder, Rate, Return,
    Returned, RowsFile, TokenHash, UploadedVideo, Usage,
};
use crate::control::Warning;
use crate::error::{ErrorKind, Result};
use crate::job::{
    ApiKey, ArtifactKind, BlobName, CameraData, CameraType, CameraUpdate, Failure, Job, JobId, JobRequest,
    JobState, JobStatus, JobUpdate, Limits, ListQuery, Submitted, Tier, Timestamp, User, UserId,
    VideoExtension, Xyz,
};
use crate::stage::Stage;

const LEASE: u64 = 30;
const PATIENCE: Patience = Patience { crashes: 3, disturbances: 5 };
const HOUR: i64 = 3600;

/// An empty database with two users.
pub(super) struct World<D> {
    database: D,
    clock: Arc<ManualClock>,
    anna: UserId,
    eve: UserId,
    limits: Limits,
    _keep: tempfile::TempDir,
}

/// Makes one test of each promise for the database that `$open` gives: a function from a clock and the order of the queue to
/// an empty database and the folder that it needs, or nothing where this machine lacks what it takes.
macro_rules! tests {
    ($open:expr) => {
        $crate::database::suite::tests! {
            $open =>
            users_and_keys uploads submissions idempotency lists updates a_job_runs leases disturbances crashes
            progress_forgives what_a_worker_cannot_do memory_of_one_machine time_worked cancel_and_delete shared_videos
            public_jobs usage invitations sessions passwords named_files copies_at_rest lost_videos lost_artifacts missing_videos shared_rates
        }
        $crate::database::suite::tests! { $open, QueueOrder::Users => users_take_turns users_take_turns_at_what_a_worker_can_do }
    };
    ($open:expr => $($promise:ident)*) => {
        $crate::database::suite::tests! { $open, QueueOrder::Submitted => $($promise)* }
    };
    ($open:expr, $order:expr => $($promise:ident)*) => {
        $(#[test]
        fn $promise() {
            if let Some(world) = $crate::database::suite::World::new(&$open, $order) {
                $crate::database::suite::$promise(world);
            }
        })*
    };
}
pub(super) use tests;

impl<D: JobDatabase> World<D> {
    pub(super) fn new(
        open: &impl Fn(Arc<dyn Clock>, QueueOrder) -> Option<(tempfile::TempDir, D)>,
        order: QueueOrder,
    ) -> Option<Self> {
        let clock = Arc::new(ManualClock::new());
        let (keep, database) = open(clock.clone(), order)?;
        let add = |name: &str| {
            let (user_id, created_at) = (UserId::random(), clock.now());
            let user = User { user_id, name: name.into(), tier: Tier::Enterprise, created_at };
            database.add_user(&user).unwrap();
            user_id
        };
        let (anna, eve) = (add("anna"), add("eve"));
        Some(World { anna, eve, database, clock, limits: Limits::default(), _keep: keep })
    }

    fn upload(&self, user: UserId) -> BlobName {
        let name = BlobName::random(VideoExtension::Mp4);
        self.database.create_upload(user, name, 7200).unwrap();
        self.database.finish_upload(&name, &video(1)).unwrap();
        name
    }

    fn insert(&self, new: &NewJob) -> Result<Inserted> {
        self.database.insert_job(new, &self.limits)
    }

    fn submit(&self, user: UserId) -> JobId {
        self.submit_as(user, |_| {})
    }

    fn submit_as(&self, user: UserId, change: impl FnOnce(&mut JobRequest)) -> JobId {
        let mut new = new_job(user, self.upload(user));
        change(&mut new.request);
        self.insert(&new).unwrap();
        new.job_id
    }

    fn job(&self, job: JobId) -> Job {
        self.database.job(self.anna, job).unwrap().unwrap()
    }

    fn status(&self, job: JobId) -> String {
        self.job(job).status.to_string()
    }

    fn claim(&self) -> Option<Claim> {
        self.database.claim("process", "worker", LEASE, &Abilities::ALL).unwrap()
    }

    fn take(&self) -> Lease {
        self.claim().unwrap().lease
    }
}

fn video(version: u64) -> UploadedVideo {
    UploadedVideo {
        version,
        size: 10,
        sha256: Some([7; 32]),
        file_name: Some("garden.mp4".into()),
        block_list: Some([9; 32]),
    }
}

fn new_job(user: UserId, blob: BlobName) -> NewJob {
    NewJob {
        user,
        job_id: JobId::random(),
        request: JobRequest::new(blob),
        video_version: 1,
        idempotency: None,
    }
}

fn added(inserted: Inserted) -> Submitted {
    match inserted {
        Inserted::Added(submitted) => submitted,
        other => panic!("{other:?}"),
    }
}

fn failure(code: &str) -> Failure {
    Failure { code: code.into(), message: "it broke".into() }
}

fn publication() -> Publication {
    let camera = CameraData { position: Xyz { x: 1.0, y: 2.0, z: 3.0 }, ..CameraData::default() };
    let artifacts = vec![(ArtifactKind::Ply, 100), (ArtifactKind::Spz, 10)];
    Publication { artifacts, camera, warnings: vec![Warning::new("low_parallax", "hardly moved")] }
}

fn at(stage: Stage, fraction: f32, percent: Option<u8>) -> Progress {
    Progress { stage, fraction, percent }
}

pub(super) fn users_and_keys<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(d.users().unwrap().iter().map(|u| u.name.as_str()).collect::<Vec<_>>(), ["anna", "eve"]);
    let twin = User { user_id: UserId::random(), ..d.users().unwrap()[0].clone() };
    assert_eq!(d.add_user(&twin).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(d.user_by_name("eve").unwrap().unwrap().user_id, w.eve);
    assert_eq!(d.user_by_name("Eve").unwrap(), None);
    let key = ApiKey {
        name: "laptop".into(),
        prefix: "lrk_00000001".into(),
        created_at: w.clock.now(),
        last_used: None,
        revoked_at: None,
    };
    assert!(d.create_key(w.anna, &key, &[1; 32]).unwrap());
    assert!(!d.create_key(w.eve, &key, &[2; 32]).unwrap());
    let other = ApiKey { prefix: "lrk_00000002".into(), ..key.clone() };
    assert_eq!(d.create_key(UserId::random(), &other, &[2; 32]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(d.key(&other.prefix).unwrap(), None);
    let stored = d.key(&key.prefix).unwrap().unwrap();
    assert_eq!(
        (stored.user, stored.tier, stored.mac, stored.revoked),
        (w.anna, Tier::Enterprise, [1; 32], false)
    );
    assert!(d.set_tier(w.anna, Tier::Free).unwrap());
    assert!(!d.set_tier(UserId::random(), Tier::Free).unwrap());
    assert_eq!(d.key(&key.prefix).unwrap().unwrap().tier, Tier::Free);
    let (early, late) = (w.clock.now(), w.clock.now());
    d.touch_keys(&[(key.prefix.clone(), late)]).unwrap();
    d.touch_keys(&[(key.prefix.clone(), early), ("unknown".into(), early)]).unwrap();
    assert_eq!(d.keys(w.anna).unwrap(), [ApiKey { last_used: Some(late), ..key.clone() }]);
    assert!(!d.revoke_key(w.eve, &key.prefix).unwrap());
    assert!(d.revoke_key(w.anna, &key.prefix).unwrap());
    assert!(d.key(&key.prefix).unwrap().unwrap().revoked);
    assert_eq!(d.keys(w.eve).unwrap(), []);
}

pub(super) fn uploads<D: JobDatabase>(w: World<D>) {
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
}

pub(super) fn submissions<D: JobDatabase>(mut w: World<D>) {
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

pub(super) fn idempotency<D: JobDatabase>(w: World<D>) {
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

pub(super) fn lists<D: JobDatabase>(w: World<D>) {
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

pub(super) fn updates<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit_as(w.anna, |r| r.camera_type = Some(CameraType::Orbital));
    let update = |update: JobUpdate| d.update_job(w.anna, job, &update).unwrap().unwrap();
    let before = w.job(job);
    assert_eq!(update(JobUpdate::default()), before);
    let title = JobUpdate { title: Some(" New ".into()), ..Default::default() };
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

pub(super) fn a_job_runs<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(w.claim(), None);
    let jobs: Vec<JobId> = (0..3).map(|_| w.submit(w.anna)).collect();
    let foreign = w.submit(w.eve);
    // Rule 51: the place is among the waiting jobs of everybody.
    assert_eq!(w.status(jobs[2]), "Queued - position: 3");
    assert_eq!(d.job(w.eve, foreign).unwrap().unwrap().status, JobStatus::Queued { position: Some(4) });
    assert_eq!(d.job(w.eve, jobs[0]).unwrap(), None);
    let claim = w.claim().unwrap();
    let lease = claim.lease;
    assert_eq!((lease.job, lease.attempt, claim.video_version), (jobs[0], 1, 1));
    assert_eq!(claim.request.title.as_deref(), Some("garden.mp4"));
    assert_eq!(
        (w.status(jobs[0]).as_str(), w.status(jobs[1]).as_str()),
        ("Processing video", "Queued - position: 1")
    );
    assert!(w.job(jobs[0]).details.started_at.is_some());
    // Rule 55: nothing until generation, then never back, and 100 only in the end.
    let percent = |progress: Progress| {
        assert_eq!(d.progress(&lease, &progress).unwrap(), LeaseState::Held);
        w.job(jobs[0]).percent_complete
    };
    assert_eq!(percent(at(Stage::Frames, 1.0, None)), None);
    assert_eq!(percent(at(Stage::Train, 0.5, Some(47))), Some(47));
    assert_eq!(w.status(jobs[0]), "Generating 3D scene");
    assert_eq!(percent(at(Stage::Train, 0.4, Some(40))), Some(47));
    assert_eq!(percent(at(Stage::Export, 1.0, Some(100))), Some(99));
    assert_eq!(w.job(jobs[0]).details.stage, Some(Stage::Export));
    // Rules 56 and 57: all at once.
    assert_eq!(d.artifact(w.anna, jobs[0], ArtifactKind::Ply).unwrap(), None);
    assert_eq!(d.publish(&lease, &publication()).unwrap(), LeaseState::Held);
    let done = w.job(jobs[0]);
    assert_eq!(
        (done.status, done.percent_complete, done.has_ply, done.has_spz),
        (JobStatus::Finished, Some(100), true, true)
    );
    assert_eq!(done.camera_data.position.x, 1.0);
    assert_eq!(done.details.warnings[0].code, "low_parallax");
    assert!(done.details.finished_at.is_some());
    let ply = d.artifact(w.anna, jobs[0], ArtifactKind::Ply).unwrap().unwrap();
    assert_eq!((ply.attempt, ply.size, ply.title.as_str()), (1, 100, "garden.mp4"));
    assert_eq!(d.artifact(w.anna, jobs[0], ArtifactKind::Preview).unwrap(), None);
    assert_eq!(d.artifact(w.eve, jobs[0], ArtifactKind::Ply).unwrap(), None);
    assert_eq!(d.public_job(jobs[0]).unwrap(), None);
    assert_eq!(d.public_artifact(jobs[0], ArtifactKind::Spz).unwrap(), None);
    // What has ended never changes again.
    for state in [
        d.progress(&lease, &at(Stage::Frames, 0.0, None)),
        d.heartbeat(&lease, LEASE),
        d.publish(&lease, &publication()),
        d.fail(&lease, &failure("x"), None),
        d.lease_state(&lease),
    ] {
        assert_eq!(state.unwrap(), LeaseState::Lost);
    }
    assert_eq!(d.release(&lease, Return::Crashed(&failure("x")), &PATIENCE, None).unwrap(), Returned::Gone);
    assert_eq!(w.job(jobs[0]), done);
    // A failure keeps its reason and its log.
    let lease = w.take();
    d.progress(&lease, &at(Stage::Train, 0.1, Some(9))).unwrap();
    d.fail(&lease, &failure("too_few_frames"), Some(5)).unwrap();
    let failed = w.job(jobs[1]);
    assert_eq!((failed.status, failed.percent_complete, failed.has_ply), (JobStatus::Failed, Some(9), false));
    assert_eq!(failed.details.failure, Some(failure("too_few_frames")));
    assert_eq!(d.artifact(w.anna, jobs[1], ArtifactKind::Log).unwrap().unwrap().size, 5);
    let s = d.statistics().unwrap();
    assert_eq!((s.queued, s.finished, s.failed, s.stored_bytes), (2, 1, 1, 40 + 110 + 5));
}

pub(super) fn leases<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let alive = |_: &str| true;
    let job = w.submit(w.anna);
    let first = w.take();
    assert_eq!(w.claim(), None);
    // A sign of life prolongs it, silence ends it.
    w.clock.advance(25);
    assert_eq!(d.heartbeat(&first, LEASE).unwrap(), LeaseState::Held);
    w.clock.advance(25);
    assert_eq!(d.reclaim(&alive, &PATIENCE).unwrap(), Default::default());
    w.clock.advance(6);
    d.progress(&first, &at(Stage::Train, 0.5, Some(50))).unwrap();
    assert_eq!(d.reclaim(&alive, &PATIENCE).unwrap().queued, [job]);
    let waiting = w.job(job);
    assert_eq!((waiting.status, waiting.percent_complete), (JobStatus::Queued { position: Some(1) }, None));
    // The next attempt fences the first off.
    let second = w.take();
    assert_eq!((second.job, second.attempt), (job, 2));
    for state in [
        d.heartbeat(&first, LEASE),
        d.lease_state(&first),
        d.progress(&first, &at(Stage::Train, 0.9, Some(90))),
        d.publish(&first, &publication()),
        d.fail(&first, &failure("x"), None),
    ] {
        assert_eq!(state.unwrap(), LeaseState::Lost);
    }
    assert_eq!(d.release(&first, Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Gone);
    assert_eq!((w.status(job).as_str(), w.job(job).details.attempt), ("Processing video", 2));
    // So does another process with the same number.
    let impostor = Lease { owner: "other".into(), ..second.clone() };
    assert_eq!(d.publish(&impostor, &publication()).unwrap(), LeaseState::Lost);
    // A dead process is known at once, and its place in the queue is the old one.
    let other = w.submit(w.anna);
    let dead = |owner: &str| owner != "process";
    assert_eq!(d.reclaim(&dead, &PATIENCE).unwrap().queued, [job]);
    assert_eq!(w.status(job), "Queued - position: 1");
    // Who gives back what it holds has not crashed.
    for _ in 0..5 {
        assert_eq!(d.release(&w.take(), Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Queued);
    }
    assert_eq!(w.status(job), "Queued - position: 1");
    // One whose workspace is not free yet lets others go first for a minute, and has not crashed either.
    assert_eq!(d.release(&w.take(), Return::Occupied, &PATIENCE, None).unwrap(), Returned::Queued);
    assert_eq!(w.take().job, other);
    w.clock.advance(Patience::OCCUPIED_SECONDS as i64 - 1);
    assert_eq!(w.claim(), None);
    w.clock.advance(1);
    assert_eq!(d.publish(&w.take(), &publication()).unwrap(), LeaseState::Held);
    assert_eq!(w.status(job), "Finished");
}

/// What may be the machine's fault or the job's: a worker that dies, or says that it was disturbed.
pub(super) fn disturbances<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit(w.anna);
    let dead = |_: &str| false;
    // Two are nothing; then the job rests longer each time, and others get their turn.
    for (attempt, rest) in [(1, 0), (2, 0), (3, 4), (4, 16)] {
        let lease = w.take();
        assert_eq!((lease.job, lease.attempt), (job, attempt));
        if attempt % 2 == 0 {
            assert_eq!(d.reclaim(&dead, &PATIENCE).unwrap().queued, [job]);
        } else {
            let why = failure("io");
            let returned = d.release(&lease, Return::Disturbed(&why), &PATIENCE, Some(1)).unwrap();
            assert_eq!(returned, Returned::Queued);
        }
        assert_eq!(w.status(job), "Queued - position: 1");
        if rest > 0 {
            w.clock.advance(rest - 1);
            assert_eq!(w.claim(), None);
            let other = w.submit(w.eve);
            let lease = w.take();
            assert_eq!(lease.job, other);
            d.publish(&lease, &publication()).unwrap();
            w.clock.advance(1);
        }
        assert_eq!(w.job(job).details.failure, None);
        assert_eq!(d.artifact(w.anna, job, ArtifactKind::Log).unwrap(), None);
    }
    let lease = w.take();
    d.progress(&lease, &at(Stage::Frames, 0.01, None)).unwrap();
    assert_eq!(d.reclaim(&dead, &PATIENCE).unwrap().failed, [job]);
    let failed = w.job(job);
    assert_eq!((failed.status, failed.percent_complete), (JobStatus::Failed, None));
    assert_eq!(failed.details.failure.unwrap().code, "crashed");
    assert_eq!(w.claim(), None);
}

/// A fault that the job brings out: the last one is the reason, with its log.
pub(super) fn crashes<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit(w.anna);
    let why = failure("internal");
    for returned in [Returned::Queued, Returned::Queued, Returned::Failed] {
        assert_eq!(w.job(job).details.failure, None);
        assert_eq!(d.release(&w.take(), Return::Crashed(&why), &PATIENCE, Some(7)).unwrap(), returned);
    }
    assert_eq!(w.job(job).details.failure, Some(why));
    assert_eq!(d.artifact(w.anna, job, ArtifactKind::Log).unwrap().unwrap().size, 7);
}

/// Who comes further each time is not stuck, however often it is disturbed.
pub(super) fn progress_forgives<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit(w.anna);
    for part in 1..=10 {
        let lease = w.take();
        d.progress(&lease, &at(Stage::Sfm, part as f32 / 10.0, None)).unwrap();
        assert_eq!(d.reclaim(&|_| false, &PATIENCE).unwrap().queued, [job]);
    }
    // The same place again and again is no progress.
    for _ in 1..PATIENCE.disturbances {
        assert_eq!(w.status(job), "Queued - position: 1");
        w.clock.advance(HOUR);
        let lease = w.take();
        d.progress(&lease, &at(Stage::Sfm, 1.0, None)).unwrap();
        d.reclaim(&|_| false, &PATIENCE).unwrap();
    }
    assert_eq!(w.status(job), "Failed");
}

pub(super) fn what_a_worker_cannot_do<D: JobDatabase>(w: World<D>) {
    let masked = w.submit_as(w.anna, |request| request.remove_background = true);
    let large = w.submit_as(w.anna, |request| request.training_max_num_gaussians = 9_000_000);
    let claim = |masks, max_gaussians| {
        let abilities = Abilities { masks, max_gaussians, ..Abilities::ALL };
        w.database.claim("process", "worker", LEASE, &abilities).unwrap().map(|claim| claim.lease.job)
    };
    assert_eq!(claim(false, 8_999_999), None);
    assert_eq!(claim(false, 9_000_000), Some(large));
    assert_eq!(claim(true, 1_000_000), Some(masked));
}

/// What running jobs will need is kept from others, however little they have taken yet.
pub(super) fn memory_of_one_machine<D: JobDatabase>(w: World<D>) {
    let jobs = [2_000_000, 3_000_000, 1_000_000]
        .map(|gaussians| w.submit_as(w.anna, |request| request.training_max_num_gaussians = gaussians));
    let abilities = Abilities { all_gaussians: 5_000_000, beside: 500_000, ..Abilities::ALL };
    let claim = || w.database.claim("process", "worker", LEASE, &abilities).unwrap().map(|c| c.lease);
    let first = claim().unwrap();
    assert_eq!(first.job, jobs[0]);
    // The second does not fit beside it: 2.5 and 3.5 are more than 5. The third does.
    assert_eq!(claim().unwrap().job, jobs[2]);
    assert_eq!(claim(), None);
    w.database.publish(&first, &publication()).unwrap();
    assert_eq!(claim().unwrap().job, jobs[1]);
}

/// A claim says how long the job was worked on by those before.
pub(super) fn time_worked<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    w.submit(w.anna);
    let claim = w.claim().unwrap();
    assert_eq!(claim.worked, Duration::ZERO);
    for _ in 0..6 {
        w.clock.advance(10);
        d.heartbeat(&claim.lease, LEASE).unwrap();
    }
    d.release(&claim.lease, Return::Unharmed, &PATIENCE, None).unwrap();
    w.clock.advance(1000);
    let again = w.claim().unwrap();
    assert_eq!(again.worked.as_secs(), 60);
    w.clock.advance(10);
    d.heartbeat(&again.lease, LEASE).unwrap();
    w.clock.advance(HOUR);
    d.reclaim(&|_| false, &PATIENCE).unwrap();
    assert_eq!(w.claim().unwrap().worked.as_secs(), 70);
}

/// Rules 51 and 52 of docs/rest.md, where the operator has asked for turns.
pub(super) fn users_take_turns<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let of_anna = [(); 3].map(|()| w.submit(w.anna));
    let of_eve = [(); 2].map(|()| w.submit(w.eve));
    let positions = || {
        let of = |user, job| match d.job(user, job).unwrap().unwrap().status {
            JobStatus::Queued { position } => position.unwrap(),
            other => panic!("{other}"),
        };
        (of_anna.map(|job| of(w.anna, job)), of_eve.map(|job| of(w.eve, job)))
    };
    assert_eq!(positions(), ([1, 3, 5], [2, 4]));
    // One worker: whoever was served last comes last.
    let mut taken = Vec::new();
    for _ in 0..2 {
        let lease = w.take();
        taken.push(lease.job);
        d.publish(&lease, &publication()).unwrap();
    }
    assert_eq!(taken, [of_anna[0], of_eve[0]]);
    // Several workers: who has none running comes first.
    let leases = [(); 3].map(|()| w.take());
    assert_eq!(leases.each_ref().map(|l| l.job), [of_anna[1], of_eve[1], of_anna[2]]);
    // A job that is given back does not lose its place among those of its user.
    d.release(&leases[0], Return::Unharmed, &PATIENCE, None).unwrap();
    let late = w.submit(w.anna);
    assert_eq!([w.take().job, w.take().job], [of_anna[1], late]);
}

/// Who has waited longest comes first also where a worker cannot do that user's first job: then it does the next one.
pub(super) fn users_take_turns_at_what_a_worker_can_do<D: JobDatabase>(w: World<D>) {
    let take = |masks| {
        let abilities = Abilities { masks, ..Abilities::ALL };
        w.database.claim("process", "worker", LEASE, &abilities).unwrap().map(|claim| claim.lease.job)
    };
    let masked = w.submit_as(w.anna, |request| request.remove_background = true);
    let of_eve = [w.submit(w.eve), w.submit(w.eve)];
    let plain = w.submit(w.anna);
    assert_eq!([take(false), take(false), take(false)], [plain, of_eve[0], of_eve[1]].map(Some));
    // All that is left is passed over, and is there for who can do it.
    assert_eq!(take(false), None);
    assert_eq!(take(true), Some(masked));
    assert_eq!(take(true), None);
}

pub(super) fn cancel_and_delete<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let cancelled = failure("cancelled");
    let (waiting, running) = (w.submit(w.anna), w.submit(w.anna));
    assert_eq!(d.cancel_job(w.eve, waiting, &cancelled).unwrap(), None);
    assert_eq!(d.cancel_job(w.anna, waiting, &cancelled).unwrap().unwrap().status, JobStatus::Failed);
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
    assert_eq!(d.job(w.anna, job).unwrap(), None);
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
    assert_eq!(d.reclaim(&|_| false, &PATIENCE).unwrap(), Default::default());
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
pub(super) fn public_jobs<D: JobDatabase>(w: World<D>) {
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

/// Rule 46.
pub(super) fn shared_videos<D: JobDatabase>(w: World<D>) {
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

pub(super) fn named_files<D: JobDatabase>(w: World<D>) {
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

pub(super) fn copies_at_rest<D: JobDatabase>(w: World<D>) {
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

pub(super) fn lost_videos<D: JobDatabase>(w: World<D>) {
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

pub(super) fn lost_artifacts<D: JobDatabase>(w: World<D>) {
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

pub(super) fn missing_videos<D: JobDatabase>(w: World<D>) {
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

pub(super) fn shared_rates<D: JobDatabase>(w: World<D>) {
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
    // An operator has made the bucket smaller.
    w.clock.advance(1000);
    assert_eq!(d.take_tokens(w.anna, &Rate { burst: 3, ..rate }, 10, 0).unwrap().taken, 3);
}

const MINUTE: u64 = 60;

fn begun(token: u8) -> NewSession {
    NewSession {
        token: [token; 32],
        agent: format!("browser {token}"),
        idle_seconds: 10 * MINUTE,
        lifetime_seconds: 60 * MINUTE,
    }
}

impl<D: JobDatabase> World<D> {
    /// Whether a time is so many seconds from now. With each look at the clock of the tests a microsecond passes.
    fn is_in(&self, time: Timestamp, seconds: i64) -> bool {
        let micros = time.as_micros() - self.clock.now().as_micros();
        (micros - seconds * 1_000_000).abs() < 1_000_000
    }

    fn invite(&self, user: UserId, token: u8, sets_password: bool) -> TokenHash {
        let token = [token; 32];
        let new = NewInvitation { token, user, sets_password, lifetime_seconds: 10 * MINUTE };
        let expires_at = self.database.add_invitation(&new).unwrap();
        assert!(self.is_in(expires_at, 10 * MINUTE as i64));
        token
    }

    /// Gives a user a password, and the session that begins with it.
    fn with_password(&self, user: UserId, password: &str, session: u8) {
        let invitation = self.invite(user, 255, true);
        let accepted = self.database.accept_invitation(&invitation, Some(password), &begun(session)).unwrap();
        assert_eq!(accepted.unwrap().user_id, user);
    }

    fn tokens(&self, user: UserId) -> Vec<u8> {
        self.database.sessions(user).unwrap().iter().map(|session| session.token[0]).collect()
    }
}

/// Invitations: one use, for their time, the newest of a user only.
pub(super) fn invitations<D: JobDatabase>(w: World<D>) {
    let nobody =
        NewInvitation { token: [9; 32], user: UserId::random(), sets_password: true, lifetime_seconds: 1 };
    assert_eq!(w.database.add_invitation(&nobody).unwrap_err().kind(), ErrorKind::NotFound);

    let (first, eves) = (w.invite(w.anna, 1, true), w.invite(w.eve, 2, true));
    let token = w.invite(w.anna, 3, true);
    assert_eq!(w.database.invitation(&first).unwrap(), None);
    assert_eq!(w.database.invitation(&eves).unwrap().unwrap().user.name, "eve");
    for _ in 0..2 {
        // To look uses nothing up.
        let found = w.database.invitation(&token).unwrap().unwrap();
        assert_eq!((found.user.user_id, found.sets_password), (w.anna, true));
        assert!(w.is_in(found.expires_at, 10 * MINUTE as i64));
    }
    // It asks for a password.
    assert_eq!(w.database.accept_invitation(&token, None, &begun(1)).unwrap(), None);
    let accepted = w.database.accept_invitation(&token, Some("hash"), &begun(1)).unwrap().unwrap();
    assert_eq!(accepted.name, "anna");
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("hash"));
    assert_eq!(w.database.accept_invitation(&token, Some("other"), &begun(2)).unwrap(), None);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("hash"));
    assert_eq!(w.tokens(w.anna), [1]);

    // One that signs in leaves the password and the other sessions as they are, and sets none.
    let token = w.invite(w.anna, 4, false);
    assert_eq!(w.database.accept_invitation(&token, Some("other"), &begun(2)).unwrap(), None);
    w.database.accept_invitation(&token, None, &begun(2)).unwrap().unwrap();
    assert_eq!(w.tokens(w.anna).len(), 2);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("hash"));

    // Its time is over.
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 0);
    w.clock.advance(10 * MINUTE as i64);
    assert_eq!(w.database.invitation(&eves).unwrap(), None);
    assert_eq!(w.database.accept_invitation(&eves, Some("hash"), &begun(3)).unwrap(), None);
    assert_eq!(w.database.password(w.eve).unwrap(), None);
    // It, and the two sessions that nobody has used since.
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 3);
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 0);
}

/// Sessions end when nobody uses them, when their time is over, and when they are ended; each by itself or all of a user.
pub(super) fn sessions<D: JobDatabase>(w: World<D>) {
    w.with_password(w.anna, "hash", 1);
    let (user, session) = w.database.session(&[1; 32]).unwrap().unwrap();
    assert_eq!((user.user_id, user.tier), (w.anna, Tier::Enterprise));
    assert_eq!(session.agent, "browser 1");
    assert!(w.is_in(session.created_at, 0) && w.is_in(session.seen_at, 0));
    assert!(w.is_in(session.expires_at, 60 * MINUTE as i64));
    assert_eq!(w.database.session(&[2; 32]).unwrap(), None);
    // What the user may do is looked up each time.
    w.database.set_tier(w.anna, Tier::Free).unwrap();
    assert_eq!(w.database.session(&[1; 32]).unwrap().unwrap().0.tier, Tier::Free);

    // A use prolongs it, but not beyond its end.
    w.clock.advance(9 * MINUTE as i64);
    w.database.touch_session(&[1; 32], 10 * MINUTE).unwrap();
    w.clock.advance(9 * MINUTE as i64);
    let seen = w.database.session(&[1; 32]).unwrap().unwrap().1;
    assert!(w.is_in(seen.seen_at, -9 * MINUTE as i64));
    w.database.touch_session(&[1; 32], 100 * MINUTE).unwrap();
    w.clock.advance(42 * MINUTE as i64);
    assert_eq!(w.database.session(&[1; 32]).unwrap(), None);
    assert_eq!(w.tokens(w.anna), [] as [u8; 0]);
    // One that has ended is not brought back.
    w.database.touch_session(&[1; 32], 100 * MINUTE).unwrap();
    assert_eq!(w.database.session(&[1; 32]).unwrap(), None);
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 1);

    // Unused, it ends earlier.
    w.database.begin_session(w.anna, "hash", &begun(2), None).unwrap();
    w.clock.advance(10 * MINUTE as i64);
    assert_eq!(w.database.session(&[2; 32]).unwrap(), None);

    w.with_password(w.eve, "hash", 20);
    for token in 3..7 {
        assert!(w.database.begin_session(w.anna, "hash", &begun(token), None).unwrap());
        w.clock.advance(1);
    }
    w.database.touch_session(&[3; 32], MINUTE).unwrap();
    assert_eq!(w.tokens(w.anna), [3, 6, 5, 4]);
    w.database.end_session(&[6; 32]).unwrap();
    w.database.end_session(&[6; 32]).unwrap();
    assert_eq!(w.database.session(&[6; 32]).unwrap(), None);
    let invitation = w.invite(w.anna, 8, false);
    assert_eq!(w.database.end_sessions(w.anna, Some(&[5; 32])).unwrap(), 2);
    assert_eq!(w.tokens(w.anna), [5]);
    assert_eq!(w.database.invitation(&invitation).unwrap(), None);
    assert_eq!(w.database.end_sessions(w.anna, None).unwrap(), 1);
    assert_eq!(w.tokens(w.anna), [] as [u8; 0]);
    assert_eq!(w.tokens(w.eve), [20]);
}

/// A password opens sessions for as long as it is the password, and a new one ends what the old one opened.
pub(super) fn passwords<D: JobDatabase>(w: World<D>) {
    assert_eq!(w.database.password(w.anna).unwrap(), None);
    assert!(!w.database.begin_session(w.anna, "hash", &begun(1), None).unwrap());
    assert!(!w.database.begin_session(UserId::random(), "hash", &begun(1), None).unwrap());
    w.with_password(w.anna, "hash", 1);
    assert!(!w.database.begin_session(w.anna, "other", &begun(2), None).unwrap());
    assert!(w.database.begin_session(w.anna, "hash", &begun(2), Some(&[1; 32])).unwrap());
    assert_eq!(w.tokens(w.anna), [2]);
    assert!(w.database.begin_session(w.anna, "hash", &begun(3), None).unwrap());

    assert!(!w.database.change_password(w.anna, "other", "new", &[3; 32]).unwrap());
    assert!(!w.database.change_password(w.eve, "hash", "new", &[3; 32]).unwrap());
    assert_eq!(w.tokens(w.anna).len(), 2);
    assert!(w.database.change_password(w.anna, "hash", "new", &[3; 32]).unwrap());
    assert_eq!(w.tokens(w.anna), [3]);
    assert!(!w.database.begin_session(w.anna, "hash", &begun(4), None).unwrap());
    // By an invitation, too.
    w.with_password(w.anna, "newest", 5);
    assert_eq!(w.tokens(w.anna), [5]);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("newest"));
    assert_eq!(w.database.password(w.eve).unwrap(), None);

    // A copy has the password, and nothing that is open.
    let invitation = w.invite(w.anna, 9, true);
    w.database.release_all().unwrap();
    assert_eq!(w.database.invitation(&invitation).unwrap(), None);
    assert_eq!(w.tokens(w.anna), [] as [u8; 0]);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("newest"));
}

/// What a user has of what is limited.
pub(super) fn usage<D: JobDatabase>(w: World<D>) {
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
}
