//! Calls of a store: how long they may take, and what their errors mean.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, Error as StoreError, RetryConfig};
use tokio::time::timeout;

use super::address::{Address, Kind};
use crate::async_runtime::wait_for;
use crate::error::{Error, ErrorKind, Result};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a store may say nothing: until it answers a request, for the sending of which it counts too, and between two pieces of
/// an answer. A part of 8 MiB takes that long on a line of 1.2 Mbit/s.
const SILENCE: Duration = Duration::from_secs(60);
/// Since when a request that failed is not begun again. A store that is away for a moment is waited for; with the last try the
/// caller hears of it within [`CALL`].
const RETRIES: Duration = Duration::from_secs(25);
/// How long a call that carries no file may take in all.
pub(super) const CALL: Duration = Duration::from_secs(60);
/// How long one may take that carries part of a file, or lets the store put together or copy one.
pub(super) const TRANSFER: Duration = Duration::from_secs(600);

/// How the store is spoken to. The library's own limit of 30 seconds for a request counts the whole of a file that is read.
pub(super) fn client(allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(SILENCE)
        .with_allow_http(allow_http)
}

/// When requests that failed are begun again.
pub(super) fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 20,
        retry_timeout: RETRIES,
    }
}

/// Waits for calls of one store, and tells its errors in our words.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    /// Where blobs are, for messages.
    place: String,
    kind: Kind,
}

impl Calls {
    pub(super) fn to(address: &Address) -> Self {
        Self { place: address.to_string(), kind: address.kind }
    }

    /// Waits for `call`, `limit` at most, which is meant to `doing` (a verb) `what`.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        doing: &str,
        what: &str,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        // The timer is the runtime's, so it is made there.
        match wait_for(async { timeout(limit, call).await })? {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.told(doing, what, &error)),
            Err(_) => Err(self.failed(doing, what, &format!("no answer within {} s", limit.as_secs()))),
        }
    }

    /// The same for a request that writes `what`, for which nothing has to be there. Where the answer to the last one is lost and it
    /// is sent again, stores say that they know no such upload: they have put it together.
    pub(super) fn wait_to_write<T>(
        &self,
        limit: Duration,
        what: &str,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        self.wait(limit, "write", what, call).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.failed(
                "write",
                what,
                "the store does not know its parts any more; it may be whole there",
            ),
            _ => error,
        })
    }

    /// A failure that may pass.
    pub(super) fn failed(&self, doing: &str, what: &str, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("cannot {doing} {what} in {}: {why}", self.place))
            .hint("see whether the store is up and can be reached from here, then do the same again")
    }

    /// A blob became another one while it was read.
    pub(super) fn replaced(&self, what: &str) -> Error {
        let message = format!("{what} in {} was replaced while it was read", self.place);
        Error::new(ErrorKind::Conflict, message).hint("do the same again")
    }

    /// What the store's error means. Its own text may show an address, so the useful parts are picked out.
    pub(super) fn told(&self, doing: &str, what: &str, error: &StoreError) -> Error {
        let (place, bucket) = (&self.place, self.kind.bucket());
        let whole = whole_text(error);
        let code = between(&whole, "<Code>", "</Code>");
        let io = |why: String, hint: &str| {
            Error::new(ErrorKind::Io, format!("cannot {doing} {what} in {place}: {why}"))
                .hint(hint.to_owned())
        };
        // Asked for by the library when nothing else opens the store: the machine's own credentials.
        let asked_the_machine =
            ["169.254.", "metadata.google.internal", "computeMetadata", "metadata/identity"];
        if asked_the_machine.iter().any(|part| whole.contains(part)) {
            return io("there are no credentials for the store".to_owned(), self.credentials());
        }
        let is_no_bucket = ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]
            .iter()
            .any(|part| whole.contains(part));
        if is_no_bucket {
            return io(
                format!("there is no such {bucket}"),
                "make it, or correct the address of the storage; the program makes none itself",
            );
        }
        match error {
            StoreError::NotFound { .. } => Error::new(
                ErrorKind::NotFound,
                format!("cannot {doing} {what}: it does not exist in {place}"),
            ),
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                let why = code.map_or("the store does not let us".to_owned(), |code| {
                    format!("the store does not let us ({code})")
                });
                io(why, self.credentials())
            }
            StoreError::Precondition { .. } | StoreError::NotModified { .. } => self.replaced(what),
            _ if ["InsufficientStorage", "507 ", "QuotaExceeded", "StorageFull"]
                .iter()
                .any(|part| whole.contains(part)) =>
            {
                Error::new(ErrorKind::DiskFull, format!("cannot {doing} {what}: {place} is full"))
                    .hint("free some space in the store, or allow more")
            }
            _ => {
                let why = match (status(&whole), code) {
                    (Some(status), Some(code)) => format!("the store answered {status} ({code})"),
                    (Some(status), None) => format!("the store answered {status}"),
                    (None, _) => innermost(error),
                };
                self.failed(doing, what, &why)
            }
        }
    }

    /// What opens the store.
    fn credentials(&self) -> &'static str {
        match self.kind {
            Kind::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role, that may get, put, list and delete in the bucket"
            }
            Kind::Google => {
                "name a key of a service account in GOOGLE_APPLICATION_CREDENTIALS, or give the machine an account, that may administer objects of the bucket"
            }
            Kind::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY, or give the machine an identity that is a Storage Blob Data Contributor and a Storage Blob Delegator"
            }
        }
    }
}

/// All texts of an error and its causes, for looking into only.
fn whole_text(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push('\n');
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn innermost(error: &dyn StdError) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

pub(super) fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// The status that the library names in its text, for example `503 Service Unavailable`.
fn status(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("status code: ")?;
    let status = rest.split([':', '\n']).next()?.trim();
    (!status.is_empty()).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Calls {
        Calls::to(&Address::parse("s3://bucket/p").unwrap())
    }

    #[test]
    fn errors_are_told_by_what_is_to_be_done() {
        let refused = |body: &str| {
            StoreError::Generic {
            store: "S3",
            source: format!("Error performing GET http://store/?sig=s3cret in 1s - Server returned non-2xx status code: {body}").into(),
        }
        };
        let told = |error: &StoreError| calls().told("read", "videos/a", error);
        let error = told(&refused("503 Service Unavailable: <Error><Code>SlowDown</Code></Error>"));
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(
            error.message(),
            "cannot read videos/a in s3://bucket/p: the store answered 503 Service Unavailable (SlowDown)"
        );
        let error = told(&StoreError::NotFound { path: "p".to_owned(), source: "404".into() });
        assert_eq!(error.kind(), ErrorKind::NotFound);
        // That the whole bucket is gone does not say that a blob was deleted.
        let source = "404 Not Found: <Code>NoSuchBucket</Code>".into();
        let error = told(&StoreError::NotFound { path: "p".to_owned(), source });
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().ends_with("there is no such bucket"), "{error}");
        let error = told(&refused("507 Insufficient Storage: "));
        assert_eq!(error.kind(), ErrorKind::DiskFull);
        let source = "Error performing PUT http://169.254.169.254/latest/api/token".into();
        let error = told(&StoreError::Generic { store: "S3", source });
        assert!(error.message().ends_with("no credentials for the store"), "{error}");
        for error in [refused("500 Internal Server Error: "), refused("400 Bad Request: x")] {
            assert!(!format!("{:?}", told(&error)).contains("s3cret"));
        }
    }

    /// Else a client would hear that there is no such upload, and a worker that there is no such job.
    #[test]
    fn nothing_is_missing_where_something_is_written() {
        let lost = || {
            let source = "404 Not Found: <Code>NoSuchUpload</Code>".into();
            std::future::ready(Err(StoreError::NotFound { path: "p".to_owned(), source }))
        };
        let error = calls().wait_to_write::<()>(CALL, "videos/a", lost()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("does not know its parts any more"), "{error}");
        assert!(error.hint_text().is_some());
        assert_eq!(
            calls().wait::<()>(CALL, "read", "videos/a", lost()).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(calls().wait_to_write(CALL, "videos/a", std::future::ready(Ok(7))).unwrap(), 7);
    }

    #[test]
    fn a_call_that_takes_too_long_ends() {
        let error = calls()
            .wait::<()>(Duration::from_millis(20), "read", "videos/a", std::future::pending())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("no answer within"), "{error}");
    }
}
