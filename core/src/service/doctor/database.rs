//! The file of the rows.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::finding::Finding;
use crate::database::{JobDatabase, SchemaVersion, SqliteDatabase, SystemClock};
use crate::error::Result;
use crate::service::layout;

/// Lines of SQLite about a damaged file that are shown.
const SHOWN: usize = 5;

/// Looks at the database, and returns it if its rows can be compared with the files.
pub(super) fn examine(folder: &Path, alive: usize, findings: &mut Vec<Finding>) -> Option<SqliteDatabase> {
    let path = folder.join(layout::DATABASE);
    if !path.exists() {
        findings.push(Finding::problem(
            "no_database",
            format!("there is no {}: this is no folder of a service, or its rows are lost", path.display()),
            "name the right folder with --data. If the rows are lost, do not start the server on this folder: it would begin \
             with an empty database and remove all files an hour later. Restore a backup to a new folder",
        ));
        return None;
    }
    // With a log beside it the file may not be complete by itself, and SQLite has to look at both.
    let log = fs::metadata(folder.join("jobs.db-wal")).map_or(0, |m| m.len());
    let opened = SqliteDatabase::open_to_look(&path, Arc::new(SystemClock::new()), alive == 0 && log == 0);
    opened.and_then(|rows| examine_rows(rows, findings)).unwrap_or_else(|error| {
        findings.push(Finding::problem(
            "database_unreadable",
            error.message(),
            error.hint_text().unwrap_or(
                "see to the rights of the file; if it is damaged, restore a backup to a new folder",
            ),
        ));
        None
    })
}

fn examine_rows(rows: SqliteDatabase, findings: &mut Vec<Finding>) -> Result<Option<SqliteDatabase>> {
    let version = rows.schema_version()?;
    let older = "make a backup with the older program first, then start; then look again";
    examine_version(version, false, older, findings);
    let damage = rows.integrity_check()?;
    if !damage.is_empty() {
        findings.push(Finding::problem(
            "database_damaged",
            format!("the database is damaged: {}", damage.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ")),
            "stop all servers and workers, keep a copy of the folder, and restore the last backup to a new folder; look for what \
             damaged it (the disk, its memory, a copy that was made while a server ran)",
        ));
    }
    Ok(Some(rows).filter(|_| version.found == version.newest && damage.is_empty()))
}

/// Whether this program and the form of the rows belong together. `is_usable`: this program may use a newer one all the same.
pub(super) fn examine_version(
    version: SchemaVersion,
    is_usable: bool,
    if_older: &str,
    findings: &mut Vec<Finding>,
) {
    let SchemaVersion { found, newest } = version;
    if found > newest && is_usable {
        findings.push(Finding::note(
            "newer_database",
            format!(
                "the database has version {found}, this program knows up to {newest}: it can still use it"
            ),
            "bring this machine to the newer program, too. Rows were not compared with files",
        ));
    } else if found > newest {
        findings.push(Finding::problem(
            "newer_database",
            format!("the database has version {found}, this program knows up to {newest}: it cannot use it"),
            "use the newer program that wrote it. To go back to this one, see \"Going back\" in docs/operations.md",
        ));
    }
    if found < newest {
        findings.push(Finding::note(
            "older_database",
            format!(
                "the database has version {found}: the next start of a server brings it to version {newest}. Rows were not \
                 compared with files"
            ),
            if_older,
        ));
    }
}
