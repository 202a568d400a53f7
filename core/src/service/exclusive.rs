//! What only one may do at a time in this process: who comes second is told so and does not wait.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// The keys that somebody holds.
pub(super) struct Exclusive<K>(Mutex<HashSet<K>>);

/// A key that is held, until this is dropped.
pub(super) struct Held<'a, K: Eq + Hash> {
    keys: &'a Exclusive<K>,
    key: K,
}

impl<K> Default for Exclusive<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> Exclusive<K> {
    /// Takes the key; nothing while somebody has it.
    pub(super) fn hold(&self, key: K) -> Option<Held<'_, K>> {
        // A poisoned lock is fine: nothing that is done under it can leave the set half changed.
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        new.then(|| Held { keys: self, key })
    }
}

impl<K: Eq + Hash> Drop for Held<'_, K> {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
