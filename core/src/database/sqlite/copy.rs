//! Copies of the whole file, made while others go on: for backups, and before its form is changed.

use std::fs;
use std::path::{Path, PathBuf};

use super::connection::{Fault, Sql, connect_to_read, create_private_file, file_address};
use crate::error::{Error, Result};
use crate::failpoints;
use crate::files::{replace_atomically, sync_file};

/// How many copies of older versions are kept.
const KEPT: usize = 3;

/// Writes all rows of the file `from`, as they are at one moment, to the file `to`: whole or not at all, and durable when this
/// returns. Nobody has to wait for it.
pub(super) fn copy(from: &Path, still: bool, to: &Path) -> Result<()> {
    replace_atomically(to, |temporary| {
        let io = |e| Error::io("write", to, e);
        // It may be empty, and must be private.
        create_private_file(temporary)?;
        failpoints::pass("database.copy.write").map_err(io)?;
        let source = connect_to_read(from, still)?;
        source.execute("VACUUM INTO ?1", [file_address(temporary)]).map_err(|e| {
            Fault::from(e).translate().hint(format!("it was to be copied to {}", to.display()))
        })?;
        failpoints::pass("database.copy.sync").and_then(|()| sync_file(temporary)).map_err(io)
    })
}

/// Copies the file, which is of the older form `version`, to a place beside it, and removes the oldest of such copies.
pub(super) fn keep_older(path: &Path, version: i32, newest: i32) -> Sql<()> {
    let kept = path.with_file_name(format!("{}{version}{EXTENSION}", prefix(path)));
    copy(path, false, &kept).map_err(|e| {
        let size = fs::metadata(path).map_or(0, |m| m.len());
        Error::new(
            e.kind(),
            format!(
                "{} has version {version} and was left so: before it is brought to version {newest} a copy of it is made, \
                 and that failed: {}",
                path.display(),
                e.message()
            ),
        )
        .hint(format!(
            "see to it that {} can be written with {size} bytes, then start again; the older program still works with the \
             folder as it is",
            kept.display()
        ))
        .caused_by(e)
    })?;
    log::info!(
        "the database is brought from version {version} to {newest}; what it was before is kept in {}",
        kept.display()
    );
    remove_oldest(path);
    Ok(())
}

/// Removes the oldest copies beside the file, so that at most [`KEPT`] stay.
fn remove_oldest(path: &Path) {
    let mut older = older_copies(path);
    let superfluous = older.len().saturating_sub(KEPT);
    for (version, copy) in older.drain(..superfluous) {
        match fs::remove_file(&copy) {
            Ok(()) => log::info!("the copy of version {version} was removed: {}", copy.display()),
            Err(e) => log::warn!("{} cannot be removed: {e}", copy.display()),
        }
    }
}

/// What the names of the copies end with.
const EXTENSION: &str = ".db";

/// What the names of the copies begin with: `jobs-version-`.
fn prefix(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}-version-")
}

/// The copies beside the file, the oldest version first.
fn older_copies(path: &Path) -> Vec<(i32, PathBuf)> {
    let prefix = prefix(path);
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let mut copies: Vec<(i32, PathBuf)> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(EXTENSION)?.parse().ok()?;
            Some((version, entry.path()))
        })
        .collect();
    copies.sort();
    copies
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;

    use super::super::{APPLICATION_ID, MIGRATIONS, SqliteDatabase};
    use super::*;
    use crate::database::{JobDatabase, ManualClock, UpkeepRows, UserRows};
    use crate::error::ErrorKind;

    /// A database as the program of that version left it, with a user. Its last commit is still in the log beside it, as after a
    /// power cut.
    fn of_version(version: usize, path: &Path) -> Connection {
        let old = Connection::open(path).unwrap();
        old.pragma_update(None, "journal_mode", "wal").unwrap();
        for step in &MIGRATIONS[..version] {
            old.execute_batch(step).unwrap();
        }
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.pragma_update(None, "user_version", version as i32).unwrap();
        let anna = "INSERT INTO users (user_id, name, tier, created_at)
            VALUES ('0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70', 'anna', 'free', 0)";
        old.execute(anna, []).unwrap();
        old
    }

    fn open(path: &Path) -> Result<SqliteDatabase> {
        SqliteDatabase::open(path, Arc::new(ManualClock::new()))
    }

    fn version_of(path: &Path) -> i32 {
        Connection::open(path).unwrap().pragma_query_value(None, "user_version", |r| r.get(0)).unwrap()
    }

    #[test]
    fn what_an_upgrade_changes_is_kept_as_it_was() {
        for version in 1..MIGRATIONS.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("jobs.db");
            let old = of_version(version, &path);
            let database = open(&path).unwrap();
            drop(old);
            assert_eq!(database.users().unwrap().len(), 1);
            let schema = database.schema_version().unwrap();
            assert_eq!((schema.found, schema.newest), (MIGRATIONS.len() as i32, MIGRATIONS.len() as i32));
            drop(database);
            // Opened again, nothing is to be done, and no copy is made.
            drop(open(&path).unwrap());
            let kept = folder.path().join(format!("jobs-version-{version}.db"));
            let names: Vec<_> = older_copies(&path).into_iter().map(|(_, path)| path).collect();
            assert_eq!(names, std::slice::from_ref(&kept));
            assert_eq!(version_of(&kept), version as i32);
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
            }
            // To go back: the copy takes the place of the file. It can be upgraded again.
            fs::rename(&kept, &path).unwrap();
            assert_eq!(open(&path).unwrap().users().unwrap()[0].name, "anna");
        }
    }

    /// Looked at are the bytes and the times of all files but `-shm`, by which SQLite agrees with other connections.
    #[test]
    fn opening_a_current_database_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        // Somebody is at the database, and their last commit is in the log only.
        let other = open(&path).unwrap();
        let anna = "INSERT INTO users (user_id, name, tier, created_at)
            VALUES ('0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70', 'anna', 'free', 0)";
        Connection::open(&path).unwrap().execute(anna, []).unwrap();
        let written = || -> Vec<_> {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
                .into_iter()
                .map(|name| {
                    let file = folder.path().join(&name);
                    let is_shared_memory = name.to_string_lossy().ends_with("-shm");
                    let content = (!is_shared_memory).then(|| {
                        (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().modified().unwrap())
                    });
                    (name, content)
                })
                .collect()
        };
        let before = written();
        assert!(before.iter().any(|(name, content)| {
            name == "jobs.db-wal" && content.as_ref().is_some_and(|(bytes, _)| !bytes.is_empty())
        }));
        let again = open(&path).unwrap();
        assert_eq!(again.users().unwrap().len(), 1);
        drop(again);
        assert!(written() == before, "a database that needed nothing was written to");
        drop(other);
        // The same where nobody else is at it: its log is gone, and none is left behind.
        let alone = || (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
        let before = alone();
        drop(open(&path).unwrap());
        assert!(alone() == before, "a database that needed nothing was written to");
    }

    #[test]
    fn without_a_copy_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        drop(of_version(1, &path));
        let in_the_way = folder.path().join("jobs-version-1.db");
        fs::create_dir_all(in_the_way.join("full")).unwrap();
        let error = open(&path).err().unwrap();
        let text = error.to_string();
        for words in ["version 1", "was left so", "jobs-version-1.db", "the older program still works"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(version_of(&path), 1);
        fs::remove_dir_all(in_the_way).unwrap();
        assert_eq!(open(&path).unwrap().users().unwrap().len(), 1);
    }

    #[test]
    fn only_the_newest_copies_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        for name in
            ["jobs-version-9.db", "jobs-version-10.db", "jobs-version-2.db", "jobs-version-11.db", "my-2.db"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_oldest(&path);
        let versions: Vec<i32> = older_copies(&path).into_iter().map(|(version, _)| version).collect();
        assert_eq!(versions, [9, 10, 11]);
        assert!(folder.path().join("my-2.db").exists());
    }

    #[test]
    fn a_look_changes_nothing_and_sees_what_is_only_in_the_log() {
        let folder = tempfile::tempdir().unwrap();
        // No character of a name may mean something in the address by which SQLite is given it.
        let path = folder.path().join("50%41 of #1?.db");
        let old = of_version(1, &path);
        let look = |still| SqliteDatabase::open_to_look(&path, Arc::new(ManualClock::new()), still);
        let database = look(false).unwrap();
        assert_eq!(database.schema_version().unwrap().found, 1);
        assert_eq!(database.users().unwrap().len(), 1);
        assert!(database.integrity_check().unwrap().is_empty());
        let user = crate::job::UserId::random();
        assert_eq!(database.set_tier(user, crate::job::Tier::Free).unwrap_err().kind(), ErrorKind::Io);
        drop((database, old));
        // With nobody at it, not even the files of the log appear.
        let entries = || {
            let mut all: Vec<_> = fs::read_dir(folder.path())
                .unwrap()
                .map(|e| e.map(|e| (e.file_name(), e.metadata().unwrap().modified().unwrap())).unwrap())
                .collect();
            all.sort();
            all
        };
        let before = entries();
        let database = look(true).unwrap();
        assert_eq!((database.users().unwrap().len(), database.schema_version().unwrap().found), (1, 1));
        database.copy_to(&folder.path().join("copy")).unwrap();
        fs::remove_file(folder.path().join("copy")).unwrap();
        drop(database);
        assert_eq!(entries(), before);
        let missing =
            SqliteDatabase::open_to_look(&folder.path().join("none"), Arc::new(ManualClock::new()), true);
        assert_eq!(missing.err().unwrap().kind(), ErrorKind::NotFound);
        fs::write(folder.path().join("text"), "this is no database, and much too short").unwrap();
        let text =
            SqliteDatabase::open_to_look(&folder.path().join("text"), Arc::new(ManualClock::new()), true);
        assert_eq!(text.err().unwrap().kind(), ErrorKind::InvalidFile);
    }
}
