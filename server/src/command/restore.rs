//! `reconstruct restore`: a service is made of a backup.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::service::Service;
use libreconstruct::{CancelToken, Result};
use serde_json::json;
use toml::Table;

use super::backup::{contents, go_on};
use super::data::{DataArguments, no_folder};
use crate::context::{Global, print_result};
use crate::ui;

/// Make a service of a backup
///
/// Fills a new or empty folder (--data) from a folder that `reconstruct backup` made, and checks every file by its hash. Until
/// all is there, nothing opens the folder; if something fails, it is empty again. Keys work as before, jobs that ran when the
/// backup was made are in the queue, and what came after it is not there. The backup stays as it is. Run this as the user under
/// whom the service runs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct restore /backups/monday --data /srv/scenes
  reconstruct doctor --data /srv/scenes                     is all well with it?")]
pub(crate) struct Arguments {
    /// The backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    #[command(flatten)]
    data: DataArguments,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        // What is configured or stands in the environment may be meant for the service that is to come back.
        if self.data.names_addresses() {
            return Err(no_folder(
                "restore makes a service in a folder",
                "leave them out; `reconstruct migrate` moves a folder to rows and files that many machines share",
            ));
        }
        let folder = self.data.config(Table::new())?.data;
        let mut show = ui::bytes(ui::Mode::choose(global.json, global.quiet), "restore");
        let manifest = Service::restore(&self.backup, &folder, &mut |progress| {
            show(progress.bytes, progress.total_bytes);
            go_on(cancel)
        })?;
        let value = json!({
            "data": folder.display().to_string(), "made_at": manifest.made_at, "users": manifest.users, "jobs": manifest.jobs,
            "files": manifest.files.len(), "bytes": manifest.bytes(),
        });
        print_result(global, &value, &format!("{} holds {}", folder.display(), contents(&manifest)));
        Ok(())
    }
}
