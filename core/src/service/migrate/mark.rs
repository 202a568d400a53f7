//! The mark of a folder whose service is on its way, and the rows that go.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::database::{Clock, JobDatabase, SqliteDatabase, SystemClock, UpkeepRows};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::file_lock::FileLock;
use crate::files::{create_private_folder, sync_folder, write_atomically};
use crate::service::host::{HostMark, Identity};
use crate::service::process::{initial_lock, locks};
use crate::service::{Moved, check_complete, layout};

/// The rows as they will arrive.
const ROWS: &str = "rows.db";
/// The rows before that.
const COPY: &str = "copy.db";
/// There since before the rows went the first time.
const SENT: &str = "sent";

/// Nobody else opens the folder while this is there, nor after that until it is removed.
pub(super) struct Mark<'a> {
    from: &'a Path,
    folder: PathBuf,
    _lock: FileLock,
}

impl<'a> Mark<'a> {
    /// Marks the folder, or goes on with one that is marked.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] while somebody works on it.
    pub(super) fn set(from: &'a Path) -> Result<Self> {
        // Whoever opens the folder looks for the mark under this lock, too.
        let _making = initial_lock(from)?;
        check_complete(from)?;
        let living = locks(&from.join(layout::PROCESSES))?.iter().filter(|(_, alive)| *alive).count();
        if living > 0 {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("{living} processes work on {}: servers, workers or commands", from.display()),
            )
            .hint("stop them first, on a machine with systemd by `systemctl stop 'reconstruct*'`; running jobs go to the queue"));
        }
        // Those of another machine have locks that are not seen here.
        HostMark::take(from, Identity::of_this_machine(SystemClock::new().boot()))?.remove();
        let folder = from.join(layout::MOVING);
        create_private_folder(&folder)?;
        let path = folder.join("lock");
        let lock = FileLock::try_take(FileLock::open(&path)?).map_err(|e| Error::io("lock", &path, e))?;
        let lock = lock.ok_or_else(|| {
            Error::new(ErrorKind::Conflict, format!("another program moves {} now", from.display()))
                .hint("wait for its end")
        })?;
        sync_folder(from)?;
        Ok(Self { from, folder, _lock: lock })
    }

    /// The file of the rows.
    pub(super) fn rows_file(&self) -> PathBuf {
        self.folder.join(ROWS)
    }

    /// The list of the files that have arrived.
    pub(super) fn arrived(&self) -> PathBuf {
        self.folder.join("arrived")
    }

    /// The rows as they will arrive, the same in every call: in the newest form, and with no job running.
    pub(super) fn rows(&self) -> Result<SqliteDatabase> {
        let clock = Arc::new(SystemClock::new());
        let file = self.rows_file();
        if !file.exists() {
            let copy = self.folder.join(COPY);
            remove_database(&copy)?;
            // With a log beside it the file is not complete by itself.
            let log = fs::metadata(self.from.join("jobs.db-wal")).map_or(0, |m| m.len());
            SqliteDatabase::open_to_look(&self.from.join(layout::DATABASE), clock.clone(), log == 0)?
                .copy_to(&copy)?;
            let rows = SqliteDatabase::open(&copy, clock.clone())?;
            if let Some(damage) = rows.integrity_check()?.first() {
                let message = format!("the database of {} is damaged: {damage}", self.from.display());
                return Err(Error::new(ErrorKind::InvalidFile, message).hint(
                    "`reconstruct doctor` says more; restore the last backup to a new folder and move that",
                ));
            }
            rows.release_all()?;
            rows.copy_to(&file)?;
            drop(rows);
            remove_database(&copy)?;
        }
        SqliteDatabase::open(&file, clock)
    }

    /// Whether this call or an earlier one came to where the rows go.
    ///
    /// # Errors
    /// The system's: then it is not known.
    pub(super) fn rows_may_be_there(&self) -> Result<bool> {
        let path = self.folder.join(SENT);
        path.try_exists().map_err(|e| Error::io("find", &path, e))
    }

    /// Notes that the rows go now; durable when this returns, so that they do not arrive without it.
    pub(super) fn note_sending(&self) -> Result<()> {
        write_atomically(&self.folder.join(SENT), |file| {
            file.write_all(b"From now on the rows may be at the new place.\n")
        })
    }

    /// Says where the service is now, and takes the mark away.
    pub(super) fn finish(self, moved: &Moved) -> Result<()> {
        let path = self.from.join(layout::MOVED);
        failpoints::pass("migrate.place").map_err(|e| Error::io("write", &path, e))?;
        let text = serde_json::to_vec_pretty(moved).map_err(|e| {
            Error::new(ErrorKind::Internal, "where the service was moved to cannot be written as JSON")
                .caused_by(e)
        })?;
        write_atomically(&path, |file| file.write_all(&text))?;
        self.remove()
    }

    /// Takes the mark away: the folder is as it was.
    pub(super) fn remove(self) -> Result<()> {
        remove(self.from)
    }
}

/// Takes the mark of the folder away, if there is one.
pub(super) fn remove(from: &Path) -> Result<()> {
    let folder = from.join(layout::MOVING);
    match fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &folder, e)),
        _ => sync_folder(from),
    }
}

/// Removes a file of rows and what lies beside it.
fn remove_database(path: &Path) -> Result<()> {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match fs::remove_file(&name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", Path::new(&name), e));
            }
            _ => {}
        }
    }
    Ok(())
}
