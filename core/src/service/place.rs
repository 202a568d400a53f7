//! Where the rows and the files of a service are: in its folder, or where other machines see them too.

use std::path::Path;
use std::sync::Arc;

use super::ServiceOptions;
use super::{layout, moved};
#[cfg(feature = "postgres")]
use crate::database::PostgresDatabase;
use crate::database::{Clock, JobDatabase, SqliteDatabase};
use crate::error::{Error, Result};
use crate::files::create_private_folder;
#[cfg(feature = "postgres")]
use crate::memory;
#[cfg(feature = "cloud")]
use crate::storage::ObjectStorage;
use crate::storage::{LocalStorage, Storage};

/// The rows and the files of a service.
pub(super) struct Place {
    pub(super) database: Arc<dyn JobDatabase>,
    pub(super) storage: Box<dyn Storage>,
    /// Whether other machines may use the same rows. Then only the end of its lease tells that one of their processes is dead.
    pub(super) has_other_machines: bool,
}

impl Place {
    /// All in `folder`: rows in SQLite, files beside them.
    pub(super) fn in_folder(folder: &Path, clock: Arc<dyn Clock>, options: &ServiceOptions) -> Result<Self> {
        moved::check(folder)?;
        let database = SqliteDatabase::open(&folder.join(layout::DATABASE), clock)?.with_order(options.queue);
        let storage = Box::new(LocalStorage::open(folder)?);
        Ok(Self { database: Arc::new(database), storage, has_other_machines: false })
    }

    /// Rows and files where other machines see them too.
    pub(super) fn shared(database: &str, storage: &str, options: &ServiceOptions) -> Result<Self> {
        Ok(Self {
            database: open_database(database, options)?,
            storage: open_storage(storage)?,
            has_other_machines: true,
        })
    }
}

#[cfg(feature = "postgres")]
fn open_database(address: &str, options: &ServiceOptions) -> Result<Arc<dyn JobDatabase>> {
    let database = PostgresDatabase::open(address)?.with_order(options.queue);
    Ok(Arc::new(match memory::limited_group() {
        Some(group) => database.in_group(&group),
        None => database,
    }))
}

#[cfg(not(feature = "postgres"))]
fn open_database(_address: &str, _options: &ServiceOptions) -> Result<Arc<dyn JobDatabase>> {
    Err(without_postgres())
}

/// What is told to whoever needs PostgreSQL.
#[cfg(not(feature = "postgres"))]
pub(super) fn without_postgres() -> Error {
    Error::new(crate::error::ErrorKind::Unsupported, "this program was built without PostgreSQL")
        .hint("build it with the feature `postgres`")
}

#[cfg(feature = "cloud")]
fn open_object_storage(address: &str) -> Option<Result<Box<dyn Storage>>> {
    ObjectStorage::is_meant(address).then(|| Ok(Box::new(ObjectStorage::open(address)?) as Box<dyn Storage>))
}

#[cfg(not(feature = "cloud"))]
fn open_object_storage(address: &str) -> Option<Result<Box<dyn Storage>>> {
    ["s3://", "gs://", "az://"].iter().any(|scheme| address.starts_with(scheme)).then(|| {
        Err(Error::new(crate::error::ErrorKind::Unsupported, "this program was built without object stores")
            .hint("build it with the feature `cloud`"))
    })
}

pub(super) fn open_storage(address: &str) -> Result<Box<dyn Storage>> {
    if let Some(opened) = open_object_storage(address) {
        return opened;
    }
    let folder = address.strip_prefix("file://").map(Path::new).filter(|folder| folder.is_absolute());
    let folder = folder.ok_or_else(|| {
        Error::argument(format!("the address of the storage is {address:?}")).hint(
            "it looks like file:///srv/scenes, a folder that all machines see, or s3://bucket, gs://bucket, az://account/container",
        )
    })?;
    create_private_folder(folder)?;
    Ok(Box::new(LocalStorage::open(folder)?))
}

#[cfg(test)]
#[cfg(not(feature = "cloud"))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_object_store_is_refused_with_the_feature_that_it_needs() {
        for address in ["s3://bucket", "gs://bucket/place", "az://account/container"] {
            let error = open_storage(address).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("`cloud`"), "{error}");
        }
    }
}
