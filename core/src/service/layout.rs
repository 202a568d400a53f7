//! What lies in the folder of a service, beside what the storage keeps there.

/// The rows.
pub(super) const DATABASE: &str = "jobs.db";
/// What makes keys and addresses genuine.
pub(super) const SECRETS: &str = "secrets.json";
/// The locks of living processes.
pub(super) const PROCESSES: &str = "processes";
/// The workspaces.
pub(super) const WORK: &str = "work";
/// Held while something is made that is missing.
pub(super) const LOCK: &str = "lock";
/// Which machine uses the folder.
pub(super) const HOST: &str = "host";
/// There while a backup is restored to the folder, and after that was cut off: what is in the folder is not complete.
pub(super) const RESTORING: &str = "restoring";
/// For which waiting jobs room was kept on this machine.
pub(super) const KEPT_ROOM: &str = "kept-room.json";
/// Where a repair puts files that no row names.
pub(super) const SET_ASIDE: &str = "set-aside";
/// There while the service is moved to many machines, and after that was killed: the rows on their way, and which files have arrived.
pub(super) const MOVING: &str = "moving";
/// Says where the service was moved to.
pub(super) const MOVED: &str = "moved.json";
