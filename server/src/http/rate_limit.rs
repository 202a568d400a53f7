//! Rate limits as token buckets (rule 21 of docs/rest.md): requests count for their user, whichever key was used;
//! failed authentications count for the address that they come from.
//!
//! The buckets are here. Where several servers share their rows, those of users are the service's, and these are for the time in
//! which it cannot reach its database.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use libreconstruct::database::Rate;
use libreconstruct::job::UserId;
use libreconstruct::service::{Service, Spent};
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use super::network::network;

/// How many requests of each kind are allowed. A rate of 0 switches its limit off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RateLimits {
    pub(crate) requests_per_minute: u32,
    pub(crate) requests_burst: u32,
    pub(crate) submits_per_hour: u32,
    pub(crate) submits_burst: u32,
    pub(crate) uploads_per_hour: u32,
    pub(crate) uploads_burst: u32,
    pub(crate) failed_authentications_per_minute: u32,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            requests_per_minute: 600,
            requests_burst: 120,
            submits_per_hour: 60,
            submits_burst: 10,
            uploads_per_hour: 60,
            uploads_burst: 10,
            failed_authentications_per_minute: 30,
        }
    }
}

/// What a request counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Everything that is none of the others.
    Request,
    /// A job is submitted.
    Submit,
    /// An upload address is asked for.
    Upload,
}

/// The buckets of everybody.
pub(crate) struct RateLimiters {
    requests: Option<Limiter<UserId>>,
    submits: Option<Limiter<UserId>>,
    uploads: Option<Limiter<UserId>>,
    failed_authentications: Option<Limiter<IpAddr>>,
}

impl RateLimiters {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        const HOUR: Duration = Duration::from_secs(3600);
        let failed = limits.failed_authentications_per_minute;
        Self {
            requests: Limiter::new("requests", limits.requests_per_minute, MINUTE, limits.requests_burst),
            submits: Limiter::new("submits", limits.submits_per_hour, HOUR, limits.submits_burst),
            uploads: Limiter::new("uploads", limits.uploads_per_hour, HOUR, limits.uploads_burst),
            failed_authentications: Limiter::new("failed-authentications", failed, MINUTE, failed),
        }
    }

    /// Takes a token of the user's, or says when there will be one.
    pub(crate) fn check(&self, class: Class, user: &UserId, service: &Service) -> Result<(), ApiError> {
        let limiter = match class {
            Class::Request => &self.requests,
            Class::Submit => &self.submits,
            Class::Upload => &self.uploads,
        };
        let Some(limiter) = limiter else { return Ok(()) };
        match service.spend(*user, &limiter.rate) {
            Spent::Allowed => Ok(()),
            Spent::Denied(wait) => Err(limiter.refusal(wait)),
            Spent::Alone => limiter.check(user),
        }
    }

    /// Counts a failed authentication. A genuine key is never held up by it.
    pub(crate) fn check_failed_authentication(&self, address: IpAddr) -> Result<(), ApiError> {
        self.failed_authentications.as_ref().map_or(Ok(()), |limiter| limiter.check(&network(address)))
    }

    /// Forgets buckets that are full again; called now and then, so that memory does not grow with everybody ever seen.
    pub(crate) fn forget_idle(&self) {
        for limiter in [&self.requests, &self.submits, &self.uploads].into_iter().flatten() {
            limiter.buckets.retain_recent();
        }
        if let Some(limiter) = &self.failed_authentications {
            limiter.buckets.retain_recent();
        }
    }
}

struct Limiter<K: std::hash::Hash + Eq + Clone> {
    rate: Rate,
    buckets: DefaultKeyedRateLimiter<K>,
    policy: HeaderValue,
    clock: DefaultClock,
}

impl<K: std::hash::Hash + Eq + Clone> Limiter<K> {
    fn new(name: &'static str, rate: u32, per: Duration, burst: u32) -> Option<Self> {
        let rate = NonZeroU32::new(rate)?;
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(per / rate.get())?.allow_burst(burst);
        // Both fields follow draft-ietf-httpapi-ratelimit-headers.
        let policy = format!("\"{name}\";q={rate};w={}", per.as_secs());
        Some(Self {
            rate: Rate {
                class: name,
                per_second: f64::from(rate.get()) / per.as_secs_f64(),
                burst: burst.get(),
            },
            buckets: RateLimiter::keyed(quota),
            policy: HeaderValue::from_str(&policy).ok()?,
            clock: DefaultClock::default(),
        })
    }

    fn check(&self, key: &K) -> Result<(), ApiError> {
        let Err(not_until) = self.buckets.check_key(key) else { return Ok(()) };
        Err(self.refusal(not_until.wait_time_from(self.clock.now())))
    }

    /// What a client is told that has to wait for so long.
    fn refusal(&self, wait: Duration) -> ApiError {
        let wait = wait.as_millis().div_ceil(1000).max(1);
        let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Rate limit exceeded")
            .with_header(HeaderName::from_static("ratelimit-policy"), self.policy.clone());
        if let Ok(seconds) = HeaderValue::from_str(&wait.to_string()) {
            error = error.with_header(RETRY_AFTER, seconds);
        }
        if let Ok(state) = HeaderValue::from_str(&format!("\"{}\";r=0;t={wait}", self.rate.class)) {
            error = error.with_header(HeaderName::from_static("ratelimit"), state);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_21_a_burst_then_a_pause() {
        let limiter = Limiter::<u8>::new("requests", 600, Duration::from_secs(60), 3).unwrap();
        for _ in 0..3 {
            limiter.check(&1).unwrap();
        }
        let error = limiter.check(&1).unwrap_err();
        assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(error.message, "Rate limit exceeded");
        assert_eq!(error.headers[RETRY_AFTER], "1");
        assert_eq!(error.headers["ratelimit-policy"], "\"requests\";q=600;w=60");
        assert_eq!(error.headers["ratelimit"], "\"requests\";r=0;t=1");
        limiter.check(&2).unwrap();
        std::thread::sleep(Duration::from_millis(120));
        limiter.check(&1).unwrap();
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        assert!(Limiter::<u8>::new("requests", 0, Duration::from_secs(60), 3).is_none());
    }
}
