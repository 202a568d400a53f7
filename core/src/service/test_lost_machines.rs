//! Machines that are lost with what they work on, and jobs that are deleted then.

use std::fs;

use super::WorkerOptions;
use super::process::ProcessLock;
use super::test_machines::{Machine, World};
use super::test_world::SmallScenes;
use super::worker::{Worked, Worker};
use crate::control::CancelToken;
use crate::database::{Abilities, Claim};
use crate::error::{Error, ErrorKind};
use crate::job::JobStatus;

fn claim(machine: &Machine, owner: &str) -> Claim {
    machine.service.inner.database.claim(owner, "w", 30, &Abilities::ALL).unwrap().unwrap()
}

/// Neither rows nor files of deleted jobs are left.
fn assert_nothing_is_left(world: &World, machine: &Machine) {
    assert_eq!(machine.service.inner.database.deleted_jobs().unwrap(), []);
    for folder in ["videos", "scenes"] {
        assert_eq!(fs::read_dir(world.shared.path().join(folder)).unwrap().count(), 0, "{folder}");
    }
}

/// Servers look for it when they start, when it still counts as running, and else once a minute.
#[test]
fn a_job_that_was_deleted_on_a_lost_machine_goes_with_its_lease() {
    let world = World::new();
    let (here, there) = (world.machine(), world.machine());
    let job = here.submit(b"a video");
    assert_eq!(claim(&there, there.service.inner.process.id()).lease.job, job);
    here.service.delete(here.user(), job).unwrap();
    drop(there);
    let third = world.machine();
    third.service.maintain().unwrap();
    assert_eq!(fs::read_dir(world.shared.path().join("videos")).unwrap().count(), 1, "it may live");
    world.clock.advance(31);
    assert_eq!(third.work_once().unwrap(), Worked::Nothing);
    assert_nothing_is_left(&world, &third);
}

/// As where the database was away when the worker left the job.
#[test]
fn a_deleted_job_whose_workspace_was_left_before_goes_too() {
    let world = World::new();
    let here = world.machine();
    let (options, cancel) =
        (WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() }, CancelToken::new());
    let mut worker = Worker::new(&here.service, &options, &cancel, &SmallScenes).unwrap();
    // The last is given back already, which was not heard of.
    for (kind, is_given_back) in
        [(ErrorKind::Io, false), (ErrorKind::InvalidMedia, false), (ErrorKind::Io, true)]
    {
        let job = here.submit(b"a video");
        let claim = claim(&here, here.service.inner.process.id());
        here.service.delete(here.user(), job).unwrap();
        if is_given_back {
            let (why, patience) = (crate::database::Return::Unharmed, here.service.options().patience());
            here.service.inner.database.release(&claim.lease, why, &patience, None).unwrap();
        }
        worker.fail(&claim, None, &Error::new(kind, "as it happens")).unwrap();
        assert_nothing_is_left(&world, &here);
    }
}

/// The lock of a dead process is all that tells on its machine that it has died.
#[test]
fn jobs_of_dead_processes_are_taken_back_before_their_locks_are_removed() {
    let world = World::new();
    let here = world.machine();
    let job = here.submit(b"a video");
    let locks = here.folder.path().join("processes");
    let dead = ProcessLock::take(&locks).unwrap();
    claim(&here, dead.id());
    let lock = locks.join(dead.id());
    drop(dead);
    fs::write(&lock, "").unwrap();
    here.service.tidy_machine();
    assert!(!lock.exists());
    assert!(matches!(here.status(job), JobStatus::Queued { .. }));
}
