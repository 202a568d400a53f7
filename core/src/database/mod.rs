//! The rows: users, keys, uploads, jobs, webhooks. One row is the only truth about each of them.
//!
//! Called by [`crate::service`] only, on any thread. Each method is one transaction; when one that writes returns `Ok`,
//! what it wrote survives a power cut. Every read and write of a job on behalf of a user names that user: to others the
//! job does not exist, unless they ask for a public one. The methods of [`QueueRows`] are for workers. They name the
//! lease under which the worker holds the job, and once that is lost they do nothing.

mod accounts;
mod clock;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sqlite;
#[cfg(test)]
mod suite;
mod webhooks;

pub use accounts::{
    AccountRows, Identity, Invitation, NewInvitation, NewSession, Passkey, PasskeyUse, Session, TokenHash,
    UsedChallenge,
};
#[cfg(test)]
pub(crate) use clock::ManualClock;
pub use clock::{Clock, SystemClock};
#[cfg(all(test, feature = "postgres"))]
pub(crate) use postgres::test_database;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresDatabase, RowsTaken, ServerState};
pub use rows::{
    Abilities, Claim, DeletedJob, Inserted, Lease, LeaseState, LivePicture, Lost, NamedFile, NewJob,
    Patience, Progress, Publication, QueueOrder, Rate, Reclaimed, Return, Returned, RowsFile, Statistics,
    StoredArtifact, StoredKey, Tokens, Upload, UploadedVideo, Usage,
};
pub use sqlite::{SchemaVersion, SqliteDatabase};
pub use webhooks::{
    Delivery, DeliveryAttempt, DeliveryState, DueDelivery, Webhook, WebhookEvent, WebhookRows,
};

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::job::{
    ApiKey, ArtifactKind, BlobName, Failure, Job, JobId, JobPage, JobUpdate, Limits, ListQuery, Submitted,
    Tier, Timestamp, User, UserId,
};

/// Keys of a user that are not revoked, at most: whoever has made one may make others, and the rows are everybody's.
pub const MOST_KEYS: u64 = 100;
/// Sessions of a user at most: another one ends the oldest.
pub const MOST_SESSIONS: u64 = 50;

fn too_many_keys() -> Error {
    Error::new(ErrorKind::Conflict, format!("there are {MOST_KEYS} keys already"))
        .hint("revoke one that is not used any more")
}

/// All rows. One behaviour suite (`suite.rs`) holds for every implementation.
pub trait JobDatabase:
    UserRows + AccountRows + UploadRows + JobRows + QueueRows + RateRows + UpkeepRows + WebhookRows + Send + Sync
{
    /// Counts for an operator.
    ///
    /// # Errors
    /// The database's.
    fn statistics(&self) -> Result<Statistics>;

    /// Checks the whole database for damage; the answer lists what is wrong, and is empty if nothing is.
    ///
    /// # Errors
    /// The database's.
    fn integrity_check(&self) -> Result<Vec<String>>;
}

/// Users and their keys.
pub trait UserRows {
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) if the name is taken.
    fn add_user(&self, user: &User) -> Result<()>;
    /// All users, by name.
    ///
    /// # Errors
    /// The database's.
    fn users(&self) -> Result<Vec<User>>;
    /// # Errors
    /// The database's.
    fn user_by_name(&self, name: &str) -> Result<Option<User>>;
    /// Says whether there is such a user.
    ///
    /// # Errors
    /// The database's.
    fn set_tier(&self, user: UserId, tier: Tier) -> Result<bool>;
    /// Says whether the prefix was new; a key that has it already stays as it is, whoever owns it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such user,
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) for one who may not be given keys,
    /// [`Conflict`](crate::ErrorKind::Conflict) for one who has [`MOST_KEYS`] that are not revoked.
    fn create_key(&self, user: UserId, key: &ApiKey, mac: &[u8; 32]) -> Result<bool>;
    /// The keys of a user, oldest first.
    ///
    /// # Errors
    /// The database's.
    fn keys(&self, user: UserId) -> Result<Vec<ApiKey>>;
    /// Says whether the user has such a key. One that is revoked already keeps its time.
    ///
    /// # Errors
    /// The database's.
    fn revoke_key(&self, user: UserId, prefix: &str) -> Result<bool>;
    /// What is needed to check a key.
    ///
    /// # Errors
    /// The database's.
    fn key(&self, prefix: &str) -> Result<Option<StoredKey>>;
    /// Notes when keys were last used; a time earlier than the noted one changes nothing.
    ///
    /// # Errors
    /// The database's.
    fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<()>;
}

/// Uploads, from their address to the last job that uses them.
pub trait UploadRows {
    /// # Errors
    /// The database's.
    fn create_upload(&self, user: UserId, name: BlobName, lifetime_seconds: u64) -> Result<Upload>;
    /// # Errors
    /// The database's.
    fn upload(&self, name: &BlobName) -> Result<Option<Upload>>;
    /// Makes `video` the content of the upload and returns the version that it replaces.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the upload is gone, [`Conflict`](crate::ErrorKind::Conflict) if a job
    /// uses it already.
    fn finish_upload(&self, name: &BlobName, video: &UploadedVideo) -> Result<Option<u64>>;
    /// Notes how many bytes of the upload lie in blocks that wait for their list. They count as stored by its user until a job
    /// uses the upload. An upload that is gone is left alone.
    ///
    /// # Errors
    /// The database's.
    fn note_waiting_bytes(&self, name: &BlobName, bytes: u64) -> Result<()>;
    /// Notes that there are so many bytes more of them, or fewer.
    ///
    /// # Errors
    /// The database's.
    fn add_waiting_bytes(&self, name: &BlobName, change: i64) -> Result<()>;
    /// Marks as deleted what no job uses, nobody touched for `retention_seconds` and nobody can send anything to any more.
    /// Returns all that are marked, also from before: their files are to be removed, then they are to be forgotten.
    ///
    /// # Errors
    /// The database's.
    fn expire_uploads(&self, retention_seconds: u64) -> Result<Vec<Upload>>;
    /// Marks an upload of the user as deleted, unless a job uses it; says whether that was done.
    ///
    /// # Errors
    /// The database's.
    fn discard_upload(&self, user: UserId, name: &BlobName) -> Result<bool>;
    /// Removes the row of an upload that is marked as deleted.
    ///
    /// # Errors
    /// The database's.
    fn forget_upload(&self, name: &BlobName) -> Result<()>;
}

/// Jobs as their owners see them.
pub trait JobRows {
    /// Adds a job and everything that belongs to its submission, or finds that it was added before.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a video that is not there or a full quota,
    /// [`TooManyRequests`](crate::ErrorKind::TooManyRequests) for a full queue,
    /// [`IdempotencyMismatch`](crate::ErrorKind::IdempotencyMismatch).
    fn insert_job(&self, job: &NewJob, limits: &Limits) -> Result<Inserted>;
    /// What a user has of what is limited.
    ///
    /// # Errors
    /// The database's.
    fn usage(&self, user: UserId) -> Result<Usage>;
    /// The answer that was given before to this idempotency key, if it was to the same request.
    ///
    /// # Errors
    /// [`IdempotencyMismatch`](crate::ErrorKind::IdempotencyMismatch) if it was to another.
    fn idempotent_answer(
        &self,
        user: UserId,
        key: &str,
        body_hash: &[u8; 32],
        hours: u64,
    ) -> Result<Option<Submitted>>;
    /// The jobs of a user, newest first.
    ///
    /// # Errors
    /// The database's.
    fn list_jobs(&self, user: UserId, query: &ListQuery) -> Result<JobPage>;
    /// # Errors
    /// The database's.
    fn job(&self, user: UserId, job: JobId) -> Result<Option<Job>>;
    /// The version of a job ([`JobDetails::version`](crate::job::JobDetails::version)): whether it has changed, for who asks often. Its
    /// place in the queue, which is counted by the jobs before it, is in no version.
    ///
    /// # Errors
    /// The database's.
    fn job_version(&self, user: UserId, job: JobId) -> Result<Option<u64>>;
    /// Changes only the named columns.
    ///
    /// # Errors
    /// The database's.
    fn update_job(&self, user: UserId, job: JobId, update: &JobUpdate) -> Result<Option<Job>>;
    /// Makes a job that has not ended fail with `failure`; its worker finds its lease lost.
    ///
    /// # Errors
    /// The database's.
    fn cancel_job(&self, user: UserId, job: JobId, failure: &Failure) -> Result<Option<Job>>;
    /// Makes a job unreachable, and its video too if no other job uses it. Says whether there was such a job.
    ///
    /// # Errors
    /// The database's.
    fn mark_deleted(&self, user: UserId, job: JobId) -> Result<bool>;
    /// # Errors
    /// The database's.
    fn artifact(&self, user: UserId, job: JobId, kind: ArtifactKind) -> Result<Option<StoredArtifact>>;
    /// What the scene of a job looked like last, if the job runs and was shown.
    ///
    /// # Errors
    /// The database's.
    fn live_picture(&self, user: UserId, job: JobId) -> Result<Option<LivePicture>>;
    /// A job that is public and finished, of any user.
    ///
    /// # Errors
    /// The database's.
    fn public_job(&self, job: JobId) -> Result<Option<Job>>;
    /// An artifact of a job that is public and finished, of any user.
    ///
    /// # Errors
    /// The database's.
    fn public_artifact(&self, job: JobId, kind: ArtifactKind) -> Result<Option<StoredArtifact>>;
    /// Jobs of all users, newest first, for an operator.
    ///
    /// # Errors
    /// The database's.
    fn all_jobs(&self) -> Result<Vec<Job>>;
    /// Jobs that are marked as deleted and that no worker holds: their files are to be removed, then they are to be
    /// forgotten.
    ///
    /// # Errors
    /// The database's.
    fn deleted_jobs(&self) -> Result<Vec<DeletedJob>>;
    /// Removes the row of a job that is marked as deleted.
    ///
    /// # Errors
    /// The database's.
    fn forget_job(&self, job: JobId) -> Result<()>;
    /// Which files of a job are still needed.
    ///
    /// # Errors
    /// The database's.
    fn file_owner(&self, job: JobId) -> Result<FileOwner>;
}

/// What the files of a job are good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOwner {
    /// There is no such job.
    Nobody,
    /// It waits or runs: all its files may be needed.
    Unfinished,
    /// It has ended: no workspace is needed, and of its artifacts these, with the attempts that made them.
    Ended(Vec<(ArtifactKind, u32)>),
}

/// Jobs as workers see them.
pub trait QueueRows {
    /// Takes the first waiting job ([`QueueOrder`]) that does not rest and that the worker can do, for `lease_seconds`. Where one comes
    /// before it for which the machine is to keep room ([`Abilities::KEEP_ROOM_AFTER_SECONDS`]), and which was not
    /// [given up](Abilities::given_up), only one that leaves this room: smaller ones would take it, one after the other.
    ///
    /// # Errors
    /// The database's.
    fn claim(
        &self,
        owner: &str,
        worker: &str,
        lease_seconds: u64,
        abilities: &Abilities<'_>,
    ) -> Result<Option<Claim>>;
    /// The job for which the machine keeps room now, so that none is taken of those that wait and would fit; none if it is kept from
    /// nobody.
    ///
    /// # Errors
    /// The database's.
    fn kept_room(&self, abilities: &Abilities<'_>) -> Result<Option<JobId>>;
    /// The waiting job with the most Gaussians, how many those are, and when it was submitted.
    ///
    /// # Errors
    /// The database's.
    fn largest_waiting(&self) -> Result<Option<(JobId, u32, Timestamp)>>;
    /// Prolongs a lease.
    ///
    /// # Errors
    /// The database's.
    fn heartbeat(&self, lease: &Lease, lease_seconds: u64) -> Result<LeaseState>;
    /// Looks whether a lease still holds, without writing.
    ///
    /// # Errors
    /// The database's.
    fn lease_state(&self, lease: &Lease) -> Result<LeaseState>;
    /// Says how far the job is. Its percentage never goes back.
    ///
    /// # Errors
    /// The database's.
    fn progress(&self, lease: &Lease, progress: &Progress) -> Result<LeaseState>;
    /// Shows what the scene looks like now, as JPEG. It takes the place of the picture before, and goes when the attempt ends.
    ///
    /// # Errors
    /// The database's.
    fn show_picture(&self, lease: &Lease, picture: &[u8]) -> Result<LeaseState>;
    /// Makes the job finished, with all its artifacts, in one step.
    ///
    /// # Errors
    /// The database's; then it is not known whether the job is finished.
    fn publish(&self, lease: &Lease, publication: &Publication) -> Result<LeaseState>;
    /// Makes the job failed, with the log if there is one.
    ///
    /// # Errors
    /// The database's.
    fn fail(&self, lease: &Lease, failure: &Failure, log_size: Option<u64>) -> Result<LeaseState>;
    /// Gives the job back to the queue at its old place, and its user the turn if `why` is nobody's fault; of a deleted job, lets go.
    /// What `why` holds against it is counted, and the job fails with it, and with the log of `log_size` bytes, if it had its last chance.
    ///
    /// # Errors
    /// The database's.
    fn release(
        &self,
        lease: &Lease,
        why: Return<'_>,
        patience: &Patience,
        log_size: Option<u64>,
    ) -> Result<Returned>;
    /// Takes jobs away from workers that are dead: their lease has run out, or `is_alive` says that their process is gone.
    /// That is a disturbance, and the first in a row no turn of their users. Those that are deleted are named too: nobody else may look for them soon. A
    /// lease that was given while the clock was ahead is cut to what is enough for a sign of life.
    ///
    /// # Errors
    /// The database's.
    fn reclaim(&self, is_alive: &dyn Fn(&str) -> bool, patience: &Patience) -> Result<Reclaimed>;
    /// The last attempt at a job that failed because its workers died, or for a full disk, if it has no log: they could not leave one.
    ///
    /// # Errors
    /// The database's.
    fn attempt_without_log(&self, job: JobId) -> Result<Option<u32>>;
    /// Makes what is stored as the log of such an attempt that of the job, unless it has one or is gone. Says whether that was done.
    ///
    /// # Errors
    /// The database's.
    fn add_log(&self, job: JobId, attempt: u32, size: u64) -> Result<bool>;
}

/// Rates at which users may ask, where several servers share them.
pub trait RateRows {
    /// Puts back `unused` tokens of the user's that were taken before, then takes up to `wanted`, as many as there are: whole
    /// ones, none if less than one is there. By the clock of the database, which all servers share.
    ///
    /// # Errors
    /// The database's; it is not tried again.
    fn take_tokens(&self, user: UserId, rate: &Rate, wanted: u32, unused: u32) -> Result<Tokens>;
}

/// The rows as a whole, and the files that they name: for backups and repairs.
pub trait UpkeepRows {
    /// Writes all rows, as they are at one moment, to the new file `to`, which is a database of the same kind. Others go on
    /// meanwhile. Whole or not at all, and durable when this returns.
    ///
    /// # Errors
    /// The database's, also if it is damaged; the system's.
    fn copy_to(&self, to: &Path) -> Result<()>;
    /// All files that rows name, but those of what is marked as deleted.
    ///
    /// # Errors
    /// The database's.
    fn named_files(&self) -> Result<Vec<NamedFile>>;
    /// Of these some: `most` videos at most and as many artifacts, those of the newest jobs. A video that jobs share comes once for
    /// each of them.
    ///
    /// # Errors
    /// The database's.
    fn newest_files(&self, most: u32) -> Result<Vec<NamedFile>>;
    /// The same of the oldest jobs.
    ///
    /// # Errors
    /// The database's.
    fn oldest_files(&self, most: u32) -> Result<Vec<NamedFile>>;
    /// The id of the service whose rows these are, which a storage apart from them has too; nothing if none was noted.
    ///
    /// # Errors
    /// The database's.
    fn service_id(&self) -> Result<Option<String>>;
    /// Notes `id` as that of the service, unless another was noted before. Returns the one that holds.
    ///
    /// # Errors
    /// The database's.
    fn note_service_id(&self, id: &str) -> Result<String>;
    /// Puts every running job back to its place in the queue, whoever holds it, and lets all that rest go on; nothing is held
    /// against them. All sessions end, and invitations are worth nothing: what was revoked after a copy was made must not come
    /// back with it. For a copy, on which nobody works. Says how many ran.
    ///
    /// # Errors
    /// The database's.
    fn release_all(&self) -> Result<u64>;
    /// Notes that the content of an upload is lost. Jobs that wait for it fail with `failure`; finished ones stay.
    ///
    /// # Errors
    /// The database's.
    fn lose_video(&self, name: &BlobName, version: u64, failure: &Failure) -> Result<Lost>;
    /// The videos for which jobs wait, each once, with their versions.
    ///
    /// # Errors
    /// The database's.
    fn waiting_videos(&self) -> Result<Vec<(BlobName, u64)>>;
    /// Makes the jobs that wait for this version of a video fail with `failure`, and returns them; the upload stays as it is.
    ///
    /// # Errors
    /// The database's.
    fn fail_waiting(&self, name: &BlobName, version: u64, failure: &Failure) -> Result<Vec<JobId>>;
    /// Notes that an artifact is lost. Without its scene files a finished job is no longer finished: it goes back to the queue
    /// if its video is there (note a lost video first), else it fails with `failure`. What is left of its artifacts stays.
    ///
    /// # Errors
    /// The database's.
    fn lose_artifact(&self, job: JobId, attempt: u32, kind: ArtifactKind, failure: &Failure) -> Result<Lost>;
}
