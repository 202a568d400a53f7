//! What every database must do, a file for each part of it.

pub(super) mod accounts;
pub(super) mod files;
pub(super) mod jobs;
pub(super) mod queue;
pub(super) mod webhooks;

use std::sync::Arc;

use super::{
    Abilities, Claim, Clock, Inserted, JobDatabase, Lease, ManualClock, NewJob, Patience, Progress,
    Publication, QueueOrder, UploadedVideo,
};
use crate::control::Warning;
use crate::error::Result;
use crate::job::{
    ArtifactKind, BlobName, CameraData, Failure, Job, JobId, JobRequest, Limits, Submitted, Tier, User,
    UserId, VideoExtension, Xyz,
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
            $open, QueueOrder::Submitted, accounts =>
            users_and_keys most_keys invitations sessions most_sessions passwords passkeys identities
        }
        $crate::database::suite::tests! {
            $open, QueueOrder::Submitted, jobs =>
            uploads submissions idempotency lists updates cancel_and_delete public_jobs shared_rates usage
        }
        $crate::database::suite::tests! {
            $open, QueueOrder::Submitted, queue =>
            a_job_runs live_pictures leases leases_that_are_prolonged_at_the_last_moment a_clock_that_was_ahead disturbances logs_of_the_dead crashes progress_forgives what_a_worker_cannot_do memory_of_one_machine a_large_job_does_not_starve room_that_a_large_job_does_not_need time_worked
        }
        $crate::database::suite::tests! {
            $open, QueueOrder::Users, queue => users_take_turns users_take_turns_at_what_a_worker_can_do a_large_job_of_a_user_does_not_starve room_is_kept_for_whose_turn_it_is a_job_that_is_given_back_keeps_the_turn_of_its_user jobs_that_are_given_back_keep_the_turn_of_their_user a_job_without_room_goes_behind_another_of_its_user
        }
        $crate::database::suite::tests! {
            $open, QueueOrder::Submitted, files =>
            named_files newest_files service_id copies_at_rest shared_videos lost_videos lost_artifacts missing_videos
        }
        $crate::database::suite::tests! {
            $open, QueueOrder::Submitted, webhooks =>
            webhooks ends_of_jobs_are_told deliveries_are_taken a_job_is_told_in_order deliveries_of_a_clock_that_was_ahead
        }
    };
    ($open:expr, $order:expr, $part:ident => $($promise:ident)*) => {
        $(#[test]
        fn $promise() {
            if let Some(world) = $crate::database::suite::World::new(&$open, $order) {
                $crate::database::suite::$part::$promise(world);
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
    Progress { stage, fraction, percent, seconds_left: None }
}
