//! Keys with which an identity of Azure signs addresses, when there is no key of the account: the store gives them for a while (user
//! delegation keys).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::signer::{HeaderValue, Method, Url};

use super::azure_sas::{AccountKey, Delegate, VERSION, moment};
use super::calls::{CALL, Calls, between};
use crate::error::Result;
use crate::job::Timestamp;

/// How long before now a key begins to hold, seconds: the clock of a store may lag behind ours.
const EARLY_SECONDS: u64 = 15 * 60;
/// How much longer than asked for a key holds, seconds, so that not every address needs a request of its own.
const LONGER_SECONDS: u64 = 3600;

/// A key, and who signs with it.
pub(super) struct Delegated {
    pub(super) key: AccountKey,
    pub(super) delegate: Delegate,
}

/// Where keys come from.
pub(super) struct Delegation {
    pub(super) credentials: AzureCredentialProvider,
    pub(super) client: HttpClient,
    /// Of the account.
    pub(super) endpoint: Url,
    pub(super) account: String,
    /// The last key, and until when it holds.
    pub(super) kept: Mutex<Option<(Timestamp, Arc<Delegated>)>>,
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delegation({})", self.account)
    }
}

impl Delegation {
    /// A key that holds for `lifetime` from now on at least.
    pub(super) fn key(&self, calls: &Calls, lifetime: Duration) -> Result<Arc<Delegated>> {
        let until = Timestamp::now().plus_seconds(lifetime.as_secs());
        // A thread that panicked while it held the lock left a key or none.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((expiry, key)) = &*kept
            && *expiry >= until
        {
            return Ok(Arc::clone(key));
        }
        let expiry = until.plus_seconds(LONGER_SECONDS);
        let key = Arc::new(calls.wait(CALL, "sign", "an address", self.ask(expiry))?);
        *kept = Some((expiry, Arc::clone(&key)));
        Ok(key)
    }

    async fn ask(&self, expiry: Timestamp) -> object_store::Result<Delegated> {
        let start = moment(Timestamp::now().minus_seconds(EARLY_SECONDS), Duration::ZERO);
        let expiry = moment(expiry, Duration::ZERO);
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><KeyInfo><Start>{start}</Start><Expiry>{expiry}</Expiry></KeyInfo>"
        );
        let mut url = self.endpoint.clone();
        url.set_query(Some("restype=service&comp=userdelegationkey"));
        let mut request = HttpRequest::new(HttpRequestBody::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.as_str().parse().map_err(failed)?;
        let headers = request.headers_mut();
        headers.insert("x-ms-version", HeaderValue::from_static(VERSION));
        headers.insert("content-type", HeaderValue::from_static("application/xml"));
        let credential = self.credentials.get_credential().await?;
        AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request)?;
        let answer = self.client.execute(request).await.map_err(failed)?;
        let status = answer.status();
        let text = answer.into_body().bytes().await.map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        if !status.is_success() {
            return Err(failed(format!("status code: {status}: {text}")));
        }
        let field = |name: &str| {
            let found = between(&text, &format!("<{name}>"), &format!("</{name}>"));
            found.map(str::to_owned).ok_or_else(|| failed(format!("the store's key has no {name}")))
        };
        Ok(Delegated {
            key: AccountKey::parse(&field("Value")?).map_err(failed)?,
            delegate: Delegate {
                object: field("SignedOid")?,
                tenant: field("SignedTid")?,
                start: field("SignedStart")?,
                expiry: field("SignedExpiry")?,
                service: field("SignedService")?,
                version: field("SignedVersion")?,
            },
        })
    }
}

fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: "Azure", source: source.into() }
}
