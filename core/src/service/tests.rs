//! The service as its faces see it, with workers that run something quick in place of the pipeline.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::test_world::World;
use super::worker::{Worked, Worker};
use super::{
    Environment, Idempotency, Outcome, Runner, Service, ServiceOptions, Submission, WorkerEnd, WorkerOptions,
};
use crate::control::{CancelToken, Control, Warning};
use crate::database::{Abilities, Claim, Clock, Return};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{
    ArtifactKind, CameraData, CameraUpdate, JobRequest, JobStatus, JobUpdate, ListQuery, Tier, Xyz,
};
use crate::pipeline::ReconstructionOptions;
use crate::stage::Stage;

/// Runs a closure in place of the pipeline.
pub(super) struct Quick<F>(pub(super) F);

impl<F: Fn(&Path, &Control) -> Result<()> + Send + Sync> Runner for Quick<F> {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        _: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        assert_eq!(fs::read(video).unwrap(), b"a video");
        fs::create_dir_all(workspace).unwrap();
        (self.0)(workspace, control)?;
        let file = |kind: ArtifactKind| {
            let path = workspace.join(format!("scene.{}", kind.extension()));
            fs::write(&path, kind.extension()).unwrap();
            (kind, path)
        };
        let camera = CameraData { position: Xyz { x: 9.0, y: 0.0, z: 0.0 }, ..CameraData::default() };
        let files = [ArtifactKind::Ply, ArtifactKind::Spz, ArtifactKind::Preview].map(file).to_vec();
        Ok(Outcome { files, camera, warnings: vec![Warning::new("a", "first")] })
    }
}

pub(super) fn options() -> WorkerOptions {
    WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() }
}

/// Lets a worker of `service` see to one job; says whether there was one.
pub(super) fn work(service: &Service, run: impl Fn(&Path, &Control) -> Result<()> + Send + Sync) -> bool {
    work_until(service, &CancelToken::new(), run)
}

fn work_until(
    service: &Service,
    cancel: &CancelToken,
    run: impl Fn(&Path, &Control) -> Result<()> + Send + Sync,
) -> bool {
    let (options, runner) = (options(), Quick(run));
    Worker::new(service, &options, cancel, &runner).unwrap().work_once().unwrap() != Worked::Nothing
}

/// Waits, as a long run does, until it is told to stop.
fn until_cancelled(control: &Control) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        control.check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Error::new(ErrorKind::Internal, "was not told to stop"))
}

#[test]
fn a_handle_can_be_shared() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Service>();
}

#[test]
fn a_video_becomes_a_scene_that_can_be_fetched_and_deleted() {
    let w = World::new();
    let job = w.submit(w.anna);
    assert_eq!(w.job(job).status.to_string(), "Queued - position: 1");
    assert_eq!(w.service.log(w.anna, job).unwrap(), "");
    let ply = || w.service.artifact(w.anna, job, ArtifactKind::Ply);
    assert_eq!(ply().unwrap_err().message(), "PLY file not available for this job");
    assert!(work(&w.service, |_, control| {
        control.progress(Stage::Frames, "reading", 0.5);
        control.warn(Stage::Frames, Warning::new("b", "second"));
        Ok(())
    }));
    assert!(!work(&w.service, |_, _| Ok(())));
    let done = w.job(job);
    assert_eq!((done.status, done.percent_complete), (JobStatus::Finished, Some(100)));
    assert!(done.has_ply && done.has_spz);
    assert_eq!(done.camera_data.position.x, 9.0);
    assert_eq!(done.details.warnings.iter().map(|w| w.code.as_ref()).collect::<Vec<_>>(), ["a", "b"]);
    let artifact = ply().unwrap();
    assert_eq!((artifact.file_name.as_str(), artifact.size), ("garden.mp4.ply", 3));
    let mut text = String::new();
    w.service.open_blob(&artifact.key).unwrap().file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "ply");
    let copy = w.folder.path().join("copy.ply");
    w.service.save_artifact(&artifact, &copy).unwrap();
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "ply");
    std::fs::remove_file(&copy).unwrap();
    assert!(w.service.log(w.anna, job).unwrap().contains("attempt 1 by worker"));
    assert!(!w.folder.path().join("work").join(job.to_string()).exists());
    for foreign in [
        w.service.job(w.eve, job).map(drop),
        w.service.artifact(w.eve, job, ArtifactKind::Ply).map(drop),
        w.service.log(w.eve, job).map(drop),
        w.service.delete(w.eve, job),
        w.service.cancel(w.eve, job).map(drop),
        w.service.update(w.eve, job, &JobUpdate::default()).map(drop),
        w.service.wait(w.eve, job, 0, Duration::ZERO).map(drop),
    ] {
        let error = foreign.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, "Job not found"));
    }
    assert_eq!(w.service.cancel(w.anna, job).unwrap_err().kind(), ErrorKind::Conflict);
    w.service.delete(w.anna, job).unwrap();
    assert_eq!(w.service.job(w.anna, job).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(w.service.delete(w.anna, job).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(w.files(), [] as [std::path::PathBuf; 0]);
    assert_eq!(w.service.open_blob(&artifact.key).err().unwrap().kind(), ErrorKind::NotFound);
}

/// Rule 72 of docs/rest.md.
#[test]
fn everybody_sees_the_scene_of_a_job_while_it_is_public_and_finished() {
    let w = World::new();
    let job = w.submit(w.anna);
    let set = |public| {
        let update = JobUpdate { public: Some(public), ..JobUpdate::default() };
        w.service.update(w.anna, job, &update).unwrap();
    };
    let refused = |when: &str| {
        let artifact = |kind| w.service.public_artifact(job, kind).map(drop);
        let answers = [
            w.service.public_job(job).map(drop),
            artifact(ArtifactKind::Spz),
            artifact(ArtifactKind::Preview),
        ];
        for answer in answers {
            let error = answer.expect_err(when);
            assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, "Job not found"), "{when}");
        }
    };
    set(true);
    refused("waiting");
    assert!(work(&w.service, |_, _| {
        refused("running");
        Ok(())
    }));
    let shown = w.service.public_job(job).unwrap();
    assert_eq!((shown.job_id, shown.title.as_str(), shown.camera_data.position.x), (job, "garden.mp4", 9.0));
    for kind in [ArtifactKind::Spz, ArtifactKind::Preview] {
        assert_eq!(
            w.service.public_artifact(job, kind).unwrap(),
            w.service.artifact(w.anna, job, kind).unwrap()
        );
    }
    for kind in [ArtifactKind::Ply, ArtifactKind::Report, ArtifactKind::Log] {
        assert_eq!(w.service.public_artifact(job, kind).unwrap_err().message(), "Job not found", "{kind:?}");
    }
    // Whatever others see, the job is still its owner's alone.
    assert_eq!(w.service.job(w.eve, job).unwrap_err().kind(), ErrorKind::NotFound);
    set(false);
    refused("private");
    set(true);
    assert!(w.service.public_job(job).is_ok());
    w.service.delete(w.anna, job).unwrap();
    refused("deleted");
}

/// Rule 45.
#[test]
fn what_is_no_video_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), super::ServiceOptions::default()).unwrap();
    let user = service.add_user("anna", crate::job::Tier::Enterprise).unwrap().user_id;
    let path = folder.path().join("playlist.mp4");
    fs::write(&path, "#EXTM3U\n/etc/passwd\n").unwrap();
    let blob = service.import_video(user, &path).unwrap();
    let error = service.submit(user, JobRequest::new(blob), None).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, "Invalid file format"));
    assert!(!error.to_string().contains(&*folder.path().to_string_lossy()), "{error}");
    assert!(service.list(user, &ListQuery::default()).unwrap().jobs.is_empty());
}

/// A program that is just being replaced, or a disk that fails for a moment, makes a good video look bad.
#[test]
fn a_video_is_refused_only_if_it_looks_bad_twice() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let look = |_: &Path, _: Duration| match LOOKS.fetch_add(1, Ordering::SeqCst) {
        0 => Err(Error::new(ErrorKind::InvalidMedia, "for a moment")),
        _ => Ok(()),
    };
    let w = World::new();
    let environment = Environment { clock: w.clock.clone(), look };
    let other = Service::open_in(w.folder.path(), ServiceOptions::default(), environment).unwrap();
    other.submit(w.anna, JobRequest::new(w.upload(w.anna)), None).unwrap();
    assert_eq!(LOOKS.load(Ordering::SeqCst), 2);
}

/// Rule 47.
#[test]
fn a_request_that_is_sent_twice_makes_one_job() {
    let w = World::new();
    let request = JobRequest::new(w.upload(w.anna));
    let key = |key: &str, hash| Some(Idempotency { key: key.into(), body_hash: [hash; 32] });
    let submit = |idempotency| w.submit_with(request.clone(), w.anna, idempotency);
    let first = submit(key("a", 1)).unwrap();
    let second = submit(key("a", 1)).unwrap();
    assert!(!first.replayed && second.replayed);
    assert_eq!(first.body, second.body);
    assert_eq!(submit(key("a", 2)).unwrap_err().kind(), ErrorKind::IdempotencyMismatch);
    assert_eq!(submit(key("", 1)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_ne!(submit(None).unwrap().body.job_id, first.body.job_id);
    assert_eq!(w.service.list(w.anna, &ListQuery::default()).unwrap().jobs.len(), 2);
}

/// Rule 48: also of a request that was made in code.
#[test]
fn titles_lose_the_blanks_around_them() {
    let w = World::new();
    let request = JobRequest { title: Some("  Garden 1 ".into()), ..JobRequest::new(w.upload(w.anna)) };
    let submitted = w.submit_with(request, w.anna, None).unwrap().body;
    assert_eq!(submitted.title, "Garden 1");
    assert_eq!(w.job(submitted.job_id).title, "Garden 1");
    let rename = |title: &str| JobUpdate { title: Some(title.into()), ..JobUpdate::default() };
    let update = |title: &str| w.service.update(w.anna, submitted.job_id, &rename(title));
    assert_eq!(update(" Hall\u{3000}").unwrap().title, "Hall");
    assert_eq!(update("  ").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(w.job(submitted.job_id).title, "Hall");
}

/// Rules 47 and 85.
#[test]
fn a_restart_that_is_sent_twice_makes_one_job_also_if_the_first_is_gone() {
    let w = World::new();
    let job = w.submit(w.anna);
    let key = |hash| Some(Idempotency { key: "a".into(), body_hash: [hash; 32] });
    let restart = |idempotency, steps| {
        let change = |before: JobRequest| Ok(JobRequest { training_num_steps: steps, ..before });
        w.service.restart(w.anna, job, idempotency, change)
    };
    assert_eq!(restart(key(1), 9).unwrap_err().kind(), ErrorKind::Conflict);
    w.service.cancel(w.anna, job).unwrap();
    // What was refused has not used the key up.
    assert_eq!(restart(key(1), 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let first = restart(key(1), 9).unwrap();
    assert_eq!((first.replayed, w.job(first.body.job_id).training_num_steps), (false, 9));
    w.service.delete(w.anna, job).unwrap();
    assert_eq!(restart(key(1), 9).unwrap(), Submission { replayed: true, ..first });
    assert_eq!(restart(key(2), 9).unwrap_err().kind(), ErrorKind::IdempotencyMismatch);
    assert_eq!(restart(None, 9).unwrap_err().kind(), ErrorKind::NotFound);
}

/// Rule 47.
#[test]
fn a_request_that_is_sent_again_too_soon_is_told_so() {
    static AT_WORK: Barrier = Barrier::new(2);
    static GO_ON: Barrier = Barrier::new(2);
    let (w, folder) = (World::new(), super::test_world::folder());
    let look = |_: &Path, _| {
        AT_WORK.wait();
        GO_ON.wait();
        Ok(())
    };
    let environment = Environment { clock: w.clock.clone(), look };
    let service = Service::open_in(folder.path(), w.service.options().clone(), environment).unwrap();
    let user = |name| service.add_user(name, Tier::Enterprise).unwrap().user_id;
    let (anna, eve) = (user("anna"), user("eve"));
    let path = w.folder.path().join("garden.mp4");
    fs::write(&path, "a video").unwrap();
    let [annas, eves] = [anna, eve].map(|user| service.import_video(user, &path).unwrap());
    let submit = |user, blob| {
        let key = Idempotency { key: "a".into(), body_hash: [1; 32] };
        service.submit(user, JobRequest::new(blob), Some(key))
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| submit(anna, annas));
        AT_WORK.wait();
        assert_eq!(submit(anna, annas).unwrap_err().kind(), ErrorKind::Conflict);
        GO_ON.wait();
        let first = first.join().unwrap().unwrap();
        assert!(!first.replayed);
        // Now it is answered as the first was, and another user's key is another key.
        assert_eq!(submit(anna, annas).unwrap(), Submission { replayed: true, ..first });
        let other = scope.spawn(|| submit(eve, eves));
        AT_WORK.wait();
        GO_ON.wait();
        assert!(!other.join().unwrap().unwrap().replayed);
    });
}

/// Rule 53.
#[test]
fn bad_input_fails_at_once_and_a_breakdown_at_the_third_time() {
    let w = World::new();
    let (bad, panicking) = (w.submit(w.anna), w.submit(w.anna));
    let hidden = w.folder.path().join("videos");
    assert!(work(&w.service, |_, _| {
        Err(Error::new(ErrorKind::TooFewFrames, format!("{} has two frames", hidden.display()))
            .hint("film longer"))
    }));
    let failed = w.job(bad);
    assert_eq!((failed.status, failed.details.attempt), (JobStatus::Failed, 1));
    let failure = failed.details.failure.unwrap();
    assert_eq!(
        (failure.code.as_str(), failure.message.as_str()),
        ("too_few_frames", "videos has two frames (film longer)")
    );
    assert!(w.service.log(w.anna, bad).unwrap().contains("too_few_frames"));
    for _ in 0..3 {
        assert!(work(&w.service, |_, _| panic!("oh")));
    }
    let failure = w.job(panicking).details.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.message.contains("oh")), ("internal", true));
    assert!(w.service.log(w.anna, panicking).unwrap().contains("oh"));
    assert!(!work(&w.service, |_, _| Ok(())));
    assert_eq!(fs::read_dir(w.folder.path().join("work")).unwrap().count(), 0);
}

/// A program that is just being replaced, or a disk that fails for a moment, makes a good video look bad.
#[test]
fn what_was_read_speaks_against_a_job_only_if_it_is_read_twice() {
    let w = World::new();
    for kind in [ErrorKind::InvalidMedia, ErrorKind::NotFound, ErrorKind::InsufficientParallax] {
        let runs = AtomicU32::new(0);
        let job = w.submit(w.anna);
        work(&w.service, |_, _| match runs.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::new(kind, "for a moment")),
            _ => Ok(()),
        });
        // What is worked out comes out again.
        let is_worked_out = kind == ErrorKind::InsufficientParallax;
        let (status, attempts) =
            if is_worked_out { (JobStatus::Failed, 1) } else { (JobStatus::Finished, 2) };
        assert_eq!((w.job(job).status, runs.into_inner()), (status, attempts));
        assert_eq!(w.job(job).details.attempt, 1);
    }
}

/// What is wrong with the service's own files and tables is not the job's fault, whatever kind of error it is.
#[test]
fn what_the_service_cannot_read_costs_no_job() {
    /// Says that it made what is not there.
    struct Lost;

    impl Runner for Lost {
        fn run(&self, _: &Path, workspace: &Path, _: &ReconstructionOptions, _: &Control) -> Result<Outcome> {
            let files = vec![(ArtifactKind::Ply, workspace.join("lost.ply"))];
            Ok(Outcome { files, camera: CameraData::default(), warnings: Vec::new() })
        }
    }

    let w = World::new();
    let job = w.submit(w.anna);
    Worker::new(&w.service, &options(), &CancelToken::new(), &Lost).unwrap().work_once().unwrap();
    assert_eq!(
        (w.job(job).status, w.job(job).details.failure),
        (JobStatus::Queued { position: Some(1) }, None)
    );
    assert!(work(&w.service, |_, _| Ok(())));
    assert_eq!(w.job(job).status, JobStatus::Finished);
}

/// What may be the machine's fault is tried again with growing rests, in which other jobs are worked on.
#[test]
fn trouble_on_a_machine_in_order_is_tried_for_hours() {
    let w = World::new();
    let troubled = w.submit(w.anna);
    let (begun, tries) = (w.clock.lease_micros(), AtomicU32::new(0));
    while !w.job(troubled).status.is_terminal() {
        let tried = work(&w.service, |workspace, _| {
            // What an attempt did is there for the next.
            assert_eq!(workspace.join("half").exists(), tries.fetch_add(1, Ordering::SeqCst) > 0);
            fs::write(workspace.join("half"), "done").unwrap();
            Err(Error::new(ErrorKind::Gpu, "the device was lost"))
        });
        if !tried {
            let other = w.submit(w.eve);
            assert!(work(&w.service, |_, _| Ok(())));
            assert_eq!(w.service.job(w.eve, other).unwrap().status, JobStatus::Finished);
            w.clock.advance(60);
        }
    }
    assert_eq!(w.job(troubled).details.failure.unwrap().code, "gpu");
    assert_eq!(tries.load(Ordering::SeqCst), 10);
    let hours = (w.clock.lease_micros() - begun) as f64 / 3600e6;
    assert!((3.0..5.0).contains(&hours), "{hours}");
    assert!(w.service.log(w.anna, troubled).unwrap().contains("the device was lost"));
}

/// Whoever was killed could not store it, and it is all that tells why.
#[test]
fn a_job_whose_workers_die_keeps_its_log() {
    let w = World::new();
    let job = w.submit(w.anna);
    let inner = &w.service.inner;
    while !w.job(job).status.is_terminal() {
        if let Some(claim) = inner.database.claim("killed", "w", 30, &Abilities::ALL).unwrap() {
            let workspace = inner.workspaces.enter(job).unwrap().unwrap();
            workspace.log(w.clock.now(), &format!("attempt {} begins", claim.lease.attempt));
        }
        w.service.maintain().unwrap();
        w.clock.advance(60);
    }
    assert_eq!(w.job(job).details.failure.unwrap().code, "crashed");
    let log = w.service.log(w.anna, job).unwrap();
    assert!(log.contains("attempt 1 begins") && log.contains("attempt 10 begins"), "{log}");
    assert_eq!(fs::read_dir(w.folder.path().join("work")).unwrap().count(), 0);
    let stored = w.service.artifact(w.anna, job, ArtifactKind::Log).unwrap();
    assert_eq!((stored.size, w.files().len()), (log.len() as u64, 2), "the video and the log");
    w.service.delete(w.anna, job).unwrap();
    assert_eq!(w.files(), [] as [std::path::PathBuf; 0]);
}

/// Rule 64.
/// Rule 53.
#[test]
fn a_job_that_was_worked_on_for_too_long_fails() {
    let w = World::new();
    let job = w.submit(w.anna);
    let other = w.reopen();
    let database = &other.inner.database;
    // With the longest lease there is, of which as much counts as worked between two signs of life.
    let work_for_two_days = |claim: &Claim| {
        for _ in 0..48 {
            w.clock.advance(3600);
            database.heartbeat(&claim.lease, 3600).unwrap();
        }
    };
    // Another worker has been at it for two days, and ends.
    let claim = database.claim("other", "other", 3600, &Abilities::ALL).unwrap().unwrap();
    work_for_two_days(&claim);
    database.release(&claim.lease, Return::Unharmed, &other.inner.options.patience(), None).unwrap();
    assert!(work(&w.service, |_, control| until_cancelled(control)));
    let ended = w.job(job);
    assert_eq!(ended.status, JobStatus::Failed);
    let failure = ended.details.failure.unwrap();
    assert_eq!(failure.code, "deadline_exceeded");
    assert!(failure.message.contains("48 hours"), "{}", failure.message);
    // Why is kept in its log.
    assert!(w.service.log(w.anna, job).unwrap().contains("48 hours"));
    // Without a limit it would go on.
    let endless = w.reopen_with(ServiceOptions { max_job_hours: 0, ..w.service.options().clone() });
    let job = w.submit(w.anna);
    let claim = database.claim("other", "other", 3600, &Abilities::ALL).unwrap().unwrap();
    work_for_two_days(&claim);
    database.release(&claim.lease, Return::Unharmed, &other.inner.options.patience(), None).unwrap();
    assert!(work(&endless, |_, _| Ok(())));
    assert_eq!(w.job(job).status, JobStatus::Finished);
}

#[test]
fn deleting_a_running_job_stops_it_and_leaves_no_file() {
    let w = World::new();
    let job = w.submit(w.anna);
    let began = std::sync::Mutex::new(None);
    assert!(work(&w.service, |_, control| {
        // By another process, which cannot wake this one.
        w.reopen().delete(w.anna, job).unwrap();
        assert_eq!(w.service.job(w.anna, job).unwrap_err().kind(), ErrorKind::NotFound);
        *began.lock().unwrap() = Some(Instant::now());
        until_cancelled(control)
    }));
    assert!(began.lock().unwrap().unwrap().elapsed() < Duration::from_secs(10));
    assert_eq!(w.files(), [] as [std::path::PathBuf; 0]);
    assert_eq!(w.service.statistics().unwrap().rows.deleting, 0);
    // A run that does not notice and ends well publishes nothing either.
    let job = w.submit(w.anna);
    assert!(work(&w.service, |_, _| w.service.delete(w.anna, job)));
    assert_eq!(w.files(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_cancelled_job_stops_and_stays_failed() {
    let w = World::new();
    let job = w.submit(w.anna);
    assert!(work(&w.service, |_, control| {
        let cancelled = w.service.cancel(w.anna, job).unwrap();
        assert_eq!(cancelled.details.failure.unwrap().code, "cancelled");
        until_cancelled(control)
    }));
    let after = w.job(job);
    assert_eq!((after.status, after.details.attempt), (JobStatus::Failed, 1));
    // Once is enough, and a second time changes nothing.
    assert_eq!(w.service.cancel(w.anna, job).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(w.job(job), after);
    // The video stays: the job can be submitted again with it.
    assert_eq!(w.files().len(), 1);
    let again = JobRequest::new(after.details.blob_name);
    w.submit_with(again, w.anna, None).unwrap();
    assert!(work(&w.service, |_, _| Ok(())));
}

#[test]
fn a_worker_that_ends_gives_its_job_back_and_the_next_goes_on() {
    let w = World::new();
    let job = w.submit(w.anna);
    let cancel = CancelToken::new();
    assert!(work_until(&w.service, &cancel, |workspace, control| {
        fs::write(workspace.join("checkpoint"), "half").unwrap();
        cancel.cancel();
        until_cancelled(control)
    }));
    assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
    assert!(work(&w.reopen(), |workspace, _| {
        assert_eq!(fs::read(workspace.join("checkpoint")).unwrap(), b"half");
        Ok(())
    }));
    assert_eq!((w.job(job).status, w.job(job).details.attempt), (JobStatus::Finished, 2));
}

/// A driver may hang: no look whether to stop comes any more.
#[test]
fn a_job_whose_work_does_not_stop_is_given_up() {
    let w = World::with(ServiceOptions { lease_seconds: 6, min_free_bytes: 0, ..ServiceOptions::default() });
    let job = w.submit(w.anna);
    let (options, cancel, other) = (options(), CancelToken::new(), w.reopen());
    let requeued = std::sync::Mutex::new(None);
    let stubborn = Quick(|_: &Path, _: &Control| {
        cancel.cancel();
        let end = Instant::now() + Duration::from_secs(20);
        while w.service.stuck_workers() == 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        // Longer than the lease by its end. In the middle a worker that keeps its job would give a sign of life, as it does each second.
        w.clock.advance(4);
        thread::sleep(Duration::from_millis(1200));
        w.clock.advance(4);
        *requeued.lock().unwrap() = Some(other.maintain().unwrap().requeued_jobs);
        Ok(())
    });
    let mut worker = Worker::new(&w.service, &options, &cancel, &stubborn).unwrap();
    worker.stuck_after = Duration::ZERO;
    assert_eq!(worker.work_once().unwrap(), Worked::Done);
    assert_eq!(*requeued.lock().unwrap(), Some(1));
    // It ended after all, and published nothing.
    assert_eq!(w.service.stuck_workers(), 0);
    assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
    assert!(work(&other, |_, _| Ok(())));
    assert_eq!((w.job(job).status, w.job(job).details.attempt), (JobStatus::Finished, 2));
}

#[test]
fn a_worker_that_lost_its_lease_publishes_nothing() {
    let w = World::new();
    let job = w.submit(w.anna);
    let other = w.reopen();
    assert!(work(&w.service, |_, control| {
        // It stood still for so long that it was taken for dead; another has the job now.
        w.clock.advance(31);
        assert_eq!(other.maintain().unwrap().requeued_jobs, 1);
        let lease = other.inner.database.claim("other", "other", 30, &Abilities::ALL).unwrap().unwrap().lease;
        assert_eq!((lease.job, lease.attempt), (job, 2));
        until_cancelled(control)
    }));
    assert_eq!((w.job(job).status, w.job(job).details.attempt), (JobStatus::ProcessingVideo, 2));
    assert_eq!(fs::read_dir(w.folder.path().join("scenes")).unwrap().count(), 0);
    // That one is no living process: its job comes back at once, without waiting for its lease.
    assert!(work(&w.service, |_, _| Ok(())));
    assert_eq!((w.job(job).status, w.job(job).details.attempt), (JobStatus::Finished, 3));
}

#[test]
fn what_a_user_sets_during_a_run_stays() {
    let w = World::new();
    let job = w.submit(w.anna);
    let view = CameraUpdate::Set {
        position: Xyz { x: 1.0, y: 0.0, z: 0.0 },
        look_at: Xyz::default(),
        up: Xyz { x: 0.0, y: 0.0, z: 1.0 },
        camera_type: None,
    };
    assert!(work(&w.service, |_, control| {
        control.progress(Stage::Train, "training", 0.5);
        let update = JobUpdate { title: Some("Mine".into()), public: Some(true), camera_data: Some(view) };
        w.service.update(w.anna, job, &update).map(drop)
    }));
    let job = w.job(job);
    assert_eq!((job.title.as_str(), job.public, job.camera_data.position.x), ("Mine", true, 1.0));
    assert_eq!(job.status, JobStatus::Finished);
}

#[test]
fn waiting_wakes_with_the_change_and_progress_is_seen() {
    let w = World::new();
    let job = w.submit(w.anna);
    let seen = w.job(job);
    assert_eq!(w.service.wait(w.anna, job, seen.details.version, Duration::from_millis(20)).unwrap(), seen);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut states = vec![];
            let mut version = 0;
            loop {
                let job = w.service.wait(w.anna, job, version, Duration::from_secs(10)).unwrap();
                version = job.details.version;
                states.push((job.status.to_string(), job.percent_complete));
                if job.status.is_terminal() {
                    return states;
                }
            }
        });
        assert!(work(&w.service, |_, control| {
            control.progress(Stage::Sfm, "matching", 0.5);
            std::thread::sleep(Duration::from_millis(300));
            control.progress(Stage::Train, "training", 0.5);
            control.progress(Stage::Sfm, "late", 0.6);
            std::thread::sleep(Duration::from_millis(1300));
            Ok(())
        }));
        let states = watcher.join().unwrap();
        assert!(states.contains(&("Processing video".into(), None)), "{states:?}");
        assert!(states.contains(&("Generating 3D scene".into(), Some(47))), "{states:?}");
        assert_eq!(states.last().unwrap(), &("Finished".to_owned(), Some(100)));
        assert!(states.is_sorted_by_key(|s| s.1), "{states:?}");
    });
}

#[test]
fn workers_run_until_they_are_told_to_end() {
    let w = World::new();
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    w.service.run_worker_with(&options(), &cancel, &Quick(|_: &Path, _: &Control| Ok(())))
                })
            })
            .collect();
        let jobs: Vec<_> = (0..4).map(|_| w.submit(w.anna)).collect();
        for job in jobs {
            let mut version = 0;
            let end = Instant::now() + Duration::from_secs(20);
            while w.job(job).status != JobStatus::Finished {
                assert!(Instant::now() < end);
                version =
                    w.service.wait(w.anna, job, version, Duration::from_secs(5)).unwrap().details.version;
            }
        }
        cancel.cancel();
        workers.into_iter().for_each(|worker| worker.join().unwrap().unwrap());
    });
}

#[test]
fn workers_end_by_themselves_if_they_are_to() {
    let w = World::new();
    let run = |end: WorkerEnd| {
        let quick = Quick(|_: &Path, _: &Control| Ok(()));
        w.service.run_worker_with(&WorkerOptions { end, ..options() }, &CancelToken::new(), &quick).unwrap();
        w.service.statistics().unwrap().rows.queued
    };
    for _ in 0..5 {
        w.submit(w.anna);
    }
    assert_eq!(run(WorkerEnd::OneJob), 4);
    assert_eq!(run(WorkerEnd::OneJobOrIdle(Duration::ZERO)), 3);
    assert_eq!(run(WorkerEnd::Idle(Duration::ZERO)), 0);
    assert_eq!(run(WorkerEnd::OneJobOrIdle(Duration::ZERO)), 0);
}

#[test]
fn workers_of_the_process_stop_when_they_are_told_or_dropped() {
    let w = World::new();
    let workers = w.service.start_workers(2, &options()).unwrap();
    let job = w.submit(w.anna);
    let (mut version, end) = (0, Instant::now() + Duration::from_secs(20));
    // The real pipeline: to it, the upload is no video.
    while w.job(job).status != JobStatus::Failed {
        assert!(Instant::now() < end, "{:?}", w.job(job));
        version = w.service.wait(w.anna, job, version, Duration::from_secs(5)).unwrap().details.version;
    }
    assert!(workers.stop(Duration::from_secs(20)));
    drop(w.service.start_workers(1, &options()).unwrap());
    let waiting = w.submit(w.anna);
    std::thread::sleep(Duration::from_millis(300));
    assert!(matches!(w.job(waiting).status, JobStatus::Queued { .. }));
}

#[test]
fn a_user_is_added_once() {
    let w = World::new();
    let first = w.service.user_or_new("local", Tier::Enterprise).unwrap();
    w.service.set_tier(first.user_id, Tier::Free).unwrap();
    let again = w.service.user_or_new("local", Tier::Enterprise).unwrap();
    assert_eq!((again.user_id, again.tier), (first.user_id, Tier::Free));
    assert_eq!(w.service.user_or_new("", Tier::Enterprise).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
