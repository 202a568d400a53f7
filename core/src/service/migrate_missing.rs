//! What stands in for the move to many machines where the library was built without the feature `postgres`: it says so.

use std::path::Path;

use super::place::without_postgres;
use super::{Addresses, CopyProgress, Migration, Service};
use crate::error::Result;

impl Service {
    /// Would move the service in a folder to many machines, whose rows are on PostgreSQL.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), always: this library was built without PostgreSQL.
    pub fn migrate(
        _from: &Path,
        _to: &Addresses,
        _watch: &mut dyn FnMut(CopyProgress) -> Result<()>,
    ) -> Result<Migration> {
        Err(without_postgres())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::service::ServiceOptions;

    #[test]
    fn what_needs_postgresql_is_refused_with_the_feature_that_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let addresses = Addresses {
            database: Some("postgres://localhost/scenes".into()),
            storage: Some(format!("file://{}", folder.path().join("storage").display())),
            ..Addresses::default()
        };
        let moved = Service::migrate(folder.path(), &addresses, &mut |_| Ok(())).err();
        let opened = Service::open_shared(folder.path(), &addresses, ServiceOptions::default()).err();
        for error in [moved, opened] {
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("`postgres`"), "{error}");
        }
    }
}
