//! A request on its way to its answer: who asks, and what the log shall say.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use libreconstruct::ErrorKind;
use libreconstruct::job::{JobId, UserId};
use libreconstruct::service::Caller;
use serde_json::{Map, Value};

use super::api::Api;
use super::bodies::Taker;
use super::client::Connection;
use super::error::ApiError;
use super::rate_limit::Class;

/// A request without its body, and what has become known about it.
pub(crate) struct Exchange<'a> {
    pub(crate) api: &'a Arc<Api>,
    pub(crate) parts: &'a Parts,
    pub(crate) connection: Connection,
    pub(crate) facts: Facts,
}

/// What the log says about a request.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) user: Option<UserId>,
    pub(crate) key_prefix: Option<String>,
    pub(crate) job: Option<JobId>,
}

impl Exchange<'_> {
    /// Who asks, after the key, the tier and the rate limit have let them through (rules 11 and 13 to 15 of
    /// docs/rest.md).
    pub(crate) async fn authorize(&mut self, class: Class) -> Result<UserId, ApiError> {
        Ok(self.caller(class).await?.user_id)
    }

    /// The same with the key, for requests that wait: it may be revoked before they are answered, and is to be looked at again.
    pub(crate) async fn caller(&mut self, class: Class) -> Result<Caller, ApiError> {
        let Some(key) = api_key(self.parts) else { return Err(self.unauthenticated()) };
        let _turn = self.api.turns.take().await?;
        let caller = match self.api.service().authenticate(key) {
            Ok(caller) => caller,
            Err(error) if error.kind() == ErrorKind::Unauthenticated => return Err(self.unauthenticated()),
            Err(error) => return Err(error.into()),
        };
        self.facts.user = Some(caller.user_id);
        self.facts.key_prefix = Some(caller.key_prefix.clone());
        self.api.service().authorize(&caller)?;
        self.api.limiters.check(class, &caller.user_id, self.api.service())?;
        Ok(caller)
    }

    /// Says no to a caller who was let through a while ago and would not be by now.
    pub(crate) async fn authorize_again(&self, caller: &Caller) -> Result<(), ApiError> {
        self.api.quick(|service| service.authorize_again(caller)).await
    }

    /// What the body of the caller's request says; `body` reads it. It may take its time to come, and nobody does anything with a key
    /// that was revoked meanwhile.
    pub(crate) async fn body(
        &self,
        caller: &Caller,
        body: impl Future<Output = Result<Map<String, Value>, ApiError>>,
    ) -> Result<Map<String, Value>, ApiError> {
        let body = body.await?;
        self.authorize_again(caller).await?;
        Ok(body)
    }

    /// The address of the client.
    pub(crate) fn address(&self) -> IpAddr {
        self.connection.client(self.parts, &self.api.config().trusted_proxies)
    }

    /// For whom the answer is, as far as that is known by now.
    pub(crate) fn taker(&self) -> Taker {
        Taker { address: self.address(), user: self.facts.user }
    }

    fn unauthenticated(&self) -> ApiError {
        match self.api.limiters.check_failed_authentication(self.address()) {
            Ok(()) => ApiError::unauthenticated(),
            Err(error) => error,
        }
    }

    /// The job of the path (rule 2): what is no id names no job.
    pub(crate) fn job_id(&mut self, text: &str) -> Result<JobId, ApiError> {
        let job_id = text.parse().map_err(|_| ApiError::no_job())?;
        self.facts.job = Some(job_id);
        Ok(job_id)
    }
}

/// The key in `Authorization: Api-Key <key>`; the scheme in any case, then one space or more (rule 14).
fn api_key(parts: &Parts) -> Option<&str> {
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Api-Key").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn key_in(values: &[&str]) -> Option<String> {
        let mut request = Request::get("/");
        for value in values {
            request = request.header(AUTHORIZATION, *value);
        }
        api_key(&request.body(()).unwrap().into_parts().0).map(str::to_owned)
    }

    #[test]
    fn rule_14_the_scheme_in_any_case_and_the_key_as_it_is() {
        for value in ["Api-Key lrk_a.B", "api-key lrk_a.B", "API-KEY   lrk_a.B "] {
            assert_eq!(key_in(&[value]).as_deref(), Some("lrk_a.B"), "{value}");
        }
        for values in
            [&["Bearer lrk_a.B"][..], &["lrk_a.B"], &["Api-Keylrk_a.B"], &[], &["Api-Key a", "Api-Key a"]]
        {
            assert_eq!(key_in(values), None, "{values:?}");
        }
    }
}
