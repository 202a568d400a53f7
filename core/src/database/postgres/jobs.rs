//! Jobs as their owners see them.

use super::PostgresDatabase;
use super::connection::Sql;
use super::session::{Row, Session};
use super::values::{IntoColumn, Json, Name, Value, json, values, version_column};
use crate::database::{
    DeletedJob, FileOwner, Inserted, JobRows, LivePicture, NewJob, QueueOrder, StoredArtifact, Usage,
};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{
    ArtifactKind, BLOB_NOT_FOUND, CameraData, CameraType, CameraUpdate, Cursor, Failure, Job, JobDetails,
    JobId, JobPage, JobState, JobStatus, JobSummary, JobUpdate, Limits, ListQuery, Submitted, Timestamp,
    UserId, Xyz,
};

/// Of a user, in a query of `users`: how many of its jobs run.
const RUNNING: &str =
    "(SELECT count(*) FROM jobs AS busy WHERE busy.user_id = users.user_id AND busy.state = 'running')";

/// The columns of jobs; the last is the place in the queue, from 1, where `position` says how to find it.
fn columns(position: &str) -> String {
    format!(
        "SELECT job_id, title, state, percent, uploaded_at, public, method, gaussians, steps,
            remove_background, has_ply, has_spz, user_view, found_view,
            coalesce(user_camera_type, asked_camera_type), user_id, blob_name, apriltag_size_mm, stage, stage_fraction,
            attempt, warnings, failure_code, failure_message, started_at, finished_at, updated_at, version,
            CASE WHEN state = 'running' THEN stage_ends_at END,
            CASE WHEN state = 'queued' THEN {position} END
        FROM jobs"
    )
}

/// The query of one job: its place is counted by the jobs before it, so a job that comes up soon costs little.
fn job_query(order: QueueOrder) -> String {
    columns(&match order {
        QueueOrder::Submitted => "(SELECT count(*) FROM jobs AS waiting
            WHERE waiting.state = 'queued' AND NOT waiting.deleted AND waiting.seq <= jobs.seq)"
            .to_owned(),
        // Of each user no more jobs are looked at than have their turn before this one.
        QueueOrder::Users => format!(
            "(SELECT count(*) FROM
                (SELECT served, {RUNNING} + (SELECT count(*) FROM jobs AS own WHERE own.user_id = jobs.user_id
                    AND own.state = 'queued' AND NOT own.deleted AND own.seq <= jobs.seq) AS turn
                 FROM users WHERE users.user_id = jobs.user_id) AS mine
                CROSS JOIN (SELECT user_id, served, {RUNNING} AS running FROM users OFFSET 0) AS other
                CROSS JOIN LATERAL (SELECT seq, other.running + row_number() OVER (ORDER BY seq) AS turn
                    FROM jobs AS waiting
                    WHERE waiting.user_id = other.user_id AND waiting.state = 'queued' AND NOT waiting.deleted
                    ORDER BY seq LIMIT greatest(0, mine.turn - other.running)) AS ahead
                WHERE (ahead.turn, other.served, ahead.seq) <= (mine.turn, mine.served, jobs.seq))"
        ),
    })
}

/// The query of all jobs: the whole queue is put into its order once.
fn jobs_query(order: QueueOrder) -> String {
    const WAITING: &str = "state = 'queued' AND NOT deleted";
    let line = match order {
        QueueOrder::Submitted => {
            format!("SELECT job_id, row_number() OVER (ORDER BY seq) AS position FROM jobs WHERE {WAITING}")
        }
        // As if no job ended and no other came: the second waiting job of a user comes up when each of the others has had
        // one turn more.
        QueueOrder::Users => format!(
            "SELECT job_id, row_number() OVER (ORDER BY turn, served, seq) AS position FROM (
                SELECT job_id, served, seq, running + row_number() OVER (PARTITION BY user_id ORDER BY seq) AS turn
                FROM jobs JOIN (SELECT user_id, served, {RUNNING} AS running FROM users OFFSET 0) AS owner USING (user_id)
                WHERE {WAITING}) AS turns"
        ),
    };
    format!("{} LEFT JOIN ({line}) AS line USING (job_id)", columns("line.position"))
}

/// An artifact of a job; a condition says who may see it.
const ARTIFACT: &str = "SELECT artifacts.attempt, size, title FROM artifacts JOIN jobs USING (job_id)
    WHERE job_id = $1 AND kind = $2 AND NOT deleted";

/// Jobs that everybody may see (rule 72 of docs/rest.md).
const IS_PUBLIC: &str = "public AND state = 'finished'";

/// Where a viewer's camera starts, as it stands in a column.
#[derive(serde::Serialize, serde::Deserialize)]
struct StoredCamera {
    position: Xyz,
    look_at: Xyz,
    up: Xyz,
}

/// The view of `camera` as a column.
pub(super) fn view_column(camera: &CameraData) -> Result<String> {
    json(&StoredCamera { position: camera.position, look_at: camera.look_at, up: camera.up })
}

fn job(row: &Row) -> Sql<Job> {
    let state: String = row.get(2)?;
    let percent_complete: Option<u8> = row.get(3)?;
    let view = |column| row.get::<Option<Json<StoredCamera>>>(column);
    let camera_type = row.get::<Option<Name<CameraType>>>(14)?.map_or(CameraType::default(), |n| n.0);
    let camera_data = match view(12)?.or(view(13)?) {
        Some(Json(StoredCamera { position, look_at, up })) => {
            CameraData { position, look_at, up, camera_type }
        }
        None => CameraData { camera_type, ..CameraData::default() },
    };
    let failure = match row.get::<Option<String>>(22)? {
        Some(code) => Some(Failure { code, message: row.get(23)? }),
        None => None,
    };
    let status = match state.as_str() {
        "queued" => JobStatus::Queued { position: row.get(29)? },
        "running" if percent_complete.is_none() => JobStatus::ProcessingVideo,
        "running" => JobStatus::GeneratingScene,
        "finished" => JobStatus::Finished,
        _ if failure.as_ref().is_some_and(Failure::is_of_a_missing_video) => JobStatus::NotFound,
        _ => JobStatus::Failed,
    };
    let (Name(reconstruction_method), Json(warnings)) = (row.get(6)?, row.get(21)?);
    Ok(Job {
        job_id: row.get(0)?,
        title: row.get(1)?,
        status,
        percent_complete,
        uploaded_at: row.get(4)?,
        public: row.get(5)?,
        reconstruction_method,
        training_max_num_gaussians: row.get(7)?,
        training_num_steps: row.get(8)?,
        remove_background: row.get(9)?,
        has_ply: row.get(10)?,
        has_spz: row.get(11)?,
        camera_data,
        details: JobDetails {
            owner: row.get(15)?,
            blob_name: row.get(16)?,
            apriltag_size_mm: row.get(17)?,
            stage: row.get::<Option<Name<_>>>(18)?.map(|n| n.0),
            stage_fraction: row.get(19)?,
            attempt: row.get(20)?,
            warnings,
            failure,
            started_at: row.get(24)?,
            finished_at: row.get(25)?,
            updated_at: row.get(26)?,
            version: row.get(27)?,
            stage_ends_at: row.get(28)?,
        },
    })
}

fn artifact(row: &Row) -> Sql<StoredArtifact> {
    Ok(StoredArtifact { attempt: row.get(0)?, size: row.get(1)?, title: row.get(2)? })
}

fn find(c: &Session, order: QueueOrder, user: UserId, id: JobId) -> Sql<Option<Job>> {
    let jobs = job_query(order);
    c.first(&format!("{jobs} WHERE job_id = $1 AND user_id = $2 AND NOT deleted"), values![id, user], job)
}

/// The stored answer to an idempotency key.
fn answer(c: &Session, user: UserId, key: &str, hash: &[u8; 32], since: Timestamp) -> Sql<Option<Submitted>> {
    const STORED: &str =
        "SELECT body_hash, answer FROM idempotency WHERE user_id = $1 AND key = $2 AND created_at >= $3";
    let found = c.first(STORED, values![user, key, since], |r| {
        Ok((r.get::<[u8; 32]>(0)?, r.get::<Json<Submitted>>(1)?))
    })?;
    match found {
        Some((before, _)) if before != *hash => Err(Error::new(
            ErrorKind::IdempotencyMismatch,
            "The idempotency key was used with another request",
        )
        .hint("use a new key for a new request")
        .into()),
        Some((_, Json(answer))) => Ok(Some(answer)),
        None => Ok(None),
    }
}

impl JobRows for PostgresDatabase {
    fn insert_job(&self, new: &NewJob, limits: &Limits) -> Result<Inserted> {
        let request = &new.request;
        self.write("database.insert_job.commit", |t| {
            let now = self.now(t)?;
            let since = now.minus_seconds(limits.idempotency_hours * 3600);
            // Submissions of one user come one after the other: each counts what those before it have left.
            t.exists("SELECT 1 FROM users WHERE user_id = $1 FOR NO KEY UPDATE", values![new.user])?;
            if let Some((key, hash)) = &new.idempotency
                && let Some(before) = answer(t, new.user, key, hash, since)?
            {
                return Ok(Inserted::Before(before));
            }
            const VIDEO: &str = "SELECT version, file_name FROM uploads
                WHERE blob_name = $1 AND user_id = $2 AND NOT deleted AND version IS NOT NULL FOR UPDATE";
            let video = t.first(VIDEO, values![request.blob_name, new.user], |r| {
                Ok((r.get::<i64>(0)?, r.get::<Option<String>>(1)?))
            })?;
            let (version, file_name) = video.ok_or_else(|| Error::argument(BLOB_NOT_FOUND))?;
            if version != version_column(new.video_version) {
                return Ok(Inserted::VideoChanged);
            }
            check_quota(t, new, limits)?;
            // The upload says what the video was called; a client that gave no name gets that of the blob.
            let title = request.title.clone().or(file_name).unwrap_or_else(|| {
                format!("{}.{}", request.blob_name.id.as_hyphenated(), request.blob_name.extension)
            });
            const INSERT: &str =
                "INSERT INTO jobs (job_id, user_id, blob_name, title, uploaded_at, public, method,
                gaussians, steps, apriltag_size_mm, remove_background, asked_camera_type, state, updated_at)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'queued', $5)";
            let values = values![
                new.job_id,
                new.user,
                request.blob_name,
                title,
                now,
                request.public,
                Name(request.reconstruction_method),
                request.training_max_num_gaussians,
                request.training_num_steps,
                request.apriltag_size_mm,
                request.remove_background,
                request.camera_type.map(Name)
            ];
            t.run(INSERT, values)?;
            t.run("UPDATE uploads SET submitted = TRUE WHERE blob_name = $1", values![request.blob_name])?;
            let submitted = Submitted {
                success: true,
                job_id: new.job_id,
                title,
                status: JobStatus::SUBMITTED.to_owned(),
                uploaded_at: now,
                public: request.public,
                reconstruction_method: request.reconstruction_method,
                training_max_num_gaussians: request.training_max_num_gaussians,
                training_num_steps: request.training_num_steps,
                remove_background: request.remove_background,
            };
            t.run("DELETE FROM idempotency WHERE created_at < $1", values![since])?;
            if let Some((key, hash)) = &new.idempotency {
                const INSERT: &str =
                    "INSERT INTO idempotency (user_id, key, body_hash, answer, created_at, job_id)
                    VALUES ($1, $2, $3, $4, $5, $6)";
                t.run(INSERT, values![new.user, key, hash, json(&submitted)?, now, new.job_id])?;
            }
            Ok(Inserted::Added(submitted))
        })
    }

    fn usage(&self, user: UserId) -> Result<Usage> {
        self.read(|c| {
            Ok(Usage { waiting_jobs: waiting_jobs(c, user)?, stored_bytes: stored_bytes(c, user)? })
        })
    }

    fn idempotent_answer(
        &self,
        user: UserId,
        key: &str,
        body_hash: &[u8; 32],
        hours: u64,
    ) -> Result<Option<Submitted>> {
        self.read(|c| {
            let since = self.now(c)?.minus_seconds(hours * 3600);
            answer(c, user, key, body_hash, since)
        })
    }

    fn list_jobs(&self, user: UserId, query: &ListQuery) -> Result<JobPage> {
        let mut sql =
            "SELECT job_id, title, uploaded_at FROM jobs WHERE user_id = $1 AND NOT deleted".to_owned();
        let mut values = vec![user.value()];
        let mut place = |value: Value| {
            values.push(value);
            format!("${}", values.len())
        };
        if let Some(Cursor { uploaded_at, job_id }) = query.cursor {
            let (time, job) = (place(uploaded_at.value()), place(job_id.value()));
            sql += &format!(" AND (uploaded_at, job_id) < ({time}, {job})");
        }
        if let Some(public) = query.public {
            sql += &format!(" AND public = {}", place(public.value()));
        }
        sql += match query.status {
            None => "",
            Some(JobState::Queued) => " AND state = 'queued'",
            Some(JobState::ProcessingVideo) => " AND state = 'running' AND percent IS NULL",
            Some(JobState::GeneratingScene) => " AND state = 'running' AND percent IS NOT NULL",
            Some(JobState::Finished) => " AND state = 'finished'",
            Some(JobState::Failed) => {
                " AND state = 'failed' AND failure_code IS DISTINCT FROM 'video_missing'"
            }
            Some(JobState::NotFound) => " AND state = 'failed' AND failure_code = 'video_missing'",
        };
        sql += " ORDER BY uploaded_at DESC, job_id DESC";
        if let Some(limit) = query.limit {
            // One more than asked for says whether there is another page.
            sql += &format!(" LIMIT {}", place((i64::from(limit) + 1).value()));
        }
        let found = self.read(|c| {
            c.all(&sql, &values, |row| {
                let (job_id, title) = (row.get(0)?, row.get(1)?);
                Ok((JobSummary { job_id, title }, Cursor { uploaded_at: row.get(2)?, job_id }))
            })
        })?;
        let most = query.limit.map_or(usize::MAX, |limit| limit as usize);
        let next = if found.len() > most {
            found.get(most.wrapping_sub(1)).map(|(_, cursor)| *cursor)
        } else {
            None
        };
        Ok(JobPage { jobs: found.into_iter().take(most).map(|(job, _)| job).collect(), next })
    }

    fn job(&self, user: UserId, job: JobId) -> Result<Option<Job>> {
        self.read(|c| find(c, self.order, user, job))
    }

    fn job_version(&self, user: UserId, job: JobId) -> Result<Option<u64>> {
        const VERSION: &str = "SELECT version FROM jobs WHERE job_id = $1 AND user_id = $2 AND NOT deleted";
        self.read(|c| c.first(VERSION, values![job, user], |r| r.get(0)))
    }

    fn update_job(&self, user: UserId, job: JobId, update: &JobUpdate) -> Result<Option<Job>> {
        if *update == JobUpdate::default() {
            return self.job(user, job);
        }
        self.write("database.update_job.commit", |t| {
            let now = self.now(t)?;
            let set = |columns: &str, value: Value| -> Sql<()> {
                let sql =
                    format!("UPDATE jobs SET {columns} WHERE job_id = $1 AND user_id = $2 AND NOT deleted");
                t.run(&sql, &[job.value(), user.value(), value]).map(drop)
            };
            if let Some(title) = &update.title {
                set("title = $3", title.as_str().value())?;
            }
            if let Some(public) = update.public {
                set("public = $3", public.value())?;
            }
            match update.camera_data {
                Some(CameraUpdate::Reset) => set("user_view = $3, user_camera_type = NULL", Value::Null)?,
                Some(CameraUpdate::Set { position, look_at, up, camera_type }) => {
                    set("user_view = $3", json(&StoredCamera { position, look_at, up })?.value())?;
                    if let Some(camera_type) = camera_type {
                        set("user_camera_type = $3", Name(camera_type).value())?;
                    }
                }
                None => {}
            }
            set("updated_at = $3, version = version + 1", now.value())?;
            find(t, self.order, user, job)
        })
    }

    fn cancel_job(&self, user: UserId, job: JobId, failure: &Failure) -> Result<Option<Job>> {
        self.write("database.cancel_job.commit", |t| {
            let now = self.now(t)?;
            t.run(
                "UPDATE jobs SET state = 'failed', failure_code = $3, failure_message = $4, finished_at = $5,
                    updated_at = $5, version = version + 1,
                    lease_owner = NULL, lease_worker = NULL, lease_boot = NULL, lease_until = NULL
                 WHERE job_id = $1 AND user_id = $2 AND NOT deleted AND state IN ('queued', 'running')",
                values![job, user, failure.code, failure.message, now],
            )?;
            find(t, self.order, user, job)
        })
    }

    fn mark_deleted(&self, user: UserId, job: JobId) -> Result<bool> {
        self.write("database.mark_deleted.commit", |t| {
            let now = self.now(t)?;
            let blob: Option<String> = t.first(
                "UPDATE jobs SET deleted = TRUE, updated_at = $3, version = version + 1
                     WHERE job_id = $1 AND user_id = $2 AND NOT deleted RETURNING blob_name",
                values![job, user, now],
                |r| r.get(0),
            )?;
            let Some(blob) = blob else { return Ok(false) };
            // Nobody is to be told of a job that is gone.
            t.run("DELETE FROM idempotency WHERE job_id = $1", values![job])?;
            // A submission holds the row of its upload while it adds its job. To wait for it in the statement that looks for
            // other jobs would be too late: that sees the jobs of its own beginning.
            t.exists("SELECT 1 FROM uploads WHERE blob_name = $1 FOR UPDATE", values![blob])?;
            t.run(
                "UPDATE uploads SET deleted = TRUE WHERE blob_name = $1
                 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.blob_name = $1 AND NOT jobs.deleted)",
                values![blob],
            )?;
            Ok(true)
        })
    }

    fn artifact(&self, user: UserId, job: JobId, kind: ArtifactKind) -> Result<Option<StoredArtifact>> {
        let sql = format!("{ARTIFACT} AND user_id = $3");
        self.read(|c| c.first(&sql, values![job, Name(kind), user], artifact))
    }

    fn live_picture(&self, user: UserId, job: JobId) -> Result<Option<LivePicture>> {
        const FIND: &str = "SELECT picture, made_at FROM live_pictures JOIN jobs USING (job_id)
            WHERE job_id = $1 AND user_id = $2 AND NOT deleted AND state = 'running'";
        self.read(|c| {
            c.first(FIND, values![job, user], |r| Ok(LivePicture { jpeg: r.get(0)?, made_at: r.get(1)? }))
        })
    }

    fn public_job(&self, id: JobId) -> Result<Option<Job>> {
        let sql = format!("{} WHERE job_id = $1 AND NOT deleted AND {IS_PUBLIC}", job_query(self.order));
        self.read(|c| c.first(&sql, values![id], job))
    }

    fn public_artifact(&self, job: JobId, kind: ArtifactKind) -> Result<Option<StoredArtifact>> {
        let sql = format!("{ARTIFACT} AND {IS_PUBLIC}");
        self.read(|c| c.first(&sql, values![job, Name(kind)], artifact))
    }

    fn all_jobs(&self) -> Result<Vec<Job>> {
        let jobs = jobs_query(self.order);
        let sql = format!("{jobs} WHERE NOT deleted ORDER BY uploaded_at DESC, job_id DESC");
        self.read(|c| c.all(&sql, &[], job))
    }

    fn deleted_jobs(&self) -> Result<Vec<DeletedJob>> {
        const AT_REST: &str =
            "SELECT job_id, attempt, blob_name FROM jobs WHERE deleted AND state <> 'running'";
        self.read(|c| {
            c.all(AT_REST, &[], |r| {
                Ok(DeletedJob { job: r.get(0)?, attempt: r.get(1)?, blob_name: r.get(2)? })
            })
        })
    }

    fn forget_job(&self, job: JobId) -> Result<()> {
        self.write("database.forget_job.commit", |t| {
            t.run("DELETE FROM jobs WHERE job_id = $1 AND deleted", values![job])?;
            Ok(())
        })
    }

    fn file_owner(&self, job: JobId) -> Result<FileOwner> {
        self.read(|c| {
            let state: Option<String> =
                c.first("SELECT state FROM jobs WHERE job_id = $1", values![job], |r| r.get(0))?;
            match state.as_deref() {
                None => Ok(FileOwner::Nobody),
                Some("queued" | "running") => Ok(FileOwner::Unfinished),
                Some(_) => {
                    const KEPT: &str = "SELECT kind, attempt FROM artifacts WHERE job_id = $1";
                    let kept = c.all(KEPT, values![job], |r| Ok((r.get::<Name<_>>(0)?.0, r.get(1)?)))?;
                    Ok(FileOwner::Ended(kept))
                }
            }
        })
    }
}

fn waiting_jobs(c: &Session, user: UserId) -> Sql<u64> {
    const WAITING: &str = "SELECT count(*) FROM jobs WHERE state = 'queued' AND NOT deleted AND user_id = $1";
    Ok(c.first(WAITING, values![user], |r| r.get(0))?.unwrap_or_default())
}

fn stored_bytes(c: &Session, user: UserId) -> Sql<u64> {
    const STORED: &str = "SELECT ((SELECT coalesce(sum(coalesce(size, 0) + CASE WHEN submitted THEN 0 ELSE waiting_bytes END), 0)
            FROM uploads WHERE user_id = $1)
        + (SELECT coalesce(sum(artifacts.size), 0) FROM jobs JOIN artifacts USING (job_id)
           WHERE user_id = $1 AND NOT deleted))::bigint";
    Ok(c.first(STORED, values![user], |r| r.get(0))?.unwrap_or_default())
}

fn check_quota(t: &Session, new: &NewJob, limits: &Limits) -> Sql<()> {
    let waiting = waiting_jobs(t, new.user)?;
    if waiting >= limits.max_queued_jobs {
        return Err(Error::new(ErrorKind::TooManyRequests, format!("{waiting} jobs are waiting already"))
            .hint("wait for some of them, or delete some")
            .into());
    }
    let Some(most) = limits.max_stored_bytes else { return Ok(()) };
    let stored = stored_bytes(t, new.user)?;
    if stored > most {
        return Err(Error::argument(format!("{stored} bytes are stored; {most} are allowed"))
            .hint("delete jobs that are no longer needed")
            .into());
    }
    Ok(())
}
