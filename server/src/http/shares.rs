//! Places that are counted, in all and for each of those who hold them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places that are taken.
#[derive(Debug)]
pub(crate) struct Shares<K>(Arc<Mutex<Taken<K>>>);

#[derive(Debug)]
struct Taken<K> {
    all: usize,
    by: HashMap<K, usize>,
}

/// One place or several, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    shares: Shares<K>,
    holder: K,
    count: usize,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Taken { all: 0, by: HashMap::new() })))
    }
}

impl<K> Shares<K> {
    /// A poisoned lock is fine: nothing that is done under it can panic in the middle.
    fn taken(&self) -> MutexGuard<'_, Taken<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many hold any.
    #[cfg(test)]
    pub(crate) fn holders(&self) -> usize {
        self.taken().by.len()
    }
}

impl<K: Eq + Hash + Copy> Shares<K> {
    /// Takes a place for `holder`, unless `refuse` says why not; it is told how many are taken in all, and by this one.
    ///
    /// # Errors
    /// What `refuse` says.
    pub(crate) fn take<E>(
        &self,
        holder: K,
        refuse: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<Share<K>, E> {
        self.take_many(holder, 1, refuse)
    }

    /// The same for `count` places at once.
    ///
    /// # Errors
    /// What `refuse` says.
    pub(crate) fn take_many<E>(
        &self,
        holder: K,
        count: usize,
        refuse: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<Share<K>, E> {
        let mut taken = self.taken();
        let own = taken.by.get(&holder).copied().unwrap_or(0);
        refuse(taken.all, own)?;
        taken.all += count;
        taken.by.insert(holder, own + count);
        Ok(Share { shares: Self(self.0.clone()), holder, count })
    }
}

impl<K: Eq + Hash> Share<K> {
    /// How many places are taken in all, and by the holder of this one.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let taken = self.shares.taken();
        (taken.all, taken.by.get(&self.holder).copied().unwrap_or(0))
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        taken.all -= self.count;
        if let Some(own) = taken.by.get_mut(&self.holder) {
            *own -= self.count;
            if *own == 0 {
                taken.by.remove(&self.holder);
            }
        }
    }
}
