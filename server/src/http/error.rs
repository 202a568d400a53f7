//! What a client is told when a request fails: a status and `{"error": message}` (docs/rest.md, §7 and rule 9).

use std::borrow::Cow;
use std::error::Error as _;

use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{HeaderMap, StatusCode};
use libreconstruct::service::WrongStorage;
use libreconstruct::{Error, ErrorKind};

/// Text of every 500: internals go to the log under the request id only (rule 10).
const INTERNAL: &str = "Internal server error";
/// Text of every 401: unknown, malformed and revoked keys are not told apart (rule 13).
const INVALID_KEY: &str = "Invalid API key";

/// A request that failed.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// Stable slug, shown with the server option `error_details`.
    pub(crate) code: &'static str,
    /// Final text for the client.
    pub(crate) message: Cow<'static, str>,
    /// Headers that belong to the status. Boxed, because results that carry an error are returned everywhere.
    pub(crate) headers: Box<HeaderMap>,
    /// For the log, never for the client.
    pub(crate) detail: Option<String>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), headers: Box::default(), detail: None }
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// 401 with the challenge that RFC 9110 §11.6.1 demands (rule 13).
    pub(crate) fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", INVALID_KEY)
            .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Api-Key realm=\"api\""))
    }

    pub(crate) fn forbidden(code: &'static str, message: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    /// No route of that name (rule 3).
    pub(crate) fn no_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "Not found")
    }

    /// What an unknown, foreign or malformed job id is answered with (rules 2 and 16).
    pub(crate) fn no_job() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "Job not found")
    }

    /// The resource exists but not with this method (rule 3, RFC 9110 §15.5.6).
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed")
            .with_header(ALLOW, HeaderValue::from_static(allow))
    }

    pub(crate) fn too_large(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// The client was too slow.
    pub(crate) fn timeout(message: &'static str) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    /// The server is at a limit of its own and will take the request later.
    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Server is busy")
            .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    }

    /// 503 for `why`, until somebody has seen to it.
    pub(crate) fn not_ready(why: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why)
    }

    /// 503: the server takes no upload and no job (rule 82).
    pub(crate) fn wrong_storage() -> Self {
        Self::not_ready("Storage is not that of the database")
    }

    /// 507: nothing that the client can change, and not for long (rule 89); `detail` goes to the log.
    fn no_space(detail: String) -> Self {
        let mut error = Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", "Insufficient storage")
            .with_header(RETRY_AFTER, HeaderValue::from_static("60"));
        error.detail = Some(detail);
        error
    }

    /// 500; `detail` goes to the log.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", INTERNAL);
        error.detail = Some(detail.into());
        error
    }

    #[must_use]
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// The one table from kinds of the core to statuses.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        use ErrorKind::*;
        // To the client it is no conflict with what it asks for.
        if error.source().is_some_and(|cause| cause.is::<WrongStorage>()) {
            let mut refused = Self::wrong_storage();
            refused.detail = Some(format!("{error:?}"));
            return refused;
        }
        let status = match error.kind() {
            Unauthenticated => return Self::unauthenticated(),
            PermissionDenied => StatusCode::FORBIDDEN,
            NotFound => StatusCode::NOT_FOUND,
            InvalidArgument | InvalidMedia | Unsupported => StatusCode::BAD_REQUEST,
            Conflict => StatusCode::CONFLICT,
            IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
            DiskFull => return Self::no_space(format!("{error:?}")),
            _ => return Self::internal(format!("{error:?}")),
        };
        // The hint is for people at a command line; the message alone is the text for clients.
        let refused = Self::new(status, error.kind().slug(), error.message().to_owned());
        match status {
            // A queue that is full empties at the pace of jobs, not of requests (rules 21 and 22).
            StatusCode::TOO_MANY_REQUESTS => refused.with_header(RETRY_AFTER, HeaderValue::from_static("60")),
            _ => refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_10_internals_stay_inside() {
        let error = ApiError::from(Error::new(ErrorKind::Io, "cannot write /srv/secret/file: quota"));
        assert_eq!(error.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(error.message, "Internal server error");
        assert!(error.detail.unwrap().contains("quota"));
    }

    #[test]
    fn rule_89_no_space_is_said_and_no_more() {
        let error = ApiError::from(Error::new(ErrorKind::DiskFull, "17 bytes are free on /srv/secret"));
        assert_eq!(error.status, StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!((error.code, &*error.message), ("disk_full", "Insufficient storage"));
        assert!(error.detail.unwrap().contains("17 bytes"));
    }

    #[test]
    fn rule_82_a_wrong_storage_is_no_fault_of_the_request() {
        let refused = Error::new(ErrorKind::Conflict, "its id is 0b5c").caused_by(WrongStorage);
        let error = ApiError::from(refused);
        assert_eq!((error.status, error.code), (StatusCode::SERVICE_UNAVAILABLE, "not_ready"));
        assert!(!error.message.contains("0b5c") && error.detail.unwrap().contains("0b5c"));
        let conflict = ApiError::from(Error::new(ErrorKind::Conflict, "The job has ended already"));
        assert_eq!(conflict.status, StatusCode::CONFLICT);
    }

    #[test]
    fn rule_13_unknown_and_revoked_keys_have_one_text() {
        let error = ApiError::from(Error::new(ErrorKind::Unauthenticated, "the key was revoked yesterday"));
        assert_eq!(error.message, "Invalid API key");
        assert_eq!(error.headers.get(WWW_AUTHENTICATE).unwrap(), "Api-Key realm=\"api\"");
    }
}
