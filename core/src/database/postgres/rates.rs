//! Rates that all servers share.

use super::PostgresDatabase;
use super::values::values;
use crate::database::{Rate, RateRows, Tokens};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;
use crate::job::UserId;

impl RateRows for PostgresDatabase {
    /// One statement in one transaction of its own, tried once: who is told that it failed does not wait, but counts by itself.
    fn take_tokens(&self, user: UserId, rate: &Rate, wanted: u32, unused: u32) -> Result<Tokens> {
        // What is there now: what was left, what comes back, and what has come since. Where the clock was ahead and was set back, what
        // was noted then would keep the user out until that time comes: then the bucket is as new.
        const NOW: &str = "CASE WHEN rates.at > $6 + $8::bigint THEN $3
            ELSE least($3, rates.tokens + $7::bigint + greatest(0, $6 - rates.at) * $5::double precision) END";
        let take = format!(
            "INSERT INTO rates (user_id, class, tokens, taken, at)
             VALUES ($1, $2, $3::double precision - least($3, $4::bigint), least($3, $4), $6::bigint)
             ON CONFLICT (user_id, class) DO UPDATE SET tokens = {NOW} - least($4, floor({NOW})),
                taken = least($4, floor({NOW})),
                at = CASE WHEN rates.at > $6 + $8 THEN $6 ELSE greatest(rates.at, $6) END
             RETURNING taken, tokens"
        );
        failpoints::pass("database.take_tokens.commit")
            .map_err(|e| Error::new(ErrorKind::Io, "cannot write the database").caused_by(e))?;
        let taken = self.once(|session| {
            let now = self.now(session)?;
            let values = values![
                user,
                rate.class,
                f64::from(rate.burst),
                wanted,
                rate.tokens_per_microsecond(),
                now,
                unused,
                Rate::AHEAD
            ];
            session.first(&take, values, |r| Ok((r.get(0)?, r.get(1)?)))
        })?;
        let (taken, left) = taken.unwrap_or_default();
        Ok(rate.tokens(taken, left))
    }
}
