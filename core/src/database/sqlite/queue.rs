//! Jobs as workers see them.

use rusqlite::{Connection, Row, params};

use super::jobs::view_column;
use super::values::{Name, json};
use super::{Sql, SqliteDatabase, all, first, run};
use crate::database::{Claim, Lease, LeaseState, Progress, Publication, QueueRows, Reclaimed};
use crate::error::Result;
use crate::job::{ArtifactKind, Failure, JobId, JobRequest, Timestamp};

/// The row that a lease holds: the same claim, by the same process.
const HELD: &str = "job_id = ?1 AND attempt = ?2 AND lease_owner = ?3 AND state = 'running'";
/// Lets go of a job.
const FREE: &str = "lease_owner = NULL, lease_worker = NULL, lease_boot = NULL, lease_until = NULL,
    updated_at = ?4, version = version + 1";

fn state(c: &Connection, lease: &Lease) -> Sql<LeaseState> {
    let sql = format!("SELECT deleted FROM jobs WHERE {HELD}");
    let deleted = first(c, &sql, params![lease.job, lease.attempt, lease.owner], |r| r.get(0))?;
    Ok(match deleted {
        Some(false) => LeaseState::Held,
        Some(true) => LeaseState::Deleted,
        None => LeaseState::Lost,
    })
}

fn put_artifact(c: &Connection, lease: &Lease, kind: ArtifactKind, size: u64) -> Sql<()> {
    run(
        c,
        "INSERT OR REPLACE INTO artifacts (job_id, kind, attempt, size) VALUES (?1, ?2, ?3, ?4)",
        params![lease.job, Name(kind), lease.attempt, size],
    )?;
    Ok(())
}

/// Gives a running job back; `crash` is what it fails with if it had its last chance.
fn give_back(
    c: &Connection,
    lease: &Lease,
    now: Timestamp,
    crash: Option<&Failure>,
    max_attempts: u32,
) -> Sql<GivenBack> {
    let key = params![lease.job, lease.attempt, lease.owner, now];
    let row = first(c, &format!("SELECT deleted, crashes FROM jobs WHERE {HELD}"), &key[..3], |r| {
        Ok((r.get::<_, bool>(0)?, r.get::<_, u32>(1)?))
    })?;
    let Some((deleted, crashes)) = row else { return Ok(GivenBack::Lost) };
    let crashes = crashes + u32::from(crash.is_some());
    match crash {
        // Nobody sees a deleted job; it only has to be at rest.
        _ if deleted => {
            run(c, &format!("UPDATE jobs SET state = 'failed', {FREE} WHERE {HELD}"), key)?;
            Ok(GivenBack::Lost)
        }
        Some(failure) if crashes >= max_attempts => {
            let sql = format!(
                "UPDATE jobs SET state = 'failed', crashes = ?5, failure_code = ?6, failure_message = ?7,
                    finished_at = ?4, {FREE} WHERE {HELD}"
            );
            run(c, &sql, &[key, params![crashes, failure.code, failure.message]].concat()[..])?;
            Ok(GivenBack::Failed)
        }
        _ => {
            let sql = format!(
                "UPDATE jobs SET state = 'queued', crashes = ?5, stage = NULL, stage_fraction = 0, percent = NULL, {FREE}
                 WHERE {HELD}"
            );
            run(c, &sql, &[key, params![crashes]].concat()[..])?;
            Ok(GivenBack::Queued)
        }
    }
}

enum GivenBack {
    Queued,
    Failed,
    Lost,
}

fn request(row: &Row<'_>) -> rusqlite::Result<JobRequest> {
    let Name(reconstruction_method) = row.get(3)?;
    Ok(JobRequest {
        blob_name: row.get(0)?,
        title: row.get(1)?,
        public: row.get(2)?,
        reconstruction_method,
        training_max_num_gaussians: row.get(4)?,
        training_num_steps: row.get(5)?,
        apriltag_size_mm: row.get(6)?,
        remove_background: row.get(7)?,
        camera_type: row.get::<_, Option<Name<_>>>(8)?.map(|n| n.0),
    })
}

impl QueueRows for SqliteDatabase {
    fn claim(&self, owner: &str, worker: &str, lease_seconds: u64) -> Result<Option<Claim>> {
        const FIRST: &str =
            "SELECT jobs.blob_name, title, public, method, gaussians, steps, apriltag_size_mm,
                remove_background, asked_camera_type, job_id, attempt, version_of_video
            FROM jobs JOIN (SELECT blob_name, version AS version_of_video FROM uploads) USING (blob_name)
            WHERE state = 'queued' AND jobs.deleted = 0 ORDER BY seq LIMIT 1";
        // An idle worker looks often; it takes the write lock only if there is something to take.
        if !self.read(|c| Ok(c.prepare_cached(FIRST)?.exists([])?))? {
            return Ok(None);
        }
        let now = self.clock.now();
        let until = self.clock.lease_micros() + seconds(lease_seconds);
        self.write("database.claim.commit", |t| {
            let first = first(t, FIRST, [], |row| {
                    let (job, attempt): (JobId, u32) = (row.get(9)?, row.get(10)?);
                    let lease = Lease { job, attempt: attempt + 1, owner: owner.to_owned() };
                    let version: i64 = row.get(11)?;
                    Ok(Claim { lease, request: request(row)?, video_version: version.cast_unsigned() })
                })?;
            let Some(claim) = first else { return Ok(None) };
            const BEGIN: &str = "UPDATE jobs SET state = 'running', attempt = ?2, stage = NULL, stage_fraction = 0,
                percent = NULL, lease_owner = ?3, lease_worker = ?4, lease_boot = ?5, lease_until = ?6,
                started_at = ifnull(started_at, ?7), updated_at = ?7, version = version + 1 WHERE job_id = ?1";
            let Lease { job, attempt, .. } = claim.lease;
            run(t, BEGIN, params![job, attempt, owner, worker, self.clock.boot(), until, now])?;
            Ok(Some(claim))
        })
    }

    fn heartbeat(&self, lease: &Lease, lease_seconds: u64) -> Result<LeaseState> {
        let until = self.clock.lease_micros() + seconds(lease_seconds);
        self.write("database.heartbeat.commit", |t| {
            let sql = format!("UPDATE jobs SET lease_until = ?4 WHERE {HELD}");
            run(t, &sql, params![lease.job, lease.attempt, lease.owner, until])?;
            state(t, lease)
        })
    }

    fn lease_state(&self, lease: &Lease) -> Result<LeaseState> {
        self.read(|c| state(c, lease))
    }

    fn progress(&self, lease: &Lease, progress: &Progress) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.progress.commit", |t| {
            let sql = format!(
                "UPDATE jobs SET stage = ?4, stage_fraction = ?5, updated_at = ?7, version = version + 1,
                    percent = CASE WHEN ?6 IS NULL THEN percent ELSE min(99, max(ifnull(percent, 0), ?6)) END
                 WHERE {HELD} AND deleted = 0"
            );
            let Lease { job, attempt, owner } = lease;
            let Progress { stage, fraction, percent } = *progress;
            run(t, &sql, params![job, attempt, owner, Name(stage), fraction, percent, now])?;
            state(t, lease)
        })
    }

    fn publish(&self, lease: &Lease, publication: &Publication) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.publish.commit", |t| {
            let sql = format!(
                "UPDATE jobs SET state = 'finished', percent = 100, has_ply = 1, has_spz = 1, found_view = ?5,
                    warnings = ?6, finished_at = ?4, {FREE} WHERE {HELD} AND deleted = 0"
            );
            let Lease { job, attempt, owner } = lease;
            let (view, warnings) = (view_column(&publication.camera)?, json(&publication.warnings)?);
            let changed = run(t, &sql, params![job, attempt, owner, now, view, warnings])?;
            if changed == 0 {
                return state(t, lease);
            }
            for (kind, size) in &publication.artifacts {
                put_artifact(t, lease, *kind, *size)?;
            }
            Ok(LeaseState::Held)
        })
    }

    fn fail(&self, lease: &Lease, failure: &Failure, log_size: Option<u64>) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.fail.commit", |t| {
            let sql = format!(
                "UPDATE jobs SET state = 'failed', failure_code = ?5, failure_message = ?6, finished_at = ?4, {FREE}
                 WHERE {HELD} AND deleted = 0"
            );
            let Lease { job, attempt, owner } = lease;
            let changed =
                run(t, &sql, params![job, attempt, owner, now, failure.code, failure.message])?;
            if changed == 0 {
                return state(t, lease);
            }
            if let Some(size) = log_size {
                put_artifact(t, lease, ArtifactKind::Log, size)?;
            }
            Ok(LeaseState::Held)
        })
    }

    fn release(&self, lease: &Lease, crash: Option<&Failure>, max_attempts: u32) -> Result<()> {
        let now = self.clock.now();
        self.write("database.release.commit", |t| give_back(t, lease, now, crash, max_attempts).map(drop))
    }

    fn reclaim(&self, is_alive: &dyn Fn(&str) -> bool, max_attempts: u32) -> Result<Reclaimed> {
        let dead = self.read(|c| {
            const RUNNING: &str = "SELECT job_id, attempt, lease_owner, lease_boot = ?1 AND lease_until > ?2
                FROM jobs WHERE state = 'running'";
            let now = params![self.clock.boot(), self.clock.lease_micros()];
            let rows = all(c, RUNNING, now, |r| {
                Ok((Lease { job: r.get(0)?, attempt: r.get(1)?, owner: r.get(2)? }, r.get::<_, bool>(3)?))
            })?;
            Ok(rows
                .into_iter()
                .filter(|(l, timely)| !timely || !is_alive(&l.owner))
                .map(|(l, _)| l)
                .collect::<Vec<_>>())
        })?;
        let mut reclaimed = Reclaimed::default();
        if dead.is_empty() {
            return Ok(reclaimed);
        }
        let now = self.clock.now();
        let failure = Failure {
            code: "crashed".into(),
            message: format!("the worker died {max_attempts} times while it worked on this video"),
        };
        self.write("database.reclaim.commit", |t| {
            for lease in &dead {
                match give_back(t, lease, now, Some(&failure), max_attempts)? {
                    GivenBack::Queued => reclaimed.queued.push(lease.job),
                    GivenBack::Failed => reclaimed.failed.push(lease.job),
                    GivenBack::Lost => {}
                }
            }
            Ok(reclaimed)
        })
    }
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX / 2_000_000) * 1_000_000
}
