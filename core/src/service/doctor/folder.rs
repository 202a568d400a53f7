//! The folder as the system sees it: what is in it, whose it is, who may read it, which processes are at it.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Repair, some_of};
use crate::error::{Error, Result};
use crate::service::process::locks;
use crate::service::{ServiceOptions, layout, moved};
use crate::storage::{BlobKind, LocalStorage, Storage};

/// Folders of the service with files of their own.
const FOLDERS: [&str; 8] = [
    BlobKind::Video.prefix(),
    BlobKind::Block.prefix(),
    BlobKind::Artifact.prefix(),
    BlobKind::Incoming.prefix(),
    BlobKind::Checkpoint.prefix(),
    "staged",
    layout::WORK,
    layout::PROCESSES,
];

pub(super) fn examine(folder: &Path, findings: &mut Vec<Finding>) {
    if folder.join(layout::RESTORING).exists() {
        findings.push(Finding::problem(
            "restoring",
            format!(
                "a backup is being restored to {}, or that was cut off: nothing opens it",
                folder.display()
            ),
            "wait for the end of `reconstruct restore`, or start it again: it begins anew",
        ));
    }
    if let Err(error) = moved::check(folder) {
        findings.push(Finding::note("moved", error.message(), error.hint_text().unwrap_or_default()));
    }
    match entries(folder) {
        Ok(entries) => {
            strangers(&entries, findings);
            #[cfg(unix)]
            rights(folder, entries, findings);
        }
        Err(error) => findings.push(Finding::unreadable(&error)),
    }
}

/// How many processes are at the folder.
pub(super) fn examine_processes(folder: &Path, findings: &mut Vec<Finding>) -> usize {
    let locks = match locks(&folder.join(layout::PROCESSES)) {
        Ok(locks) => locks,
        Err(error) => {
            findings.push(Finding::unreadable(&error));
            // In doubt there is one.
            return 1;
        }
    };
    let (alive, dead): (Vec<_>, Vec<_>) = locks.into_iter().partition(|(_, alive)| *alive);
    if !alive.is_empty() {
        findings.push(Finding::note(
            "in_use",
            format!("{} processes have the folder open: servers, workers, commands", alive.len()),
            "nothing: what they are just doing may be found half done here",
        ));
    }
    if !dead.is_empty() {
        let dead: Vec<PathBuf> = dead.into_iter().map(|(path, _)| path).collect();
        let finding = Finding::note(
            "dead_processes",
            format!(
                "{} processes ended without a farewell: they were killed, or the machine went down",
                dead.len()
            ),
            "nothing: their jobs go back to the queue when the service is opened, and a server removes these locks",
        );
        findings.push(finding.with(Repair::RemoveLocks(dead)));
    }
    alive.len()
}

/// Whether there is room for what comes.
pub(super) fn examine_space(folder: &Path, options: &ServiceOptions, findings: &mut Vec<Finding>) {
    match LocalStorage::to_look_at(folder).free_space() {
        Ok(Some(free)) if free < options.min_free_bytes => findings.push(Finding::problem(
            "disk_full",
            format!(
                "the disk of {} has {free} bytes left and {} must stay free (min_free_bytes): no upload and no job is accepted, \
                 and workers wait",
                folder.display(),
                options.min_free_bytes
            ),
            "free some space: delete jobs that are no longer needed (`reconstruct jobs delete`), or move the folder to a larger \
             disk; work goes on by itself",
        )),
        Ok(_) => {}
        Err(error) => findings.push(Finding::unreadable(&error)),
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io("list", folder, e);
    let entries = fs::read_dir(folder).map_err(io)?;
    let mut paths = entries.map(|e| Ok(e.map_err(io)?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// What nobody here has made.
fn strangers(entries: &[PathBuf], findings: &mut Vec<Finding>) {
    let files = [
        layout::DATABASE,
        "jobs.db-wal",
        "jobs.db-shm",
        layout::SECRETS,
        layout::LOCK,
        layout::HOST,
        layout::KEPT_ROOM,
        "kept-room.lock",
        "kept-room.part",
        layout::RESTORING,
        layout::MOVING,
        layout::MOVED,
        layout::SET_ASIDE,
        "lost+found",
    ];
    let is_ours =
        |name: &str| files.contains(&name) || FOLDERS.contains(&name) || name.starts_with("jobs-version-");
    let names = entries.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let strange: Vec<String> = names.filter(|name| !is_ours(name)).collect();
    if !strange.is_empty() {
        findings.push(Finding::note(
            "strange_files",
            format!("the service knows nothing of {}", some_of(&strange)),
            "nothing: it leaves them alone. Backups do not hold them. Names that begin with a dot and a number are what a killed \
             program was just writing",
        ));
    }
}

#[cfg(unix)]
fn rights(folder: &Path, mut paths: Vec<PathBuf>, findings: &mut Vec<Finding>) {
    use std::os::unix::fs::MetadataExt;
    let Ok(own) = fs::metadata(folder) else { return };
    // The folder's own rights keep others from all that is in it.
    if own.mode() & 0o077 != 0 {
        let rest =
            paths.iter().filter(|path| fs::symlink_metadata(path).is_ok_and(|m| m.mode() & 0o077 != 0));
        let open: Vec<PathBuf> = std::iter::once(folder.to_owned()).chain(rest.cloned()).collect();
        let finding = Finding::problem(
            "open_to_others",
            format!(
                "others may look into {} (its rights are {:o}): videos, scenes and the secrets of all users are there",
                folder.display(),
                own.mode() & 0o777
            ),
            format!("chmod 700 {}", folder.display()),
        );
        findings.push(finding.with(Repair::Restrict(open)));
    }
    for name in FOLDERS {
        paths.extend(entries(&folder.join(name)).unwrap_or_default());
    }
    let foreign: Vec<String> = paths
        .iter()
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|m| m.uid() != own.uid()))
        .map(|path| path.display().to_string())
        .collect();
    if !foreign.is_empty() {
        findings.push(Finding::problem(
            "other_owner",
            format!(
                "{} belong to another user than the folder, so a service that runs under that user may fail to use them: a \
                 command was run as root, or files were copied",
                some_of(&foreign)
            ),
            format!("as root: chown -R --reference={0} {0}; then run all commands as the user of the service", folder.display()),
        ));
    }
}
