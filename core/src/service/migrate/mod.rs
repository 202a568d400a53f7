//! Moves a service from its folder to many machines: rows to PostgreSQL, files to a storage that all of them see.
//!
//! ```text
//! folder/moving/  lock     held while somebody is at it                               (mark)
//!                 rows.db  the rows as they will arrive, with no job running          (mark)
//!                 arrived  the names of the files that are there and were read back   (files)
//!                 sent     from now on the rows may be there                          (mark)
//! folder/moved.json        where all of it is now; written last
//! ```
//!
//! From the first to the last moment nobody can open the folder, so its rows stand still. Files go first, then all rows in one
//! transaction: whatever is killed in between has moved nothing that counts, and the next call goes on where it was. Once the rows
//! may be there no call that fails opens the folder again: there would be two services with the same users, keys and jobs. Nothing
//! in the folder is removed.

mod files;
mod mark;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::addresses::without_password;
use super::lost_files::key_of;
use super::secrets::Secrets;
use super::{Addresses, CopyProgress, Migration, Moved, Service, layout, moved, place};
use crate::database::{Clock, JobRows, PostgresDatabase, SqliteDatabase, SystemClock, UpkeepRows, UserRows};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::storage::{SERVICE_ID, Storage};
use files::Files;
use mark::Mark;

/// Of so many videos and artifacts at most it is looked whether any is there.
const SOME_FILES: u32 = 16;

impl Service {
    /// Moves the service in the folder `from`, at which nobody works, to the database and the storage at `to`: users, keys,
    /// uploads, jobs with all that is known of them, and the files of all of these; to `to.secrets`, if that is given, what makes
    /// keys genuine. Every file is read back from where it went. Jobs that ran come to stand in the queue; they begin anew. No
    /// server may work on the new place before the end. `watch` is told how far the work is; its error ends it.
    ///
    /// Afterwards the folder is as it was, but cannot be opened: it says where the service is now. Until then a call that failed
    /// or was killed can be repeated.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] while somebody works on the folder, if the database has other rows, if the storage is another service's,
    /// or if the folder was moved to another place; [`ErrorKind::NotFound`] if there is no service, [`ErrorKind::InvalidFile`] if rows or files are damaged or
    /// missing, [`ErrorKind::InvalidArgument`] for addresses that do not fit; those of the network and the system; what `watch`
    /// returns.
    pub fn migrate(
        from: &Path,
        to: &Addresses,
        watch: &mut dyn FnMut(CopyProgress) -> Result<()>,
    ) -> Result<Migration> {
        #[cfg(feature = "failpoints")]
        failpoints::read_environment();
        let (database, storage) = to
            .shared()?
            .ok_or_else(|| Error::argument("it is not said where the service is to be moved to"))?;
        if !from.join(layout::DATABASE).is_file() {
            let message = format!("there is no service in {}", from.display());
            return Err(Error::new(ErrorKind::NotFound, message).hint("name the folder of a server's --data"));
        }
        let from = &std::path::absolute(from).map_err(|e| Error::io("open", from, e))?;
        let told = (without_password(database), without_password(storage));
        if let Some(moved) = moved::read(from)? {
            if (&moved.database, &moved.storage) == (&told.0, &told.1) {
                // It may have been killed right after it said so.
                mark::remove(from)?;
                return Ok(Migration { moved, before: true });
            }
            moved::check(from)?;
        }
        check_apart(from, storage)?;
        let rows_there = PostgresDatabase::open(database)?;
        let files_there = place::open_storage(storage)?;
        let mark = Mark::set(from)?;
        let sent_before = mark.rows_may_be_there()?;
        let mut arrived = || {
            if let Some(secrets) = &to.secrets {
                Secrets::copy(&from.join(layout::SECRETS), secrets)?;
            }
            let rows = mark.rows()?;
            check_storage(&rows, &rows_there, files_there.as_ref())?;
            let files = Files::of(from, &rows)?;
            files.bring(files_there.as_ref(), &mark.arrived(), watch)?;
            mark.note_sending()?;
            Ok((rows, files))
        };
        let (rows, files) = match arrived() {
            Ok(arrived) => arrived,
            Err(error) => {
                // No row went anywhere, in no call: who gives up goes on with the folder.
                if !sent_before {
                    mark.remove()?;
                }
                return Err(error);
            }
        };
        let (users, jobs) = (rows.users()?.len() as u64, rows.all_jobs()?.len() as u64);
        drop::<SqliteDatabase>(rows);
        let taken = failpoints::pass("migrate.rows")
            .map_err(|e| Error::io("move", from, e))
            .and_then(|()| rows_there.take_rows(&mark.rows_file()));
        let rows = match taken {
            Ok(taken) => taken.rows,
            // There was not room for any of them. What else happened to them may not be known; nor whether others are there
            // because those of an earlier call were used.
            Err(error) if error.kind() == ErrorKind::Conflict && !sent_before => {
                mark.remove()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        files.check(files_there.as_ref())?;
        let moved = Moved {
            moved_at: SystemClock::new().now(),
            database: told.0,
            storage: told.1,
            users,
            jobs,
            rows,
            files: files.count(),
            bytes: files.bytes(),
        };
        mark.finish(&moved)?;
        Ok(Migration { moved, before: false })
    }
}

/// Refuses a storage that is another service's: what comes there would be swept.
fn check_storage(rows: &SqliteDatabase, rows_there: &PostgresDatabase, there: &dyn Storage) -> Result<()> {
    let Some(id) = there.service_id()? else { return Ok(()) };
    let is_ours = match rows.service_id()? {
        Some(own) => own == id,
        // Noted by a server that was started there before, or rows from before they had one come back to the files that they name.
        None => rows_there.service_id()?.is_some_and(|own| own == id) || is_any_there(rows, there)?,
    };
    if is_ours {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, format!("the storage is that of another service, of the id {id:?}"))
        .hint(format!("name another storage; if no service uses that one, remove {SERVICE_ID} there")))
}

/// Whether any of the newest files that rows name is there.
fn is_any_there(rows: &SqliteDatabase, there: &dyn Storage) -> Result<bool> {
    for named in rows.newest_files(SOME_FILES)? {
        if there.metadata(&key_of(named.file))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a storage in the folder itself: what the new service deletes there, the folder would lack.
fn check_apart(from: &Path, storage: &str) -> Result<()> {
    let Some(folder) = storage.strip_prefix("file://").map(Path::new) else { return Ok(()) };
    let whole = |path: &Path| {
        path.ancestors().find_map(|known| {
            let rest = path.strip_prefix(known).ok()?;
            Some(std::fs::canonicalize(known).ok()?.join(rest))
        })
    };
    let (from_whole, folder_whole) = (whole(from), whole(folder));
    if folder_whole.zip(from_whole).is_some_and(|(folder, from)| folder.starts_with(from)) {
        return Err(Error::argument(format!("the storage {storage} lies in the folder {}", from.display()))
            .hint("choose a folder outside of it: on the same file system its files are linked and take no room"));
    }
    Ok(())
}
