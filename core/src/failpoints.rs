//! Places where a test makes the disk fail or kills the process (crate feature `failpoints`; without it they cost nothing).
//!
//! `FAILPOINTS="storage.commit.rename=3*off->return(kill)"` in the environment of any program of the project kills it the
//! fourth time it comes to that place; `return(enospc)` and `return(eio)` make the operation fail as the system would.
//! Every place stands before a flush, a rename or a commit: what is killed there has done everything up to it. Where
//! `service.sweep_later` fails nothing else does: a server looks through its storage at once, and not an hour later.

#[cfg(all(feature = "failpoints", not(unix)))]
compile_error!("the feature failpoints is for Unix: its errors and its kills are those of that system");

/// Every place, so that tests can go through all of them.
pub const NAMES: &[&str] = &[
    "files.sync",
    "files.rename",
    "files.sync_folder",
    "storage.create.open",
    "storage.write",
    "storage.commit.sync",
    "storage.commit.rename",
    "storage.commit.sync_folder",
    "storage.put.link",
    "storage.put.sync",
    "storage.put.rename",
    "storage.put.sync_folder",
    "storage.delete.unlink",
    "storage.delete.sync_folder",
    "service.sweep_later",
    "workspace.create",
    "workspace.pictures",
    "workspace.remove",
    "worker.claimed",
    "worker.reconstructed",
    "worker.artifacts_stored",
    "worker.published",
    "database.add_user.commit",
    "database.set_tier.commit",
    "database.create_key.commit",
    "database.revoke_key.commit",
    "database.touch_keys.commit",
    "database.create_upload.commit",
    "database.finish_upload.commit",
    "database.note_waiting_bytes.commit",
    "database.expire_uploads.commit",
    "database.forget_upload.commit",
    "database.insert_job.commit",
    "database.update_job.commit",
    "database.cancel_job.commit",
    "database.mark_deleted.commit",
    "database.forget_job.commit",
    "database.claim.commit",
    "database.heartbeat.commit",
    "database.progress.commit",
    "database.publish.commit",
    "database.fail.commit",
    "database.release.commit",
    "database.reclaim.commit",
    "database.copy.write",
    "database.copy.sync",
    "database.release_all.commit",
    "database.note_service_id.commit",
    "database.lose_video.commit",
    "database.lose_artifact.commit",
    "database.fail_waiting.commit",
    "database.take_tokens.commit",
    "submit.copied",
    "submit.taken_in",
    "submit.added",
    "database.take_rows.commit",
    "backup.copy",
    "backup.place",
    "restore.copy",
    "restore.place",
    "migrate.copy",
    "migrate.rows",
    "migrate.place",
];

/// Passes a place: an error if a test wants one here.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn pass(_name: &str) -> std::io::Result<()> {
    Ok(())
}

/// Passes a place: an error if a test wants one here.
#[cfg(feature = "failpoints")]
pub(crate) fn pass(name: &str) -> std::io::Result<()> {
    debug_assert!(NAMES.contains(&name), "{name} is not in the list of failpoints");
    fail::fail_point!(name, |action| act(name, action.as_deref()));
    Ok(())
}

#[cfg(feature = "failpoints")]
fn act(name: &str, action: Option<&str>) -> std::io::Result<()> {
    match action {
        Some("enospc") => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
        Some("eio") => Err(std::io::Error::from_raw_os_error(libc::EIO)),
        Some("kill") => loop {
            // SAFETY: plain system calls without pointers; the second never returns control to this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        },
        other => Err(std::io::Error::other(format!("failpoint {name}: unknown action {other:?}"))),
    }
}

/// Sets the places that the variable `FAILPOINTS` names, once in the life of the process.
#[cfg(feature = "failpoints")]
pub(crate) fn read_environment() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let Ok(text) = std::env::var("FAILPOINTS") else { return };
        for setting in text.split(';').filter(|s| !s.trim().is_empty()) {
            let set = setting.split_once('=').map(|(name, actions)| fail::cfg(name.trim(), actions.trim()));
            // A misspelt setting would make a test pass that tests nothing.
            assert!(matches!(set, Some(Ok(()))), "FAILPOINTS: {setting:?} cannot be understood");
        }
    });
}
