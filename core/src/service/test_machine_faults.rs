//! What becomes of jobs and workers on a machine that cannot work: nothing is lost, and it is said why.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::known_adapter::KnownAdapter;
use super::test_world::{Hungry, SmallScenes, World};
use super::tests::{Quick, options};
use super::worker::{Worked, Worker};
use super::{Outcome, ReconstructionDefaults, Runner, ServiceOptions, WorkerEnd, WorkerOptions};
use crate::control::{CancelToken, Control};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{JobId, JobStatus};
use crate::pipeline::ReconstructionOptions;
use crate::raster::DeviceChoice;

/// A machine that cannot work until it is told that it can.
struct Sick {
    kind: ErrorKind,
    trouble: AtomicBool,
}

impl Sick {
    fn trouble(&self) -> Result<()> {
        match self.trouble.load(Ordering::SeqCst) {
            true => Err(Error::new(self.kind, "this machine cannot work")),
            false => Ok(()),
        }
    }
}

impl Runner for Sick {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        Quick(|_: &Path, _: &Control| self.trouble()).run(video, workspace, options, control)
    }

    fn check(&self, _: &ReconstructionDefaults) -> Result<()> {
        self.trouble()
    }
}

#[test]
fn no_fault_of_the_machine_costs_a_job() {
    use ErrorKind::*;
    let w = World::new();
    let options = options();
    for kind in [DiskFull, Io, Gpu, NoGpu, FfmpegMissing, DeadlineExceeded, InvalidMedia, Internal] {
        let sick = Sick { kind, trouble: AtomicBool::new(false) };
        let cancel = CancelToken::new();
        let mut worker = Worker::new(&w.service, &options, &cancel, &sick).unwrap();
        assert_eq!(worker.work_once().unwrap(), Worked::Nothing);
        let jobs: Vec<_> = (0..3).map(|_| w.submit(w.anna)).collect();
        // In the middle of a job, which is given back, and then before the next is taken.
        sick.trouble.store(true, Ordering::SeqCst);
        for _ in 0..20 {
            assert_eq!(worker.work_once().unwrap_err().kind(), kind);
        }
        let attempts: u32 = jobs.iter().map(|job| w.job(*job).details.attempt).sum();
        assert_eq!(attempts, 1);
        for (n, job) in jobs.iter().enumerate() {
            assert_eq!(w.job(*job).status, JobStatus::Queued { position: Some(n as u64 + 1) });
        }
        sick.trouble.store(false, Ordering::SeqCst);
        for job in jobs {
            assert_eq!(worker.work_once().unwrap(), Worked::Done);
            assert_eq!(w.job(job).status, JobStatus::Finished);
        }
    }
}

/// Under the first attempt of one job the disk becomes full.
struct Filled {
    /// What that attempt leaves.
    left: PathBuf,
    is_full: AtomicBool,
}

impl Runner for Filled {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        if self.left.parent() != Some(workspace) || self.left.exists() {
            return SmallScenes.run(video, workspace, options, control);
        }
        fs::create_dir_all(workspace).unwrap();
        fs::write(&self.left, "a checkpoint").unwrap();
        self.is_full.store(true, Ordering::SeqCst);
        Err(Error::new(ErrorKind::DiskFull, "there is no room for the next checkpoint"))
    }

    fn check(&self, _: &ReconstructionDefaults) -> Result<()> {
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::DiskFull, "the disk is full")),
            false => Ok(()),
        }
    }
}

/// Another program may have filled the disk, and what a job has done in many hours lies there.
#[test]
fn on_a_full_disk_nothing_of_what_a_job_has_done_is_removed() {
    let w = World::new();
    let jobs = [w.submit(w.anna), w.submit(w.anna)];
    let left = w.folder.path().join(format!("work/{}/run/checkpoint", jobs[0]));
    let filled = Filled { left, is_full: AtomicBool::new(false) };
    let (options, cancel) = (options(), CancelToken::new());
    let mut worker = Worker::new(&w.service, &options, &cancel, &filled).unwrap();
    for _ in 0..3 {
        assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    }
    assert_eq!(jobs.map(|job| w.job(job).details.attempt), [1, 0]);
    assert_eq!(fs::read_to_string(&filled.left).unwrap(), "a checkpoint");
    filled.is_full.store(false, Ordering::SeqCst);
    for job in jobs {
        assert_eq!(worker.work_once().unwrap(), Worked::Done);
        assert_eq!(w.job(job).status, JobStatus::Finished);
    }
    assert_eq!(w.job(jobs[0]).details.attempt, 2);
}

/// A job that has filled the disk, a job of another user behind it, and the only machine, which can do nothing.
fn with_a_full_disk(then: impl FnOnce(&World, JobId, &mut Worker<'_>)) {
    let w = World::new();
    let (greedy, other) = (w.submit(w.anna), w.submit(w.eve));
    let hungry = Hungry::of(greedy, w.folder.path());
    let (options, cancel) = (options(), CancelToken::new());
    let mut worker = Worker::new(&w.service, &options, &cancel, &hungry).unwrap();
    for _ in 0..3 {
        assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    }
    then(&w, greedy, &mut worker);
    assert_eq!(w.job(greedy).details.attempt, 1);
    assert_eq!(w.service.job(w.eve, other).unwrap().status, JobStatus::Finished);
    assert_eq!(fs::read_dir(w.folder.path().join("work")).unwrap().count(), 0);
}

#[test]
fn a_job_that_has_filled_the_disk_makes_room_as_soon_as_it_is_cancelled() {
    with_a_full_disk(|w, greedy, worker| {
        w.service.cancel(w.anna, greedy).unwrap();
        assert_eq!(worker.work_once().unwrap(), Worked::Done);
    });
}

#[test]
fn a_job_that_has_kept_the_disk_full_for_a_day_fails() {
    with_a_full_disk(|w, greedy, worker| {
        w.clock.advance(24 * 3600 - 60);
        assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(w.job(greedy).status, JobStatus::Queued { position: Some(1) });
        w.clock.advance(60);
        assert_eq!(worker.work_once().unwrap(), Worked::Done);
        assert_eq!(w.job(greedy).details.failure.unwrap().code, "disk_full");
        // What it has told stays.
        assert!(w.service.log(w.anna, greedy).unwrap().contains("full for a day"));
    });
}

#[test]
fn a_job_that_has_kept_the_disk_full_for_a_day_fails_also_after_a_restart() {
    let w = World::with(ServiceOptions { min_free_bytes: 1, ..ServiceOptions::default() });
    let (greedy, other) = (w.submit(w.anna), w.submit(w.eve));
    let hungry = Hungry::of(greedy, w.folder.path());
    let (options, cancel) = (options(), CancelToken::new());
    let new_worker = || Worker::new(&w.service, &options, &cancel, &hungry).unwrap();
    assert_eq!(new_worker().work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    let free = |bytes: Option<u64>| *w.service.inner.workspaces.told_free.lock().unwrap() = bytes;
    free(Some(0));
    let mut worker = new_worker();
    assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    w.clock.advance(24 * 3600);
    assert_eq!(worker.work_once().unwrap_err().kind(), ErrorKind::DiskFull);
    assert_eq!(w.job(greedy).details.failure.unwrap().code, "disk_full");
    free(None);
    assert_eq!(worker.work_once().unwrap(), Worked::Done);
    assert_eq!(w.service.job(w.eve, other).unwrap().status, JobStatus::Finished);
}

#[test]
fn a_worker_says_why_it_waits_and_goes_on_by_itself() {
    let w = World::new();
    let sick = Sick { kind: ErrorKind::NoGpu, trouble: AtomicBool::new(true) };
    let (cancel, options) = (CancelToken::new(), options());
    let until = |reached: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !reached() {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(10));
        }
    };
    let job = w.submit(w.anna);
    thread::scope(|scope| {
        scope.spawn(|| w.service.run_worker_with(&options, &cancel, &sick).unwrap());
        until(&|| !w.service.paused_workers().is_empty());
        let paused = w.service.paused_workers().remove(0);
        assert_eq!((paused.name.as_str(), paused.code.as_str()), (options.name.as_str(), "no_gpu"));
        assert_eq!(w.job(job).details.attempt, 0);
        sick.trouble.store(false, Ordering::SeqCst);
        until(&|| w.job(job).status == JobStatus::Finished);
        until(&|| w.service.paused_workers().is_empty());
        cancel.cancel();
    });
}

/// Its device is `auto`, and its graphics adapter goes when the first job begins.
struct Robbed {
    adapter: KnownAdapter,
    has_adapter: AtomicBool,
    goes: AtomicBool,
}

impl Robbed {
    fn find(&self) -> Result<String> {
        match self.has_adapter.load(Ordering::SeqCst) {
            true => Ok("Swift 9".to_owned()),
            false => Err(Error::new(ErrorKind::NoGpu, "this machine has no adapter at all")),
        }
    }
}

impl Runner for Robbed {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        if self.goes.swap(false, Ordering::SeqCst) {
            self.has_adapter.store(false, Ordering::SeqCst);
        }
        if self.adapter.device(&options.device) != DeviceChoice::Auto {
            self.find()?;
        }
        SmallScenes.run(video, workspace, options, control)
    }

    fn check(&self, _: &ReconstructionDefaults) -> Result<()> {
        self.adapter.look(|| self.find())
    }
}

#[test]
fn a_worker_that_has_lost_its_graphics_adapter_waits_for_it_and_one_that_had_none_does_not() {
    let w = World::new();
    let (cancel, options) = (CancelToken::new(), options());
    for has_adapter in [false, true] {
        let robbed = Robbed {
            adapter: KnownAdapter::default(),
            has_adapter: AtomicBool::new(has_adapter),
            goes: AtomicBool::new(true),
        };
        let mut worker = Worker::new(&w.service, &options, &cancel, &robbed).unwrap();
        assert_eq!(worker.work_once().unwrap(), Worked::Nothing);
        let job = w.submit(w.anna);
        if has_adapter {
            // In the middle of the job, and then before it is taken again.
            for _ in 0..3 {
                let error = worker.work_once().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NoGpu);
                assert!(error.to_string().contains("Swift 9"), "{error}");
            }
            assert_eq!(w.job(job).details.attempt, 1);
            assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
            robbed.has_adapter.store(true, Ordering::SeqCst);
        }
        assert_eq!(worker.work_once().unwrap(), Worked::Done);
        assert_eq!(w.job(job).status, JobStatus::Finished);
    }
}

/// A batch system that waits for its end begins another one, on another machine.
#[test]
fn a_worker_whose_patience_is_limited_ends_with_what_keeps_its_machine_from_working() {
    let w = World::new();
    let sick = Sick { kind: ErrorKind::NoGpu, trouble: AtomicBool::new(true) };
    let job = w.submit(w.anna);
    let patience = Duration::from_millis(500);
    for end in [WorkerEnd::OneJobOrIdle(patience), WorkerEnd::Idle(patience)] {
        let (began, options) = (Instant::now(), WorkerOptions { end, ..options() });
        let ended = w.service.run_worker_with(&options, &CancelToken::new(), &sick);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::NoGpu);
        let took = began.elapsed();
        assert!((patience..Duration::from_secs(20)).contains(&took), "{took:?}");
        assert_eq!((w.service.paused_workers().len(), w.job(job).details.attempt), (0, 0));
    }
    // What passes within that is waited for.
    let options = WorkerOptions { end: WorkerEnd::OneJobOrIdle(Duration::from_secs(60)), ..options() };
    thread::scope(|scope| {
        let worker = scope.spawn(|| w.service.run_worker_with(&options, &CancelToken::new(), &sick));
        while w.service.paused_workers().is_empty() && !worker.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        sick.trouble.store(false, Ordering::SeqCst);
        worker.join().unwrap().unwrap();
    });
    assert_eq!(w.job(job).status, JobStatus::Finished);
}

/// Its machine takes a while to say that it cannot work.
struct SlowlySick {
    looks: AtomicU32,
}

impl Runner for SlowlySick {
    fn run(&self, _: &Path, _: &Path, _: &ReconstructionOptions, _: &Control) -> Result<Outcome> {
        Err(Error::new(ErrorKind::Internal, "no job was to be taken"))
    }

    fn check(&self, _: &ReconstructionDefaults) -> Result<()> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        Err(Error::new(ErrorKind::NoGpu, "this machine cannot work"))
    }
}

#[test]
fn a_worker_whose_machine_takes_long_to_fail_waits_no_longer_for_it() {
    let w = World::new();
    w.submit(w.anna);
    let sick = SlowlySick { looks: AtomicU32::new(0) };
    let options = WorkerOptions { end: WorkerEnd::OneJobOrIdle(Duration::from_millis(300)), ..options() };
    let ended = w.service.run_worker_with(&options, &CancelToken::new(), &sick);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::NoGpu);
    assert_eq!(sick.looks.load(Ordering::SeqCst), 1);
}

#[test]
fn a_disk_with_too_little_space_left_takes_no_job() {
    let w = World::with(ServiceOptions { min_free_bytes: u64::MAX, ..ServiceOptions::default() });
    let (options, runner, cancel) = (options(), Quick(|_: &Path, _: &Control| Ok(())), CancelToken::new());
    let mut worker = Worker::new(&w.service, &options, &cancel, &runner).unwrap();
    let error = worker.work_once().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull);
    assert!(error.message().contains(&u64::MAX.to_string()), "{error}");
}

/// Looks at a video as the pipeline does, by what `does` finds in it.
struct Looks<F>(F);

impl<F: Fn(&Path, &Path, &Control) -> Result<()> + Send + Sync> Runner for Looks<F> {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        (self.0)(video, workspace, control)?;
        SmallScenes.run(video, workspace, options, control)
    }
}

/// Lets a worker see to one job by looking at its video so.
fn look(w: &World, does: impl Fn(&Path, &Path, &Control) -> Result<()> + Send + Sync) {
    let (options, cancel, runner) = (options(), CancelToken::new(), Looks(does));
    let mut worker = Worker::new(&w.service, &options, &cancel, &runner).unwrap();
    assert_eq!(worker.work_once().unwrap(), Worked::Done);
}

fn bad_video() -> Result<()> {
    Err(Error::new(ErrorKind::InvalidMedia, "Input/output error"))
}

/// What can be opened and not be read.
#[cfg(unix)]
fn break_disk_under(video: &Path) {
    fs::remove_file(video).unwrap();
    fs::create_dir(video).unwrap();
}

#[cfg(unix)]
fn mend_disk_under(video: &Path) {
    fs::remove_dir(video).unwrap();
    fs::write(video, "a video").unwrap();
}

#[cfg(unix)]
#[test]
fn a_video_that_the_disk_does_not_read_costs_no_job() {
    let w = World::new();
    let job = w.submit(w.anna);
    for attempt in 1..=2 {
        look(&w, |video, _, _| {
            break_disk_under(video);
            bad_video()
        });
        assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
        assert_eq!(w.job(job).details.attempt, attempt);
        let entries = fs::read_dir(w.folder.path().join("videos")).unwrap();
        entries.for_each(|entry| mend_disk_under(&entry.unwrap().path()));
    }
    look(&w, |_, _, _| Ok(()));
    assert_eq!(w.job(job).status, JobStatus::Finished);
}

#[test]
fn a_video_that_is_not_what_came_is_no_fault_of_its_job() {
    let w = World::new();
    let job = w.submit(w.anna);
    look(&w, |video, _, _| {
        // Of the same size.
        fs::write(video, "a vidEo").unwrap();
        bad_video()
    });
    assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
    assert!(w.service.log(w.anna, job).unwrap().contains("not the 7 that were uploaded"));
}

#[test]
fn a_video_that_is_as_it_came_and_bad_fails_its_job_at_once() {
    let w = World::new();
    let (job, looks) = (w.submit(w.anna), AtomicU32::new(0));
    look(&w, |_, _, _| {
        looks.fetch_add(1, Ordering::SeqCst);
        bad_video()
    });
    assert_eq!((w.job(job).status, w.job(job).details.attempt), (JobStatus::Failed, 1));
    assert_eq!(w.job(job).details.failure.unwrap().code, "invalid_media");
    assert_eq!(looks.into_inner(), 2);
}

#[test]
fn no_scene_is_made_of_the_part_of_a_video_that_the_disk_reads() {
    use crate::control::Warning;
    use crate::stage::Stage;
    let w = World::new();
    let job = w.submit(w.anna);
    let cut_off = |control: &Control| {
        control.warn(Stage::Frames, Warning::new("video_cut_off", "only 9 frames could be decoded"));
        control.check()
    };
    look(&w, |video, workspace, control| {
        fs::write(video, "a vid").unwrap();
        fs::create_dir_all(workspace).unwrap();
        fs::write(workspace.join("frames"), "half of them").unwrap();
        let stopped = cut_off(control);
        fs::write(video, "a video").unwrap();
        stopped
    });
    assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
    // What is whole and damaged is worked on, by an attempt that begins anew.
    look(&w, |_, workspace, control| {
        assert!(!workspace.join("frames").exists());
        cut_off(control)
    });
    assert_eq!(w.job(job).status, JobStatus::Finished);
    assert_eq!(w.job(job).details.warnings.len(), 1);
}

/// A machine on which the mask model breaks under a job, as it is told.
struct Unmasked {
    is_broken: AtomicBool,
    kind: ErrorKind,
}

impl Runner for Unmasked {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        match options.remove_background && self.is_broken.load(Ordering::SeqCst) {
            true => Err(Error::new(self.kind, "u2netp.onnx")),
            false => SmallScenes.run(video, workspace, options, control),
        }
    }

    fn can_make_masks(&self) -> bool {
        // The first time it is asked, before it takes the job, it is still in order.
        !self.is_broken.fetch_or(true, Ordering::SeqCst)
    }
}

#[test]
fn weights_that_break_under_a_job_cost_it_nothing_and_keep_no_other_from_work() {
    for kind in [ErrorKind::InvalidFile, ErrorKind::NotFound, ErrorKind::Io] {
        let w = World::new();
        let request = crate::job::JobRequest::new(w.upload(w.anna));
        let request = crate::job::JobRequest { remove_background: true, ..request };
        let masked = w.submit_with(request, w.anna, None).unwrap().body.job_id;
        let plain = w.submit(w.anna);
        let unmasked = Unmasked { is_broken: AtomicBool::new(false), kind };
        let (options, cancel) = (options(), CancelToken::new());
        let mut worker = Worker::new(&w.service, &options, &cancel, &unmasked).unwrap();
        assert_eq!(worker.work_once().unwrap_err().kind(), kind);
        assert_eq!(w.job(masked).status, JobStatus::Queued { position: Some(1) });
        assert_eq!(worker.work_once().unwrap(), Worked::Done);
        assert_eq!(w.job(plain).status, JobStatus::Finished);
        assert_eq!(worker.work_once().unwrap(), Worked::Nothing);
        w.finish_one();
        assert_eq!(w.job(masked).status, JobStatus::Finished);
    }
}

#[test]
fn a_damaged_file_of_the_work_costs_no_job_and_is_not_gone_on_with() {
    let w = World::new();
    let job = w.submit(w.anna);
    let damaged = |_: &Path, workspace: &Path, _: &Control| {
        let frame = workspace.join("frame.jpg");
        if !frame.exists() {
            fs::create_dir_all(workspace).unwrap();
            fs::write(&frame, "damaged").unwrap();
        }
        Err(Error::new(ErrorKind::InvalidFile, "frame.jpg is damaged"))
    };
    look(&w, damaged);
    assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
    look(&w, |_, workspace, _| {
        assert!(!workspace.join("frame.jpg").exists());
        Ok(())
    });
    assert_eq!(w.job(job).status, JobStatus::Finished);
}

#[test]
fn a_file_of_the_work_that_is_gone_costs_no_job() {
    let w = World::new();
    let job = w.submit(w.anna);
    look(&w, |_, workspace, _| Err(Error::io("open", workspace, std::io::ErrorKind::NotFound.into())));
    assert_eq!(w.job(job).status, JobStatus::Queued { position: Some(1) });
    look(&w, |_, _, _| Ok(()));
    assert_eq!(w.job(job).status, JobStatus::Finished);
}
