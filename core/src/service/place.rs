//! Where the rows and the files of a service are: in its folder, or where other machines see them too.

use std::path::Path;
use std::sync::Arc;

use super::ServiceOptions;
use super::layout;
use crate::database::{Clock, JobDatabase, SqliteDatabase};
use crate::error::Result;
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
        let database = SqliteDatabase::open(&folder.join(layout::DATABASE), clock)?.with_order(options.queue);
        let storage = Box::new(LocalStorage::open(folder)?);
        Ok(Self { database: Arc::new(database), storage, has_other_machines: false })
    }
}
