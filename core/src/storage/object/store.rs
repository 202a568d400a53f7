//! What a store must be able to do.

use object_store::ObjectStore;
use object_store::list::PaginatedListStore;

/// A store whose names can be listed by what they begin with.
pub(super) trait Store: ObjectStore + PaginatedListStore {}
impl<T: ObjectStore + PaginatedListStore> Store for T {}
