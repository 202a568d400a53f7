//! Tries to guess a secret: the first few are free, then each has to wait twice as long as the one before.
//!
//! A try is counted when it begins, not when it has failed, so that many at once are no way round. They are counted in the memory
//! of this process: with several servers each counts by itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the waits grow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Tries in a row that do not have to wait.
    pub(super) free: u32,
    /// The longest wait between two.
    pub(super) longest: Duration,
    /// After so long without a try all is forgotten.
    pub(super) memory: Duration,
}

/// The wait after the first try that is not free.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Keys that are remembered at most, some ten megabytes. Beyond that those who do not wait yet are forgotten: somebody who fills this
/// with names needs as many addresses, each of which has to wait after a few tries.
const MOST: usize = 100_000;

/// The tries of all keys.
pub(super) struct Tries<K> {
    patience: Patience,
    by_key: Mutex<HashMap<K, Tried>>,
}

/// Times are microseconds of a clock that only grows.
#[derive(Clone, Copy, Default)]
struct Tried {
    count: u32,
    last: i64,
    not_before: i64,
}

impl<K: Eq + Hash> Tries<K> {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, by_key: Mutex::default() }
    }

    /// Counts a try of `key` at the time `now`, or says how long it has to wait; one that has to wait is not counted.
    pub(super) fn begin(&self, key: K, now: i64) -> Result<(), Duration> {
        let mut by_key = self.lock();
        if by_key.len() >= MOST && !by_key.contains_key(&key) {
            by_key.retain(|_, tried| tried.not_before > now);
        }
        let tried = by_key.entry(key).or_default();
        if now - tried.last > as_micros(self.patience.memory) {
            *tried = Tried::default();
        }
        if now < tried.not_before {
            return Err(Duration::from_micros((tried.not_before - now).unsigned_abs()));
        }
        tried.count = tried.count.saturating_add(1);
        tried.last = now;
        if let Some(beyond) = tried.count.checked_sub(self.patience.free) {
            let wait = FIRST_WAIT.saturating_mul(2u32.saturating_pow(beyond)).min(self.patience.longest);
            tried.not_before = now.saturating_add(as_micros(wait));
        }
        Ok(())
    }

    /// Counts the last try of a key no more: it has succeeded. Those before it stay, so that who succeeds now and then tries no more
    /// often than others.
    pub(super) fn take_back(&self, key: &K) {
        if let Some(tried) = self.lock().get_mut(key) {
            tried.count = tried.count.saturating_sub(1);
            if tried.count < self.patience.free {
                tried.not_before = 0;
            }
        }
    }

    /// Forgets all tries of a key: one has succeeded.
    pub(super) fn succeed(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Forgets who has not tried for long, so that memory does not grow with everybody ever seen.
    pub(super) fn forget_idle(&self, now: i64) {
        let memory = as_micros(self.patience.memory);
        self.lock().retain(|_, tried| now - tried.last <= memory);
    }

    /// A poisoned lock is fine: numbers cannot be left half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Tried>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn as_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn tries() -> Tries<&'static str> {
        Tries::new(Patience { free: 3, longest: Duration::from_secs(10), memory: Duration::from_secs(60) })
    }

    #[test]
    fn the_waits_double_up_to_the_longest() {
        let tries = tries();
        let mut now = 0;
        for wait in [0, 0, 2, 4, 8, 10, 10] {
            tries.begin("anna", now).unwrap();
            if wait > 0 {
                assert_eq!(tries.begin("anna", now), Err(Duration::from_secs(wait)));
                let almost = now + wait as i64 * SECOND - 1;
                assert_eq!(tries.begin("anna", almost), Err(Duration::from_micros(1)));
            }
            tries.begin("eve", now).unwrap();
            tries.succeed(&"eve");
            now += wait as i64 * SECOND;
        }
    }

    #[test]
    fn what_is_long_ago_and_what_succeeded_counts_no_more() {
        let tries = tries();
        for _ in 0..3 {
            tries.begin("anna", 0).unwrap();
        }
        assert!(tries.begin("anna", SECOND).is_err());
        tries.succeed(&"anna");
        for _ in 0..3 {
            tries.begin("anna", SECOND).unwrap();
        }
        assert!(tries.begin("anna", 2 * SECOND).is_err());
        tries.forget_idle(61 * SECOND);
        assert_eq!(tries.lock().len(), 1);
        for _ in 0..3 {
            tries.begin("anna", 62 * SECOND).unwrap();
        }
        tries.forget_idle(123 * SECOND);
        assert_eq!(tries.lock().len(), 0);
    }

    #[test]
    fn a_try_that_is_taken_back_leaves_those_before_it() {
        let tries = tries();
        for _ in 0..100 {
            tries.begin("office", 0).unwrap();
            tries.take_back(&"office");
        }
        for _ in 0..2 {
            tries.begin("office", 0).unwrap();
        }
        tries.begin("office", 0).unwrap();
        tries.take_back(&"office");
        tries.begin("office", 0).unwrap();
        // What waits already goes on to wait.
        assert!(tries.begin("office", 0).is_err());
        tries.begin("office", 2 * SECOND).unwrap();
        tries.take_back(&"office");
        assert!(tries.begin("office", 3 * SECOND).is_err());
    }

    #[test]
    fn memory_is_bounded_and_those_who_wait_are_kept() {
        let tries = Tries::new(Patience {
            free: 1,
            longest: Duration::from_secs(10),
            memory: Duration::from_secs(60),
        });
        tries.begin(0, 0).unwrap();
        for key in 1..=MOST {
            tries.by_key.lock().unwrap().insert(key, Tried { count: 1, last: 0, not_before: 0 });
        }
        tries.begin(MOST + 1, SECOND).unwrap();
        assert_eq!(tries.lock().len(), 2);
        assert!(tries.begin(0, SECOND).is_err());
    }
}
