//! Webhooks and their deliveries.

use std::time::Duration;

use rusqlite::{Row, params};

use super::values::Name;
use super::{SqliteDatabase, all, first, run};
use crate::database::webhooks::{TAKEN_AHEAD_SECONDS, too_many_webhooks};
use crate::database::{Delivery, DeliveryAttempt, DeliveryState, DueDelivery, Webhook, WebhookRows};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{DeliveryId, UserId, WebhookId};

fn webhook(row: &Row<'_>) -> rusqlite::Result<Webhook> {
    Ok(Webhook { webhook_id: row.get(0)?, url: row.get(1)?, created_at: row.get(2)? })
}

const DELIVERY: &str =
    "delivery_id, event, job_id, state, attempts, webhook_deliveries.created_at, last_attempt_at,
    CASE WHEN state = 'pending' THEN next_at END, response_status, error, seq";

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let (Name(event), Name(status)) = (row.get(1)?, row.get(3)?);
    Ok(Delivery {
        delivery_id: row.get(0)?,
        event,
        job_id: row.get(2)?,
        status,
        attempts: row.get(4)?,
        created_at: row.get(5)?,
        last_attempt_at: row.get(6)?,
        next_attempt_at: row.get(7)?,
        response_status: row.get(8)?,
        error: row.get(9)?,
        place: row.get(10)?,
    })
}

/// Of each webhook the first that is due, where nobody is at another one; of one job never a later one before an earlier one. It is
/// asked every second, so that what was told long ago must not be looked through: the index is named.
const DUE: &str = "SELECT seq FROM (
        SELECT seq, next_at, row_number() OVER (PARTITION BY webhook_id ORDER BY seq) AS turn
        FROM webhook_deliveries AS due INDEXED BY webhook_deliveries_due
            JOIN webhooks USING (webhook_id) JOIN users USING (user_id)
        WHERE state = 'pending' AND (next_at <= ?1 OR next_at > ?3) AND tier = 'enterprise'
            AND webhook_id NOT IN (SELECT webhook_id FROM webhook_deliveries WHERE taken_until > ?1 AND taken_until <= ?4)
            AND NOT EXISTS (SELECT 1 FROM webhook_deliveries AS earlier
                WHERE earlier.job_id = due.job_id AND earlier.webhook_id = due.webhook_id
                    AND earlier.state = 'pending' AND earlier.seq < due.seq))
    WHERE turn = 1 ORDER BY next_at, seq LIMIT ?2";

impl WebhookRows for SqliteDatabase {
    fn add_webhook(&self, user: UserId, id: WebhookId, url: &str, most: u32) -> Result<Webhook> {
        let now = self.clock.now();
        self.write("database.add_webhook.commit", |t| {
            if !t.prepare_cached("SELECT 1 FROM users WHERE user_id = ?1")?.exists([user])? {
                let message = format!("there is no user {user}");
                return Err(Error::new(ErrorKind::NotFound, message).into());
            }
            const COUNT: &str = "SELECT count(*) FROM webhooks WHERE user_id = ?1";
            let there: u32 = first(t, COUNT, [user], |r| r.get(0))?.unwrap_or_default();
            if there >= most {
                return Err(too_many_webhooks(there, most).into());
            }
            const ADD: &str =
                "INSERT INTO webhooks (webhook_id, user_id, url, created_at) VALUES (?1, ?2, ?3, ?4)";
            run(t, ADD, params![id, user, url, now])?;
            Ok(Webhook { webhook_id: id, url: url.to_owned(), created_at: now })
        })
    }

    fn webhooks(&self, user: UserId) -> Result<Vec<Webhook>> {
        const ALL: &str = "SELECT webhook_id, url, created_at FROM webhooks WHERE user_id = ?1
            ORDER BY created_at, webhook_id";
        self.read(|c| all(c, ALL, [user], webhook))
    }

    fn remove_webhook(&self, user: UserId, id: WebhookId) -> Result<bool> {
        self.write("database.remove_webhook.commit", |t| {
            const REMOVE: &str = "DELETE FROM webhooks WHERE webhook_id = ?1 AND user_id = ?2";
            Ok(run(t, REMOVE, params![id, user])? > 0)
        })
    }

    fn deliveries(
        &self,
        user: UserId,
        id: WebhookId,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<Delivery>>> {
        let page = format!(
            "SELECT {DELIVERY} FROM webhook_deliveries WHERE webhook_id = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3"
        );
        let before = before.and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX);
        self.read(|c| {
            const OWN: &str = "SELECT 1 FROM webhooks WHERE webhook_id = ?1 AND user_id = ?2";
            if first(c, OWN, params![id, user], |_| Ok(()))?.is_none() {
                return Ok(None);
            }
            all(c, &page, params![id, before, limit], delivery).map(Some)
        })
    }

    fn replay_delivery(&self, user: UserId, webhook: WebhookId, id: DeliveryId) -> Result<Option<Delivery>> {
        let now = self.clock.now();
        let again = format!(
            "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_at = ?4
             WHERE delivery_id = ?3 AND webhook_id = ?2
                AND webhook_id IN (SELECT webhook_id FROM webhooks WHERE user_id = ?1) RETURNING {DELIVERY}"
        );
        self.write("database.replay_delivery.commit", |t| {
            first(t, &again, params![user, webhook, id, now], delivery)
        })
    }

    fn take_deliveries(&self, most: u32, lease: Duration) -> Result<Vec<DueDelivery>> {
        let now = self.clock.now();
        let far_off = now.as_micros().saturating_add(DeliveryAttempt::AHEAD);
        let taken_at_most = now.plus_seconds(lease.as_secs().saturating_add(TAKEN_AHEAD_SECONDS));
        let due = params![now, most, far_off, taken_at_most];
        // It is looked often; the write lock is taken only if there is something to take.
        if self.read(|c| first(c, DUE, due, |_| Ok(())))?.is_none() {
            return Ok(Vec::new());
        }
        let until = now.plus_seconds(lease.as_secs());
        self.write("database.take_deliveries.commit", |t| {
            let due: Vec<i64> = all(t, DUE, due, |r| r.get(0))?;
            let mut taken = Vec::new();
            for seq in due {
                run(t, "UPDATE webhook_deliveries SET taken_until = ?2 WHERE seq = ?1", params![seq, until])?;
                const TAKEN: &str = "SELECT delivery_id, webhook_id, url, user_id, event, job_id,
                        webhook_deliveries.created_at, attempts
                    FROM webhook_deliveries JOIN webhooks USING (webhook_id) WHERE seq = ?1";
                taken.extend(first(t, TAKEN, [seq], |r| {
                    let Name(event) = r.get(4)?;
                    Ok(DueDelivery {
                        delivery_id: r.get(0)?,
                        webhook_id: r.get(1)?,
                        url: r.get(2)?,
                        user: r.get(3)?,
                        event,
                        job_id: r.get(5)?,
                        created_at: r.get(6)?,
                        attempts: r.get(7)?,
                    })
                })?);
            }
            Ok(taken)
        })
    }

    fn note_delivery(&self, id: DeliveryId, attempt: &DeliveryAttempt) -> Result<()> {
        let now = self.clock.now();
        let next_at = now.plus_seconds(attempt.rest_seconds());
        self.write("database.note_delivery.commit", |t| {
            const NOTE: &str =
                "UPDATE webhook_deliveries SET state = ?2, attempts = attempts + 1, next_at = ?3,
                taken_until = NULL, last_attempt_at = ?4, response_status = ?5, error = ?6
                WHERE delivery_id = ?1 AND state = 'pending'";
            let state: Name<DeliveryState> = Name(attempt.state());
            run(t, NOTE, params![id, state, next_at, now, attempt.response_status, attempt.error])?;
            Ok(())
        })
    }

    fn forget_deliveries(&self, age: Duration) -> Result<u64> {
        let before = self.clock.now().minus_seconds(age.as_secs());
        const OLD: &str = "SELECT 1 FROM webhook_deliveries WHERE state <> 'pending' AND created_at < ?1";
        // Nothing is written where nothing is to be done.
        if self.read(|c| first(c, OLD, [before], |_| Ok(())))?.is_none() {
            return Ok(0);
        }
        self.write("database.forget_deliveries.commit", |t| {
            const FORGET: &str =
                "DELETE FROM webhook_deliveries WHERE state <> 'pending' AND created_at < ?1";
            Ok(run(t, FORGET, [before])? as u64)
        })
    }
}
