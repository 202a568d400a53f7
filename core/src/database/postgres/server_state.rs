//! What of PostgreSQL itself matters to the rows.

use super::connection::Sql;
use super::session::Session;
use crate::job::Timestamp;

/// How a server of PostgreSQL is set up, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Whether it only follows another server: nothing can be written to it.
    pub is_standby: bool,
    /// Those of the settings `fsync`, `full_page_writes` and `synchronous_commit` that are off, as `name = off`: with any of them
    /// a power cut can take back what was committed.
    pub unsafe_settings: Vec<String>,
    /// Connections that are in use, by whomever.
    pub connections: u64,
    /// ... and those that there may be.
    pub max_connections: u64,
    /// Its clock.
    pub now: Timestamp,
}

pub(super) fn read(session: &Session) -> Sql<ServerState> {
    const STATE: &str = "SELECT pg_is_in_recovery(),
            (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
            current_setting('max_connections')::bigint,
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const OFF: &str = "SELECT name || ' = ' || setting FROM pg_settings
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name";
    let (is_standby, connections, max_connections, now) = session
        .first(STATE, &[], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get::<i64>(3)?)))?
        .unwrap_or_default();
    let unsafe_settings = session.all(OFF, &[], |r| r.get(0))?;
    Ok(ServerState {
        is_standby,
        unsafe_settings,
        connections,
        max_connections,
        now: Timestamp::from_micros(now),
    })
}
