//! What owners do with their jobs. Somebody else's job is answered like one that does not exist: in the same words,
//! after the same work.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::job_changes::{JobChange, JobEvent, tell};
use super::{Service, job_not_found};
use crate::database::{Inserted, NewJob, StoredArtifact};
use crate::error::{Error, ErrorKind, Result};
use crate::files::write_atomically;
use crate::job::{
    ArtifactKind, BLOB_NOT_FOUND, BlobName, Failure, Job, JobId, JobPage, JobRequest, JobUpdate, ListQuery,
    Submitted, UserId,
};
use crate::storage::{BlobKey, BlobReader, DownloadAnswer};

/// How long a submission looks at its video. What takes longer is looked at by the worker.
const LOOK: Duration = Duration::from_secs(2);
/// How often to look for changes that another process made.
const POLL: Duration = Duration::from_secs(1);

/// A client's key against double submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Chosen by the client, 1 to 255 bytes.
    pub key: String,
    /// Hash of the request's body: the same key with another body is a mistake.
    pub body_hash: [u8; 32],
}

/// Said of a key whose first request has no answer yet.
const IN_PROGRESS: &str = "The first request with this Idempotency-Key is still being worked on";

impl Idempotency {
    /// Whether a request was refused because the first one with its key is still being worked on: once that has its answer, the
    /// same request is answered as it was.
    pub fn is_in_use(error: &Error) -> bool {
        error.kind() == ErrorKind::Conflict && error.message() == IN_PROGRESS
    }
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The answer.
    pub body: Submitted,
    /// Whether it is the answer to an earlier submission with the same key: no job was added.
    pub replayed: bool,
}

/// A result of a job, to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Names the blob, for [`Service::open_blob`].
    pub key: BlobKey,
    /// A name for the user's disk: the job's title with an extension. User text: encode it in headers.
    pub file_name: String,
    /// Bytes.
    pub size: u64,
    /// Strong entity tag, with quotes: the bytes under a key never change.
    pub etag: String,
    /// Media type.
    pub content_type: &'static str,
}

impl Artifact {
    pub(super) fn new(job: JobId, kind: ArtifactKind, found: StoredArtifact) -> Self {
        let attempt = found.attempt;
        Self {
            key: BlobKey::Artifact { job, attempt, kind },
            file_name: format!("{}.{}", found.title, kind.extension()),
            size: found.size,
            etag: format!("\"{}-{attempt}-{}\"", job.0.as_simple(), kind.extension()),
            content_type: kind.content_type(),
        }
    }
}

/// Tells of a change that an owner asked for.
fn told(user: UserId, job: JobId, what: JobEvent<'_>) {
    tell(&JobChange { job, user: Some(user), attempt: None, worker: None, what, when: SystemTime::now() });
}

/// A client that sends a request again before the first one was answered is told to wait, whether or not the first will
/// succeed (rule 47 of docs/rest.md).
fn in_progress() -> Error {
    Error::new(ErrorKind::Conflict, IN_PROGRESS)
        .hint("send it again in a few seconds: it is answered as the first was")
}

impl Service {
    /// Submits a job. When this returns, the job is in the queue and stays there until a worker has seen to it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a request out of range, a video that is not there, not the user's or no video, or a
    /// full quota; [`ErrorKind::TooLarge`]; [`ErrorKind::TooManyRequests`] for too many waiting jobs; [`ErrorKind::IdempotencyMismatch`];
    /// [`ErrorKind::Conflict`] while the video is being replaced, while another call with the same key is at work, and where the
    /// storage is another one than that of the rows ([`WrongStorage`](super::WrongStorage)); [`ErrorKind::DiskFull`].
    pub fn submit(
        &self,
        user: UserId,
        request: JobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submission> {
        self.submit_once(user, idempotency, || Ok(request))
    }

    /// Has the video of an ended job done again, as a job of its own: submits what `change` makes of the request that it was.
    ///
    /// # Errors
    /// Those of [`Service::request_again`], of `change` and of [`Service::submit`].
    pub fn restart(
        &self,
        user: UserId,
        job: JobId,
        idempotency: Option<Idempotency>,
        change: impl FnOnce(JobRequest) -> Result<JobRequest>,
    ) -> Result<Submission> {
        self.submit_once(user, idempotency, || change(self.request_again(user, job)?))
    }

    /// Submits what `request` makes, unless that was done before: then the answer is the same, also if what the request would be
    /// made of is gone.
    fn submit_once(
        &self,
        user: UserId,
        idempotency: Option<Idempotency>,
        request: impl FnOnce() -> Result<JobRequest>,
    ) -> Result<Submission> {
        let idempotency = idempotency.map(|i| (i.key, i.body_hash));
        // Nobody else may use the key until this call returns. If two processes take the same request at the same time, the
        // database makes one job of it, and both give the same answer.
        let _held = match &idempotency {
            Some((key, _)) => Some(self.inner.submissions.hold((user, key.clone())).ok_or_else(in_progress)?),
            None => None,
        };
        if let Some((key, hash)) = &idempotency {
            if !(1..=255).contains(&key.len()) {
                return Err(Error::argument("Idempotency-Key must have 1 to 255 characters"));
            }
            let hours = self.limits().idempotency_hours;
            if let Some(body) = self.inner.database.idempotent_answer(user, key, hash, hours)? {
                return Ok(Submission { body, replayed: true });
            }
        }
        let request = request()?.checked(self.limits())?;
        self.check_takes_in()?;
        self.check_space()?;
        let mut new = NewJob { user, job_id: JobId::random(), request, video_version: 0, idempotency };
        let name = new.request.blob_name;
        let taken_in = self.take_in(user, &name, |version| self.look_at(&name, version))?;
        for _ in 0..3 {
            let version = self.uploaded_video(user, &name)?.version;
            if taken_in != Some(version) {
                self.look_at(&name, version)?;
            }
            new.video_version = version;
            match self.inner.database.insert_job(&new, self.limits())? {
                Inserted::Added(body) => {
                    self.inner.changes.notify();
                    told(user, body.job_id, JobEvent::Queued);
                    self.forget_incoming(&name);
                    return Ok(Submission { body, replayed: false });
                }
                Inserted::Before(body) => return Ok(Submission { body, replayed: true }),
                // Another transfer was completed since: it is the one that counts.
                Inserted::VideoChanged => {}
            }
        }
        Err(Error::new(ErrorKind::Conflict, "The video is being replaced")
            .hint("submit again when the transfer is complete"))
    }

    /// Refuses what is clearly no video that we can read.
    fn look_at(&self, name: &BlobName, version: u64) -> Result<()> {
        if self.inner.readable.holds(name, version) {
            // It may be lost since. A storage that cannot tell is no reason to lose the job: the worker will see.
            return match self.inner.storage.metadata(&BlobKey::Video { name: *name, version }) {
                Ok(None) => Err(Error::argument(BLOB_NOT_FOUND)),
                Ok(Some(_)) => Ok(()),
                Err(error) if error.kind() == ErrorKind::Io => Ok(()),
                Err(error) => Err(error),
            };
        }
        let video = match self.video_to_look_at(name, version) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::argument(BLOB_NOT_FOUND)),
            video => video?,
        };
        // A disk that fails for a moment, or a program that is just being replaced, makes a good video look bad.
        let unreadable = |error: &Error| error.kind() == ErrorKind::InvalidMedia;
        let look = || (self.inner.look)(video.path(), LOOK);
        match look().or_else(|error| if unreadable(&error) { look() } else { Err(error) }) {
            Ok(()) => {
                self.inner.readable.add(name, version);
                Ok(())
            }
            Err(error) => match error.kind() {
                // What is missing may lie between the ends of a large video: the worker has all of it.
                ErrorKind::InvalidMedia if !video.is_whole => Ok(()),
                ErrorKind::InvalidMedia => {
                    let why = self.without_paths(error.message(), Some(video.path()));
                    Err(Error::argument("Invalid file format").hint(why))
                }
                ErrorKind::NotFound => Err(Error::argument(BLOB_NOT_FOUND)),
                // Not the client's fault and no reason to lose the job: the worker will see.
                ErrorKind::FfmpegMissing | ErrorKind::DeadlineExceeded | ErrorKind::Io => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// The message without the paths of this machine: that of `video` becomes "the video", of others the last part stays.
    pub(super) fn without_paths(&self, message: &str, video: Option<&Path>) -> String {
        let folder = format!("{}/", self.inner.folder.display());
        let known = match video {
            Some(video) => message.replace(&video.display().to_string(), "the video"),
            None => message.to_owned(),
        };
        last_parts_of_paths(&known.replace(&folder, ""))
    }

    /// The user's jobs, newest first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a limit out of range.
    pub fn list(&self, user: UserId, query: &ListQuery) -> Result<JobPage> {
        query.check()?;
        self.inner.database.list_jobs(user, query)
    }

    /// A job.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn job(&self, user: UserId, job: JobId) -> Result<Job> {
        self.inner.database.job(user, job)?.ok_or_else(job_not_found)
    }

    /// The version of a job: another one, and something about it has changed. What its place in the queue is does not count; to ask for
    /// this costs the same however long the queue is.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn job_version(&self, user: UserId, job: JobId) -> Result<u64> {
        self.inner.database.job_version(user, job)?.ok_or_else(job_not_found)
    }

    /// Changes a job and returns it. Only what is named is written: changes by others at the same time stay.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::InvalidArgument`].
    pub fn update(&self, user: UserId, job: JobId, update: &JobUpdate) -> Result<Job> {
        let update = update.clone().checked()?;
        let updated = self.inner.database.update_job(user, job, &update)?.ok_or_else(job_not_found)?;
        self.inner.changes.notify();
        Ok(updated)
    }

    /// Stops a job for good: it fails with the code `cancelled` (rule 85 of docs/rest.md).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Conflict`] if it has ended.
    pub fn cancel(&self, user: UserId, job: JobId) -> Result<Job> {
        let message = "the job was cancelled".to_owned();
        let failure = Failure { code: ErrorKind::Cancelled.slug().to_owned(), message };
        let ended = || Error::new(ErrorKind::Conflict, "The job has ended already");
        if self.job(user, job)?.status.is_terminal() {
            return Err(ended());
        }
        let job = self.inner.database.cancel_job(user, job, &failure)?.ok_or_else(job_not_found)?;
        self.inner.changes.notify();
        // It may have ended by itself in between.
        if job.details.failure.as_ref().is_none_or(|why| why.code != failure.code) {
            return Err(ended());
        }
        told(user, job.job_id, JobEvent::Failed { code: &failure.code });
        Ok(job)
    }

    /// What to [`submit`](Service::submit) to have an ended job done again, as it was asked for.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Conflict`] if it has not ended.
    pub fn request_again(&self, user: UserId, job: JobId) -> Result<JobRequest> {
        let job = self.job(user, job)?;
        if !job.status.is_terminal() {
            return Err(Error::new(ErrorKind::Conflict, "The job has not ended")
                .hint("cancel it first, or wait for it"));
        }
        Ok(JobRequest::of(&job))
    }

    /// Deletes a job with all its files, irreversibly. When this returns, nobody can reach the job, and its files are
    /// gone, unless a worker is at it: that one stops within seconds, and then the files go.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn delete(&self, user: UserId, job: JobId) -> Result<()> {
        if !self.inner.database.mark_deleted(user, job)? {
            return Err(job_not_found());
        }
        self.inner.changes.notify();
        told(user, job, JobEvent::Deleted);
        // The job is gone for its owner. If a file cannot be removed now, maintenance tries again.
        if let Err(error) = self.remove_deleted_job(job) {
            log::warn!("files of the deleted job {job}: {error:?}");
        }
        Ok(())
    }

    /// What can be fetched of a job.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown job, and for one that does not have it (yet).
    pub fn artifact(&self, user: UserId, job: JobId, kind: ArtifactKind) -> Result<Artifact> {
        let Some(found) = self.inner.database.artifact(user, job, kind)? else {
            self.job(user, job)?;
            let what = match kind {
                ArtifactKind::Ply => "PLY file",
                ArtifactKind::Spz => "SPZ file",
                ArtifactKind::Preview => "Preview",
                ArtifactKind::Report => "Report",
                ArtifactKind::Log => "Log",
                ArtifactKind::Cameras => "Camera poses",
                ArtifactKind::Masks => "Masks",
                ArtifactKind::Turntable => "Turntable",
                ArtifactKind::Sog => "SOG file",
                ArtifactKind::Glb => "GLB file",
                ArtifactKind::FirstLook => "First look",
                ArtifactKind::Poses => "Picture of the camera poses",
            };
            return Err(Error::new(ErrorKind::NotFound, format!("{what} not available for this job")));
        };
        Ok(Artifact::new(job, kind, found))
    }

    /// Opens a blob whose key came from [`Service::artifact`] or [`Service::public_artifact`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it was deleted since.
    pub fn open_blob(&self, key: &BlobKey) -> Result<BlobReader> {
        self.inner.storage.open(key)
    }

    /// An address of the storage itself from which whoever holds it can fetch the artifact within `lifetime`; what the answer there
    /// says of itself is up to the caller. Nothing where the storage has no addresses: then [`Service::open_blob`] is the way.
    ///
    /// # Errors
    /// What keeps the storage from signing it.
    pub fn artifact_address(
        &self,
        artifact: &Artifact,
        lifetime: Duration,
        answer: &DownloadAnswer<'_>,
    ) -> Result<Option<String>> {
        self.inner.storage.download_address(&artifact.key, lifetime, answer)
    }

    /// Writes an artifact to a file of the caller's: whole or not at all, and durable when this returns.
    ///
    /// # Errors
    /// Those of [`Service::open_blob`]; [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
    pub fn save_artifact(&self, artifact: &Artifact, path: &Path) -> Result<()> {
        let mut blob = self.open_blob(&artifact.key)?;
        write_atomically(path, |file| std::io::copy(&mut blob.file, file).map(drop))
    }

    /// The blob as a local file, if the storage has local files.
    pub fn local_path(&self, key: &BlobKey) -> Option<std::path::PathBuf> {
        self.inner.storage.local_path(key)
    }

    /// What the worker wrote about a job, so far.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such job; one that has not begun has an empty log.
    pub fn log(&self, user: UserId, job: JobId) -> Result<String> {
        let mut bytes = Vec::new();
        match self.artifact(user, job, ArtifactKind::Log) {
            Ok(artifact) => {
                let mut log = self.open_blob(&artifact.key)?;
                log.file.read_to_end(&mut bytes).map_err(|e| Error::io("read", Path::new("the log"), e))?;
            }
            Err(_) => {
                self.job(user, job)?;
                bytes = self.inner.workspaces.read_log(job)?;
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until the `details.version` of the job is no longer `seen`, but at most for `timeout`, and returns the
    /// job. Changes by this process are noticed at once, those of others within a second.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], also if it is deleted meanwhile.
    pub fn wait(&self, user: UserId, job: JobId, seen: u64, timeout: Duration) -> Result<Job> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let mark = self.inner.changes.mark();
            let version = self.job_version(user, job)?;
            let left = end.map_or(POLL, |end| end.saturating_duration_since(Instant::now()));
            if version != seen || left.is_zero() {
                return self.job(user, job);
            }
            self.inner.changes.wait_since(mark, left.min(POLL));
        }
    }

    /// Jobs of all users, newest first. For the operator of the machine: no request may reach this.
    ///
    /// # Errors
    /// The database's.
    pub fn all_jobs(&self) -> Result<Vec<Job>> {
        self.inner.database.all_jobs()
    }
}

/// The text with the last part in place of every absolute path that stands in it as a word.
fn last_parts_of_paths(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`),;:".contains(c);
    let mut short = String::new();
    let mut before = ' ';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        let is_path = c == '/' && !before.is_alphanumeric() && word.matches('/').count() >= 2;
        if is_path {
            short.push_str(word.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
            rest = &rest[word.len()..];
            before = '/';
        } else {
            short.push(c);
            rest = &rest[c.len_utf8()..];
            before = c;
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_folders() {
        for (text, short) in [
            ("cannot open /usr/lib/x/model.onnx: no such file", "cannot open model.onnx: no such file"),
            ("'/opt/ffmpeg/bin/ffmpeg' ended (signal 9)", "'ffmpeg' ended (signal 9)"),
            ("cannot write /srv/a b/c", "cannot write a b/c"),
            ("3 frames/s of 1/2 or and/or are fine", "3 frames/s of 1/2 or and/or are fine"),
            ("the folder /tmp/", "the folder tmp"),
            ("ä/ö/ü und /ä/ö", "ä/ö/ü und ö"),
            ("", ""),
        ] {
            assert_eq!(last_parts_of_paths(text), short);
        }
    }
}
