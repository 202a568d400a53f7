//! Jobs as their owners see them.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::values::{Json, Name, RUNNING, json, version_column};
use super::{Sql, SqliteDatabase, all, first, run};
use crate::database::{
    DeletedJob, FileOwner, Inserted, JobRows, LivePicture, NewJob, QueueOrder, StoredArtifact, Usage,
};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{
    ArtifactKind, BLOB_NOT_FOUND, CameraData, CameraType, CameraUpdate, Cursor, Failure, Job, JobDetails,
    JobId, JobPage, JobState, JobStatus, JobSummary, JobUpdate, Limits, ListQuery, Submitted, Timestamp,
    UserId, Xyz,
};

/// The columns of a job; the last is its place in the queue, from 1.
fn job_query(order: QueueOrder) -> String {
    let position = match order {
        QueueOrder::Submitted => "(SELECT count(*) FROM jobs AS waiting
            WHERE waiting.state = 'queued' AND waiting.deleted = 0 AND waiting.seq <= jobs.seq)"
            .to_owned(),
        // As if no job ended and no other came: the second waiting job of a user comes up when each of the others has had
        // one turn more.
        QueueOrder::Users => format!(
            "(SELECT position FROM (SELECT job_id, row_number() OVER (ORDER BY turn, served, seq) AS position FROM (
                SELECT job_id, served, seq,
                    {RUNNING} + row_number() OVER (PARTITION BY user_id ORDER BY seq) AS turn
                FROM jobs JOIN users USING (user_id) WHERE state = 'queued' AND deleted = 0)) AS line
             WHERE line.job_id = jobs.job_id)"
        ),
    };
    format!(
        "SELECT job_id, title, state, percent, uploaded_at, public, method, gaussians, steps,
            remove_background, has_ply, has_spz, user_view, found_view,
            ifnull(user_camera_type, asked_camera_type), user_id, blob_name, apriltag_size_mm, stage, stage_fraction,
            attempt, warnings, failure_code, failure_message, started_at, finished_at, updated_at, version,
            CASE WHEN state = 'running' THEN stage_ends_at END,
            CASE WHEN state = 'queued' THEN {position} END
        FROM jobs"
    )
}

/// An artifact of a job; a condition says who may see it.
const ARTIFACT: &str = "SELECT artifacts.attempt, size, title FROM artifacts JOIN jobs USING (job_id)
    WHERE job_id = ?1 AND kind = ?2 AND deleted = 0";

/// Jobs that everybody may see (rule 72 of docs/rest.md).
const IS_PUBLIC: &str = "public = 1 AND state = 'finished'";

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

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let state: String = row.get(2)?;
    let percent_complete: Option<u8> = row.get(3)?;
    let view = |column| row.get::<_, Option<Json<StoredCamera>>>(column);
    let camera_type = row.get::<_, Option<Name<CameraType>>>(14)?.map_or(CameraType::default(), |n| n.0);
    let camera_data = match view(12)?.or(view(13)?) {
        Some(Json(StoredCamera { position, look_at, up })) => {
            CameraData { position, look_at, up, camera_type }
        }
        None => CameraData { camera_type, ..CameraData::default() },
    };
    let failure = match row.get::<_, Option<String>>(22)? {
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
            stage: row.get::<_, Option<Name<_>>>(18)?.map(|n| n.0),
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

fn artifact(row: &Row<'_>) -> rusqlite::Result<StoredArtifact> {
    Ok(StoredArtifact { attempt: row.get(0)?, size: row.get(1)?, title: row.get(2)? })
}

fn find(c: &Connection, order: QueueOrder, user: UserId, id: JobId) -> Sql<Option<Job>> {
    let jobs = job_query(order);
    first(c, &format!("{jobs} WHERE job_id = ?1 AND user_id = ?2 AND deleted = 0"), params![id, user], job)
}

/// The stored answer to an idempotency key.
fn answer(
    c: &Connection,
    user: UserId,
    key: &str,
    hash: &[u8; 32],
    since: Timestamp,
) -> Sql<Option<Submitted>> {
    const STORED: &str =
        "SELECT body_hash, answer FROM idempotency WHERE user_id = ?1 AND key = ?2 AND created_at >= ?3";
    let found = first(c, STORED, params![user, key, since], |r| {
        Ok((r.get::<_, [u8; 32]>(0)?, r.get::<_, Json<Submitted>>(1)?))
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

impl JobRows for SqliteDatabase {
    fn insert_job(&self, new: &NewJob, limits: &Limits) -> Result<Inserted> {
        let now = self.clock.now();
        let request = &new.request;
        let since = now.minus_seconds(limits.idempotency_hours * 3600);
        self.write("database.insert_job.commit", |t| {
            if let Some((key, hash)) = &new.idempotency
                && let Some(before) = answer(t, new.user, key, hash, since)?
            {
                return Ok(Inserted::Before(before));
            }
            const VIDEO: &str = "SELECT version, file_name FROM uploads
                WHERE blob_name = ?1 AND user_id = ?2 AND deleted = 0 AND version IS NOT NULL";
            let video = first(t, VIDEO, params![request.blob_name, new.user], |r| {
                Ok((r.get::<_, i64>(0)?, r.get::<_, Option<String>>(1)?))
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
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'queued', ?5)";
            let values = params![
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
            run(t, INSERT, values)?;
            run(t, "UPDATE uploads SET submitted = 1 WHERE blob_name = ?1", [request.blob_name])?;
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
            run(t, "DELETE FROM idempotency WHERE created_at < ?1", [since])?;
            if let Some((key, hash)) = &new.idempotency {
                const INSERT: &str =
                    "INSERT INTO idempotency (user_id, key, body_hash, answer, created_at, job_id)
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                run(t, INSERT, params![new.user, key, hash, json(&submitted)?, now, new.job_id])?;
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
        let since = self.clock.now().minus_seconds(hours * 3600);
        self.read(|c| answer(c, user, key, body_hash, since))
    }

    fn list_jobs(&self, user: UserId, query: &ListQuery) -> Result<JobPage> {
        let mut sql =
            "SELECT job_id, title, uploaded_at FROM jobs WHERE user_id = ? AND deleted = 0".to_owned();
        let mut values: Vec<Value> = vec![user.to_string().into()];
        if let Some(Cursor { uploaded_at, job_id }) = query.cursor {
            sql.push_str(" AND (uploaded_at, job_id) < (?, ?)");
            values.extend([uploaded_at.as_micros().into(), job_id.to_string().into()]);
        }
        if let Some(public) = query.public {
            sql.push_str(" AND public = ?");
            values.push(public.into());
        }
        sql.push_str(match query.status {
            None => "",
            Some(JobState::Queued) => " AND state = 'queued'",
            Some(JobState::ProcessingVideo) => " AND state = 'running' AND percent IS NULL",
            Some(JobState::GeneratingScene) => " AND state = 'running' AND percent IS NOT NULL",
            Some(JobState::Finished) => " AND state = 'finished'",
            Some(JobState::Failed) => " AND state = 'failed' AND failure_code IS NOT 'video_missing'",
            Some(JobState::NotFound) => " AND state = 'failed' AND failure_code = 'video_missing'",
        });
        sql.push_str(" ORDER BY uploaded_at DESC, job_id DESC LIMIT ?");
        // One more than asked for says whether there is another page.
        values.push(query.limit.map_or(-1, |limit| i64::from(limit) + 1).into());
        self.read(|c| {
            let mut statement = c.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            let (mut jobs, mut last) = (Vec::new(), None);
            while let Some(row) = rows.next()? {
                if query.limit.is_some_and(|limit| jobs.len() >= limit as usize) {
                    return Ok(JobPage { jobs, next: last });
                }
                let job_id = row.get(0)?;
                jobs.push(JobSummary { job_id, title: row.get(1)? });
                last = Some(Cursor { uploaded_at: row.get(2)?, job_id });
            }
            Ok(JobPage { jobs, next: None })
        })
    }

    fn job(&self, user: UserId, job: JobId) -> Result<Option<Job>> {
        self.read(|c| find(c, self.order, user, job))
    }

    fn job_version(&self, user: UserId, job: JobId) -> Result<Option<u64>> {
        const VERSION: &str = "SELECT version FROM jobs WHERE job_id = ?1 AND user_id = ?2 AND deleted = 0";
        self.read(|c| first(c, VERSION, params![job, user], |r| r.get(0)))
    }

    fn update_job(&self, user: UserId, job: JobId, update: &JobUpdate) -> Result<Option<Job>> {
        if *update == JobUpdate::default() {
            return self.job(user, job);
        }
        let now = self.clock.now();
        self.write("database.update_job.commit", |t| {
            let key = params![job, user];
            let set = |columns: &str, value: &dyn rusqlite::ToSql| -> Sql<()> {
                let sql =
                    format!("UPDATE jobs SET {columns} WHERE job_id = ?1 AND user_id = ?2 AND deleted = 0");
                run(t, &sql, &[key, &[value]].concat()[..])?;
                Ok(())
            };
            if let Some(title) = &update.title {
                set("title = ?3", title)?;
            }
            if let Some(public) = update.public {
                set("public = ?3", &public)?;
            }
            match update.camera_data {
                Some(CameraUpdate::Reset) => set("user_view = ?3, user_camera_type = NULL", &None::<String>)?,
                Some(CameraUpdate::Set { position, look_at, up, camera_type }) => {
                    set("user_view = ?3", &json(&StoredCamera { position, look_at, up })?)?;
                    if let Some(camera_type) = camera_type {
                        set("user_camera_type = ?3", &Name(camera_type))?;
                    }
                }
                None => {}
            }
            set("updated_at = ?3, version = version + 1", &now)?;
            find(t, self.order, user, job)
        })
    }

    fn cancel_job(&self, user: UserId, job: JobId, failure: &Failure) -> Result<Option<Job>> {
        let now = self.clock.now();
        self.write("database.cancel_job.commit", |t| {
            run(
                t,
                "UPDATE jobs SET state = 'failed', failure_code = ?3, failure_message = ?4, finished_at = ?5,
                    updated_at = ?5, version = version + 1,
                    lease_owner = NULL, lease_worker = NULL, lease_boot = NULL, lease_until = NULL
                 WHERE job_id = ?1 AND user_id = ?2 AND deleted = 0 AND state IN ('queued', 'running')",
                params![job, user, failure.code, failure.message, now],
            )?;
            find(t, self.order, user, job)
        })
    }

    fn mark_deleted(&self, user: UserId, job: JobId) -> Result<bool> {
        let now = self.clock.now();
        self.write("database.mark_deleted.commit", |t| {
            let blob: Option<String> = first(
                t,
                "UPDATE jobs SET deleted = 1, updated_at = ?3, version = version + 1
                     WHERE job_id = ?1 AND user_id = ?2 AND deleted = 0 RETURNING blob_name",
                params![job, user, now],
                |r| r.get(0),
            )?;
            let Some(blob) = blob else { return Ok(false) };
            // Nobody is to be told of a job that is gone.
            run(t, "DELETE FROM idempotency WHERE job_id = ?1", [job])?;
            run(
                t,
                "UPDATE uploads SET deleted = 1 WHERE blob_name = ?1
                 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.blob_name = ?1 AND jobs.deleted = 0)",
                [blob],
            )?;
            Ok(true)
        })
    }

    fn artifact(&self, user: UserId, job: JobId, kind: ArtifactKind) -> Result<Option<StoredArtifact>> {
        let sql = format!("{ARTIFACT} AND user_id = ?3");
        self.read(|c| first(c, &sql, params![job, Name(kind), user], artifact))
    }

    fn live_picture(&self, user: UserId, job: JobId) -> Result<Option<LivePicture>> {
        const FIND: &str = "SELECT picture, made_at FROM live_pictures JOIN jobs USING (job_id)
            WHERE job_id = ?1 AND user_id = ?2 AND deleted = 0 AND state = 'running'";
        self.read(|c| {
            first(c, FIND, params![job, user], |r| Ok(LivePicture { jpeg: r.get(0)?, made_at: r.get(1)? }))
        })
    }

    fn public_job(&self, id: JobId) -> Result<Option<Job>> {
        let sql = format!("{} WHERE job_id = ?1 AND deleted = 0 AND {IS_PUBLIC}", job_query(self.order));
        self.read(|c| first(c, &sql, [id], job))
    }

    fn public_artifact(&self, job: JobId, kind: ArtifactKind) -> Result<Option<StoredArtifact>> {
        let sql = format!("{ARTIFACT} AND {IS_PUBLIC}");
        self.read(|c| first(c, &sql, params![job, Name(kind)], artifact))
    }

    fn all_jobs(&self) -> Result<Vec<Job>> {
        let jobs = job_query(self.order);
        let sql = format!("{jobs} WHERE deleted = 0 ORDER BY uploaded_at DESC, job_id DESC");
        self.read(|c| all(c, &sql, [], job))
    }

    fn deleted_jobs(&self) -> Result<Vec<DeletedJob>> {
        const AT_REST: &str =
            "SELECT job_id, attempt, blob_name FROM jobs WHERE deleted = 1 AND state <> 'running'";
        self.read(|c| {
            all(c, AT_REST, [], |r| {
                Ok(DeletedJob { job: r.get(0)?, attempt: r.get(1)?, blob_name: r.get(2)? })
            })
        })
    }

    fn forget_job(&self, job: JobId) -> Result<()> {
        self.write("database.forget_job.commit", |t| {
            run(t, "DELETE FROM jobs WHERE job_id = ?1 AND deleted = 1", [job])?;
            Ok(())
        })
    }

    fn file_owner(&self, job: JobId) -> Result<FileOwner> {
        self.read(|c| {
            let state: Option<String> =
                first(c, "SELECT state FROM jobs WHERE job_id = ?1", [job], |r| r.get(0))?;
            match state.as_deref() {
                None => Ok(FileOwner::Nobody),
                Some("queued" | "running") => Ok(FileOwner::Unfinished),
                Some(_) => {
                    const KEPT: &str = "SELECT kind, attempt FROM artifacts WHERE job_id = ?1";
                    let kept = all(c, KEPT, [job], |r| Ok((r.get::<_, Name<_>>(0)?.0, r.get(1)?)))?;
                    Ok(FileOwner::Ended(kept))
                }
            }
        })
    }
}

fn waiting_jobs(c: &Connection, user: UserId) -> Sql<u64> {
    const WAITING: &str = "SELECT count(*) FROM jobs WHERE state = 'queued' AND deleted = 0 AND user_id = ?1";
    Ok(c.prepare_cached(WAITING)?.query_row([user], |r| r.get(0))?)
}

fn stored_bytes(c: &Connection, user: UserId) -> Sql<u64> {
    const STORED: &str = "SELECT (SELECT ifnull(sum(ifnull(size, 0) + CASE WHEN submitted THEN 0 ELSE waiting_bytes END), 0) FROM uploads WHERE user_id = ?1)
        + (SELECT ifnull(sum(artifacts.size), 0) FROM jobs JOIN artifacts USING (job_id) WHERE user_id = ?1 AND deleted = 0)";
    Ok(c.prepare_cached(STORED)?.query_row([user], |r| r.get(0))?)
}

fn check_quota(c: &Connection, new: &NewJob, limits: &Limits) -> Sql<()> {
    let waiting = waiting_jobs(c, new.user)?;
    if waiting >= limits.max_queued_jobs {
        return Err(Error::new(ErrorKind::TooManyRequests, format!("{waiting} jobs are waiting already"))
            .hint("wait for some of them, or delete some")
            .into());
    }
    let Some(most) = limits.max_stored_bytes else { return Ok(()) };
    let stored = stored_bytes(c, new.user)?;
    if stored > most {
        return Err(Error::argument(format!("{stored} bytes are stored; {most} are allowed"))
            .hint("delete jobs that are no longer needed")
            .into());
    }
    Ok(())
}
