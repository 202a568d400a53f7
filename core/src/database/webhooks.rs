//! Addresses of users that are told when a job ends, and what they are to be told, as it stands in rows.
//!
//! No method makes a delivery: the database itself notes one for each address of the job's owner, in the transaction that ends
//! the job. What is to be said of a job goes when the job is deleted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::job::{DeliveryId, JobId, Timestamp, UserId, WebhookId};

/// An address that is told when a job of its user ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Webhook {
    /// Identifies it.
    pub webhook_id: WebhookId,
    /// The address.
    pub url: String,
    /// Since when it is told.
    pub created_at: Timestamp,
}

/// What happened to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WebhookEvent {
    /// It has a scene.
    #[serde(rename = "job.finished")]
    Finished,
    /// There will be no scene.
    #[serde(rename = "job.failed")]
    Failed,
    /// Its user stopped it.
    #[serde(rename = "job.cancelled")]
    Cancelled,
}

/// Whether an address has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It will be tried, or tried again.
    Pending,
    /// It was told, and said so.
    Delivered,
    /// It was tried as often as it may be.
    Failed,
}

/// One thing that one address is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// Identifies it, at every try.
    pub delivery_id: DeliveryId,
    /// What happened.
    pub event: WebhookEvent,
    /// To which job.
    pub job_id: JobId,
    /// Whether it was told.
    pub status: DeliveryState,
    /// How often it was tried, since it happened or since it was last asked for again.
    pub attempts: u32,
    /// When it happened.
    pub created_at: Timestamp,
    /// When it was last tried.
    pub last_attempt_at: Option<Timestamp>,
    /// When it is tried next; absent unless it is pending.
    pub next_attempt_at: Option<Timestamp>,
    /// The status of the last answer.
    pub response_status: Option<u32>,
    /// What was wrong with the last try.
    pub error: Option<String>,
    /// Its place among all: later ones have a larger one.
    #[serde(skip)]
    pub place: u64,
}

/// A delivery that somebody is to make now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    /// Identifies it.
    pub delivery_id: DeliveryId,
    /// Of which address.
    pub webhook_id: WebhookId,
    /// Where that is.
    pub url: String,
    /// Whose it is.
    pub user: UserId,
    /// What happened.
    pub event: WebhookEvent,
    /// To which job.
    pub job_id: JobId,
    /// When.
    pub created_at: Timestamp,
    /// How often it was tried before.
    pub attempts: u32,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// The status of the answer, if there was one.
    pub response_status: Option<u32>,
    /// What was wrong; absent if nothing was.
    pub error: Option<String>,
    /// After which time it is tried again, if it is: [`DeliveryAttempt::LONGEST_REST_SECONDS`] at most.
    pub again_after: Option<Duration>,
}

/// One that is taken for so much longer than its lease, seconds, was taken while the clock was ahead.
pub(super) const TAKEN_AHEAD_SECONDS: u64 = 60;

impl DeliveryAttempt {
    /// The longest after which one is tried again, seconds.
    pub const LONGEST_REST_SECONDS: u64 = 5 * 3600;

    /// A try that is due later than this from now, microseconds, was put off while the clock was ahead.
    pub(super) const AHEAD: i64 = (Self::LONGEST_REST_SECONDS as i64 + 60) * 1_000_000;

    /// After how many seconds it is tried again, if it is.
    pub(super) fn rest_seconds(&self) -> u64 {
        self.again_after.unwrap_or_default().as_secs().min(Self::LONGEST_REST_SECONDS)
    }

    /// What the delivery is after it.
    pub(super) fn state(&self) -> DeliveryState {
        match (&self.error, self.again_after) {
            (None, _) => DeliveryState::Delivered,
            (Some(_), Some(_)) => DeliveryState::Pending,
            (Some(_), None) => DeliveryState::Failed,
        }
    }
}

/// Webhooks and their deliveries.
pub trait WebhookRows {
    /// Adds an address.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) if the user has `most` already,
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such user.
    fn add_webhook(&self, user: UserId, webhook: WebhookId, url: &str, most: u32) -> Result<Webhook>;
    /// Those of a user, the oldest first.
    ///
    /// # Errors
    /// The database's.
    fn webhooks(&self, user: UserId) -> Result<Vec<Webhook>>;
    /// Removes one, and all that it was told or to be told. Says whether the user had it.
    ///
    /// # Errors
    /// The database's.
    fn remove_webhook(&self, user: UserId, webhook: WebhookId) -> Result<bool>;
    /// Up to `limit` deliveries of one, the newest first, of those before `place` if that is given; nothing if the user has no
    /// such webhook.
    ///
    /// # Errors
    /// The database's.
    fn deliveries(
        &self,
        user: UserId,
        webhook: WebhookId,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<Delivery>>>;
    /// Makes a delivery due once more, as if it had never been tried; nothing if the user has none such.
    ///
    /// # Errors
    /// The database's.
    fn replay_delivery(
        &self,
        user: UserId,
        webhook: WebhookId,
        delivery: DeliveryId,
    ) -> Result<Option<Delivery>>;
    /// Takes up to `most` deliveries that are due, at most one of each webhook and none of a webhook of which one is taken; nobody
    /// else gets them for `lease`, which should be the same for all. Of one job a webhook is told in the order in which it happened.
    /// Users who may not use the interface are told nothing. What was noted or taken while the clock was ahead waits for nothing.
    ///
    /// # Errors
    /// The database's.
    fn take_deliveries(&self, most: u32, lease: Duration) -> Result<Vec<DueDelivery>>;
    /// Notes how a try ended. One that is gone or delivered already stays so.
    ///
    /// # Errors
    /// The database's.
    fn note_delivery(&self, delivery: DeliveryId, attempt: &DeliveryAttempt) -> Result<()>;
    /// Removes what was delivered or given up and happened longer ago than `age`; says how much.
    ///
    /// # Errors
    /// The database's.
    fn forget_deliveries(&self, age: Duration) -> Result<u64>;
}

/// Said to a user who has as many as there may be.
pub(super) fn too_many_webhooks(there: u32, most: u32) -> Error {
    Error::new(ErrorKind::Conflict, format!("{there} webhooks are registered already; {most} are allowed"))
        .hint("delete one that is no longer needed")
}
