//! The stores with which tests work: `tests/stores` starts them, and says where they are in `LIBRECONSTRUCT_TEST_STORES`.

use super::ObjectStorage;
use crate::prerequisites::Prerequisite;

/// A store that tests may have, by the beginning of its addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestStore(&'static str);

pub(super) const S3: TestStore = TestStore("s3");
pub(super) const GOOGLE: TestStore = TestStore("gs");
pub(super) const AZURE: TestStore = TestStore("az");

impl TestStore {
    /// The address of a new, empty place in it, if it was started.
    #[track_caller]
    pub(super) fn address(self) -> Option<String> {
        let stores = std::env::var("LIBRECONSTRUCT_TEST_STORES").unwrap_or_else(|_| "{}".to_owned());
        let stores: serde_json::Value = serde_json::from_str(&stores).unwrap();
        let Some(address) = stores.get(self.0) else {
            Prerequisite::Stores.is_missing(&format!("a store for {}://", self.0));
            return None;
        };
        let (place, parameters) = address.as_str().unwrap().split_once('?').unwrap();
        Some(format!("{place}/{}?{parameters}", uuid::Uuid::new_v4()))
    }

    /// Opens a new, empty storage in it.
    #[track_caller]
    pub(super) fn open(self) -> Option<((), ObjectStorage)> {
        Some(((), ObjectStorage::open(&self.address()?).unwrap()))
    }
}
