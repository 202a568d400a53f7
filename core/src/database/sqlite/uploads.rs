//! Uploads.

use rusqlite::{Row, params};

use super::values::version_column;
use super::{SqliteDatabase, all, first, run};
use crate::database::{Upload, UploadRows, UploadedVideo};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, UserId};

const UPLOAD: &str = "SELECT blob_name, user_id, expires_at, version, size, sha256, file_name, submitted, deleted, block_list FROM uploads";

fn upload(row: &Row<'_>) -> rusqlite::Result<Upload> {
    let video = match row.get::<_, Option<i64>>(3)? {
        Some(version) => Some(UploadedVideo {
            version: version.cast_unsigned(),
            size: row.get(4)?,
            sha256: row.get(5)?,
            file_name: row.get(6)?,
            block_list: row.get(9)?,
        }),
        None => None,
    };
    Ok(Upload {
        name: row.get(0)?,
        user: row.get(1)?,
        expires_at: row.get(2)?,
        video,
        submitted: row.get(7)?,
        deleted: row.get(8)?,
    })
}

impl UploadRows for SqliteDatabase {
    fn create_upload(&self, user: UserId, name: BlobName, lifetime_seconds: u64) -> Result<Upload> {
        let now = self.clock.now();
        let expires_at = now.plus_seconds(lifetime_seconds);
        self.write("database.create_upload.commit", |t| {
            run(
                t,
                "INSERT INTO uploads (blob_name, user_id, expires_at, touched_at) VALUES (?1, ?2, ?3, ?4)",
                params![name, user, expires_at, now],
            )?;
            Ok(Upload { name, user, expires_at, video: None, submitted: false, deleted: false })
        })
    }

    fn upload(&self, name: &BlobName) -> Result<Option<Upload>> {
        self.read(|c| first(c, &format!("{UPLOAD} WHERE blob_name = ?1"), [name], upload))
    }

    fn finish_upload(&self, name: &BlobName, video: &UploadedVideo) -> Result<Option<u64>> {
        let now = self.clock.now();
        self.write("database.finish_upload.commit", |t| {
            let before = first(t, &format!("{UPLOAD} WHERE blob_name = ?1"), [name], upload)?
                .filter(|u| !u.deleted)
                .ok_or_else(|| Error::new(ErrorKind::NotFound, "Upload not found"))?;
            if before.submitted {
                return Err(Error::new(ErrorKind::Conflict, "The video is already used by a job").into());
            }
            run(
                t,
                "UPDATE uploads SET version = ?2, size = ?3, sha256 = ?4, file_name = ?5, touched_at = ?6,
                 block_list = ?7 WHERE blob_name = ?1",
                params![
                    name,
                    version_column(video.version),
                    video.size,
                    video.sha256,
                    video.file_name,
                    now,
                    video.block_list
                ],
            )?;
            Ok(before.video.map(|v| v.version))
        })
    }

    fn note_waiting_bytes(&self, name: &BlobName, bytes: u64) -> Result<()> {
        self.write("database.note_waiting_bytes.commit", |t| {
            run(
                t,
                "UPDATE uploads SET waiting_bytes = ?2 WHERE blob_name = ?1 AND waiting_bytes <> ?2",
                params![name, bytes],
            )?;
            Ok(())
        })
    }

    fn add_waiting_bytes(&self, name: &BlobName, change: i64) -> Result<()> {
        self.write("database.note_waiting_bytes.commit", |t| {
            run(
                t,
                "UPDATE uploads SET waiting_bytes = max(0, waiting_bytes + ?2) WHERE blob_name = ?1",
                params![name, change],
            )?;
            Ok(())
        })
    }

    fn expire_uploads(&self, retention_seconds: u64) -> Result<Vec<Upload>> {
        let now = self.clock.now();
        let before = now.minus_seconds(retention_seconds);
        // As long as the address is good somebody may still send something to it.
        const EXPIRED: &str = "submitted = 0 AND deleted = 0 AND touched_at < ?1 AND expires_at < ?2";
        const MARKED: &str =
            "deleted = 1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.blob_name = uploads.blob_name)";
        // Mostly there is nothing to do, and then nobody has to wait for the write lock. Each condition has its index.
        let any = self.read(|c| {
            let expired = format!("SELECT 1 FROM uploads WHERE {EXPIRED}");
            let marked = format!("SELECT 1 FROM uploads WHERE {MARKED}");
            Ok(c.prepare_cached(&expired)?.exists([before, now])? || c.prepare_cached(&marked)?.exists([])?)
        })?;
        if !any {
            return Ok(Vec::new());
        }
        self.write("database.expire_uploads.commit", |t| {
            run(t, &format!("UPDATE uploads SET deleted = 1 WHERE {EXPIRED}"), [before, now])?;
            all(t, &format!("{UPLOAD} WHERE {MARKED}"), [], upload)
        })
    }

    fn discard_upload(&self, user: UserId, name: &BlobName) -> Result<bool> {
        const DISCARD: &str = "UPDATE uploads SET deleted = 1
            WHERE blob_name = ?1 AND user_id = ?2 AND submitted = 0 AND deleted = 0";
        self.write("database.expire_uploads.commit", |t| Ok(run(t, DISCARD, params![name, user])? > 0))
    }

    fn forget_upload(&self, name: &BlobName) -> Result<()> {
        self.write("database.forget_upload.commit", |t| {
            run(t, "DELETE FROM uploads WHERE blob_name = ?1 AND deleted = 1", [name])?;
            Ok(())
        })
    }
}
