//! What the commands on a service's folder share.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use libreconstruct::service::Service;
use libreconstruct::{Error, ErrorKind, Result};
use toml::{Table, Value};

use crate::config::Config;

/// Where a service is; for the commands that work on one.
#[derive(Args)]
pub(crate) struct DataArguments {
    /// Folder of the service [default: reconstruct-data]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Rows that many machines share (postgres://…); others see a password that stands here: say LIBRECONSTRUCT_DATABASE
    #[arg(long, value_name = "ADDRESS")]
    database: Option<String>,
    /// Videos and scenes that many machines share (file:///a/folder/that/all/see, s3://bucket, gs://bucket, az://account/container)
    #[arg(long, value_name = "ADDRESS")]
    storage: Option<String>,
    /// Configuration file (see `reconstruct serve --print-config`)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

// A command with actions on the service in a folder. (Not documentation, which would be its help: its actions have that.)
#[derive(Args)]
pub(crate) struct OnService<A: Subcommand> {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    #[command(subcommand)]
    pub(crate) action: A,
}

impl DataArguments {
    /// The configuration; `options` are settings from the command line.
    pub(super) fn config(&self, mut options: Table) -> Result<Config> {
        if let Some(data) = &self.data {
            options.insert("data".to_owned(), Value::String(data.to_string_lossy().into_owned()));
        }
        for (name, value) in [("database", &self.database), ("storage", &self.storage)] {
            options.extend(value.clone().map(|value| (name.to_owned(), Value::String(value))));
        }
        Config::load(self.config.as_deref(), options)
    }

    /// Whether the command line itself says where rows or files are that many machines share.
    pub(super) fn names_addresses(&self) -> bool {
        self.database.is_some() || self.storage.is_some()
    }

    /// The service in the folder.
    fn open(&self) -> Result<Service> {
        Ok(self.open_with_config()?.0)
    }

    /// The same, with its configuration.
    pub(crate) fn open_with_config(&self) -> Result<(Service, Config)> {
        let config = self.config(Table::new())?;
        Ok((config.open_service()?, config))
    }
}

impl DataArguments {
    /// The service in the folder, which must be there: to make one would hide that the name is wrong.
    pub(crate) fn open_existing(&self) -> Result<Service> {
        let config = self.config(Table::new())?;
        let folder = &config.data;
        if config.database.is_none() && !folder.join("jobs.db").is_file() {
            let message = format!("there is no service in {}", folder.display());
            return Err(Error::new(ErrorKind::NotFound, message).hint("name its folder with --data"));
        }
        self.open()
    }
}

/// The error of a command that works on a folder alone, and was given addresses. They are not shown: there may be a password in them.
pub(super) fn no_folder(what: &str, hint: &'static str) -> Error {
    Error::argument(format!("{what}, and an address of rows or files (--database, --storage) was given"))
        .hint(hint)
}

/// Columns as wide as their longest cell.
pub(super) fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
