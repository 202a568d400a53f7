//! The one request that tells an address something (docs/rest.md, rule 96). Whatever answers may be slow, endless or hostile: a try
//! ends after ten seconds, goes nowhere else, and takes in no more than a few KiB.

use std::sync::Arc;
use std::time::Duration;

use libreconstruct::Result;
use libreconstruct::job::Timestamp;
use libreconstruct::service::{Notice, Told};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode};

use super::address::WebhookSettings;
use super::signature::sign;
use crate::reach::NotAllowed;

/// A try lasts no longer, from the look-up of the name to the end of the answer.
const LONGEST: Duration = Duration::from_secs(10);
/// Of an answer so much is taken, bytes, so that who sends it need not see a broken connection. Nothing of it is used.
const TAKEN_OF_ANSWERS: usize = 4096;

/// Tells addresses what they are to be told.
#[derive(Clone)]
pub(crate) struct Sender {
    client: Client,
    settings: Arc<WebhookSettings>,
}

impl Sender {
    /// # Errors
    /// If the certificates of this system cannot be read.
    pub(crate) fn new(settings: &WebhookSettings) -> Result<Self> {
        let (client, settings) = (settings.reach().client(LONGEST)?, Arc::new(settings.clone()));
        Ok(Self { client, settings })
    }

    /// Tries once.
    pub(crate) async fn tell(&self, notice: &Notice, body: Vec<u8>) -> Told {
        let refused = |status, why| Told::Refused { status, why, for_good: false };
        // The client asks for the addresses of names only, so that a number is looked at here.
        let url = match self.settings.check(&notice.delivery.url) {
            Ok(url) => url,
            Err(error) => return refused(None, error.message().to_owned()),
        };
        let (id, timestamp) =
            (notice.delivery.delivery_id.to_string(), Timestamp::now().as_micros() / 1_000_000);
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header("webhook-signature", sign(notice.key.reveal(), &id, timestamp, &body))
            .header("webhook-timestamp", timestamp)
            .header("webhook-id", id)
            .body(body);
        match request.send().await {
            Ok(answer) => judge(answer).await,
            Err(error) => refused(None, reason(&error)),
        }
    }
}

async fn judge(mut answer: Response) -> Told {
    let status = answer.status();
    let mut taken = 0;
    while taken < TAKEN_OF_ANSWERS {
        match answer.chunk().await {
            Ok(Some(chunk)) => taken += chunk.len(),
            // The status has said it all.
            Ok(None) | Err(_) => break,
        }
    }
    if status.is_success() {
        return Told::Taken { status: status.as_u16() };
    }
    let why = match status {
        _ if status.is_redirection() => format!("it answered {status}; redirects are not followed"),
        StatusCode::GONE => format!("it answered {status}: it is not told this again"),
        _ => format!("it answered {status}"),
    };
    Told::Refused { status: Some(status.as_u16()), why, for_good: status == StatusCode::GONE }
}

/// What went wrong, for the user whose address it is.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("it did not answer within {} seconds", LONGEST.as_secs());
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
        if innermost.is::<NotAllowed>() {
            return innermost.to_string();
        }
    }
    match error.is_connect() {
        true => format!("it cannot be connected to: {innermost}"),
        false => format!("the connection broke: {innermost}"),
    }
}
