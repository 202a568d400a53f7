//! Rates at which users may ask, over all servers of a service.
//!
//! Few requests ask the database: a server takes some tokens of a user at once and spends them in its memory. What it has not
//! spent [`HOLD`] later it spends no more, and puts back when it asks the next time. How many it takes follows how many it needs:
//! twice as many as before if those did not last, half as many if most of them were not needed. What is given out is never more
//! than the rate allows; only when it is spent differs, by [`HOLD`] at most.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::database::{Rate, RateRows, Tokens};
use crate::job::UserId;

/// How long a server keeps what it has taken, and of how long a time it takes the tokens at most.
const HOLD: Duration = Duration::from_secs(10);
/// Of these it takes a tenth at first: with many servers a full bucket has something for each.
const FIRST: u32 = 10;
/// How long the database is not asked after it could not be: as long as a transaction is tried again.
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// What came of a request for a token of a shared rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// There was one.
    Allowed,
    /// There is none for so long.
    Denied(Duration),
    /// This server counts by itself: it shares its rows with no other, or cannot reach them now.
    Alone,
}

/// What this server holds of the rates of all users.
#[derive(Default)]
pub(super) struct Rates(Mutex<State>);

#[derive(Default)]
struct State {
    budgets: HashMap<(UserId, &'static str), Budget>,
    /// The database could not be asked: until then it is not.
    away_until: i64,
}

/// What it holds for one user. Times are microseconds of a clock that only grows.
#[derive(Default)]
struct Budget {
    tokens: u32,
    /// When they are spent no more.
    until: i64,
    /// How many are asked for next.
    share: u32,
    /// How many came the last time.
    taken: u32,
    /// There was none: until then the database is not asked.
    denied_until: i64,
}

impl Rates {
    pub(super) fn spend(
        &self,
        rows: &(impl RateRows + ?Sized),
        now: i64,
        user: UserId,
        rate: &Rate,
    ) -> Spent {
        let most = (rate.per_second * HOLD.as_secs_f64()).clamp(1.0, f64::from(rate.burst.max(1))) as u32;
        let (share, unused) = {
            let mut state = self.state();
            if now < state.away_until {
                return Spent::Alone;
            }
            let budget = state.budgets.entry((user, rate.class)).or_default();
            if now < budget.denied_until {
                return Spent::Denied(micros(budget.denied_until - now));
            }
            if now < budget.until {
                if let Some(left) = budget.tokens.checked_sub(1) {
                    budget.tokens = left;
                    return Spent::Allowed;
                }
                // They did not last. Where less came than was asked for, all servers together ask for too much.
                if budget.taken >= budget.share {
                    budget.share = budget.share.saturating_mul(2);
                }
            } else if budget.tokens > budget.taken / 2 {
                budget.share /= 2;
            }
            let unused = std::mem::take(&mut budget.tokens);
            budget.share = match budget.share {
                0 => most / FIRST,
                share => share,
            }
            .clamp(1, most);
            (budget.share, unused)
        };
        // Not under the lock: requests of other users go on. Two of the same user may both ask, and both keep what they get.
        let answer = rows.take_tokens(user, rate, share, unused);
        let mut state = self.state();
        match answer {
            Err(error) => {
                log::warn!("rates are counted by this server alone for {ASK_AGAIN:?}: {error:?}");
                state.away_until = now + as_micros(ASK_AGAIN);
                Spent::Alone
            }
            Ok(Tokens { taken: 0, next }) => {
                // Clients are told whole seconds. A bucket that is full sooner than that would lose what comes meanwhile.
                let fill = Duration::try_from_secs_f64(f64::from(rate.burst) / rate.per_second);
                let whole = next.as_secs().saturating_add(u64::from(next.subsec_nanos() > 0));
                let told = Duration::from_secs(whole).min(fill.unwrap_or(Duration::MAX)).max(next);
                let budget = state.budgets.entry((user, rate.class)).or_default();
                budget.denied_until = now.saturating_add(as_micros(told));
                Spent::Denied(told)
            }
            Ok(Tokens { taken, .. }) => {
                let budget = state.budgets.entry((user, rate.class)).or_default();
                budget.taken = taken;
                budget.tokens = budget.tokens.saturating_add(taken - 1);
                budget.until = now + as_micros(HOLD);
                Spent::Allowed
            }
        }
    }

    /// Forgets who has not asked for a while, so that memory does not grow with everybody ever seen.
    pub(super) fn forget_idle(&self, now: i64) {
        let idle = now - as_micros(6 * HOLD);
        self.state().budgets.retain(|_, budget| budget.until.max(budget.denied_until) > idle);
    }

    /// A poisoned lock is fine: numbers cannot be left half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn as_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn micros(count: i64) -> Duration {
    Duration::from_micros(count.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::database::{Clock, ManualClock, SqliteDatabase, UserRows};
    use crate::error::{Error, ErrorKind, Result};
    use crate::job::{Tier, Timestamp, User};

    const REQUESTS: Rate = Rate { class: "requests", per_second: 10.0, burst: 120 };

    /// Counts how often it is asked; its database may be away.
    struct Rows {
        database: SqliteDatabase,
        asked: AtomicU32,
        away: AtomicBool,
    }

    impl RateRows for Rows {
        fn take_tokens(&self, user: UserId, rate: &Rate, wanted: u32, unused: u32) -> Result<Tokens> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match self.away.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Io, "cannot reach the database")),
                false => self.database.take_tokens(user, rate, wanted, unused),
            }
        }
    }

    struct World {
        clock: Arc<ManualClock>,
        rows: Rows,
        user: UserId,
        _folder: tempfile::TempDir,
    }

    fn new_user(database: &impl UserRows) -> UserId {
        let user = User {
            user_id: UserId::random(),
            name: "anna".into(),
            tier: Tier::Enterprise,
            created_at: Timestamp::now(),
        };
        database.add_user(&user).unwrap();
        user.user_id
    }

    fn world() -> World {
        let (folder, clock) = (super::super::test_world::folder(), Arc::new(ManualClock::new()));
        let database = SqliteDatabase::open(&folder.path().join("jobs.db"), clock.clone()).unwrap();
        let user = new_user(&database);
        let rows = Rows { database, asked: AtomicU32::new(0), away: AtomicBool::new(false) };
        World { clock, rows, user, _folder: folder }
    }

    impl World {
        fn spend(&self, server: &Rates, rate: &Rate) -> Spent {
            server.spend(&self.rows, self.clock.lease_micros(), self.user, rate)
        }

        fn asked(&self) -> u32 {
            self.rows.asked.swap(0, Ordering::Relaxed)
        }

        /// How many of so many requests a second of each server are allowed in so many seconds, and how many at most in any one
        /// minute of them.
        fn run(&self, servers: &[Rates], rate: &Rate, each: u32, seconds: u32) -> (u32, u32) {
            let mut allowed = Vec::new();
            for _ in 0..seconds {
                let now = (0..each)
                    .flat_map(|_| servers)
                    .filter(|server| self.spend(server, rate) == Spent::Allowed)
                    .count();
                allowed.push(now as u32);
                self.clock.advance(1);
            }
            let minute = allowed.windows(60).map(|minute| minute.iter().sum()).max().unwrap_or(0);
            (allowed.iter().sum(), minute)
        }
    }

    fn servers(count: usize) -> Vec<Rates> {
        (0..count).map(|_| Rates::default()).collect()
    }

    #[test]
    fn many_servers_together_give_what_one_would() {
        for count in [1, 2, 5, 12] {
            let world = world();
            let seconds = 600;
            let (all, minute) = world.run(&servers(count), &REQUESTS, 40, seconds);
            let limit = f64::from(REQUESTS.burst) + REQUESTS.per_second * f64::from(seconds);
            let share = f64::from(all) / limit;
            assert!((0.9..=1.0).contains(&share), "{count} servers: {all} of {limit}");
            let limit = f64::from(REQUESTS.burst) + REQUESTS.per_second * 60.0;
            assert!(f64::from(minute) <= 1.1 * limit, "{count} servers: {minute} in a minute");
        }
    }

    #[test]
    fn who_stays_below_the_rate_is_not_refused() {
        for count in [1, 3, 6] {
            let world = world();
            // Nine of the ten that come in a second, evenly over the servers.
            let all = servers(count);
            let mut refused = 0;
            for number in 0..9 * 300 {
                let server = &all[number % count];
                refused += u32::from(world.spend(server, &REQUESTS) != Spent::Allowed);
                if number % 9 == 8 {
                    world.clock.advance(1);
                }
            }
            assert_eq!(refused, 0, "{count} servers");
            let asked = world.asked();
            assert!(asked < 9 * 300 / 5, "{count} servers asked the database {asked} times");
        }
    }

    #[test]
    fn a_user_who_asks_now_and_then_costs_one_question_in_ten_seconds() {
        let world = world();
        let server = Rates::default();
        for _ in 0..100 {
            assert_eq!(world.spend(&server, &REQUESTS), Spent::Allowed);
            world.clock.advance(2);
        }
        let asked = world.asked();
        assert!((19..=21).contains(&asked), "{asked}");
    }

    #[test]
    fn a_refusal_is_not_asked_for_again_until_it_ends() {
        let world = world();
        let (submits, server) =
            (Rate { class: "submits", per_second: 1.0 / 60.0, burst: 2 }, Rates::default());
        assert_eq!([(); 2].map(|()| world.spend(&server, &submits)), [Spent::Allowed; 2]);
        world.asked();
        let Spent::Denied(wait) = world.spend(&server, &submits) else { panic!("there is none") };
        assert!((59.0..=60.0).contains(&wait.as_secs_f64()), "{wait:?}");
        world.clock.advance(30);
        for _ in 0..50 {
            let Spent::Denied(wait) = world.spend(&server, &submits) else { panic!("there is none") };
            assert!((29.0..=30.0).contains(&wait.as_secs_f64()), "{wait:?}");
        }
        assert_eq!(world.asked(), 1);
        // Another class has a bucket of its own, another user too.
        assert_eq!(world.spend(&server, &REQUESTS), Spent::Allowed);
        world.clock.advance(30);
        assert_eq!(world.spend(&server, &submits), Spent::Allowed);
        assert!(matches!(world.spend(&Rates::default(), &submits), Spent::Denied(_)), "another server knows");
    }

    #[test]
    fn a_small_bucket_loses_nothing_while_a_refusal_lasts() {
        let world = world();
        let rate = Rate { class: "requests", per_second: 4.0, burst: 1 };
        let servers = servers(2);
        let mut allowed = 0;
        for _ in 0..4000 {
            allowed += u32::from(servers.iter().any(|one| world.spend(one, &rate) == Spent::Allowed));
            // The clock itself moves a little with every look.
            world.clock.advance_micros(10_000);
        }
        assert!((144..=162).contains(&allowed), "{allowed} in 40 seconds");
    }

    #[test]
    fn without_the_database_a_server_counts_by_itself_and_looks_again() {
        let world = world();
        let server = Rates::default();
        world.rows.away.store(true, Ordering::Relaxed);
        assert_eq!([(); 20].map(|()| world.spend(&server, &REQUESTS)), [Spent::Alone; 20]);
        assert_eq!(world.asked(), 1);
        world.rows.away.store(false, Ordering::Relaxed);
        world.clock.advance(16);
        assert_eq!(world.spend(&server, &REQUESTS), Spent::Allowed);
    }

    #[test]
    fn who_has_not_asked_for_a_minute_is_forgotten() {
        let world = world();
        let server = Rates::default();
        world.spend(&server, &REQUESTS);
        server.forget_idle(world.clock.lease_micros());
        assert_eq!(server.state().budgets.len(), 1);
        world.clock.advance(71);
        server.forget_idle(world.clock.lease_micros());
        assert_eq!(server.state().budgets.len(), 0);
    }

    /// The same with the real clock and PostgreSQL, all servers at once.
    #[cfg(feature = "postgres")]
    #[test]
    fn servers_on_one_postgresql_give_what_one_would() {
        use std::time::Instant;
        let Some(address) = crate::database::test_database() else { return };
        let open = || crate::database::PostgresDatabase::open(&address).unwrap();
        let user = new_user(&open());
        let rate = Rate { class: "requests", per_second: 50.0, burst: 20 };
        let began = Instant::now();
        let length = Duration::from_secs(4);
        let allowed: u32 = std::thread::scope(|scope| {
            let server = || {
                let (database, server) = (open(), Rates::default());
                let mut allowed = 0;
                while began.elapsed() < length {
                    let now = as_micros(began.elapsed());
                    match server.spend(&database, now, user, &rate) {
                        Spent::Allowed => allowed += 1,
                        Spent::Denied(_) => std::thread::sleep(Duration::from_millis(2)),
                        Spent::Alone => panic!("the database is there"),
                    }
                }
                allowed
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(server)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        let limit = f64::from(rate.burst) + rate.per_second * began.elapsed().as_secs_f64();
        let share = f64::from(allowed) / limit;
        assert!((0.85..=1.1).contains(&share), "{allowed} of {limit}");
    }
}
