//! A machine stands still or is told to end in the middle of a job, and another goes on where it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::handing_over::{HandingOver, Orders};
use super::taking_over::TakenOver;
use super::test_machines::{Machine, World};
use super::test_world;
use super::worker::{Worked, Worker};
use super::{Outcome, ReconstructionDefaults, Runner, ServiceOptions, WorkerOptions};
use crate::control::{CancelToken, Control};
use crate::database::Abilities;
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::job::{ArtifactKind, CameraData, JobId, JobStatus};
use crate::pipeline::{ReconstructionOptions, StageKeys, TrainingState, finish_stage, is_finished};
use crate::raster::DeviceChoice;
use crate::stage::Stage;
use crate::storage::{BlobKey, BlobKind, Reached};
use sha2::{Digest, Sha256};

/// Steps of the training.
const STEPS: u32 = 1000;
/// Seconds for which a machine holds a job.
const LEASE: u64 = 3600;
/// How long something may take that takes no time, on a machine that is busy.
const SOON: Duration = Duration::from_secs(60);

fn options() -> ServiceOptions {
    ServiceOptions {
        min_free_bytes: 0,
        checkpoint_seconds: 1,
        // Signs of life come every sixth of it: none comes between the moment in which it runs out and the next look.
        lease_seconds: LEASE,
        reconstruction: ReconstructionDefaults { device: DeviceChoice::Cpu, ..Default::default() },
        ..ServiceOptions::default()
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Goes through the stages as the pipeline does, with the same keys and manifests, and makes each from the one before.
#[derive(Default)]
struct Stages {
    /// Those that it did.
    done: Mutex<Vec<Stage>>,
    /// After how many steps training began.
    first_step: AtomicU32,
    /// Stands still at the beginning of this stage (in the middle of the training) until it is cancelled.
    sleeps_in: Option<Stage>,
    is_asleep: AtomicBool,
    /// Writes a state of the training every so often.
    saves_every: Duration,
    /// In the middle of the training the disk is full, and stays so while this is there.
    fills: Option<PathBuf>,
}

impl Stages {
    fn that_sleep_in(stage: Stage) -> Arc<Self> {
        Arc::new(Self { sleeps_in: Some(stage), ..Self::default() })
    }

    fn done(&self) -> Vec<Stage> {
        self.done.lock().unwrap().clone()
    }

    fn sleep(&self, control: &Control) -> Result<()> {
        self.is_asleep.store(true, Ordering::Release);
        loop {
            control.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn save(workspace: &Path, step: u32) {
        let header = format!(
            r#"{{"options":"","dataset":"","progress":{{"step":{step},"initial_count":5,"seconds":1.5}},
            "splats":0,"sh_degree":0,"exposures":0,"statistics":false}}"#
        );
        let mut bytes = b"LRTRAIN\n\x01\0\0\0".to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(vec![7; 100_000]);
        let partial = workspace.join(".reconstruct/checkpoint.bin.partial");
        fs::write(&partial, bytes).unwrap();
        fs::rename(&partial, workspace.join(".reconstruct/checkpoint.bin")).unwrap();
    }

    fn train(&self, workspace: &Path, control: &Control) -> Result<()> {
        let first = TrainingState::of(workspace)?.map_or(0, |state| state.step);
        self.first_step.store(first, Ordering::Release);
        for step in first + 1..=STEPS {
            if let Err(cancelled) = control.check() {
                Self::save(workspace, step - 1);
                return Err(cancelled);
            }
            control.progress(Stage::Train, "training", step as f32 / STEPS as f32);
            if self.fills.is_some() && step == STEPS / 2 {
                Self::save(workspace, step);
                return Err(Error::new(ErrorKind::DiskFull, "there is no room for the next state"));
            }
            if self.sleeps_in == Some(Stage::Train) && step == STEPS / 2 {
                Self::save(workspace, step);
                if let Err(cancelled) = self.sleep(control) {
                    Self::save(workspace, step);
                    return Err(cancelled);
                }
            }
            if !self.saves_every.is_zero() {
                std::thread::sleep(self.saves_every);
                Self::save(workspace, step);
            }
        }
        Ok(())
    }
}

impl Runner for Stages {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        let keys = StageKeys::of(video, options)?;
        fs::create_dir_all(workspace.join(".reconstruct")).unwrap();
        let files = [
            (Stage::Frames, video.to_owned(), "frames/frame_000000.jpg"),
            (Stage::Sfm, workspace.join("frames/frame_000000.jpg"), "sparse/points3D.bin"),
            (Stage::Train, workspace.join("sparse/points3D.bin"), "scene.ply"),
        ];
        for (stage, made_of, made) in files {
            control.progress(stage, "beginning", 0.0);
            if is_finished(workspace, stage, &keys) {
                control.progress(stage, "finished earlier", 1.0);
                continue;
            }
            if stage == Stage::Train {
                self.train(workspace, control)?;
            } else if self.sleeps_in == Some(stage) {
                self.sleep(control)?;
            }
            let path = workspace.join(made);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let made_of = hex(&Sha256::digest(fs::read(made_of).unwrap()));
            fs::write(&path, format!("{stage} of {made_of}").repeat(1000)).unwrap();
            finish_stage(workspace, stage, &keys, &[made.split('/').next().unwrap()]);
            self.done.lock().unwrap().push(stage);
            control.progress(stage, "finished", 1.0);
        }
        control.progress(Stage::Export, "beginning", 0.0);
        if self.sleeps_in == Some(Stage::Export) {
            self.sleep(control)?;
        }
        fs::copy(workspace.join("scene.ply"), workspace.join("scene.spz")).unwrap();
        let files = [(ArtifactKind::Ply, "scene.ply"), (ArtifactKind::Spz, "scene.spz")]
            .map(|(kind, name)| (kind, workspace.join(name)));
        Ok(Outcome { files: files.to_vec(), camera: CameraData::default(), warnings: vec![] })
    }

    fn check(&self, _: &ReconstructionDefaults) -> Result<()> {
        match self.fills.as_ref().is_some_and(|state| state.exists()) {
            true => Err(Error::new(ErrorKind::DiskFull, "the disk is full")),
            false => Ok(()),
        }
    }
}

impl Machine {
    /// A worker on a thread of its own, for one job.
    fn begin(&self, runner: &Arc<Stages>, drain: Duration) -> (std::thread::JoinHandle<()>, CancelToken) {
        let (service, runner, cancel) = (self.service.clone(), runner.clone(), CancelToken::new());
        let told = cancel.clone();
        let work = move || {
            let options = WorkerOptions { threads: 1, niceness: 0, drain, ..WorkerOptions::default() };
            let mut worker = Worker::new(&service, &options, &told, runner.as_ref()).unwrap();
            assert_eq!(worker.work_once().unwrap(), Worked::Done);
        };
        (std::thread::spawn(work), cancel)
    }

    fn run(&self, runner: &Arc<Stages>) {
        self.begin(runner, SOON).0.join().unwrap();
    }

    /// What is stored of the job so that another machine can go on.
    fn stored(&self, job: JobId) -> Vec<Reached> {
        let keys = self.service.inner.storage.checkpoints(job).unwrap();
        let reached = |key: &BlobKey| match key {
            BlobKey::Checkpoint { reached, .. } => *reached,
            _ => panic!("{key} is no checkpoint"),
        };
        keys.iter().map(|(key, _)| reached(key)).collect()
    }

    fn scene(&self, job: JobId) -> Vec<u8> {
        let artifact = self.service.artifact(self.user(), job, ArtifactKind::Ply).unwrap();
        let mut bytes = Vec::new();
        let mut reader = self.service.open_blob(&artifact.key).unwrap();
        std::io::Read::read_to_end(&mut reader.file, &mut bytes).unwrap();
        bytes
    }

    fn log(&self, job: JobId) -> String {
        String::from_utf8_lossy(&self.service.inner.workspaces.read_log(job).unwrap()).into_owned()
    }
}

fn two_machines() -> (World, Machine, Machine) {
    let world = World::new();
    let machine = || world.machine_with(|_, _| Ok(()), |them| *them = options());
    let (here, there) = (machine(), machine());
    (world, here, there)
}

/// Finished stages before `stage`.
fn before(stage: Stage) -> Vec<Reached> {
    Stage::ALL.into_iter().filter(|s| *s < stage).map(Reached::Finished).collect()
}

#[test]
fn a_machine_that_is_lost_in_any_stage_costs_no_finished_one() {
    let (world, here, there) = two_machines();
    let straight = here.submit(b"a video");
    here.run(&Arc::new(Stages::default()));
    let scene = here.scene(straight);
    for stage in Stage::ALL {
        let job = here.submit(b"a video");
        let first = Stages::that_sleep_in(stage);
        let (worker, _) = here.begin(&first, SOON);
        let mut expected = before(stage);
        if stage == Stage::Train {
            expected.push(Reached::Training { step: STEPS / 2 });
        }
        wait_for("what was finished", || here.stored(job) == expected);
        wait_for("standing still", || first.is_asleep.load(Ordering::Acquire));

        world.clock.advance(LEASE as i64 + 1);
        let second = Arc::new(Stages::default());
        there.run(&second);
        assert_eq!(there.status(job), JobStatus::Finished, "{stage}");
        let left: Vec<Stage> = Stage::ALL[..3].iter().copied().filter(|s| *s >= stage).collect();
        assert_eq!(second.done(), left, "no finished stage is done again");
        let went_on = if stage == Stage::Train { STEPS / 2 } else { 0 };
        assert_eq!(second.first_step.load(Ordering::Acquire), went_on);
        assert_eq!(there.stored(job), [], "{stage}");

        // The first one learns that the job is not its own any more.
        worker.join().unwrap();
        assert_eq!(there.scene(job), scene);
        assert_eq!(here.stored(job), [], "{stage}");
    }
}

#[test]
fn a_worker_that_was_paused_beyond_its_lease_publishes_nothing_and_stores_nothing() {
    let (world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let inner = &here.service.inner;
    let options = WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() };
    let (runner, never) = (Stages::default(), CancelToken::new());
    let claim = inner.database.claim(inner.process.id(), "paused", LEASE, &Abilities::ALL).unwrap().unwrap();
    let worker = Worker::new(&here.service, &options, &never, &runner).unwrap();
    let workspace = worker.enter(&claim.lease).unwrap().unwrap();
    let video =
        inner.storage.open(&BlobKey::Video { name: claim.request.blob_name, version: claim.video_version });
    let copy = workspace.folder().join("video.mp4");
    std::io::copy(&mut video.unwrap().file, &mut fs::File::create(&copy).unwrap()).unwrap();
    let folder = workspace.pipeline_folder();
    let of_job = here.service.options().reconstruction.options(&claim.request);
    let outcome = runner.run(&copy, &folder, &of_job, &Control::new()).unwrap();
    // All is made, and here the process stands still. Meanwhile another machine does the job.
    world.clock.advance(LEASE as i64 + 1);
    there.run(&Arc::default());
    let published = there.service.job(there.user(), job).unwrap();
    assert_eq!((published.status, published.details.attempt), (JobStatus::Finished, 2));
    let scene = there.scene(job);

    let handing_over = HandingOver {
        service: &here.service,
        lease: &claim.lease,
        folder,
        at_work_on: &|| Some(Stage::Export),
        log: &|line| panic!("{line}"),
        orders: Orders::default(),
    };
    handing_over.orders.begin(TakenOver::default());
    std::thread::scope(|scope| {
        scope.spawn(|| handing_over.run());
        std::thread::sleep(Duration::from_millis(500));
        handing_over.orders.store_the_last();
    });
    assert_eq!(here.stored(job), []);
    worker.publish(&claim.lease, workspace, outcome).unwrap();
    let now = there.service.job(there.user(), job).unwrap();
    assert_eq!(now, published);
    assert_eq!(there.scene(job), scene);
    let artifacts = inner.storage.list(BlobKind::Artifact, Duration::ZERO).unwrap();
    assert!(artifacts.iter().all(|key| matches!(key, BlobKey::Artifact { attempt: 2, .. })), "{artifacts:?}");
}

#[test]
fn a_worker_that_is_told_to_end_stores_its_last_state() {
    let (_world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let first = Arc::new(Stages { saves_every: Duration::from_millis(20), ..Stages::default() });
    let (worker, cancel) = here.begin(&first, SOON);
    wait_for("the poses", || here.stored(job).contains(&Reached::Finished(Stage::Sfm)));
    // Some states are stored on the way; how many there are at once is bounded.
    let mut seen = std::collections::BTreeSet::new();
    wait_for("three states", || {
        let states = here.stored(job).into_iter().filter(|r| matches!(r, Reached::Training { .. }));
        let states: Vec<Reached> = states.collect();
        assert!(states.len() <= 3, "{states:?}");
        seen.extend(states);
        seen.len() >= 3
    });
    cancel.cancel();
    worker.join().unwrap();
    // It is back in the queue at once, and nothing is held against it.
    assert!(matches!(there.status(job), JobStatus::Queued { .. }));
    let state = TrainingState::of(&here.folder.path().join(format!("work/{job}/run"))).unwrap().unwrap();
    let stored = here.stored(job);
    assert!(stored.contains(&Reached::Training { step: state.step }), "{stored:?}, {}", here.log(job));
    assert_eq!(stored.len(), 4, "two stages and two states: {stored:?}");

    let second = Arc::new(Stages::default());
    there.run(&second);
    assert_eq!(second.done(), [Stage::Train]);
    assert_eq!(second.first_step.load(Ordering::Acquire), state.step);
    assert_eq!((there.status(job), there.stored(job)), (JobStatus::Finished, vec![]));
}

#[test]
fn without_time_to_store_it_the_job_goes_back_all_the_same() {
    let (_world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let first = Stages::that_sleep_in(Stage::Sfm);
    let (worker, cancel) = here.begin(&first, Duration::ZERO);
    wait_for("standing still", || first.is_asleep.load(Ordering::Acquire));
    cancel.cancel();
    worker.join().unwrap();
    let second = Arc::new(Stages::default());
    there.run(&second);
    assert_eq!(there.status(job), JobStatus::Finished);
}

/// The runner under which the disk is full in the middle of the training of the job, and where the state of the training lies.
fn full_disk(machine: &Machine, job: JobId) -> (Arc<Stages>, PathBuf) {
    let state = machine.folder.path().join(format!("work/{job}/run/.reconstruct/checkpoint.bin"));
    (Arc::new(Stages { fills: Some(state.clone()), ..Stages::default() }), state)
}

#[test]
fn a_training_that_has_filled_the_disk_is_stored_before_it_makes_room() {
    let (_world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let (first, state) = full_disk(&here, job);
    here.run(&first);
    assert!(!state.exists());
    assert!(here.stored(job).contains(&Reached::Training { step: STEPS / 2 }), "{}", here.log(job));
    let second = Arc::new(Stages::default());
    there.run(&second);
    assert_eq!(second.done(), [Stage::Train]);
    assert_eq!(second.first_step.load(Ordering::Acquire), STEPS / 2);
    assert_eq!(there.status(job), JobStatus::Finished);
}

/// Makes the storage take nothing of this job: where its folder would be is a file, which this returns.
fn take_nothing_of(world: &World, job: JobId) -> PathBuf {
    let place = world.shared.path().join("checkpoints");
    fs::create_dir_all(&place).unwrap();
    let file = place.join(job.to_string());
    fs::write(&file, "").unwrap();
    file
}

/// It may be another program that has filled the disk, and what a job has done in many hours lies there.
#[test]
fn on_a_full_disk_what_could_not_be_stored_stays() {
    let (world, here, _there) = two_machines();
    let job = here.submit(b"a video");
    let in_the_way = take_nothing_of(&world, job);
    let (first, state) = full_disk(&here, job);
    let (options, never) =
        (WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() }, CancelToken::new());
    let mut worker = Worker::new(&here.service, &options, &never, first.as_ref()).unwrap();
    for _ in 0..3 {
        assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    }
    assert!(state.exists() && matches!(here.status(job), JobStatus::Queued { .. }));
    // There is room again.
    fs::remove_file(in_the_way).unwrap();
    let second = Arc::new(Stages::default());
    here.run(&second);
    assert_eq!(second.done(), [Stage::Train]);
    assert_eq!(second.first_step.load(Ordering::Acquire), STEPS / 2);
}

/// Else it would keep its machine from all work for ever.
#[test]
fn what_could_not_be_stored_and_has_kept_the_disk_full_for_a_day_is_removed() {
    let (world, here, _there) = two_machines();
    let job = here.submit(b"a video");
    take_nothing_of(&world, job);
    let (first, _) = full_disk(&here, job);
    let (options, never) =
        (WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() }, CancelToken::new());
    let mut worker = Worker::new(&here.service, &options, &never, first.as_ref()).unwrap();
    for _ in 0..2 {
        assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    }
    assert!(!here.log(job).contains("for a day"));
    world.clock.advance(24 * 3600);
    // It is taken again, begins anew, and fills the disk once more.
    assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    assert!(here.log(job).contains("full for a day"), "{}", here.log(job));
    let done = [Stage::Frames, Stage::Sfm];
    assert_eq!(first.done(), [done, done].concat());
    assert!(matches!(here.status(job), JobStatus::Queued { .. }));
}

/// The files under which something is stored of the job.
fn files_of(world: &World, job: JobId) -> Vec<PathBuf> {
    let folder = world.shared.path().join(format!("checkpoints/{job}"));
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_is_damaged_or_of_another_job_is_done_again() {
    let (world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let (worker, cancel) = {
        let first = Stages::that_sleep_in(Stage::Train);
        let begun = here.begin(&first, SOON);
        wait_for("a state", || here.stored(job).contains(&Reached::Training { step: STEPS / 2 }));
        begun
    };
    cancel.cancel();
    worker.join().unwrap();
    let find = |name: &str| {
        let files = files_of(&world, job);
        files.into_iter().find(|f| f.file_name().unwrap().to_str().unwrap().starts_with(name)).unwrap()
    };
    let frames_of_another = fs::read(find("frames")).unwrap();
    // A bit of the poses has changed; the frames are good. A state without its poses is none.
    let mut bytes = fs::read(find("sfm")).unwrap();
    let at = bytes.windows(7).rposition(|w| w == b"sfm of ").unwrap();
    bytes[at] ^= 1;
    fs::write(find("sfm"), &bytes).unwrap();
    let second = Arc::new(Stages::default());
    there.run(&second);
    assert_eq!(second.done(), [Stage::Sfm, Stage::Train]);
    assert_eq!(second.first_step.load(Ordering::Acquire), 0);
    assert_eq!(there.status(job), JobStatus::Finished);

    // What was made of another video, or is no archive at all, costs nothing but a look.
    let job = here.submit(b"another video");
    let first = Stages::that_sleep_in(Stage::Sfm);
    let (worker, cancel) = here.begin(&first, SOON);
    wait_for("the frames", || here.stored(job) == before(Stage::Sfm));
    cancel.cancel();
    worker.join().unwrap();
    let stored = files_of(&world, job).remove(0);
    fs::write(stored.with_file_name(format!("frames.{:016x}", 1)), &frames_of_another).unwrap();
    fs::write(&stored, vec![7; 5000]).unwrap();
    let second = Arc::new(Stages::default());
    there.run(&second);
    assert_eq!(second.done(), &Stage::ALL[..3]);
    assert_eq!((there.status(job), there.stored(job)), (JobStatus::Finished, vec![]));
}

#[test]
fn a_state_that_is_damaged_is_passed_over_for_the_one_before() {
    let (world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let first = Arc::new(Stages { saves_every: Duration::from_millis(20), ..Stages::default() });
    let (worker, cancel) = here.begin(&first, SOON);
    wait_for("a state", || here.stored(job).len() >= 3);
    cancel.cancel();
    worker.join().unwrap();
    let steps = here.stored(job).into_iter().filter_map(|reached| match reached {
        Reached::Training { step } => Some(step),
        Reached::Finished(_) => None,
    });
    let mut steps: Vec<u32> = steps.collect();
    steps.sort();
    let [before, newest] = steps[..] else { panic!("{steps:?}") };
    let mut files = files_of(&world, job);
    files.retain(|f| f.file_name().unwrap().to_str().unwrap().starts_with(&format!("training-{newest}.")));
    let bytes = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &bytes[..bytes.len() / 2]).unwrap();
    let second = Arc::new(Stages::default());
    there.run(&second);
    assert_eq!(second.done(), [Stage::Train]);
    assert_eq!(second.first_step.load(Ordering::Acquire), before);
    assert_eq!(there.status(job), JobStatus::Finished);
}

#[test]
fn nothing_stays_of_a_job_that_fails_or_is_deleted() {
    struct Fails(Stages);
    impl Runner for Fails {
        fn run(
            &self,
            video: &Path,
            workspace: &Path,
            options: &ReconstructionOptions,
            control: &Control,
        ) -> Result<Outcome> {
            self.0.run(video, workspace, options, control)?;
            Err(Error::new(ErrorKind::InsufficientParallax, "the camera did not move"))
        }
    }
    let (_world, here, there) = two_machines();
    let job = here.submit(b"a video");
    let first = Stages::that_sleep_in(Stage::Export);
    let (worker, cancel) = here.begin(&first, SOON);
    wait_for("the training", || here.stored(job) == before(Stage::Export));
    cancel.cancel();
    worker.join().unwrap();
    let worker = WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() };
    let (fails, never) = (Fails(Stages::default()), CancelToken::new());
    Worker::new(&there.service, &worker, &never, &fails).unwrap().work_once().unwrap();
    assert_eq!(there.status(job), JobStatus::Failed);
    assert_eq!(fails.0.done(), [], "all was done before");
    assert_eq!(there.stored(job), []);

    let job = here.submit(b"a video");
    let first = Stages::that_sleep_in(Stage::Export);
    let (worker, _) = here.begin(&first, SOON);
    wait_for("the training", || here.stored(job) == before(Stage::Export));
    there.service.delete(there.user(), job).unwrap();
    worker.join().unwrap();
    wait_for("the end of the deletion", || {
        here.service.maintain().unwrap();
        here.stored(job).is_empty()
    });
}

#[test]
fn in_a_folder_of_one_machine_nothing_of_this_is_written() {
    let world = test_world::World::with(options());
    let job = world.submit(world.anna);
    let runner = Stages { saves_every: Duration::from_millis(2), ..Stages::default() };
    let (worker, never) =
        (WorkerOptions { threads: 1, niceness: 0, ..Default::default() }, CancelToken::new());
    Worker::new(&world.service, &worker, &never, &runner).unwrap().work_once().unwrap();
    assert_eq!(world.job(job).status, JobStatus::Finished);
    assert!(!world.folder.path().join("checkpoints").join(job.to_string()).exists());
    assert!(!world.service.log(world.anna, job).unwrap().contains("other machines"));
}
