//! Rows and files that many machines share.

use std::path::Path;
use std::time::Duration;

use super::database::examine_version;
use super::files::{Where, named_files, orphans};
use super::finding::Finding;
use crate::database::{Clock, JobDatabase, PostgresDatabase, ServerState, SystemClock, UpkeepRows};
use crate::error::Result;
use crate::service::lost_files::one_missing;
use crate::service::place::open_storage;
use crate::storage::{LocalStorage, SERVICE_ID, Storage};

/// Clocks that differ by more than this (seconds) are told of: object stores refuse what is signed by one that is far off.
const CLOCKS_AGREE: f64 = 60.0;
/// Fewer connections that are left (a share of all) are told of.
const FEW_CONNECTIONS: f64 = 0.1;

/// Looks at both, and compares them if both can be read. `age`: see [`super::Service::diagnose`].
pub(super) fn examine(database: &str, storage: &str, age: Duration, findings: &mut Vec<Finding>) {
    let rows = PostgresDatabase::open_to_look(database).and_then(|rows| examine_rows(rows, findings));
    let rows = rows.unwrap_or_else(|error| {
        findings.push(Finding::problem(
            "database_unreachable",
            format!("{}: no server and no worker can work", error.message()),
            error.hint_text().unwrap_or("see that PostgreSQL runs, and that this machine may reach it"),
        ));
        None
    });
    let storage = open_to_look(storage).and_then(|storage| {
        // What may not be listed cannot be swept either.
        if let (Some(rows), Some(storage)) = (&rows, &storage)
            && belong_together(rows, storage.as_ref(), findings)?
        {
            named_files(storage.as_ref(), rows, Where::Shared, findings)?;
            orphans(storage.as_ref(), rows, age, Where::Shared, findings)?;
        }
        Ok(storage)
    });
    match storage {
        Ok(Some(_)) => {}
        Ok(None) => findings.push(Finding::problem(
            "no_storage",
            "there is no folder where the storage should be: it is not mounted on this machine, or its address is another",
            "mount it, or mend the address (--storage). Start no server before: it would make an empty folder there",
        )),
        Err(error) => findings.push(Finding::problem(
            "storage_unreachable",
            format!("{}: no upload and no scene can be stored or fetched", error.message()),
            error.hint_text().unwrap_or("see that the store can be reached, and what this account may do there"),
        )),
    }
}

/// Whether rows and files belong together, as far as their ids say. Where they do not, to believe the rows wrong about files that are
/// missing would be the end of jobs whose files are safe elsewhere.
fn belong_together(
    rows: &PostgresDatabase,
    storage: &dyn Storage,
    findings: &mut Vec<Finding>,
) -> Result<bool> {
    let advice = |of_rows: &str| {
        format!(
            "mend the address that is wrong (--database, --storage); if rows and files belong together, store the text {of_rows} \
             under the name {SERVICE_ID} in the storage, and look again: then it is told what is lost"
        )
    };
    let together = match (rows.service_id()?, storage.service_id()?) {
        (Some(of_rows), Some(of_files)) if of_rows != of_files => {
            let found = format!(
                "the storage is that of another service, of the id {of_files:?}; the rows have {of_rows:?}: no server takes uploads or \
                 removes files, and workers wait"
            );
            findings.push(Finding::problem("storage_of_another_service", found, advice(&of_rows)));
            false
        }
        (Some(of_rows), None) => match one_missing(rows, storage)? {
            Some(missing) => {
                let found = format!(
                    "nothing says whose the stored files are, and {missing}, which rows name, is not among them: no server takes \
                     uploads or removes files, and workers wait"
                );
                findings.push(Finding::problem("storage_of_nobody", found, advice(&of_rows)));
                false
            }
            None => {
                findings.push(Finding::note(
                    "storage_of_nobody",
                    "nothing says whose the stored files are",
                    format!(
                        "nothing, if no server has run for an hour and no worker has looked for jobs yet: the first writes the id of \
                         the rows, unless they name few of the files. If it says so and they belong together, store the text {of_rows} \
                         under the name {SERVICE_ID} in the storage"
                    ),
                ));
                true
            }
        },
        _ => true,
    };
    Ok(together)
}

/// The storage as it is; `None` for a folder that is not there.
fn open_to_look(address: &str) -> Result<Option<Box<dyn Storage>>> {
    let folder = address.strip_prefix("file://").map(Path::new).filter(|folder| folder.is_absolute());
    match folder {
        // To open it would make it.
        Some(folder) if !folder.is_dir() => Ok(None),
        Some(folder) => Ok(Some(Box::new(LocalStorage::to_look_at(folder)))),
        None => open_storage(address).map(Some),
    }
}

/// Looks at the database, and returns it if its rows can be compared with the files.
fn examine_rows(rows: PostgresDatabase, findings: &mut Vec<Finding>) -> Result<Option<PostgresDatabase>> {
    examine_server(&rows.server_state()?, findings);
    let version = rows.schema_version()?;
    if version.found == 0 {
        findings.push(Finding::problem(
            "no_database",
            "there are no tables of a service in the database: its address is another, or no server was ever started on it",
            "mend the address (--database), also its search_path; the first server that is started makes the tables",
        ));
        return Ok(None);
    }
    let older = "make a copy of the database first (pg_dump), then start one server with this program; then look again";
    examine_version(version, rows.is_usable()?, older, findings);
    let damage = rows.integrity_check()?;
    if !damage.is_empty() {
        findings.push(Finding::problem(
            "database_damaged",
            format!("PostgreSQL has marked: {}", damage.join("; ")),
            "what it says; pg_amcheck looks deeper",
        ));
    }
    Ok(Some(rows).filter(|_| version.found == version.newest))
}

fn examine_server(state: &ServerState, findings: &mut Vec<Finding>) {
    if state.is_standby {
        findings.push(Finding::problem(
            "standby_database",
            "this server of PostgreSQL is a stand-by: nothing can be written to it",
            "name the primary in the address, or all of them with target_session_attrs=read-write",
        ));
    }
    if !state.unsafe_settings.is_empty() {
        findings.push(Finding::problem(
            "commits_may_be_lost",
            format!(
                "PostgreSQL runs with {}: after a power cut, jobs and uploads that were acknowledged may be gone",
                state.unsafe_settings.join(", ")
            ),
            "set them on in postgresql.conf",
        ));
    }
    let left = state.max_connections.saturating_sub(state.connections);
    if (left as f64) < FEW_CONNECTIONS * state.max_connections as f64 {
        findings.push(Finding::note(
            "few_connections",
            format!(
                "{} of the {} connections that PostgreSQL allows are in use: processes that find none wait, and then fail",
                state.connections, state.max_connections
            ),
            "raise max_connections, or see who holds them (pg_stat_activity)",
        ));
    }
    let ahead = (SystemClock::new().now().as_micros() - state.now.as_micros()) as f64 / 1e6;
    if ahead.abs() > CLOCKS_AGREE {
        findings.push(Finding::note(
            "clocks_differ",
            format!(
                "the clock of this machine is {:.0} seconds {} that of the database: addresses that it signs are refused, or last \
                 longer than they should",
                ahead.abs(),
                if ahead > 0.0 { "ahead of" } else { "behind" }
            ),
            "let both follow a time server (timedatectl, chrony)",
        ));
    }
}
