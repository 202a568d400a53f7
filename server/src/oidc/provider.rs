//! The service that knows who somebody is: where it says things, its keys, and the one question that it is asked.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use libreconstruct::database::Identity;
use libreconstruct::service::{Newcomer, ReturnTicket};
use libreconstruct::{Error, Result};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::id_token::{Expected, Jwk, Wrong, verify};
use super::settings::OidcSettings;
use crate::hidden::Hidden;

/// A request to it lasts no longer.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest answer that is read, bytes.
const LONGEST_ANSWER: usize = 256 << 10;
/// How long what it says of itself is believed.
const FRESH: Duration = Duration::from_secs(600);
/// How often at most it is asked for new keys because of a token that none of the known ones has signed.
const KEYS_ASKED_EVERY: Duration = Duration::from_secs(5);
/// How long it is not asked again after it has not told of itself.
const FAILURE_HOLDS: Duration = Duration::from_secs(5);

/// Why nobody is signed in.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// It cannot be asked, or answers nonsense; why, for the log.
    Unreachable(String),
    /// What it says is not believed; why, for the log.
    NotBelieved(String),
    /// It says who this is, and the operator does not admit them.
    NotAdmitted,
}

impl Refusal {
    /// What it says of itself is nobody's fault but its own, or that of the settings.
    fn of_itself(self) -> Self {
        match self {
            Self::NotBelieved(why) => Self::Unreachable(why),
            other => other,
        }
    }
}

/// Who somebody is, and who is to be added if nobody is known by that.
pub(crate) struct Visitor {
    pub(crate) identity: Identity,
    pub(crate) newcomer: Option<Newcomer>,
}

/// What it says of itself (OpenID Connect Discovery 1.0).
#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct KeySet {
    /// One by one: a key of an unknown form is nobody's trouble.
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

struct Known {
    at: Instant,
    metadata: Metadata,
    keys: Vec<Jwk>,
}

/// What came of asking it.
#[derive(Default)]
struct Asked {
    known: Option<Arc<Known>>,
    /// When it last failed to tell, and how, if it has not told since.
    failure: Option<(Instant, Refusal)>,
}

/// The service that the operator has named.
pub(crate) struct Provider {
    settings: OidcSettings,
    issuer: String,
    client_id: String,
    secret: Option<Hidden>,
    client: Client,
    asked: Mutex<Asked>,
}

impl Provider {
    /// Nothing if the operator has named none. It is not asked for anything yet: it may be away while this server starts.
    ///
    /// # Errors
    /// If the secret or the certificates of this system cannot be read.
    pub(crate) fn new(settings: &OidcSettings) -> Result<Option<Self>> {
        let (Some(issuer), Some(client_id)) = (&settings.issuer, &settings.client_id) else {
            return Ok(None);
        };
        let secret = match (&settings.client_secret, &settings.client_secret_file) {
            (Some(secret), _) => Some(secret.clone()),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
                Some(Hidden::new(text.trim()))
            }
            (None, None) => None,
        };
        Ok(Some(Self {
            settings: settings.clone(),
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            secret,
            client: settings.reach().client(LONGEST)?,
            asked: Mutex::default(),
        }))
    }

    /// What people call it.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Where a browser goes to sign in. It comes back to `back`.
    pub(crate) async fn way_there(
        &self,
        ticket: &ReturnTicket,
        back: &str,
    ) -> std::result::Result<String, Refusal> {
        let known = self.known(FRESH).await?;
        let mut url = self.address(&known.metadata.authorization_endpoint)?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&ticket.verifier));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", back)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", &ticket.state)
            .append_pair("nonce", &ticket.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Who has come back with `code`.
    pub(crate) async fn who(
        &self,
        code: &str,
        ticket: &ReturnTicket,
        back: &str,
    ) -> std::result::Result<Visitor, Refusal> {
        let known = self.known(FRESH).await?;
        let answer: TokenAnswer = self.ask(self.token_request(&known.metadata, code, ticket, back)?).await?;
        let claims = match self.believed(&answer.id_token, &known.keys, ticket) {
            Err(Wrong::Key) => {
                // It may have new keys.
                let known = self.known(KEYS_ASKED_EVERY).await?;
                self.believed(&answer.id_token, &known.keys, ticket)
            }
            answer => answer,
        };
        let claims = claims.map_err(|wrong| {
            Refusal::NotBelieved(match wrong {
                Wrong::Key => "its token is signed by none of its keys".to_owned(),
                Wrong::Token(why) => format!("of its token: {why}"),
            })
        })?;
        if !self.settings.admits(&claims) {
            return Err(Refusal::NotAdmitted);
        }
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        let identity = Identity { issuer: self.issuer.clone(), subject };
        Ok(Visitor { identity, newcomer: self.settings.newcomer(&claims) })
    }

    fn believed(
        &self,
        token: &str,
        keys: &[Jwk],
        ticket: &ReturnTicket,
    ) -> std::result::Result<Map<String, Value>, Wrong> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let expected =
            Expected { issuer: &self.issuer, client_id: &self.client_id, nonce: &ticket.nonce, now };
        verify(token, keys, &expected)
    }

    fn token_request(
        &self,
        metadata: &Metadata,
        code: &str,
        ticket: &ReturnTicket,
        back: &str,
    ) -> std::result::Result<RequestBuilder, Refusal> {
        let mut request = self.client.post(self.address(&metadata.token_endpoint)?);
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", back)
            .append_pair("code_verifier", &ticket.verifier);
        let knows = |method: &str| {
            // Who says nothing knows the first (section 3 of Discovery).
            let methods = metadata.token_endpoint_auth_methods_supported.as_deref();
            methods.map_or(method == "client_secret_basic", |all| all.iter().any(|own| own == method))
        };
        match &self.secret {
            None => drop(form.append_pair("client_id", &self.client_id)),
            Some(secret) if !knows("client_secret_basic") && knows("client_secret_post") => {
                form.append_pair("client_id", &self.client_id).append_pair("client_secret", secret.reveal());
            }
            Some(secret) => {
                // Both parts are written as in a form first (RFC 6749, section 2.3.1).
                let part = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", part(&self.client_id), part(secret.reveal()));
                request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)));
            }
        }
        Ok(request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish()))
    }

    /// What it says of itself, and its keys, if they are no older than `age`; else it is asked.
    async fn known(&self, age: Duration) -> std::result::Result<Arc<Known>, Refusal> {
        // One at a time: the others wait for the answer, and have it too. So they do if there is none: one after the other would else
        // wait for a service that hangs, and each as long as all before.
        let mut asked = self.asked.lock().await;
        if let Some(known) = asked.known.as_ref().filter(|known| known.at.elapsed() < age) {
            return Ok(known.clone());
        }
        if let Some((_, why)) = asked.failure.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_HOLDS) {
            return Err(why.clone());
        }
        match self.told().await {
            Ok(known) => {
                let known = Arc::new(known);
                *asked = Asked { known: Some(known.clone()), failure: None };
                Ok(known)
            }
            Err(why) => {
                asked.failure = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// What it says of itself, and its keys, if it is asked.
    async fn told(&self) -> std::result::Result<Known, Refusal> {
        let address = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let metadata: Metadata =
            self.ask(self.client.get(self.address(&address)?)).await.map_err(Refusal::of_itself)?;
        if metadata.issuer != self.issuer {
            let why = format!("{address} is of the issuer {:?}, not of {:?}", metadata.issuer, self.issuer);
            return Err(Refusal::Unreachable(why));
        }
        let keys = self.ask(self.client.get(self.address(&metadata.jwks_uri)?)).await;
        let keys: KeySet = keys.map_err(Refusal::of_itself)?;
        let keys = keys.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        Ok(Known { at: Instant::now(), metadata, keys })
    }

    /// An address that it has named, if it may be asked.
    fn address(&self, text: &str) -> std::result::Result<Url, Refusal> {
        self.settings.reach().read(text).map_err(|why| Refusal::Unreachable(format!("{text}: {why}")))
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> std::result::Result<T, Refusal> {
        let unreachable = |e: reqwest::Error| Refusal::Unreachable(chain(&e));
        let mut answer = request.header("accept", "application/json").send().await.map_err(unreachable)?;
        let (status, url) = (answer.status(), answer.url().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LONGEST_ANSWER {
                return Err(Refusal::Unreachable(format!(
                    "{url} answers with more than {LONGEST_ANSWER} bytes"
                )));
            }
        }
        if status.is_client_error() {
            // The code was used or made up, or the secret is wrong. What it says may name neither: it is for the log.
            let said =
                String::from_utf8_lossy(bytes.get(..bytes.len().min(300)).unwrap_or_default()).into_owned();
            return Err(Refusal::NotBelieved(format!("{url} answers {status}: {said}")));
        }
        if !status.is_success() {
            return Err(Refusal::Unreachable(format!("{url} answers {status}")));
        }
        serde_json::from_slice(&bytes)
            .map_err(|e| Refusal::Unreachable(format!("{url} answers something else than was expected: {e}")))
    }
}

/// What went wrong, down to its cause.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
