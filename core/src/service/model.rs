//! Random histories of the real service against a model that fits on a page.
//!
//! Two users, two processes with a worker each, over one folder. Workers are taken apart into their steps, so that anything
//! may happen between any two: a worker stands still until its lease runs out, its process dies, its job is deleted,
//! cancelled or edited. After every step all that users can see must be what the model says; at the end the files must be
//! those that the rows name. `PROPTEST_CASES=100000` runs more than the usual 256 histories.

use std::collections::HashMap;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::test_world::World;
use super::worker::Worker;
use super::workspace::{JobWorkspace, Workspaces};
use super::{Idempotency, Outcome, Runner, Service, ServiceOptions, UploadFacts, WorkerOptions};
use crate::control::{CancelToken, Control};
use crate::database::{Abilities, Claim, LeaseState, Patience, Progress, Return};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{
    ArtifactKind, BlobName, CameraData, CameraUpdate, JobId, JobRequest, JobUpdate, Limits, ListQuery,
    UserId, Xyz,
};
use crate::pipeline::ReconstructionOptions;
use crate::stage::Stage;
use crate::storage::BlobKey;

const LEASE: u64 = 30;
const MAX_ATTEMPTS: u32 = 3;
const MAX_DISTURBANCES: u32 = 10;
const MAX_QUEUED: usize = 4;

/// What may happen. An index chooses among all there ever were, whoever's they are.
#[derive(Debug, Clone)]
enum Step {
    Upload { user: usize, complete: bool },
    Replace { blob: Index },
    Submit { user: usize, blob: Index, key: Option<u8> },
    Edit { user: usize, job: Index, camera: Option<bool> },
    Cancel { user: usize, job: Index },
    Delete { user: usize, job: Index },
    Begin { worker: usize },
    Advance { worker: usize, percent: u8 },
    Beat { worker: usize },
    End { worker: usize, how: How },
    Die { worker: usize, stored: bool },
    Pass { seconds: i64 },
    Maintain { process: usize },
}

/// How a worker's run ends.
#[derive(Debug, Clone, Copy)]
enum How {
    Scene,
    BadInput,
    Trouble,
    Breakdown,
    Shutdown,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        3 => (0..2usize, prop::bool::weighted(0.8)).prop_map(|(user, complete)| Step::Upload { user, complete }),
        1 => index().prop_map(|blob| Step::Replace { blob }),
        5 => (0..2usize, index(), prop::option::weighted(0.4, 0..3u8))
            .prop_map(|(user, blob, key)| Step::Submit { user, blob, key }),
        1 => (0..2usize, index(), any::<Option<bool>>()).prop_map(|(user, job, camera)| Step::Edit { user, job, camera }),
        1 => (0..2usize, index()).prop_map(|(user, job)| Step::Cancel { user, job }),
        2 => (0..2usize, index()).prop_map(|(user, job)| Step::Delete { user, job }),
        6 => (0..2usize).prop_map(|worker| Step::Begin { worker }),
        2 => (0..2usize, 0..=100u8).prop_map(|(worker, percent)| Step::Advance { worker, percent }),
        2 => (0..2usize).prop_map(|worker| Step::Beat { worker }),
        5 => (0..2usize, prop_oneof![4 => Just(How::Scene), 1 => Just(How::BadInput), 1 => Just(How::Trouble), 1 => Just(How::Breakdown), 1 => Just(How::Shutdown)])
            .prop_map(|(worker, how)| Step::End { worker, how }),
        2 => (0..2usize, any::<bool>()).prop_map(|(worker, stored)| Step::Die { worker, stored }),
        2 => (1..40i64).prop_map(|seconds| Step::Pass { seconds }),
        1 => (0..2usize).prop_map(|process| Step::Maintain { process }),
    ]
}

/// What the model knows of a job.
#[derive(Debug, Clone)]
struct ModelJob {
    id: JobId,
    user: usize,
    blob: usize,
    title: String,
    user_camera: Option<f64>,
    state: State,
    percent: Option<u8>,
    crashes: u32,
    disturbances: u32,
    came_further: bool,
    rest_until: i64,
    attempt: u32,
    deleted: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Queued,
    Running { worker: usize, until: i64 },
    Finished,
    Failed(&'static str),
}

#[derive(Debug, Clone)]
struct ModelUpload {
    name: BlobName,
    user: usize,
    complete: bool,
    submitted: bool,
    deleted: bool,
}

/// A worker in the middle of a job.
struct Hand {
    claim: Claim,
    workspace: JobWorkspace,
}

struct History {
    world: World,
    processes: Vec<Service>,
    hands: [Option<Hand>; 2],
    users: [UserId; 2],
    seconds: i64,
    uploads: Vec<ModelUpload>,
    jobs: Vec<ModelJob>,
    keys: HashMap<(usize, u8), (usize, JobId)>,
    turn: usize,
}

/// Never runs: the history does what a runner would.
struct Nothing;

impl Runner for Nothing {
    fn run(&self, _: &Path, _: &Path, _: &ReconstructionOptions, _: &Control) -> Result<Outcome> {
        unreachable!("the history plays the pipeline itself")
    }
}

impl History {
    /// One of a service whose rows are in its folder, or in this database.
    fn with_rows_in(database: Option<String>) -> Self {
        let limits = Limits { max_queued_jobs: MAX_QUEUED as u64, ..Limits::default() };
        let options = ServiceOptions {
            limits,
            max_attempts: MAX_ATTEMPTS,
            lease_seconds: LEASE,
            min_free_bytes: 0,
            ..ServiceOptions::default()
        };
        let world = World::with_rows_in(database, options);
        History {
            processes: vec![world.reopen(), world.reopen()],
            hands: [None, None],
            users: [world.anna, world.eve],
            seconds: 0,
            uploads: vec![],
            jobs: vec![],
            keys: HashMap::new(),
            turn: 0,
            world,
        }
    }

    /// Any process: they must all say the same.
    fn service(&self) -> &Service {
        &self.processes[self.turn % 2]
    }

    fn play(&mut self, step: &Step) {
        self.turn += 1;
        match step {
            Step::Upload { user, complete } => self.upload(*user, *complete),
            Step::Replace { blob } => self.replace(blob),
            Step::Submit { user, blob, key } => self.submit(*user, blob, *key),
            Step::Edit { user, job, camera } => self.edit(*user, job, *camera),
            Step::Cancel { user, job } => self.cancel(*user, job),
            Step::Delete { user, job } => self.delete(*user, job),
            Step::Begin { worker } => self.begin(*worker),
            Step::Advance { worker, percent } => self.advance(*worker, *percent),
            Step::Beat { worker } => self.beat(*worker),
            Step::End { worker, how } => self.end(*worker, *how),
            Step::Die { worker, stored } => self.die(*worker, *stored),
            Step::Pass { seconds } => {
                self.seconds += seconds;
                self.world.clock.advance(*seconds);
            }
            Step::Maintain { process } => {
                self.processes[*process].maintain().unwrap();
                self.model_reclaim(None);
            }
        }
        self.compare();
    }

    fn upload(&mut self, user: usize, complete: bool) {
        let name = self.service().create_upload(self.users[user], "mp4").unwrap().blob_name;
        self.uploads.push(ModelUpload { name, user, complete: false, submitted: false, deleted: false });
        if complete {
            self.send(self.uploads.len() - 1);
        }
    }

    fn replace(&mut self, blob: &Index) {
        if !self.uploads.is_empty() {
            self.send(blob.index(self.uploads.len()));
        }
    }

    fn send(&mut self, blob: usize) {
        let upload = self.uploads[blob].clone();
        let sent =
            self.service().begin_upload(&upload.name, UploadFacts::default()).and_then(|mut writer| {
                writer.append(b"a video")?;
                writer.finish()
            });
        match sent {
            Ok(_) => {
                assert!(!upload.submitted && !upload.deleted);
                self.uploads[blob].complete = true;
            }
            Err(error) if error.kind() == ErrorKind::Conflict => assert!(upload.submitted && !upload.deleted),
            Err(error) => assert!(error.kind() == ErrorKind::NotFound && upload.deleted, "{error:?}"),
        }
    }

    fn submit(&mut self, user: usize, blob: &Index, key: Option<u8>) {
        if self.uploads.is_empty() {
            return;
        }
        let blob = blob.index(self.uploads.len());
        let upload = &self.uploads[blob];
        let request = JobRequest::new(upload.name);
        let idempotency = key.map(|key| Idempotency { key: key.to_string(), body_hash: [blob as u8; 32] });
        let submitted = self.service().submit(self.users[user], request, idempotency);
        let before = key.and_then(|key| self.keys.get(&(user, key)).copied());
        let waiting = self.jobs.iter().filter(|j| j.user == user && j.is_waiting()).count();
        match submitted {
            Ok(submission) if submission.replayed => assert_eq!(before, Some((blob, submission.body.job_id))),
            Ok(submission) => {
                assert!(before.is_none() && waiting < MAX_QUEUED);
                assert!(upload.user == user && upload.complete && !upload.deleted);
                let id = submission.body.job_id;
                self.uploads[blob].submitted = true;
                self.jobs.push(ModelJob {
                    id,
                    user,
                    blob,
                    title: submission.body.title,
                    user_camera: None,
                    state: State::Queued,
                    percent: None,
                    crashes: 0,
                    disturbances: 0,
                    came_further: false,
                    rest_until: 0,
                    attempt: 0,
                    deleted: false,
                });
                if let Some(key) = key {
                    self.keys.insert((user, key), (blob, id));
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::IdempotencyMismatch => assert!(before.is_some_and(|(other, _)| other != blob)),
                ErrorKind::TooManyRequests => assert!(before.is_none() && waiting >= MAX_QUEUED),
                ErrorKind::InvalidArgument => {
                    assert!(before.is_none() && (upload.user != user || !upload.complete || upload.deleted));
                }
                _ => panic!("{error:?}"),
            },
        }
    }

    /// The job that the index names, if `user` can see it; `Err` says that the call must not find it.
    fn seen(&self, user: usize, job: &Index) -> Option<(usize, bool)> {
        let number = (!self.jobs.is_empty()).then(|| job.index(self.jobs.len()))?;
        Some((number, self.jobs[number].user == user && !self.jobs[number].deleted))
    }

    fn edit(&mut self, user: usize, job: &Index, camera: Option<bool>) {
        let Some((number, found)) = self.seen(user, job) else { return };
        let (title, x) = (format!("title {}", self.turn), self.turn as f64);
        let (look_at, up) = (Xyz::default(), Xyz { x: 0.0, y: 0.0, z: 1.0 });
        let set = CameraUpdate::Set { position: Xyz { x, y: 0.0, z: 0.0 }, look_at, up, camera_type: None };
        let update = JobUpdate {
            title: Some(title.clone()),
            public: None,
            camera_data: camera.map(|set_it| if set_it { set } else { CameraUpdate::Reset }),
        };
        let edited = self.service().update(self.users[user], self.jobs[number].id, &update);
        assert_eq!(edited.is_ok(), found);
        if found {
            let job = &mut self.jobs[number];
            job.title = title;
            if let Some(set) = camera {
                job.user_camera = set.then_some(x);
            }
        }
    }

    fn cancel(&mut self, user: usize, job: &Index) {
        let Some((number, found)) = self.seen(user, job) else { return };
        let cancelled = self.service().cancel(self.users[user], self.jobs[number].id).map_err(|e| e.kind());
        let job = &mut self.jobs[number];
        match (found, &job.state) {
            (false, _) => assert_eq!(cancelled.unwrap_err(), ErrorKind::NotFound),
            (true, State::Finished | State::Failed(_)) => {
                assert_eq!(cancelled.unwrap_err(), ErrorKind::Conflict);
            }
            (true, State::Queued | State::Running { .. }) => {
                assert!(cancelled.is_ok());
                job.state = State::Failed("cancelled");
            }
        }
    }

    fn delete(&mut self, user: usize, job: &Index) {
        let Some((number, found)) = self.seen(user, job) else { return };
        let deleted = self.service().delete(self.users[user], self.jobs[number].id);
        assert_eq!(deleted.is_ok(), found);
        if found {
            self.jobs[number].deleted = true;
            let id = self.jobs[number].id;
            self.keys.retain(|_, (_, answered)| *answered != id);
            let blob = self.jobs[number].blob;
            self.uploads[blob].deleted = self.jobs.iter().all(|j| j.blob != blob || j.deleted);
        }
    }

    fn begin(&mut self, worker: usize) {
        if self.hands[worker].is_some() {
            return;
        }
        let service = self.processes[worker].clone();
        service.reclaim().unwrap();
        self.model_reclaim(None);
        let owner = service.inner.process.id();
        let claim = service.inner.database.claim(owner, "worker", LEASE, &Abilities::ALL).unwrap();
        let now = self.seconds;
        let first = self.jobs.iter_mut().find(|j| j.is_waiting() && j.rest_until <= now);
        assert_eq!(claim.as_ref().map(|c| c.lease.job), first.as_ref().map(|j| j.id));
        let (Some(claim), Some(job)) = (claim, first) else { return };
        job.attempt += 1;
        job.percent = None;
        assert_eq!(claim.lease.attempt, job.attempt);
        // Where the other worker was taken for dead but is still in the workspace, this one works elsewhere, as on another
        // machine: only the lease keeps the two apart.
        let elsewhere =
            || Workspaces::open(self.world.folder.path().join("elsewhere")).unwrap().enter(job.id).unwrap();
        match service.inner.workspaces.enter(job.id).unwrap().or_else(elsewhere) {
            Some(workspace) => {
                job.state = State::Running { worker, until: self.seconds + LEASE as i64 };
                self.hands[worker] = Some(Hand { claim, workspace });
            }
            None => {
                let patience = service.inner.options.patience();
                service.inner.database.release(&claim.lease, Return::Unharmed, &patience, None).unwrap();
            }
        }
    }

    /// The job that `worker` holds and whether it really does.
    fn held(&self, worker: usize) -> Option<(usize, LeaseState)> {
        let lease = &self.hands[worker].as_ref()?.claim.lease;
        let number = self.jobs.iter().position(|j| j.id == lease.job)?;
        let job = &self.jobs[number];
        let holds = matches!(job.state, State::Running { worker: by, .. } if by == worker)
            && job.attempt == lease.attempt;
        Some((
            number,
            match (holds, job.deleted) {
                (false, _) => LeaseState::Lost,
                (true, false) => LeaseState::Held,
                (true, true) => LeaseState::Deleted,
            },
        ))
    }

    fn advance(&mut self, worker: usize, percent: u8) {
        let Some((number, expected)) = self.held(worker) else { return };
        let Some(hand) = &self.hands[worker] else { return };
        let progress =
            Progress { stage: Stage::Train, fraction: 0.5, percent: Some(percent), seconds_left: None };
        let database = &self.processes[worker].inner.database;
        assert_eq!(database.progress(&hand.claim.lease, &progress).unwrap(), expected);
        if expected == LeaseState::Held {
            let job = &mut self.jobs[number];
            job.percent = Some(percent.max(job.percent.unwrap_or(0)).min(99));
        }
    }

    fn beat(&mut self, worker: usize) {
        let Some((number, expected)) = self.held(worker) else { return };
        let Some(hand) = &self.hands[worker] else { return };
        let database = &self.processes[worker].inner.database;
        assert_eq!(database.heartbeat(&hand.claim.lease, LEASE).unwrap(), expected);
        if let State::Running { until, .. } = &mut self.jobs[number].state
            && expected != LeaseState::Lost
        {
            *until = self.seconds + LEASE as i64;
        }
        if expected != LeaseState::Held {
            self.with_hand(worker, |w, hand| w.leave(&hand.claim.lease, Some(hand.workspace)));
            self.model_leave(number, expected);
        }
    }

    fn end(&mut self, worker: usize, how: How) {
        let Some((number, expected)) = self.held(worker) else { return };
        let error = |kind| Error::new(kind, "as it happens");
        self.with_hand(worker, |w, hand| match how {
            How::Scene => {
                let outcome = outcome(hand.claim.lease.job, &hand.workspace);
                w.publish(&hand.claim.lease, hand.workspace, outcome)
            }
            How::BadInput => w.fail(&hand.claim, Some(hand.workspace), &error(ErrorKind::TooFewFrames)),
            How::Trouble => w.fail(&hand.claim, Some(hand.workspace), &error(ErrorKind::Gpu)),
            How::Breakdown => w.fail(&hand.claim, Some(hand.workspace), &error(ErrorKind::Internal)),
            How::Shutdown => w.leave(&hand.claim.lease, Some(hand.workspace)),
        });
        if expected != LeaseState::Held {
            self.model_leave(number, expected);
            return;
        }
        let now = self.seconds;
        let job = &mut self.jobs[number];
        match how {
            How::Scene => (job.state, job.percent) = (State::Finished, Some(100)),
            How::BadInput => job.state = State::Failed("too_few_frames"),
            How::Trouble => job.disturb("gpu", now),
            How::Breakdown => job.crash("internal", now),
            How::Shutdown => job.wait(now),
        }
    }

    /// Lets the worker's own code end what it has in hand.
    fn with_hand(&mut self, worker: usize, end: impl FnOnce(&mut Worker<'_>, Hand) -> Result<()>) {
        let Some(hand) = self.hands[worker].take() else { return };
        let (options, cancel) =
            (WorkerOptions { threads: 1, niceness: 0, ..Default::default() }, CancelToken::new());
        let mut worker = Worker::new(&self.processes[worker], &options, &cancel, &Nothing).unwrap();
        end(&mut worker, hand).unwrap();
    }

    fn model_leave(&mut self, number: usize, state: LeaseState) {
        if state == LeaseState::Deleted {
            self.jobs[number].state = State::Failed("deleted");
        }
    }

    /// The process ends without a word, perhaps between storing its files and publishing them.
    fn die(&mut self, worker: usize, stored: bool) {
        if let Some(hand) = self.hands[worker].take() {
            let lease = &hand.claim.lease;
            if stored {
                for (kind, path) in outcome(lease.job, &hand.workspace).files {
                    let key = BlobKey::Artifact { job: lease.job, attempt: lease.attempt, kind };
                    self.processes[worker].inner.storage.put_file(&key, &path).unwrap();
                }
            }
        }
        // The old one goes first: what it held is free when the new one looks.
        self.processes.remove(worker);
        let fresh = self.world.reopen();
        self.processes.insert(worker, fresh);
        self.model_reclaim(Some(worker));
    }

    /// Jobs of a dead process, and those whose lease has run out, go back.
    fn model_reclaim(&mut self, dead: Option<usize>) {
        let now = self.seconds;
        for job in &mut self.jobs {
            let lost =
                matches!(job.state, State::Running { worker, until } if Some(worker) == dead || until <= now);
            match (lost, job.deleted) {
                (false, _) => {}
                (true, true) => job.state = State::Failed("deleted"),
                (true, false) => job.disturb("crashed", now),
            }
        }
    }

    /// All that both users see, in any process, is what the model says.
    fn compare(&self) {
        let service = self.service();
        let mut position = 0;
        for job in &self.jobs {
            position += u64::from(job.is_waiting());
            for (number, user) in self.users.iter().enumerate() {
                let seen = service.job(*user, job.id);
                if number != job.user || job.deleted {
                    assert_eq!(seen.unwrap_err().kind(), ErrorKind::NotFound);
                    continue;
                }
                let seen = seen.unwrap();
                let status = match &job.state {
                    State::Queued => format!("Queued - position: {position}"),
                    State::Running { .. } if job.percent.is_none() => "Processing video".to_owned(),
                    State::Running { .. } => "Generating 3D scene".to_owned(),
                    State::Finished => "Finished".to_owned(),
                    State::Failed(_) => "Failed".to_owned(),
                };
                let finished = job.state == State::Finished;
                let code = match job.state {
                    State::Failed(code) => Some(code.to_owned()),
                    _ => None,
                };
                let camera = job.user_camera.unwrap_or(if finished { 9.0 } else { 0.0 });
                assert_eq!(
                    (seen.status.to_string(), seen.percent_complete),
                    (status, job.percent),
                    "{job:?}"
                );
                assert_eq!((&seen.title, seen.camera_data.position.x), (&job.title, camera));
                assert_eq!((seen.has_ply, seen.has_spz), (finished, finished));
                assert_eq!((seen.details.failure.map(|f| f.code), seen.details.attempt), (code, job.attempt));
                let ply = service.artifact(*user, job.id, ArtifactKind::Ply);
                assert_eq!(ply.is_ok(), finished);
                if let Ok(ply) = ply {
                    let mut text = String::new();
                    service.open_blob(&ply.key).unwrap().file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, format!("ply of {}", job.id));
                }
            }
        }
        for (number, user) in self.users.iter().enumerate() {
            let listed = service.list(*user, &ListQuery::default()).unwrap();
            let own = self.jobs.iter().rev().filter(|j| j.user == number && !j.deleted);
            assert_eq!(
                listed.jobs.iter().map(|j| j.job_id).collect::<Vec<_>>(),
                own.map(|j| j.id).collect::<Vec<_>>()
            );
        }
    }

    /// When all is quiet, every file is one that a row names.
    fn settle(&mut self) {
        for worker in 0..2 {
            self.end(worker, How::Shutdown);
        }
        self.compare();
        let service = &self.processes[0];
        service.maintain().unwrap();
        service.sweep(std::time::Duration::ZERO).unwrap();
        assert_eq!(service.statistics().unwrap().rows.deleting, 0);
        let mut expected = 0;
        for upload in &self.uploads {
            expected += usize::from(upload.complete && !upload.deleted);
        }
        // A job that is not over may have a workspace, and files of attempts that died; the one that ends it removes them.
        let root = self.world.folder.path();
        let mut unfinished = vec![];
        for job in self.jobs.iter().filter(|j| !j.deleted) {
            expected += match job.state {
                State::Finished => 3,
                // The log of the attempt that failed for good; a process that died left none.
                State::Failed("too_few_frames" | "internal" | "gpu") => 1,
                _ => 0,
            };
            if job.is_waiting() {
                unfinished.extend(["scenes", "work"].map(|place| root.join(place).join(job.id.to_string())));
            }
        }
        let files = self.world.files();
        let kept: Vec<_> = files.iter().filter(|f| !unfinished.iter().any(|u| f.starts_with(u))).collect();
        assert_eq!(kept.len(), expected, "{kept:#?}\n{:#?}", self.jobs);
        assert!(service.integrity_check().unwrap().is_empty());
    }
}

impl ModelJob {
    fn is_waiting(&self) -> bool {
        self.state == State::Queued && !self.deleted
    }

    /// Goes back to the queue. The first attempt that came to training has made progress: what was before is forgotten.
    fn wait(&mut self, until: i64) {
        self.forget_if_further();
        (self.state, self.percent, self.rest_until) = (State::Queued, None, until);
    }

    fn forget_if_further(&mut self) {
        if self.percent.is_some() && !self.came_further {
            (self.came_further, self.crashes, self.disturbances) = (true, 0, 0);
        }
    }

    fn crash(&mut self, code: &'static str, now: i64) {
        self.forget_if_further();
        self.crashes += 1;
        self.try_again(self.crashes >= MAX_ATTEMPTS, code, now);
    }

    fn disturb(&mut self, code: &'static str, now: i64) {
        self.forget_if_further();
        self.disturbances += 1;
        self.try_again(self.disturbances >= MAX_DISTURBANCES, code, now);
    }

    fn try_again(&mut self, last_chance: bool, code: &'static str, now: i64) {
        if last_chance {
            self.state = State::Failed(code);
        } else {
            let rest = Patience::rest_seconds(self.crashes + self.disturbances);
            self.wait(now + rest.cast_signed());
        }
    }
}

/// A scene in the workspace, as the pipeline leaves it.
fn outcome(job: JobId, workspace: &JobWorkspace) -> Outcome {
    let folder = workspace.pipeline_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let file = |kind: ArtifactKind| {
        let path = folder.join(kind.extension());
        std::fs::write(&path, format!("{} of {job}", kind.extension())).unwrap();
        (kind, path)
    };
    let camera = CameraData { position: Xyz { x: 9.0, y: 0.0, z: 0.0 }, ..CameraData::default() };
    Outcome { files: [ArtifactKind::Ply, ArtifactKind::Spz].map(file).to_vec(), camera, warnings: vec![] }
}

#[cfg(feature = "postgres")]
proptest! {
    // One with rows far away takes ten times as long.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_history_on_postgres_is_as_the_model_says(steps in prop::collection::vec(step(), 50)) {
        if let Some(database) = crate::database::test_database() {
            let mut history = History::with_rows_in(Some(database));
            steps.iter().for_each(|step| history.play(step));
            history.settle();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_as_the_model_says(steps in prop::collection::vec(step(), 50)) {
        let mut history = History::with_rows_in(None);
        steps.iter().for_each(|step| history.play(step));
        history.settle();
    }
}
