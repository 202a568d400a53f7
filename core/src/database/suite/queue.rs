//! How jobs are taken up, kept and given back: claims, leases, disturbances, turns.

use std::time::Duration;

use super::{HOUR, LEASE, PATIENCE, World, at, failure, publication};
use crate::database::{
    Abilities, Clock, JobDatabase, Lease, LeaseState, Patience, Progress, Return, Returned,
};
use crate::job::{ArtifactKind, Failure, JobId, JobStatus, Tier, User, UserId};
use crate::stage::Stage;

pub(in crate::database) fn a_job_runs<D: JobDatabase>(w: World<D>) {
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
    // When that ends, as far as the worker knows.
    assert_eq!(w.job(jobs[0]).details.stage_ends_at, None);
    let reckoned = Progress { seconds_left: Some(90), ..at(Stage::Export, 1.0, Some(99)) };
    let before = d.progress(&lease, &reckoned).map(|_| w.job(jobs[0]).details).unwrap();
    let left = before.stage_ends_at.unwrap().as_micros() - before.updated_at.as_micros();
    assert_eq!(left, 90_000_000);
    // Rules 56 and 57: all at once.
    assert_eq!(d.artifact(w.anna, jobs[0], ArtifactKind::Ply).unwrap(), None);
    assert_eq!(d.publish(&lease, &publication()).unwrap(), LeaseState::Held);
    let done = w.job(jobs[0]);
    assert_eq!(done.details.stage_ends_at, None);
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
    // What a program has said may hold anything.
    let lease = w.take();
    let strange = Failure { message: "it said \0".into(), ..failure("x") };
    assert_eq!(d.fail(&lease, &strange, None).unwrap(), LeaseState::Held);
    assert_eq!(d.artifact(w.anna, jobs[1], ArtifactKind::Log).unwrap().unwrap().size, 5);
    let s = d.statistics().unwrap();
    assert_eq!((s.queued, s.finished, s.failed, s.stored_bytes), (1, 1, 2, 40 + 110 + 5));
}

/// A picture is there while the attempt lasts that has shown it, whatever ends it, and for the owner alone.
pub(in crate::database) fn live_pictures<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let picture = |job: JobId| d.live_picture(w.anna, job).unwrap().map(|picture| picture.jpeg);
    let job = w.submit(w.anna);
    let lease = w.take();
    assert_eq!(picture(job), None);
    assert_eq!(d.show_picture(&lease, b"first").unwrap(), LeaseState::Held);
    assert_eq!(d.show_picture(&lease, b"second").unwrap(), LeaseState::Held);
    let shown = d.live_picture(w.anna, job).unwrap().unwrap();
    assert_eq!(shown.jpeg, b"second");
    assert!(shown.made_at >= w.job(job).details.started_at.unwrap());
    assert_eq!(d.live_picture(w.eve, job).unwrap(), None);
    assert_eq!(picture(JobId::random()), None);
    // A worker that lost its lease shows nothing.
    let lost = Lease { attempt: lease.attempt + 1, ..lease.clone() };
    assert_eq!(d.show_picture(&lost, b"third").unwrap(), LeaseState::Lost);
    assert_eq!(picture(job).unwrap(), b"second");
    // Given back: the next attempt begins without one.
    assert_eq!(d.release(&lease, Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Queued);
    assert_eq!(picture(job), None);
    let lease = w.take();
    assert_eq!((lease.job, picture(job)), (job, None));
    d.fail(&lease, &failure("x"), None).unwrap();
    for end in ["finished", "failed", "cancelled", "copied", "deleted"] {
        let job = w.submit(w.anna);
        let lease = w.take();
        d.show_picture(&lease, end.as_bytes()).unwrap();
        assert_eq!((lease.job, picture(job).unwrap()), (job, end.as_bytes().to_vec()));
        match end {
            "finished" => drop(d.publish(&lease, &publication()).unwrap()),
            "failed" => drop(d.fail(&lease, &failure("x"), None).unwrap()),
            "cancelled" => drop(d.cancel_job(w.anna, job, &failure("cancelled")).unwrap()),
            "copied" => assert_eq!(d.release_all().unwrap(), 1),
            _ => assert!(d.mark_deleted(w.anna, job).unwrap()),
        }
        assert_eq!(picture(job), None, "{end}");
        let expected = if end == "deleted" { LeaseState::Deleted } else { LeaseState::Lost };
        assert_eq!(d.show_picture(&lease, b"late").unwrap(), expected, "{end}");
        assert_eq!(picture(job), None, "{end}");
        // Out of the way of the next one.
        d.mark_deleted(w.anna, job).unwrap();
    }
}

pub(in crate::database) fn leases<D: JobDatabase>(w: World<D>) {
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

/// A sign of life that comes between the look at a lease and its end.
pub(in crate::database) fn leases_that_are_prolonged_at_the_last_moment<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let jobs = [w.submit(w.anna), w.submit(w.anna)];
    let first = w.take();
    w.clock.advance(LEASE as i64 + 1);
    // Begun now, so that somebody is asked about it after the other was seen to be late.
    let second = d.claim("dead", "worker", LEASE, &Abilities::ALL).unwrap().unwrap().lease;
    assert_eq!([first.job, second.job], jobs);
    let is_alive = |owner: &str| {
        assert_eq!(owner, "dead");
        assert_eq!(d.heartbeat(&first, LEASE).unwrap(), LeaseState::Held);
        false
    };
    assert_eq!(d.reclaim(&is_alive, &PATIENCE).unwrap().queued, [second.job]);
    assert_eq!(d.lease_state(&first).unwrap(), LeaseState::Held);
    // Without one it ends.
    w.clock.advance(LEASE as i64 + 1);
    assert_eq!(d.reclaim(&|_| true, &PATIENCE).unwrap().queued, [first.job]);
}

/// Of the database's server, say, until it was set right: what was written by it then does not hold for days.
pub(in crate::database) fn a_clock_that_was_ahead<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let jobs = [w.submit(w.anna), w.submit(w.anna), w.submit(w.anna)];
    w.clock.advance(48 * HOUR);
    let [abandoned, lives] = [w.take(), w.take()];
    for _ in 0..3 {
        let lease = w.take();
        assert_eq!(lease.job, jobs[2]);
        d.release(&lease, Return::Disturbed(&failure("io")), &PATIENCE, None).unwrap();
    }
    assert_eq!(w.claim(), None, "it rests");
    w.clock.advance(-48 * HOUR);
    let rested = w.take();
    assert_eq!(rested.job, jobs[2]);
    d.publish(&rested, &publication()).unwrap();
    // Who lives has time to say so.
    assert_eq!(d.reclaim(&|_| true, &PATIENCE).unwrap(), Default::default());
    w.clock.advance(10 * 60);
    assert_eq!(d.heartbeat(&lives, LEASE).unwrap(), LeaseState::Held);
    assert_eq!(d.reclaim(&|_| true, &PATIENCE).unwrap(), Default::default());
    assert_eq!(d.publish(&lives, &publication()).unwrap(), LeaseState::Held);
    w.clock.advance(60);
    assert_eq!(d.reclaim(&|_| true, &PATIENCE).unwrap().queued, [abandoned.job]);
    let lease = w.take();
    assert_eq!(lease.job, jobs[0]);
    // Nobody has worked on it while the clock went forward.
    w.clock.advance(48 * HOUR);
    assert_eq!(d.heartbeat(&lease, LEASE).unwrap(), LeaseState::Held);
    d.release(&lease, Return::Unharmed, &PATIENCE, None).unwrap();
    assert_eq!(w.claim().unwrap().worked.as_secs(), LEASE);
}

/// What may be the machine's fault or the job's: a worker that dies, or says that it was disturbed.
pub(in crate::database) fn disturbances<D: JobDatabase>(w: World<D>) {
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
    // Whoever died has left no log: who finds it adds it, once, and of the last attempt.
    let attempt = failed.details.attempt;
    assert_eq!(d.attempt_without_log(job).unwrap(), Some(attempt));
    assert!(!d.add_log(job, attempt - 1, 7).unwrap());
    assert!(d.add_log(job, attempt, 7).unwrap());
    assert_eq!(d.attempt_without_log(job).unwrap(), None);
    assert!(!d.add_log(job, attempt, 8).unwrap());
    let log = d.artifact(w.anna, job, ArtifactKind::Log).unwrap().unwrap();
    assert_eq!((log.attempt, log.size), (attempt, 7));
}

/// Only a job that failed for this, or for a full disk, has a log that is added later.
pub(in crate::database) fn logs_of_the_dead<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let job = w.submit(w.anna);
    let nothing = |when: &str| {
        assert_eq!(d.attempt_without_log(job).unwrap(), None, "{when}");
        assert!(!d.add_log(job, 1, 7).unwrap(), "{when}");
    };
    nothing("it waits");
    let lease = w.take();
    nothing("it runs");
    d.fail(&lease, &failure("too_few_frames"), None).unwrap();
    nothing("its worker lived");
    assert_eq!(d.attempt_without_log(JobId::random()).unwrap(), None);
    let full = w.submit(w.anna);
    d.fail(&w.take(), &failure("disk_full"), None).unwrap();
    assert_eq!(d.attempt_without_log(full).unwrap(), Some(1));
    let job = w.submit(w.anna);
    let last_chance = Patience { disturbances: 1, ..PATIENCE };
    w.take();
    assert_eq!(d.reclaim(&|_| false, &last_chance).unwrap().failed, [job]);
    assert_eq!(d.attempt_without_log(job).unwrap(), Some(1));
    d.mark_deleted(w.anna, job).unwrap();
    assert_eq!(d.attempt_without_log(job).unwrap(), None);
    assert!(!d.add_log(job, 1, 7).unwrap(), "it is deleted");
}

/// A fault that the job brings out: the last one is the reason, with its log.
pub(in crate::database) fn crashes<D: JobDatabase>(w: World<D>) {
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
pub(in crate::database) fn progress_forgives<D: JobDatabase>(w: World<D>) {
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

pub(in crate::database) fn what_a_worker_cannot_do<D: JobDatabase>(w: World<D>) {
    let masked = w.submit_as(w.anna, |request| request.remove_background = true);
    let before = w.clock.now();
    let large = w.submit_as(w.anna, |request| request.training_max_num_gaussians = 9_000_000);
    let after = w.clock.now();
    let claim = |masks, max_gaussians| {
        let abilities = Abilities { masks, max_gaussians, ..Abilities::ALL };
        w.database.claim("process", "worker", LEASE, &abilities).unwrap().map(|claim| claim.lease.job)
    };
    assert_eq!(claim(false, 8_999_999), None);
    // Whoever cannot do it can tell of it.
    let largest = || w.database.largest_waiting().unwrap().map(|(job, gaussians, _)| (job, gaussians));
    assert_eq!(largest(), Some((large, 9_000_000)));
    let since = w.database.largest_waiting().unwrap().unwrap().2;
    assert!(before <= since && since <= after, "{since:?}");
    assert_eq!(claim(false, 9_000_000), Some(large));
    assert_eq!(largest().map(|(job, _)| job), Some(masked));
    assert_eq!(claim(true, 1_000_000), Some(masked));
    assert_eq!(largest(), None);
}

/// What running jobs will need is kept from others, however little they have taken yet.
pub(in crate::database) fn memory_of_one_machine<D: JobDatabase>(w: World<D>) {
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

pub(in crate::database) fn a_large_job_does_not_starve<D: JobDatabase>(w: World<D>) {
    let anna = w.anna;
    no_starving(w, anna);
}

/// The same where users take turns, and all smaller jobs are another one's.
pub(in crate::database) fn a_large_job_of_a_user_does_not_starve<D: JobDatabase>(w: World<D>) {
    let eve = w.eve;
    no_starving(w, eve);
}

/// A large job, and smaller ones of `other` that would fit beside each other for ever.
fn no_starving<D: JobDatabase>(w: World<D>, other: UserId) {
    let machine = Abilities { all_gaussians: 5_000_000, beside: 500_000, ..Abilities::ALL };
    let submit =
        |user, gaussians| w.submit_as(user, |request| request.training_max_num_gaussians = gaussians);
    let claim = |abilities: &Abilities<'_>| {
        w.database.claim("process", "worker", LEASE, abilities).unwrap().map(|claim| claim.lease)
    };
    let kept_room = |abilities: &Abilities<'_>| w.database.kept_room(abilities).unwrap();
    let end =
        |lease: &Lease| assert_eq!(w.database.publish(lease, &publication()).unwrap(), LeaseState::Held);
    let small = submit(other, 1_000_000);
    let running = claim(&machine).unwrap();
    let (large, second) = (submit(w.anna, 4_000_000), submit(other, 1_000_000));
    // It waits for its room a while.
    w.clock.advance(HOUR - 60);
    let beside = claim(&machine).unwrap();
    assert_eq!([running.job, beside.job], [small, second]);
    let (third, fourth) = (submit(other, 1_000_000), submit(other, 1_000_000));
    end(&beside);
    assert_eq!(kept_room(&machine), None, "it has not waited for long enough");
    w.clock.advance(120);
    assert_eq!(claim(&machine), None, "there would be room for a small one");
    assert_eq!(kept_room(&machine), Some(large));
    // It is nothing to a machine that is too small for it in any case, or whose memory others have.
    let too_small = Abilities { all_gaussians: 4_400_000, ..machine };
    let shared = Abilities { max_gaussians: 2_000_000, ..machine };
    for (abilities, expected) in [(too_small, third), (shared, fourth)] {
        assert_eq!(kept_room(&abilities), None);
        let lease = claim(&abilities).unwrap();
        assert_eq!(lease.job, expected);
        end(&lease);
    }
    assert_eq!((claim(&machine), kept_room(&machine)), (None, None), "it is kept from nobody");
    let fifth = submit(other, 1_000_000);
    assert_eq!(claim(&machine), None);
    // However long those before it took.
    w.clock.advance(48 * HOUR);
    assert_eq!((claim(&machine), kept_room(&machine)), (None, Some(large)));
    // Who has kept it for long enough goes on with the others.
    let weary = Abilities { given_up: &[JobId::random(), large], ..machine };
    assert_eq!(kept_room(&weary), None);
    let lease = claim(&weary).unwrap();
    assert_eq!(lease.job, fifth);
    end(&lease);
    submit(other, 1_000_000);
    end(&running);
    assert_eq!(claim(&machine).unwrap().job, large);
    assert_eq!(claim(&machine), None, "it takes all");
}

/// What has room beside the large job and beside what runs is taken, and no more of it than has room together.
pub(in crate::database) fn room_that_a_large_job_does_not_need<D: JobDatabase>(w: World<D>) {
    let submit = |gaussians| w.submit_as(w.anna, |request| request.training_max_num_gaussians = gaussians);
    let machine = Abilities { all_gaussians: 5_000_000, beside: 500_000, ..Abilities::ALL };
    let claim = || w.database.claim("process", "worker", LEASE, &machine).unwrap().map(|claim| claim.lease);
    let kept_room = || w.database.kept_room(&machine).unwrap();
    let end =
        |lease: &Lease| assert_eq!(w.database.publish(lease, &publication()).unwrap(), LeaseState::Held);
    let first = submit(3_000_000);
    let running = claim().unwrap();
    assert_eq!(running.job, first);
    let large = submit(3_000_000);
    w.clock.advance(2 * HOUR);
    // 1 and 3.5 are less than 5, whichever of the two it is.
    let small = submit(500_000);
    let beside = claim().unwrap();
    assert_eq!(beside.job, small);
    end(&running);
    let second = claim().unwrap();
    assert_eq!(second.job, large);
    [beside, second].iter().for_each(end);
    // Two small ones would fit beside what runs, and only one beside the large one.
    submit(1_000_000);
    let running = claim().unwrap();
    let large = submit(3_500_000);
    w.clock.advance(2 * HOUR);
    let smallest = [submit(100_000), submit(100_000)];
    let beside = claim().unwrap();
    assert_eq!(beside.job, smallest[0]);
    // 1.5 and 0.6 run: 0.6 more would fit beside the large one, but for the one that has its room.
    assert_eq!((claim(), kept_room()), (None, Some(large)));
    end(&running);
    assert_eq!(claim().unwrap().job, large);
}

/// A further user.
fn user<D: JobDatabase>(w: &World<D>, name: &str) -> UserId {
    let (user_id, created_at) = (UserId::random(), w.clock.now());
    w.database.add_user(&User { user_id, name: name.into(), tier: Tier::Free, created_at }).unwrap();
    user_id
}

/// Room is kept for a large job of a user whose turn it is; before that others are not passed over for it.
pub(in crate::database) fn room_is_kept_for_whose_turn_it_is<D: JobDatabase>(w: World<D>) {
    let (bob, cid) = (user(&w, "bob"), user(&w, "cid"));
    let submit =
        |user, gaussians| w.submit_as(user, |request| request.training_max_num_gaussians = gaussians);
    let machine = Abilities { all_gaussians: 6_000_000, beside: 500_000, ..Abilities::ALL };
    let claim = || w.database.claim("process", "worker", LEASE, &machine).unwrap().map(|claim| claim.lease);
    let kept_room = || w.database.kept_room(&machine).unwrap();
    let end =
        |lease: &Lease| assert_eq!(w.database.publish(lease, &publication()).unwrap(), LeaseState::Held);
    submit(w.anna, 500_000);
    let of_anna = claim().unwrap();
    let large = submit(w.anna, 4_000_000);
    w.clock.advance(2 * HOUR);
    let of_others = [bob, w.eve, cid].map(|user| submit(user, 1_000_000));
    // Others have none that runs: it is their turn, whether there is room for the large one or not.
    let taken = of_others.map(|_| claim().unwrap());
    assert_eq!(taken.each_ref().map(|lease| lease.job), of_others);
    let next = submit(bob, 1_000_000);
    end(&taken[0]);
    let another = claim().unwrap();
    assert_eq!(another.job, next);
    // Now it is hers.
    end(&of_anna);
    submit(cid, 1_000_000);
    end(&another);
    assert_eq!((claim(), kept_room()), (None, Some(large)));
    end(&taken[1]);
    // What cid has running, 1.5, has room beside it.
    assert_eq!(claim().unwrap().job, large);
}

/// A claim says how long the job was worked on by those before.
pub(in crate::database) fn time_worked<D: JobDatabase>(w: World<D>) {
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
pub(in crate::database) fn users_take_turns<D: JobDatabase>(w: World<D>) {
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

/// A job that is given back unharmed, or whose worker has died, costs its user no turn.
pub(in crate::database) fn a_job_that_is_given_back_keeps_the_turn_of_its_user<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let users = [w.anna, w.eve, user(&w, "bob"), user(&w, "cid")];
    let jobs = users.map(|user| [w.submit(user), w.submit(user)]);
    let end = |lease: &Lease| assert_eq!(d.publish(lease, &publication()).unwrap(), LeaseState::Held);
    let lease = w.take();
    assert_eq!(lease.job, jobs[0][0]);
    assert_eq!(d.release(&lease, Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Queued);
    assert_eq!(w.take().job, jobs[0][0]);
    assert_eq!(d.reclaim(&|_| false, &PATIENCE).unwrap().queued, [jobs[0][0]]);
    // What disturbs a worker that lives has had its turn.
    let lease = w.take();
    assert_eq!(lease.job, jobs[0][0]);
    d.release(&lease, Return::Disturbed(&failure("io")), &PATIENCE, None).unwrap();
    for expected in [jobs[1][0], jobs[2][0], jobs[3][0], jobs[0][0], jobs[1][1]] {
        let lease = w.take();
        assert_eq!(lease.job, expected);
        end(&lease);
    }
    // So has what workers die of again and again.
    for _ in 0..2 {
        assert_eq!(w.take().job, jobs[2][1]);
        assert_eq!(d.reclaim(&|_| false, &PATIENCE).unwrap().queued, [jobs[2][1]]);
    }
    w.clock.advance(60);
    assert_eq!(w.take().job, jobs[3][1]);
}

/// Also where several of one user are given back, the first one first: as when all workers end.
pub(in crate::database) fn jobs_that_are_given_back_keep_the_turn_of_their_user<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    w.submit(w.eve);
    let of_eve = w.take();
    let of_anna = [w.submit(w.anna), w.submit(w.anna)];
    let leases = [w.take(), w.take()];
    assert_eq!(leases.each_ref().map(|lease| lease.job), of_anna);
    d.publish(&of_eve, &publication()).unwrap();
    let next = w.submit(w.eve);
    for lease in &leases {
        assert_eq!(d.release(lease, Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Queued);
    }
    // She has not been served yet.
    let leases = [(); 3].map(|()| w.take());
    assert_eq!(leases.each_ref().map(|lease| lease.job), [of_anna[0], next, of_anna[1]]);
    // By the other one that was taken since she has been.
    assert_eq!(d.release(&leases[0], Return::Unharmed, &PATIENCE, None).unwrap(), Returned::Queued);
    for lease in &leases[1..] {
        d.publish(lease, &publication()).unwrap();
    }
    let last = w.submit(w.eve);
    assert_eq!([w.take().job, w.take().job], [last, of_anna[0]]);
}

/// A job that found no room costs its user no turn either, and others of that user are tried before it is tried again.
pub(in crate::database) fn a_job_without_room_goes_behind_another_of_its_user<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let of_anna = [(); 3].map(|()| w.submit(w.anna));
    let of_eve = [(); 2].map(|()| w.submit(w.eve));
    let end = |lease: &Lease| assert_eq!(d.publish(lease, &publication()).unwrap(), LeaseState::Held);
    let take_and_have_no_room = || {
        let lease = w.take();
        assert_eq!(lease.job, of_anna[0]);
        assert_eq!(d.release(&lease, Return::Occupied, &PATIENCE, None).unwrap(), Returned::Queued);
        w.clock.advance(Patience::OCCUPIED_SECONDS as i64);
    };
    take_and_have_no_room();
    let leases = [w.take(), w.take()];
    assert_eq!(leases.each_ref().map(|lease| lease.job), [of_anna[1], of_eve[0]]);
    leases.iter().for_each(end);
    // After another one it is tried again.
    take_and_have_no_room();
    for expected in [of_anna[2], of_eve[1]] {
        let lease = w.take();
        assert_eq!(lease.job, expected);
        end(&lease);
    }
    // Also where she has no other.
    take_and_have_no_room();
    assert_eq!(w.take().job, of_anna[0]);
}

/// Who has waited longest comes first also where a worker cannot do that user's first job: then it does the next one.
pub(in crate::database) fn users_take_turns_at_what_a_worker_can_do<D: JobDatabase>(w: World<D>) {
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
