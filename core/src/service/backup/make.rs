//! Makes a backup.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::copying::{CopyProgress, Copying, sync_all_folders};
use super::manifest::{BackedUpFile, BackupManifest};
use crate::database::{JobRows, NamedFile, RowsFile, SqliteDatabase, UpkeepRows, UserRows};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::files::{create_private_folder, rename, temporary_path};
use crate::hex::hex;
use crate::service::lost_files::{key_of, lose};
use crate::service::{Service, layout};
use crate::storage::BlobReader;

/// What file systems count the times of files in, nanoseconds: NTFS, those that count microseconds and milliseconds, exFAT, ext3 and
/// HFS+, FAT.
const TICKS: [u128; 6] = [100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// The rows while they are made to agree with the files.
const ROWS: &str = "rows.db";

impl Service {
    /// Makes the new folder `to`, a backup of the whole service at this moment, while servers and workers go on. It appears when
    /// it is complete and on the disk. What lies on the same file system takes no room: it is linked. `previous` is an earlier
    /// backup: what is in it need not be read again, and can be linked where the service's own files are on another disk.
    /// `watch` is told how far the work is; its error ends it.
    ///
    /// Jobs that run come to stand in the backup's queue. The backup holds the secrets of the service: it must be kept from
    /// others like the service's own folder. [`BackupManifest::lost`] lists what is missing in the service.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is something at `to` or it lies in the service's own folder,
    /// [`ErrorKind::NotFound`] if the folder above `to` or `previous` is not there, [`ErrorKind::InvalidFile`] if the database is
    /// damaged, [`ErrorKind::Io`] if all files are missing that rows name, and these are several, [`ErrorKind::Conflict`] if the storage
    /// is that of another service, or seems to be, [`ErrorKind::DiskFull`]; what `watch` returns. Then nothing is left at `to`.
    pub fn backup(
        &self,
        to: &Path,
        previous: Option<&Path>,
        watch: &mut dyn FnMut(CopyProgress) -> Result<()>,
    ) -> Result<BackupManifest> {
        let previous = previous.map(|p| Ok::<_, Error>((p, BackupManifest::read(p)?))).transpose()?;
        self.check_target(to)?;
        self.compare_ids()?;
        if self.inner.has_other_machines {
            self.look_for_named_files()?;
        }
        let unfinished = Unfinished(temporary_path(to)?);
        let folder = &unfinished.0;
        create_private_folder(folder)?;
        let mut manifest = BackupManifest::new(self.inner.clock.now());
        self.inner.database.copy_to(&folder.join(ROWS))?;
        let rows = SqliteDatabase::open(&folder.join(ROWS), self.inner.clock.clone())?;
        rows.release_all()?;

        let named = rows.named_files()?;
        let total = named.iter().map(|file| file.size).sum();
        let mut copying = Copying::new(folder, total, watch);
        let (mut files, mut missing) = (BTreeMap::new(), vec![]);
        let known = previous.as_ref().map(|(_, manifest)| manifest.by_name()).unwrap_or_default();
        for file in &named {
            let name = key_of(file.file).to_string();
            failpoints::pass("backup.copy").map_err(|e| Error::io("copy", Path::new(&name), e))?;
            let before = known.get(name.as_str()).filter(|before| before.size == file.size);
            let earlier =
                previous.as_ref().zip(before).map(|((p, _), before)| (p.join(&name), before.sha256.as_str()));
            match self.copy_blob(&mut copying, file, &name, earlier)? {
                Some(copied) => drop(files.insert(name, copied)),
                None => missing.push(file.file),
            }
        }
        manifest.lost = self.mend(&rows, missing)?;
        // Files are lost one by one. A backup without any of them would look like the newest good one.
        if named.len() > 1 && manifest.lost.len() == named.len() {
            return Err(Error::new(
                ErrorKind::Io,
                format!("none of the {} files that rows name is there and whole: no backup is made", named.len()),
            )
            .hint("see whether the place of the files is mounted, and its address right; `reconstruct doctor` says more"));
        }

        // What was taken out of the rows takes its other files with it.
        let named: HashSet<String> =
            rows.named_files()?.into_iter().map(|file| key_of(file.file).to_string()).collect();
        if let Some(name) = named.iter().find(|name| !files.contains_key(*name)) {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("the backup lacks {name}, which its rows name"),
            ));
        }
        for (name, file) in files {
            match named.contains(&name) {
                true => manifest.files.push(file),
                false => remove(&folder.join(name))?,
            }
        }
        (manifest.users, manifest.jobs) = (rows.users()?.len() as u64, rows.all_jobs()?.len() as u64);
        // A second copy is one file without a log beside it.
        rows.copy_to(&folder.join(layout::DATABASE))?;
        drop(rows);
        for name in [ROWS.to_owned(), format!("{ROWS}-wal"), format!("{ROWS}-shm")] {
            remove(&folder.join(name))?;
        }
        manifest.files.push(copying.hash(layout::DATABASE)?);
        manifest.files.push(match self.inner.secrets_source.file() {
            Some(file) => copying.copy(layout::SECRETS, file)?,
            None => {
                self.inner.secrets.write(&folder.join(layout::SECRETS))?;
                copying.hash(layout::SECRETS)?
            }
        });
        sync_all_folders(folder)?;
        manifest.write(folder)?;
        failpoints::pass("backup.place").map_err(|e| Error::io("write", to, e))?;
        rename(folder, to)?;
        Ok(manifest)
    }

    /// Refuses a place at which there is something, and one that would be backed up itself.
    fn check_target(&self, to: &Path) -> Result<()> {
        if fs::symlink_metadata(to).is_ok() {
            return Err(Error::argument(format!("{} is there already", to.display()))
                .hint("each backup goes into a new folder: name one that is not there yet"));
        }
        let above = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let whole = |path: &Path| fs::canonicalize(path).map_err(|e| Error::io("find", path, e));
        if whole(above)?.starts_with(whole(&self.inner.folder)?) {
            return Err(Error::argument(format!(
                "{} lies in the folder of the service, {}",
                to.display(),
                self.inner.folder.display()
            ))
            .hint("choose a place outside of it, best on another disk"));
        }
        Ok(())
    }

    /// Brings one stored file into the backup; nothing if it is not there, or not as its row says. `earlier` is the file of this
    /// name in an earlier backup, with its hash.
    fn copy_blob(
        &self,
        copying: &mut Copying<'_>,
        file: &NamedFile,
        name: &str,
        earlier: Option<(PathBuf, &str)>,
    ) -> Result<Option<BackedUpFile>> {
        let key = key_of(file.file);
        let blob = match self.inner.storage.open(&key) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            blob => blob?,
        };
        let right_size = blob.size == file.size;
        if !right_size {
            return Ok(None);
        }
        let (earlier, known) = earlier.filter(|(path, _)| is_copy(path, &blob)).unzip();
        let same: Vec<PathBuf> = self.inner.storage.local_path(&key).into_iter().chain(earlier).collect();
        let copied = copying.place(name, blob, &same, known)?;
        if copied.size != file.size || file.sha256.is_some_and(|hash| hex(&hash) != copied.sha256) {
            remove(&copying.path(name))?;
            return Ok(None);
        }
        Ok(Some(copied))
    }

    /// Makes the copied rows true about files that are missing. Returns those that are lost: the service itself still names them.
    fn mend(&self, rows: &SqliteDatabase, mut missing: Vec<RowsFile>) -> Result<Vec<String>> {
        if missing.is_empty() {
            return Ok(vec![]);
        }
        // A deletion changes the row first, and then removes the files.
        let now: HashSet<RowsFile> =
            self.inner.database.named_files()?.into_iter().map(|file| file.file).collect();
        // Videos first, see `lose`.
        missing.sort_by_key(|file| matches!(file, RowsFile::Artifact { .. }));
        let mut lost = vec![];
        for file in missing {
            if now.contains(&file) {
                lose(rows, file)?;
                lost.push(key_of(file).to_string());
            } else {
                forget(rows, file)?;
            }
        }
        lost.sort();
        Ok(lost)
    }
}

/// Whether the file at `path`, which has the name of `blob`, has its bytes too. The name alone does not tell: a service that went
/// back to an older backup counts attempts anew, and another scene gets a name that was given before. Links and copies keep the time.
fn is_copy(path: &Path, blob: &BlobReader) -> bool {
    fs::metadata(path).is_ok_and(|found| {
        found.len() == blob.size && found.modified().is_ok_and(|kept| is_kept_time(kept, blob.modified))
    })
}

/// Whether `kept` is what a file system makes of the time `of`: that itself, or a whole number of its ticks beside it.
fn is_kept_time(kept: SystemTime, of: SystemTime) -> bool {
    let apart = kept.duration_since(of).unwrap_or_else(|earlier| earlier.duration()).as_nanos();
    let since = kept.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    apart == 0 || TICKS.iter().any(|tick| since.is_multiple_of(*tick) && apart < *tick)
}

/// Takes out of the rows what was deleted since they were copied: the jobs of `file`, and an upload whose content was replaced.
fn forget(rows: &SqliteDatabase, file: RowsFile) -> Result<()> {
    let uses = |job: &crate::job::Job| match file {
        RowsFile::Video { name, .. } => job.details.blob_name == name,
        RowsFile::Artifact { job: of, .. } => job.job_id == of,
    };
    for job in rows.all_jobs()?.iter().filter(|job| uses(job)) {
        rows.mark_deleted(job.details.owner, job.job_id)?;
        rows.forget_job(job.job_id)?;
    }
    lose(rows, file).map(drop)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// A backup that is not complete: removed when this is dropped, unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Best effort: its name says that it is nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_kept_to_the_tick_of_the_file_system_and_no_other_is_taken_for_it() {
        const TIME: u64 = 1_700_000_001_987_654_321;
        let at = |nanoseconds: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        let is_kept = |nanoseconds: u64| is_kept_time(at(nanoseconds), at(TIME));
        assert!(is_kept(TIME));
        for tick in TICKS.map(|tick| u64::try_from(tick).unwrap()) {
            let cut = TIME / tick * tick;
            assert!(is_kept(cut) && is_kept(cut + tick), "{tick}");
        }
        // One that is finer than it is far away, and one that is too far away.
        for other in [TIME + 1, TIME - 50_000_001, 1_700_000_003_000_000_000, 1_700_000_004_000_000_000] {
            assert!(!is_kept(other), "{other}");
        }
    }
}
