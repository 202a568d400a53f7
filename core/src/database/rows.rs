//! What goes into the database and comes out of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::Warning;
use crate::job::{
    ArtifactKind, BlobName, CameraData, Failure, JobId, JobRequest, Submitted, Tier, Timestamp, UserId,
};
use crate::stage::Stage;

/// What is needed to check a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Its owner.
    pub user: UserId,
    /// What the owner may do.
    pub tier: Tier,
    /// Authentication code of the whole key.
    pub mac: [u8; 32],
    /// Whether it was revoked.
    pub revoked: bool,
}

/// An upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Its name.
    pub name: BlobName,
    /// Its owner.
    pub user: UserId,
    /// Until when a transfer may begin.
    pub expires_at: Timestamp,
    /// Its content, once there is one.
    pub video: Option<UploadedVideo>,
    /// Whether a job uses it.
    pub submitted: bool,
    /// Whether it is about to be removed.
    pub deleted: bool,
}

/// The content of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedVideo {
    /// Which file it is, see [`crate::storage::BlobKey::Video`].
    pub version: u64,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of the bytes; absent if they did not come through the server.
    pub sha256: Option<[u8; 32]>,
    /// The name that it had where it came from.
    pub file_name: Option<String>,
    /// SHA-256 of the list of blocks that it was put together of; absent if it came whole.
    pub block_list: Option<[u8; 32]>,
}

/// What a user has of what is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Jobs that wait.
    pub waiting_jobs: u64,
    /// Bytes of videos and of what became of them.
    pub stored_bytes: u64,
}

/// A job to be added.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Whose it will be.
    pub user: UserId,
    /// Its name.
    pub job_id: JobId,
    /// What it is asked for, as it was checked.
    pub request: JobRequest,
    /// The version of the video that was looked at.
    pub video_version: u64,
    /// The client's key against double submission, with the hash of its body.
    pub idempotency: Option<(String, [u8; 32])>,
}

/// What became of a job to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// It was added.
    Added(Submitted),
    /// The same request was made before; this was the answer.
    Before(Submitted),
    /// The video was replaced since it was looked at: look again.
    VideoChanged,
}

/// A worker's hold on a job. The attempt is the fencing token: every claim gets a higher one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// Counts the claims of this job, from 1.
    pub attempt: u32,
    /// The process that holds it.
    pub owner: String,
}

impl Lease {
    /// The longest that one may last, seconds.
    pub const LONGEST_SECONDS: u64 = 3600;

    /// One whose end is further away than this, microseconds, was given while the clock was ahead. The minute is for those that are
    /// given while somebody looks.
    pub(super) const AHEAD: i64 = (Self::LONGEST_SECONDS as i64 + 60) * 1_000_000;

    /// Within this time, seconds, every worker that lives has given a sign of life: it does each sixth of its lease.
    pub(super) const SIGN_OF_LIFE_SECONDS: u64 = Self::LONGEST_SECONDS / 6 + 60;
}

/// A job that a worker has taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The hold on it.
    pub lease: Lease,
    /// Whose it is.
    pub user: UserId,
    /// What it is asked for.
    pub request: JobRequest,
    /// The version of the video.
    pub video_version: u64,
    /// How long it was worked on before.
    pub worked: Duration,
}

/// In which order waiting jobs are taken up (rule 52 of docs/rest.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueOrder {
    /// As they were submitted.
    #[default]
    Submitted,
    /// Users take turns: first the user with the fewest running jobs, then the one who has waited longest for a turn; of
    /// one user, as they were submitted. A job that was [given back](Return) without fault, or whose worker
    /// died for the first time in a row, has taken no turn.
    Users,
}

/// Which waiting jobs a worker can do on its machine; the others are left to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities<'a> {
    /// Whether it has what removing the background needs.
    pub masks: bool,
    /// Gaussians that its free memory has room for.
    pub max_gaussians: u32,
    /// Gaussians that the memory of the machine has room for in all, those of running jobs among them.
    pub all_gaussians: u64,
    /// What a job takes beside its Gaussians, counted as so many more.
    pub beside: u32,
    /// Jobs for which the machine has kept room in vain ([`Abilities::KEEP_ROOM_FOR_SECONDS`]): it keeps none for them any more.
    pub given_up: &'a [JobId],
}

impl Abilities<'_> {
    /// A job for which a machine has no room only because of those that run there, and that waits for longer than this, seconds, is kept
    /// room for.
    pub const KEEP_ROOM_AFTER_SECONDS: u64 = 3600;

    /// But for no longer than this, seconds, from the first time on that another job was passed over for it: more memory is counted as
    /// free than there will be when the running jobs end, as they may not have taken theirs, or have it on a graphics device. A job that
    /// never fits would keep a machine from the others for ever.
    pub const KEEP_ROOM_FOR_SECONDS: u64 = 12 * 3600;

    /// All that can be asked for.
    pub const ALL: Abilities<'static> = Abilities {
        masks: true,
        max_gaussians: u32::MAX,
        all_gaussians: i64::MAX as u64,
        beside: 0,
        given_up: &[],
    };

    /// The jobs that were given up as one text, for a statement that looks whether the id of a job is in it.
    pub(super) fn given_up_list(&self) -> String {
        self.given_up.iter().map(JobId::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Why a worker gives a job back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return<'a> {
    /// The worker ends, or its machine can do no work: nothing is held against the job, and its user has had no turn.
    Unharmed,
    /// A worker that lost the job is still in its workspace, because its process stands still, or its input has no room on this
    /// machine's disk and another may have it: nothing is held against the job, and its user has had no turn, but it rests for
    /// [`Patience::OCCUPIED_SECONDS`], so that others get theirs. Where users take turns, another job of the user goes before it then.
    Occupied,
    /// The work ended by something that may lie with the machine or with the job: its process was killed, or the disk or the
    /// device failed although they are in order otherwise.
    Disturbed(&'a Failure),
    /// A fault of the program that this job brings out.
    Crashed(&'a Failure),
}

/// How often in a row an attempt may end without a scene and without coming further than those before it (by
/// [`Patience::STEP`]) before the job fails. Each kind is counted by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Crashes.
    pub crashes: u32,
    /// Disturbances. With the rests between them ([`Patience::rest_seconds`]) ten go on for three hours and a half: what
    /// still disturbs this job then, and lets others be, is not passing.
    pub disturbances: u32,
}

impl Patience {
    /// An attempt that comes this much further ([`Progress::reach`]) than all before it is a success of its own: what went
    /// wrong before is forgotten.
    pub const STEP: f64 = 0.05;

    /// The longest that a job rests, seconds.
    pub const LONGEST_REST_SECONDS: u64 = 2 * 3600;

    /// A job whose rest would last for longer than this, microseconds, was put to rest while the clock was ahead.
    pub(super) const AHEAD: i64 = (Self::LONGEST_REST_SECONDS as i64 + 60) * 1_000_000;

    /// How long a job rests whose workspace is still occupied, or for whose input a machine has no room, seconds.
    pub const OCCUPIED_SECONDS: u64 = 60;

    /// How long a job rests after that many crashes and disturbances in a row, seconds: not at all after the first two,
    /// then 4, 16, 64, up to two hours, so that other jobs get their turn and what passes has time to.
    pub fn rest_seconds(in_a_row: u32) -> u64 {
        match in_a_row {
            0..=2 => 0,
            _ => 4u64.saturating_pow(in_a_row - 2).min(Self::LONGEST_REST_SECONDS),
        }
    }
}

/// What became of a job that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// It waits again, at its old place.
    Queued,
    /// It had its last chance and failed.
    Failed,
    /// It was not this worker's any more, or is to be deleted.
    Gone,
}

/// Whether a lease still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// It holds.
    Held,
    /// The job is to be deleted; the lease holds until it is released.
    Deleted,
    /// The job belongs to somebody else or to nobody: nothing may be written for it any more.
    Lost,
}

/// What the scene of a job that runs looked like at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivePicture {
    /// JPEG.
    pub jpeg: Vec<u8>,
    /// When it was shown.
    pub made_at: Timestamp,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// How much of it is done, 0 to 1.
    pub fraction: f32,
    /// `percent_complete`, once generation has started.
    pub percent: Option<u8>,
    /// Seconds until the stage is done, once there is something to go by.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// How far that is on one scale: the number of finished stages and the part of the present one, 0 to 4.
    pub fn reach(&self) -> f64 {
        self.stage as usize as f64 + f64::from(self.fraction)
    }
}

/// What a finished job publishes. All files are durable before this is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// The files and their sizes.
    pub artifacts: Vec<(ArtifactKind, u64)>,
    /// Where a viewer starts.
    pub camera: CameraData,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// An artifact that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredArtifact {
    /// The attempt that made it.
    pub attempt: u32,
    /// Bytes.
    pub size: u64,
    /// The title of its job.
    pub title: String,
}

/// A job whose files are to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedJob {
    /// The job.
    pub job: JobId,
    /// Every attempt up to this may have left artifacts.
    pub attempt: u32,
    /// Its video, which goes with the last job that uses it.
    pub blob_name: BlobName,
}

/// What was taken away from dead workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Back in the queue.
    pub queued: Vec<JobId>,
    /// Failed, after too many disturbances.
    pub failed: Vec<JobId>,
    /// Deleted while they ran, and at rest now: their files can be removed.
    pub deleted: Vec<JobId>,
}

/// A rate at which a user may do something: a bucket that holds `burst` tokens and fills steadily.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// What is counted: `requests`. Each class has a bucket of its own.
    pub class: &'static str,
    /// Tokens that come in a second; more than 0.
    pub per_second: f64,
    /// The most that can gather, 1 or more.
    pub burst: u32,
}

/// What was taken of a [`Rate`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tokens {
    /// How many; 0 if there was none.
    pub taken: u32,
    /// How long it is until there is another one to take.
    pub next: Duration,
}

impl Rate {
    /// What was noted at a time so much later than now, microseconds, was noted while the clock was ahead.
    pub(super) const AHEAD: i64 = 60_000_000;

    pub(super) fn tokens_per_microsecond(&self) -> f64 {
        self.per_second / 1e6
    }

    /// What it means that `taken` were taken and `left` stayed.
    pub(super) fn tokens(&self, taken: u32, left: f64) -> Tokens {
        let missing = (1.0 - left).max(0.0);
        // Of a rate that is next to nothing: longer than anybody waits.
        let next = Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX);
        Tokens { taken, next }
    }
}

/// Counts for an operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Users.
    pub users: u64,
    /// Keys that work.
    pub keys: u64,
    /// Uploads that no job uses yet.
    pub uploads: u64,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs whose video is processed.
    pub processing_video: u64,
    /// Jobs whose scene is generated.
    pub generating_scene: u64,
    /// Jobs that are done.
    pub finished: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs whose files are being removed.
    pub deleting: u64,
    /// Bytes of videos and artifacts.
    pub stored_bytes: u64,
}

/// A file that a row says is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Whose it is.
    pub user: UserId,
    /// Which row says so.
    pub file: RowsFile,
    /// Bytes that it has.
    pub size: u64,
    /// SHA-256 of them, where it is known.
    pub sha256: Option<[u8; 32]>,
}

/// Which file a row names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsFile {
    /// The content of an upload.
    Video {
        /// The upload.
        name: BlobName,
        /// Which of its files.
        version: u64,
    },
    /// An artifact of a job.
    Artifact {
        /// The job.
        job: JobId,
        /// The attempt that made it.
        attempt: u32,
        /// What it is.
        kind: ArtifactKind,
    },
}

/// What became of the rows that named a file which is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// Nothing: no row names it any more, or a worker is at a job that needs it.
    Unchanged,
    /// It is not named any more; no job changed its state.
    Forgotten,
    /// These jobs cannot be done, or not be fetched, any more: they failed.
    Failed(Vec<JobId>),
    /// This job is to be done again.
    Queued(JobId),
}
