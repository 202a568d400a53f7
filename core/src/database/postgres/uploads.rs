//! Uploads.

use super::PostgresDatabase;
use super::connection::Sql;
use super::session::Row;
use super::values::{values, version_column};
use crate::database::{Upload, UploadRows, UploadedVideo};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, UserId};

/// How long the marks of transactions are kept: much longer than one is tried.
const MARK_SECONDS: u64 = 3600;

const UPLOAD: &str = "SELECT blob_name, user_id, expires_at, version, size, sha256, file_name, submitted, deleted, block_list FROM uploads";

fn upload(row: &Row) -> Sql<Upload> {
    let video = match row.get::<Option<i64>>(3)? {
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

impl UploadRows for PostgresDatabase {
    fn create_upload(&self, user: UserId, name: BlobName, lifetime_seconds: u64) -> Result<Upload> {
        self.write("database.create_upload.commit", |t| {
            let now = self.now(t)?;
            let expires_at = now.plus_seconds(lifetime_seconds);
            const CREATE: &str =
                "INSERT INTO uploads (blob_name, user_id, expires_at, touched_at) VALUES ($1, $2, $3, $4)";
            t.run(CREATE, values![name, user, expires_at, now])?;
            Ok(Upload { name, user, expires_at, video: None, submitted: false, deleted: false })
        })
    }

    fn upload(&self, name: &BlobName) -> Result<Option<Upload>> {
        self.read(|c| c.first(&format!("{UPLOAD} WHERE blob_name = $1"), values![name], upload))
    }

    fn finish_upload(&self, name: &BlobName, video: &UploadedVideo) -> Result<Option<u64>> {
        self.write("database.finish_upload.commit", |t| {
            // A submission locks the row, too: either it sees this video, or this sees that the upload is used.
            let locked = format!("{UPLOAD} WHERE blob_name = $1 FOR UPDATE");
            let before = t
                .first(&locked, values![name], upload)?
                .filter(|u| !u.deleted)
                .ok_or_else(|| Error::new(ErrorKind::NotFound, "Upload not found"))?;
            if before.submitted {
                return Err(Error::new(ErrorKind::Conflict, "The video is already used by a job").into());
            }
            const FINISH: &str =
                "UPDATE uploads SET version = $2, size = $3, sha256 = $4, file_name = $5, touched_at = $6,
                block_list = $7 WHERE blob_name = $1";
            let values = values![
                name,
                version_column(video.version),
                video.size,
                video.sha256,
                video.file_name,
                self.now(t)?,
                video.block_list
            ];
            t.run(FINISH, values)?;
            Ok(before.video.map(|v| v.version))
        })
    }

    fn note_waiting_bytes(&self, name: &BlobName, bytes: u64) -> Result<()> {
        self.write("database.note_waiting_bytes.commit", |t| {
            const NOTE: &str =
                "UPDATE uploads SET waiting_bytes = $2 WHERE blob_name = $1 AND waiting_bytes <> $2";
            t.run(NOTE, values![name, bytes])?;
            Ok(())
        })
    }

    fn add_waiting_bytes(&self, name: &BlobName, change: i64) -> Result<()> {
        self.write("database.note_waiting_bytes.commit", |t| {
            const ADD: &str =
                "UPDATE uploads SET waiting_bytes = greatest(0, waiting_bytes + $2) WHERE blob_name = $1";
            t.run(ADD, values![name, change])?;
            Ok(())
        })
    }

    fn expire_uploads(&self, retention_seconds: u64) -> Result<Vec<Upload>> {
        // As long as the address is good somebody may still send something to it.
        const EXPIRED: &str = "NOT submitted AND NOT deleted AND touched_at < $1 AND expires_at < $2";
        const MARKED: &str =
            "deleted AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.blob_name = uploads.blob_name)";
        self.write("database.expire_uploads.commit", |t| {
            let now = self.now(t)?;
            let before = now.minus_seconds(retention_seconds);
            t.run(&format!("UPDATE uploads SET deleted = TRUE WHERE {EXPIRED}"), values![before, now])?;
            // Nobody asks for a mark that was set so long ago; who still uses it makes it anew.
            t.run("DELETE FROM marks WHERE set_at < $1", values![now.minus_seconds(MARK_SECONDS)])?;
            t.all(&format!("{UPLOAD} WHERE {MARKED}"), &[], upload)
        })
    }

    fn discard_upload(&self, user: UserId, name: &BlobName) -> Result<bool> {
        const DISCARD: &str = "UPDATE uploads SET deleted = TRUE
            WHERE blob_name = $1 AND user_id = $2 AND NOT submitted AND NOT deleted";
        self.write("database.expire_uploads.commit", |t| Ok(t.run(DISCARD, values![name, user])? > 0))
    }

    fn forget_upload(&self, name: &BlobName) -> Result<()> {
        self.write("database.forget_upload.commit", |t| {
            t.run("DELETE FROM uploads WHERE blob_name = $1 AND deleted", values![name]).map(drop)
        })
    }
}
