//! Looks through the folder of a service and its machine for what is wrong, and mends what can be mended safely.
//!
//! [`Service::diagnose`] is about the folder, [`Service::diagnose_machine`] about the machine. The first changes nothing, works while servers run, and on folders that cannot be opened. Each part of it adds its
//! findings to one list; what cannot be looked at is a finding too. [`Service::repair`] does for a finding what it says.

mod database;
mod files;
mod finding;
mod folder;
mod machine;
mod repair;
mod secrets;
#[cfg(feature = "postgres")]
mod shared;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

pub use finding::{Diagnosis, Finding, Severity};
pub use repair::Repaired;

use super::needed::ORPHAN_AGE;
#[cfg(feature = "postgres")]
use super::secrets::SecretsSource;
use super::{Addresses, Service, ServiceOptions, layout};
use crate::database::JobDatabase;
use crate::error::{Error, Result};

impl Service {
    /// Looks for what is wrong with the service in `folder`, and changes nothing. Takes as long as it takes to read the database
    /// and to look at every stored file's size.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such folder, the options' own; all else is a finding.
    pub fn diagnose(folder: &Path, options: &ServiceOptions) -> Result<Diagnosis> {
        Self::diagnose_at(folder, options, ORPHAN_AGE)
    }

    /// Takes what nobody has touched for `age` for left behind.
    fn diagnose_at(folder: &Path, options: &ServiceOptions, age: Duration) -> Result<Diagnosis> {
        options.check()?;
        if !folder.is_dir() {
            return Err(Error::io("open", folder, std::io::ErrorKind::NotFound.into()));
        }
        let mut findings = Vec::new();
        folder::examine(folder, &mut findings);
        let alive = folder::examine_processes(folder, &mut findings);
        let rows = database::examine(folder, alive, &mut findings);
        let known = rows.as_ref().map(|rows| rows as &dyn JobDatabase);
        secrets::examine(&folder.join(layout::SECRETS), known, &mut findings);
        if let Some(rows) = &rows {
            files::examine(folder, rows, age, &mut findings);
        }
        folder::examine_space(folder, options, &mut findings);
        Ok(Diagnosis::of(findings))
    }

    /// Looks for what is wrong with the service whose rows and files are at `addresses`, where other machines see them too, and
    /// changes nothing; `folder` is this machine's own place. All in `folder` if there are no addresses. Takes as long as it takes
    /// to ask the storage for every file's size.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for one address without the other, the options' own, and those of
    /// [`Service::diagnose`]; [`Unsupported`](crate::ErrorKind::Unsupported) if this program was built without PostgreSQL. All else
    /// is a finding.
    pub fn diagnose_shared(
        folder: &Path,
        addresses: &Addresses,
        options: &ServiceOptions,
    ) -> Result<Diagnosis> {
        Self::diagnose_shared_at(folder, addresses, options, ORPHAN_AGE)
    }

    /// Takes what nobody has touched for `age` for left behind.
    fn diagnose_shared_at(
        folder: &Path,
        addresses: &Addresses,
        options: &ServiceOptions,
        age: Duration,
    ) -> Result<Diagnosis> {
        let Some((database, storage)) = addresses.shared()? else {
            return Self::diagnose_at(folder, options, age);
        };
        options.check()?;
        #[cfg(feature = "postgres")]
        {
            let secrets = addresses
                .secrets_source()?
                .unwrap_or_else(|| SecretsSource::Shared(folder.join(layout::SECRETS)));
            let mut findings = Vec::new();
            shared::examine(database, storage, age, &mut findings);
            secrets::examine_shared(&secrets, &mut findings);
            Ok(Diagnosis::of(findings))
        }
        #[cfg(not(feature = "postgres"))]
        {
            let _ = (database, storage, age);
            Err(Error::new(crate::ErrorKind::Unsupported, "this program was built without PostgreSQL")
                .hint("build it with the feature `postgres`"))
        }
    }

    /// Looks for what workers with these options would lack on this machine: programs, their containment, the device, weights.
    pub fn diagnose_machine(options: &ServiceOptions) -> Diagnosis {
        let mut findings = Vec::new();
        machine::examine(&options.reconstruction.device, &mut findings);
        Diagnosis::of(findings)
    }
}
