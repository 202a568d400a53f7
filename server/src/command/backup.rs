//! `reconstruct backup`: a copy of a whole service, made while it runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use libreconstruct::service::BackupManifest;
use libreconstruct::{CancelToken, Error, ErrorKind, Result};
use serde_json::json;

use super::data::DataArguments;
use crate::context::{Global, print_result};
use crate::ui;

/// Back up a whole service
///
/// Makes a new folder with all users, keys, jobs, videos and scenes as they are at one moment, also while servers and workers
/// run. The folder appears when it is complete. On the file system of the service it takes next to no room, because stored
/// files are linked; copy it to another machine with any program (the files in it never change). It holds the secrets of the
/// service: keep it from others. Not in it: uploads that are not complete, and the progress of running jobs, which stand in its
/// queue. `reconstruct restore` makes a service of it again.
///
/// Files that the service has lost are told, and listed in the backup, which is made without them; the exit status is not 0 then.
/// Where all files are missing, or the storage is another service's, no backup is made.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct backup --data /srv/scenes --to /backups/monday
  reconstruct backup --data /srv/scenes --to /backups/tuesday --previous /backups/monday

Exit status: 0 all is in the backup, 1 it is made and lacks files that the service has lost, others as for every command: no
backup is made.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// The new folder; the one above it must be there
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// An earlier backup: its files are linked or not read again where they are the same
    #[arg(long, value_name = "FOLDER")]
    previous: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<ExitCode> {
        let service = self.data.open_existing()?;
        let mut show = ui::bytes(ui::Mode::choose(global.json, global.quiet), "backup");
        let manifest = service.backup(&self.to, self.previous.as_deref(), &mut |progress| {
            show(progress.bytes, progress.total_bytes);
            go_on(cancel)
        })?;
        for name in &manifest.lost {
            eprintln!("warning: {name} is missing or damaged in the service; `reconstruct doctor` says more");
        }
        let text = format!("{} is {}", self.to.display(), contents(&manifest));
        let value = json!({
            "backup": self.to.display().to_string(), "made_at": manifest.made_at, "users": manifest.users, "jobs": manifest.jobs,
            "files": manifest.files.len(), "bytes": manifest.bytes(), "lost": manifest.lost,
        });
        print_result(global, &value, &text);
        // Who removes old backups after this one must not: they may have what it lacks.
        Ok(if manifest.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// Ends the work if that was asked for.
pub(super) fn go_on(cancel: &CancelToken) -> Result<()> {
    match cancel.is_cancelled() {
        true => Err(Error::new(ErrorKind::Cancelled, "cancelled; nothing is left of it")),
        false => Ok(()),
    }
}

/// What is in a backup, for people.
pub(super) fn contents(manifest: &BackupManifest) -> String {
    let BackupManifest { made_at, users, jobs, files, .. } = manifest;
    let bytes = manifest.bytes();
    format!("a backup of {made_at}: {users} users, {jobs} jobs, {} files with {bytes} bytes", files.len())
}
