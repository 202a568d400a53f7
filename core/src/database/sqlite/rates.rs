//! Rates that several servers share.

use rusqlite::params;

use super::{SqliteDatabase, first};
use crate::database::{Rate, RateRows, Tokens};
use crate::error::Result;
use crate::job::UserId;

impl RateRows for SqliteDatabase {
    fn take_tokens(&self, user: UserId, rate: &Rate, wanted: u32, unused: u32) -> Result<Tokens> {
        // What is there now: what was left, what comes back, and what has come since. Where the clock was ahead and was set back, what
        // was noted then would keep the user out until that time comes: then the bucket is as new.
        const NOW: &str = "CASE WHEN rates.at > ?6 + ?8 THEN ?3
            ELSE min(?3, rates.tokens + ?7 + max(0, ?6 - rates.at) * ?5) END";
        let take = format!(
            "INSERT INTO rates (user_id, class, tokens, taken, at) VALUES (?1, ?2, ?3 - min(?3, ?4), min(?3, ?4), ?6)
             ON CONFLICT (user_id, class) DO UPDATE SET tokens = {NOW} - min(?4, CAST({NOW} AS INTEGER)),
                taken = min(?4, CAST({NOW} AS INTEGER)),
                at = CASE WHEN rates.at > ?6 + ?8 THEN ?6 ELSE max(rates.at, ?6) END
             RETURNING taken, tokens"
        );
        let now = self.clock.now();
        let burst = i64::from(rate.burst);
        let values =
            params![user, rate.class, burst, wanted, rate.tokens_per_microsecond(), now, unused, Rate::AHEAD];
        let taken = self.write("database.take_tokens.commit", |t| {
            first(t, &take, values, |r| Ok((r.get(0)?, r.get(1)?)))
        })?;
        let (taken, left) = taken.unwrap_or_default();
        Ok(rate.tokens(taken, left))
    }
}
