//! The tables, and how those of an older program become ours.
//!
//! A step may only add what the program before does not notice: for as long as the machines are brought to a new version one after
//! the other, both work with the same tables. What is no longer needed is removed one version later. So with the form of the tables
//! it is noted from which form on a program can use them, and the one before may still be started.

use super::connection::Sql;
use super::session::Session;
use super::values::values;
use crate::error::{Error, ErrorKind};

/// What takes an older database to the newest form, one step a version.
const MIGRATIONS: [&str; 11] = [
    include_str!("version_1.sql"),
    include_str!("version_2.sql"),
    include_str!("version_3.sql"),
    include_str!("version_4.sql"),
    include_str!("version_5.sql"),
    include_str!("version_6.sql"),
    include_str!("version_7.sql"),
    include_str!("version_8.sql"),
    include_str!("version_9.sql"),
    include_str!("version_10.sql"),
    include_str!("version_11.sql"),
];
/// The oldest form whose programs can still use the newest: the one before, as long as steps only add.
const USABLE_FROM: i32 = MIGRATIONS.len() as i32 - 1;
/// The lock under which one process at a time changes the tables ("recn").
const LOCK: i64 = 0x7265_636e;

/// The newest form that this program knows.
pub(super) fn newest() -> i32 {
    MIGRATIONS.len() as i32
}

/// The form of the database; 0 if nothing of ours is there.
pub(super) fn version(session: &Session) -> Sql<i32> {
    // Asked of the catalogue as rows: to_regclass may answer from what this session knew before it waited for another one.
    const IS_THERE: &str =
        "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_version'";
    if !session.exists(IS_THERE, &[])? {
        return Ok(0);
    }
    let version: Option<i64> = session.first("SELECT version FROM schema_version", &[], |r| r.get(0))?;
    Ok(version.and_then(|v| i32::try_from(v).ok()).unwrap_or_default())
}

/// Whether this program can use tables of a newer `version` as they are. Programs that noted nothing about that are not trusted.
pub(super) fn is_usable(session: &Session, version: i32) -> Sql<bool> {
    // As a whole row, because the column may not be there.
    const USABLE: &str = "SELECT (to_jsonb(schema_version)->>'usable_from')::bigint FROM schema_version";
    if version <= newest() {
        return Ok(version == newest());
    }
    let from = session.first(USABLE, &[], |r| r.get::<Option<i64>>(0))?.flatten();
    Ok(from.is_some_and(|from| from <= i64::from(newest())))
}

/// Brings the tables to the newest form, in the transaction of `session`. Newer ones that this program can use stay as they are.
pub(super) fn migrate(session: &Session, place: &str) -> Sql<()> {
    session.exists("SELECT pg_advisory_xact_lock($1)", values![LOCK])?;
    // Somebody else may have done it meanwhile.
    let version = version(session)?;
    if is_usable(session, version)? {
        return Ok(());
    }
    if version > newest() {
        return Err(Error::new(
            ErrorKind::InvalidFile,
            format!("{place} has version {version}; this program knows up to {}", newest()),
        )
        .hint("use the newer program that wrote it")
        .into());
    }
    if version == 0 {
        const OTHERS: &str = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema()";
        if session.exists(OTHERS, &[])? {
            return Err(Error::new(ErrorKind::InvalidFile, format!("{place} has tables of another program"))
                .hint("choose another database, or another schema in it (?options=-csearch_path%3Dname)")
                .into());
        }
        session.batch(
            "CREATE TABLE schema_version (version BIGINT NOT NULL); INSERT INTO schema_version VALUES (0)",
        )?;
    }
    let done = usize::try_from(version).unwrap_or(0);
    for step in MIGRATIONS.iter().skip(done) {
        session.batch(step)?;
    }
    // Not a step of its own: to it this is no other form, and a program that does not look at it goes on.
    session.batch("ALTER TABLE schema_version ADD COLUMN IF NOT EXISTS usable_from BIGINT")?;
    const NOTE: &str = "UPDATE schema_version SET version = $1, usable_from = $2";
    session.run(NOTE, values![i64::from(newest()), i64::from(USABLE_FROM)])?;
    Ok(())
}
