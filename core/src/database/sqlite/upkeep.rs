//! The rows as a whole, and the files that they name.

use std::path::Path;

use rusqlite::{Connection, Row, params};

use super::accounts::end_all;
use super::connection::Sql;
use super::values::{Name, version_column};
use super::{SqliteDatabase, all, copy, first, run};
use crate::database::{Lost, NamedFile, RowsFile, UpkeepRows};
use crate::error::Result;
use crate::job::{ArtifactKind, BlobName, Failure, JobId};

fn video(row: &Row<'_>) -> rusqlite::Result<NamedFile> {
    let version: i64 = row.get(2)?;
    let file = RowsFile::Video { name: row.get(1)?, version: version.cast_unsigned() };
    Ok(NamedFile { user: row.get(0)?, file, size: row.get(3)?, sha256: row.get(4)? })
}

fn artifact(row: &Row<'_>) -> rusqlite::Result<NamedFile> {
    let Name(kind) = row.get(3)?;
    let file = RowsFile::Artifact { job: row.get(1)?, attempt: row.get(2)?, kind };
    Ok(NamedFile { user: row.get(0)?, file, size: row.get(4)?, sha256: None })
}

/// `most` videos at most and as many artifacts, those of the first jobs in this order.
fn some_files(c: &Connection, order: &str, most: u32) -> Sql<Vec<NamedFile>> {
    let videos = format!(
        "SELECT uploads.user_id, uploads.blob_name, uploads.version, uploads.size, uploads.sha256
        FROM jobs JOIN uploads ON uploads.blob_name = jobs.blob_name
        WHERE jobs.deleted = 0 AND uploads.deleted = 0 AND uploads.version IS NOT NULL
        ORDER BY {order} LIMIT ?1"
    );
    let artifacts = format!(
        "SELECT user_id, jobs.job_id, artifacts.attempt, kind, size
        FROM jobs JOIN artifacts ON artifacts.job_id = jobs.job_id
        WHERE deleted = 0 ORDER BY {order}, kind LIMIT ?1"
    );
    let mut files = all(c, &videos, [most], video)?;
    files.extend(all(c, &artifacts, [most], artifact)?);
    Ok(files)
}

const SERVICE_ID: &str = "SELECT id FROM service_id";

impl UpkeepRows for SqliteDatabase {
    fn copy_to(&self, to: &Path) -> Result<()> {
        copy::copy(&self.path, self.still, to)
    }

    fn named_files(&self) -> Result<Vec<NamedFile>> {
        const VIDEOS: &str = "SELECT user_id, blob_name, version, size, sha256 FROM uploads
            WHERE version IS NOT NULL AND deleted = 0 ORDER BY blob_name";
        const ARTIFACTS: &str = "SELECT user_id, job_id, artifacts.attempt, kind, size
            FROM artifacts JOIN jobs USING (job_id) WHERE deleted = 0 ORDER BY job_id, kind";
        self.read(|c| {
            // One moment for both.
            let moment = c.unchecked_transaction()?;
            let mut files = all(&moment, VIDEOS, [], video)?;
            files.extend(all(&moment, ARTIFACTS, [], artifact)?);
            Ok(files)
        })
    }

    fn newest_files(&self, most: u32) -> Result<Vec<NamedFile>> {
        self.read(|c| some_files(c, "seq DESC", most))
    }

    fn oldest_files(&self, most: u32) -> Result<Vec<NamedFile>> {
        self.read(|c| some_files(c, "seq", most))
    }

    fn service_id(&self) -> Result<Option<String>> {
        self.read(|c| first(c, SERVICE_ID, [], |r| r.get(0)))
    }

    fn note_service_id(&self, id: &str) -> Result<String> {
        self.write("database.note_service_id.commit", |t| {
            run(t, "INSERT INTO service_id (one, id) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING", [id])?;
            let noted: Option<String> = first(t, SERVICE_ID, [], |r| r.get(0))?;
            Ok(noted.unwrap_or_else(|| id.to_owned()))
        })
    }

    fn release_all(&self) -> Result<u64> {
        let now = self.clock.now();
        self.write("database.release_all.commit", |t| {
            end_all(t)?;
            const FREE: &str =
                "stage = NULL, stage_fraction = 0, percent = NULL, lease_owner = NULL, lease_worker = NULL,
                lease_boot = NULL, lease_until = NULL, claim_number = NULL, served_before = NULL, updated_at = ?1,
                version = version + 1";
            let ended =
                format!("UPDATE jobs SET state = 'failed', {FREE} WHERE state = 'running' AND deleted = 1");
            run(t, &ended, [now])?;
            let queued = format!("UPDATE jobs SET state = 'queued', {FREE} WHERE state = 'running'");
            let released = run(t, &queued, [now])?;
            run(t, "UPDATE jobs SET rest_until = NULL, rest_boot = NULL WHERE rest_until IS NOT NULL", [])?;
            Ok(released as u64)
        })
    }

    fn lose_video(&self, name: &BlobName, version: u64, failure: &Failure) -> Result<Lost> {
        let now = self.clock.now();
        self.write("database.lose_video.commit", |t| {
            const NAMED: &str = "SELECT 1 FROM uploads WHERE blob_name = ?1 AND version = ?2 AND deleted = 0";
            const RUNNING: &str = "SELECT 1 FROM jobs WHERE blob_name = ?1 AND state = 'running'";
            let named = t.prepare_cached(NAMED)?.exists(params![name, version_column(version)])?;
            if !named || t.prepare_cached(RUNNING)?.exists([name])? {
                return Ok(Lost::Unchanged);
            }
            const FAIL: &str =
                "UPDATE jobs SET state = 'failed', failure_code = ?2, failure_message = ?3, finished_at = ?4,
                updated_at = ?4, version = version + 1
                WHERE blob_name = ?1 AND state = 'queued' AND deleted = 0 RETURNING job_id";
            let failed: Vec<JobId> =
                all(t, FAIL, params![name, failure.code, failure.message, now], |r| r.get(0))?;
            const EMPTY: &str =
                "UPDATE uploads SET version = NULL, size = NULL, sha256 = NULL, file_name = NULL,
                block_list = NULL, touched_at = ?2 WHERE blob_name = ?1";
            run(t, EMPTY, params![name, now])?;
            Ok(if failed.is_empty() { Lost::Forgotten } else { Lost::Failed(failed) })
        })
    }

    fn waiting_videos(&self) -> Result<Vec<(BlobName, u64)>> {
        const WAITING: &str =
            "SELECT DISTINCT blob_name, uploads.version FROM uploads JOIN jobs USING (blob_name)
            WHERE state = 'queued' AND jobs.deleted = 0 AND uploads.version IS NOT NULL ORDER BY blob_name";
        self.read(|c| all(c, WAITING, [], |r| Ok((r.get(0)?, r.get::<_, i64>(1)?.cast_unsigned()))))
    }

    fn fail_waiting(&self, name: &BlobName, version: u64, failure: &Failure) -> Result<Vec<JobId>> {
        let now = self.clock.now();
        self.write("database.fail_waiting.commit", |t| {
            const FAIL: &str =
                "UPDATE jobs SET state = 'failed', failure_code = ?3, failure_message = ?4, finished_at = ?5,
                updated_at = ?5, version = version + 1
                WHERE blob_name = ?1 AND state = 'queued' AND deleted = 0
                    AND (SELECT uploads.version FROM uploads WHERE uploads.blob_name = ?1) = ?2
                RETURNING job_id";
            let values = params![name, version_column(version), failure.code, failure.message, now];
            all(t, FAIL, values, |r| r.get(0))
        })
    }

    fn lose_artifact(&self, job: JobId, attempt: u32, kind: ArtifactKind, failure: &Failure) -> Result<Lost> {
        let now = self.clock.now();
        self.write("database.lose_artifact.commit", |t| {
            const FORGET: &str = "DELETE FROM artifacts WHERE job_id = ?1 AND attempt = ?2 AND kind = ?3
                AND EXISTS (SELECT 1 FROM jobs WHERE jobs.job_id = artifacts.job_id AND deleted = 0)";
            if run(t, FORGET, params![job, attempt, Name(kind)])? == 0 {
                return Ok(Lost::Unchanged);
            }
            const STANDS: &str = "SELECT state = 'finished', uploads.version IS NOT NULL
                FROM jobs JOIN uploads USING (blob_name) WHERE job_id = ?1";
            let stands = first(t, STANDS, [job], |r| Ok((r.get(0)?, r.get(1)?)))?;
            let is_scene = matches!(kind, ArtifactKind::Ply | ArtifactKind::Spz);
            let (finished, has_video): (bool, bool) = stands.unwrap_or_default();
            // What is left of the scene is what there is to fetch.
            const LEFT: &str = "has_ply = EXISTS (SELECT 1 FROM artifacts a WHERE a.job_id = jobs.job_id AND kind = 'ply'),
                has_spz = EXISTS (SELECT 1 FROM artifacts a WHERE a.job_id = jobs.job_id AND kind = 'spz'),
                updated_at = ?2, version = version + 1";
            if !is_scene || !finished {
                if is_scene {
                    run(t, &format!("UPDATE jobs SET {LEFT} WHERE job_id = ?1"), params![job, now])?;
                }
                return Ok(Lost::Forgotten);
            }
            if has_video {
                run(t, "DELETE FROM artifacts WHERE job_id = ?1", [job])?;
                let again = format!(
                    "UPDATE jobs SET state = 'queued', percent = NULL, stage = NULL, stage_fraction = 0, crashes = 0,
                        disturbances = 0, reach = 0, worked_micros = 0, rest_until = NULL, rest_boot = NULL, found_view = NULL,
                        warnings = '[]', finished_at = NULL, {LEFT} WHERE job_id = ?1"
                );
                run(t, &again, params![job, now])?;
                return Ok(Lost::Queued(job));
            }
            let fail = format!(
                "UPDATE jobs SET state = 'failed', percent = NULL, failure_code = ?3, failure_message = ?4, {LEFT}
                 WHERE job_id = ?1"
            );
            run(t, &fail, params![job, now, failure.code, failure.message])?;
            Ok(Lost::Failed(vec![job]))
        })
    }
}
