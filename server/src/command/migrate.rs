//! `reconstruct migrate`: a service goes from its folder to many machines.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::service::{Addresses, Service};
use libreconstruct::{CancelToken, Error, ErrorKind, Result};
use serde_json::json;
use toml::Table;

use crate::config::Config;
use crate::context::{Global, print_result};
use crate::ui;

/// Move a service from its folder to many machines
///
/// Takes all users, keys, uploads and jobs of a folder to PostgreSQL, and their files to a storage that all machines see. Keys,
/// links and the answers to idempotency keys stay good; jobs that ran when the service was stopped wait in the queue and begin
/// anew. Stop all servers and workers of the folder first, and start none on the new place before the end.
///
/// Every row is compared with what arrived, every file is read back. Stopped or killed, the same command goes on where it was.
/// Nothing in the folder is removed, but it opens no more: it says where its service is now, and how to go back.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct migrate --from /srv/scenes --to postgres://reconstruct@db.example.org/reconstruct?sslmode=require \\
      --storage file:///mnt/scenes --secrets /etc/reconstruct/secrets.json
  LIBRECONSTRUCT_DATABASE=postgres://… reconstruct migrate --from /srv/scenes --storage file:///mnt/scenes
                                                              others do not see the password
  reconstruct serve --database postgres://… --storage file:///mnt/scenes --data /var/lib/reconstruct
                                                              then: with LIBRECONSTRUCT_SECRETS, on every machine

docs/many-machines.md has the whole way, also the one back.")]
pub(crate) struct Arguments {
    /// The folder of the service (a server's --data)
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// The new database, which must be empty: postgres://user@host/name [default: LIBRECONSTRUCT_DATABASE]
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// The new storage [default: LIBRECONSTRUCT_STORAGE]
    #[arg(long, value_name = "ADDRESS")]
    storage: Option<String>,
    /// The file to which the secrets of the service are copied, for all machines [default: LIBRECONSTRUCT_SECRETS; without it
    /// they stay in the folder]
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let config = Config::load(None, Table::new())?;
        let to = Addresses {
            database: self.to.clone().or(config.database),
            storage: self.storage.clone().or(config.storage),
            secrets: self.secrets.clone().or(config.secrets),
            // They are written to a file; from where the machines then have them is theirs.
            secrets_json: None,
        };
        if to.database.is_none() && to.storage.is_none() {
            return Err(Error::argument("it is not said where the service is to be moved to")
                .hint("name the database with --to and the storage with --storage"));
        }
        let mut show = ui::bytes(ui::Mode::choose(global.json, global.quiet), "migrate");
        let done = Service::migrate(&self.from, &to, &mut |progress| {
            show(progress.bytes, progress.total_bytes);
            match cancel.is_cancelled() {
                true => Err(Error::new(ErrorKind::Cancelled, "cancelled; the folder can be used as before")
                    .hint("the same command goes on: what has arrived is only looked at")),
                false => Ok(()),
            }
        })?;
        let moved = &done.moved;
        let secrets = to.secrets.unwrap_or_else(|| self.from.join("secrets.json"));
        let value = json!({
            "from": self.from.display().to_string(), "database": moved.database, "storage": moved.storage,
            "secrets": secrets.display().to_string(), "moved_at": moved.moved_at, "before": done.before, "users": moved.users,
            "jobs": moved.jobs, "rows": moved.rows, "files": moved.files, "bytes": moved.bytes,
        });
        let how = if done.before { "was moved before" } else { "is moved" };
        let text = format!(
            "the service of {} {how}: {} users, {} jobs, {} rows in all to {}; {} files with {} bytes to {}\n\
             give every machine the secrets in {} (setting `secrets`), and both addresses (`database`, `storage`)",
            self.from.display(),
            moved.users,
            moved.jobs,
            moved.rows,
            moved.database,
            moved.files,
            moved.bytes,
            moved.storage,
            secrets.display(),
        );
        print_result(global, &value, &text);
        Ok(())
    }
}
