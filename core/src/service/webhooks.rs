//! Addresses of users that are told when a job ends (docs/rest.md, rules 93 to 97).
//!
//! What is to be told stands in rows that the database itself notes when a job ends. Here it is handed out to whoever can send it,
//! and it is noted what became of it: nothing here speaks HTTP. A delivery that was handed out and of which nothing is heard again
//! is handed out once more: at least once, normally once.

use std::fmt;
use std::time::Duration;

use hmac::Mac;

use super::{Service, secrets};
use crate::database::{Delivery, DeliveryAttempt, DueDelivery, Webhook};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{DeliveryId, Job, UserId, WebhookId};

/// Longest address.
const LONGEST_URL: usize = 2048;
/// Longest text that is kept of what was wrong with a try, characters.
const LONGEST_ERROR: usize = 300;
/// Who takes a delivery has this long to make it. More than a try may last.
const LEASE: Duration = Duration::from_secs(60);
/// How often a delivery is tried: over 22 hours, with the rests between the tries.
const MOST_ATTEMPTS: u32 = 12;
/// The rest after the first try. Each further one is four times as long, up to the longest.
const FIRST_REST: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_secs(4 * 3600);
/// How long it can be looked up what was told.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What makes what an address is told genuine: 32 bytes that only the service and the user know.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookKey([u8; 32]);

impl WebhookKey {
    /// The key itself. Show it to its user, once, and to nobody else.
    pub fn reveal(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey(…)")
    }
}

/// Something that an address is to be told now.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// What, and where.
    pub delivery: DueDelivery,
    /// The job as it is now.
    pub job: Job,
    /// What to sign it with.
    pub key: WebhookKey,
}

/// How an attempt to tell an address ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It took it.
    Taken {
        /// The status of its answer.
        status: u16,
    },
    /// It did not.
    Refused {
        /// The status of its answer, if there was one.
        status: Option<u16>,
        /// What was wrong, for its user.
        why: String,
        /// It wants to be told nothing more.
        for_good: bool,
    },
}

impl Service {
    /// Tells `url` of the ends of a user's jobs from now on; a user may have `most` of these. The key is shown now and never again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an address that is too long, [`ErrorKind::Conflict`] for one too many,
    /// [`ErrorKind::NotFound`] if there is no such user.
    pub fn add_webhook(&self, user: UserId, url: &str, most: u32) -> Result<(Webhook, WebhookKey)> {
        if url.len() > LONGEST_URL {
            return Err(Error::argument(format!(
                "url has {} characters: {LONGEST_URL} are allowed",
                url.len()
            )));
        }
        let id = WebhookId::random();
        let webhook = self.inner.database.add_webhook(user, id, url, most)?;
        Ok((webhook, self.webhook_key(id)))
    }

    /// The webhooks of a user, the oldest first.
    ///
    /// # Errors
    /// The database's.
    pub fn webhooks(&self, user: UserId) -> Result<Vec<Webhook>> {
        self.inner.database.webhooks(user)
    }

    /// Removes a webhook: it is told nothing more.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the user has none such.
    pub fn remove_webhook(&self, user: UserId, webhook: WebhookId) -> Result<()> {
        match self.inner.database.remove_webhook(user, webhook)? {
            true => Ok(()),
            false => Err(no_webhook()),
        }
    }

    /// What a webhook was told, and is to be told: up to `limit` of it, the newest first, of what lies before `place` if that is
    /// given.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the user has no such webhook.
    pub fn deliveries(
        &self,
        user: UserId,
        webhook: WebhookId,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Delivery>> {
        self.inner.database.deliveries(user, webhook, before, limit)?.ok_or_else(no_webhook)
    }

    /// Tells a webhook once more what it was told, or was to be told, before.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the user has no such webhook, or it no such delivery.
    pub fn replay_delivery(
        &self,
        user: UserId,
        webhook: WebhookId,
        delivery: DeliveryId,
    ) -> Result<Delivery> {
        let replayed = self.inner.database.replay_delivery(user, webhook, delivery)?;
        replayed.ok_or_else(|| Error::new(ErrorKind::NotFound, "Delivery not found"))
    }

    /// Up to `most` of what is to be told now, at most one of each webhook. Who gets them has a minute to say what became of each
    /// ([`Service::note_delivery`]); then somebody else gets it.
    ///
    /// # Errors
    /// The database's.
    pub fn take_notices(&self, most: u32) -> Result<Vec<Notice>> {
        let mut notices = Vec::new();
        for delivery in self.inner.database.take_deliveries(most, LEASE)? {
            // One that is deleted in this moment takes its deliveries with it.
            if let Some(job) = self.inner.database.job(delivery.user, delivery.job_id)? {
                notices.push(Notice { key: self.webhook_key(delivery.webhook_id), delivery, job });
            }
        }
        Ok(notices)
    }

    /// Notes what became of a delivery.
    ///
    /// # Errors
    /// The database's.
    pub fn note_delivery(&self, delivery: &DueDelivery, told: Told) -> Result<()> {
        let attempt = match told {
            Told::Taken { status } => {
                DeliveryAttempt { response_status: Some(status.into()), error: None, again_after: None }
            }
            Told::Refused { status, why, for_good } => DeliveryAttempt {
                response_status: status.map(u32::from),
                error: Some(why.chars().take(LONGEST_ERROR).collect()),
                again_after: if for_good { None } else { rest(delivery.attempts + 1)? },
            },
        };
        self.inner.database.note_delivery(delivery.delivery_id, &attempt)
    }

    /// Forgets what was told long ago.
    pub(super) fn forget_deliveries(&self) -> Result<u64> {
        self.inner.database.forget_deliveries(KEPT)
    }

    /// The key of a webhook. It stands nowhere: it follows from what is not in the database.
    fn webhook_key(&self, webhook: WebhookId) -> WebhookKey {
        let mut mac = self.inner.secrets.mac();
        // No API key, of which the same code is kept in the rows, begins like this.
        mac.update(format!("webhook {webhook}").as_bytes());
        WebhookKey(mac.finalize().into_bytes().into())
    }
}

fn no_webhook() -> Error {
    Error::new(ErrorKind::NotFound, "Webhook not found")
}

/// How long to rest after so many tries, if there is to be another one. No two rests are the same, so that all that failed at once
/// is not tried again at once.
fn rest(attempts: u32) -> Result<Option<Duration>> {
    if attempts >= MOST_ATTEMPTS {
        return Ok(None);
    }
    let steps = 4u32.saturating_pow(attempts.saturating_sub(1));
    let rest = FIRST_REST.saturating_mul(steps).min(LONGEST_REST);
    let [random] = secrets::random::<1>()?;
    // 0.8 to 1.2 of it.
    Ok(Some(rest.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Tier;
    use crate::service::ServiceOptions;

    #[test]
    fn rests_grow_to_a_day_and_end() {
        let mut sum = Duration::ZERO;
        let mut before = Duration::ZERO;
        for attempts in 1..MOST_ATTEMPTS {
            let rest = rest(attempts).unwrap().unwrap();
            assert!(rest > before || before > LONGEST_REST.mul_f64(0.8), "{attempts}");
            assert!(rest.as_secs() < DeliveryAttempt::LONGEST_REST_SECONDS, "{rest:?}");
            (sum, before) = (sum + rest, rest);
        }
        assert!((16..=28).contains(&(sum.as_secs() / 3600)), "{sum:?}");
        assert_eq!(rest(MOST_ATTEMPTS).unwrap(), None);
        assert_eq!(rest(u32::MAX).unwrap(), None);
    }

    #[test]
    fn a_key_belongs_to_one_webhook_and_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Service::open(folder.path(), ServiceOptions::default()).unwrap();
        let service = open();
        let user = service.add_user("anna", Tier::Enterprise).unwrap().user_id;
        let (first, key) = service.add_webhook(user, "https://a.example/", 2).unwrap();
        let (_, other) = service.add_webhook(user, "https://a.example/", 2).unwrap();
        assert_ne!(key, other);
        // Another process knows it too.
        assert_eq!(open().webhook_key(first.webhook_id), key);
        assert!(!format!("{key:?}").contains(&key.reveal()[0].to_string()));
        let error = service.add_webhook(user, "https://a.example/", 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("2 are allowed"), "{error}");
        let long = format!("https://a.example/{}", "x".repeat(LONGEST_URL));
        assert_eq!(service.add_webhook(user, &long, 9).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
