//! Requests, and patience with them. What is tried again, and when: everything if the connection breaks, since every request may be
//! sent twice (submissions carry an idempotency key; one that the server is still at is asked for again); 429, 503, and 409 where it
//! says one, after the time that the server asks for; 502 and 504 after a while.

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use libreconstruct::{Error, ErrorKind, Result};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Body, Certificate, Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::crypto::ring;

use super::body::Sent;

/// So often a request is sent again that failed. Where the server says how long to wait, it has not failed.
const RETRIES: u32 = 5;
/// If the server asks for more patience with a request than this, in all, that is said instead. By default it gives out an upload
/// address a minute to who asks for many.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// A wait as long as this, and longer ones, are told.
const TOLD_FROM: Duration = Duration::from_secs(5);
/// So long there may be no sign of life: no piece of a body is taken, and none of the answer comes.
const SILENCE: Duration = Duration::from_secs(120);
/// After so long a server of ours cuts what comes too slowly. What comes whole before that may come as slowly as it likes.
pub(super) const UNMEASURED: Duration = Duration::from_secs(60);
/// So often a storage may send a download on, for example to the region where the file is.
const REDIRECTS: u32 = 5;
/// What every path of the interface begins with.
const API: &str = "/api/v1/";

/// One user of one server.
pub(crate) struct Client {
    base: Url,
    key: HeaderValue,
    http: reqwest::Client,
    /// [`SILENCE`], but in tests.
    silence: Duration,
    /// Is told why a request takes longer.
    told: Box<dyn Fn(&str)>,
}

/// When a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// As the head of this file has it.
    Patiently,
    /// The same, unless the line broke after it had taken the body for [`UNMEASURED`]: that is [`ErrorKind::DeadlineExceeded`], as
    /// is the answer of a server that found it too slow. Less at a time may get through.
    UnlessSlow,
    /// Never: who sent it will ask again.
    Never,
}

/// A header of a request.
pub(crate) type Header = (HeaderName, HeaderValue);

impl Client {
    /// `server`: its address, without `/api/v1`. `ca_file`: a PEM file of certificates to trust instead of the system's.
    ///
    /// # Errors
    /// If one of them is not what it should be.
    pub(crate) fn new(server: &str, key: &str, ca_file: Option<&Path>) -> Result<Self> {
        let no_address = |why: &str| {
            Error::argument(format!("{server:?} is no address of a server{why}"))
                .hint("for example https://scenes.example.org")
        };
        let mut base = Url::parse(server).map_err(|e| no_address(&format!(" ({e})")))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(no_address(""));
        }
        base.set_query(None);
        base.set_fragment(None);
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        let mut key = HeaderValue::from_str(&format!("Api-Key {key}"))
            .map_err(|_| Error::argument("the API key has characters that no key has"))?;
        key.set_sensitive(true);
        // Whoever was first has chosen the same.
        let _ = ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            // The key goes to the server alone, not to where that redirects.
            .redirect(Policy::none())
            // There is no read timeout: it would count the time in which a body is sent, too.
            .connect_timeout(SILENCE)
            .user_agent(concat!("libreconstruct-command/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = ca_file {
            let text = std::fs::read(file).map_err(|e| Error::io("read", file, e))?;
            let wrong = |why: String| {
                Error::argument(format!("{} has no certificates to trust: {why}", file.display()))
                    .hint("--ca-file names a PEM file")
            };
            let certificates = Certificate::from_pem_bundle(&text).map_err(|e| wrong(e.to_string()))?;
            if certificates.is_empty() {
                return Err(wrong("no certificate stands in it".to_owned()));
            }
            http = http.tls_certs_only(certificates);
        }
        let http = http.build().map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot set up TLS: {}", innermost(&e))).caused_by(e)
        })?;
        Ok(Self { base, key, http, silence: SILENCE, told: Box::new(|_| {}) })
    }

    /// Tells `told`, in words for people, why a request takes longer.
    pub(crate) fn telling(self, told: impl Fn(&str) + 'static) -> Self {
        Self { told: Box::new(told), ..self }
    }

    /// Says why something takes longer.
    pub(crate) fn tell(&self, why: &str) {
        (self.told)(why);
    }

    /// The server's address.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A request of the interface, with the key; its answer as JSON.
    pub(crate) async fn api(
        &self,
        method: Method,
        path: &str,
        fields: Option<&Value>,
        headers: &[Header],
    ) -> Result<Value> {
        self.json(self.api_answer(method, path, fields, headers, Repeat::Patiently).await?).await
    }

    /// What is at a path of the interface, as JSON, for who will ask again whatever comes: nothing is repeated.
    pub(crate) async fn look(&self, path: &str) -> Result<Value> {
        self.json(self.api_answer(Method::GET, path, None, &[], Repeat::Never).await?).await
    }

    /// An answer of the interface as JSON.
    async fn json(&self, answer: Response) -> Result<Value> {
        let text = self.whole(not_moved(answer)?).await?;
        serde_json::from_slice(&text).map_err(|_| {
            let shown: String = String::from_utf8_lossy(&text).chars().take(80).collect();
            Error::new(ErrorKind::Internal, format!("the server's answer is no JSON: {shown:?}"))
                .hint(format!("is {} the address of a reconstruct server?", self.base()))
        })
    }

    async fn api_answer(
        &self,
        method: Method,
        path: &str,
        fields: Option<&Value>,
        headers: &[Header],
        repeat: Repeat,
    ) -> Result<Response> {
        let url = self.join(&format!("{}{API}{path}", self.base()))?;
        let mut all = headers.to_vec();
        all.push((AUTHORIZATION, self.key.clone()));
        let mut body = Bytes::new();
        if let Some(fields) = fields {
            body = fields.to_string().into();
            all.push((reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        self.exchange(method, &url, &all, repeat, &Sent::default(), || Ok(body.clone().into())).await
    }

    /// Where a redirect of the interface leads.
    pub(crate) async fn redirect(&self, path: &str) -> Result<Url> {
        let answer = self.api_answer(Method::GET, path, None, &[], Repeat::Patiently).await?;
        target(&answer).ok_or_else(|| {
            let status = answer.status();
            let message = format!("{path}: the server answers {status} where a redirect is expected");
            Error::new(ErrorKind::Internal, message)
        })
    }

    /// A file at any address, from where that redirects to if it does. No key goes along.
    pub(crate) async fn fetch(&self, mut url: Url, headers: &[Header]) -> Result<Response> {
        for _ in 0..=REDIRECTS {
            let (repeat, sent) = (Repeat::Patiently, Sent::default());
            let answer =
                self.exchange(Method::GET, &url, headers, repeat, &sent, || Ok(Body::default())).await?;
            match target(&answer) {
                Some(target) => url = target,
                None => return Ok(answer),
            }
        }
        let message = format!("a file was redirected {} times, at last to {}", REDIRECTS + 1, place(&url));
        Err(Error::new(ErrorKind::Io, message))
    }

    /// An address that the server gave.
    pub(crate) fn join(&self, url: &str) -> Result<Url> {
        self.base.join(url).map_err(|e| {
            Error::new(ErrorKind::Internal, format!("the server gave an address that is none ({e})"))
        })
    }

    /// A request to any address, as it is: the key only goes where the headers say so. `body` makes the body, as often as it has to
    /// be sent, and counts it in `sent` if it is a large one. Answers of 400 and above become errors, and so do redirects: nothing
    /// was done then.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &[Header],
        repeat: Repeat,
        sent: &Sent,
        body: impl Fn() -> Result<Body>,
    ) -> Result<Response> {
        not_moved(self.exchange(method, url, headers, repeat, sent, body).await?)
    }

    /// As [`send`](Self::send), but a redirect is an answer like another.
    async fn exchange(
        &self,
        method: Method,
        url: &Url,
        headers: &[Header],
        repeat: Repeat,
        sent: &Sent,
        body: impl Fn() -> Result<Body>,
    ) -> Result<Response> {
        let host = url.host_str().unwrap_or_default();
        let is_repeatable = headers.iter().any(|(name, _)| name == "idempotency-key");
        let retries = if repeat == Repeat::Never { 0 } else { RETRIES };
        let (mut attempt, mut waited) = (0, Duration::ZERO);
        loop {
            attempt += 1;
            sent.begin();
            let began = Instant::now();
            let request = self.http.request(method.clone(), url.clone());
            let request = request.headers(headers.iter().cloned().collect::<HeaderMap>()).body(body()?);
            let answer = match self.answered(request.send(), sent).await {
                Ok(answer) => answer,
                Err(failure) => {
                    let is_slow = sent.bytes() > 0 && began.elapsed() >= UNMEASURED;
                    if repeat == Repeat::UnlessSlow && is_slow {
                        let message = format!("the line to {host} is too slow for what was sent at once");
                        return Err(Error::new(ErrorKind::DeadlineExceeded, message));
                    }
                    if attempt > retries || failure.as_ref().is_some_and(is_of_a_certificate) {
                        return Err(match failure {
                            Some(error) => broken(host, &error),
                            None => silent(host, self.silence),
                        });
                    }
                    sleep(backoff(attempt)).await;
                    continue;
                }
            };
            let status = answer.status();
            if status.as_u16() < 400 {
                return Ok(answer);
            }
            let asked = retry_after(answer.headers());
            let pause = match status {
                // The server may still be at the submission whose answer was lost, to this process or to the one before.
                StatusCode::CONFLICT if is_repeatable => Some(backoff(attempt)),
                // It is there, and finds that it is asked too often.
                StatusCode::SERVICE_UNAVAILABLE
                    if repeat == Repeat::Never && asked.is_some_and(|asked| !asked.is_zero()) =>
                {
                    let why = self.refused(answer).await;
                    return Err(Error::new(ErrorKind::TooManyRequests, why.message().to_owned()));
                }
                // Of these a conflict is with something that has to end first: the server says when.
                StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
                    if asked.is_some_and(|asked| !asked.is_zero()) && repeat != Repeat::Never =>
                {
                    let pause = asked.unwrap_or_default();
                    waited = waited.saturating_add(pause);
                    if waited > LONGEST_WAIT {
                        return Err(self.refused(answer).await);
                    }
                    if pause >= TOLD_FROM {
                        self.tell(&format!("{host} is busy and asks to wait for {} s", pause.as_secs()));
                    }
                    // To be asked to wait is no failure.
                    attempt -= 1;
                    Some(pause)
                }
                StatusCode::CONFLICT => asked,
                StatusCode::BAD_GATEWAY
                | StatusCode::GATEWAY_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE => Some(backoff(attempt)),
                _ => None,
            };
            match pause {
                Some(pause) if attempt <= retries => sleep(pause).await,
                _ => return Err(self.refused(answer).await),
            }
        }
    }

    /// The answer to a request. An error without a cause: there was no sign of life for too long.
    async fn answered(
        &self,
        sending: impl Future<Output = reqwest::Result<Response>>,
        sent: &Sent,
    ) -> std::result::Result<Response, Option<reqwest::Error>> {
        let mut sending = std::pin::pin!(sending);
        loop {
            // In this order: after a sleep of the machine all three may be due.
            tokio::select! {
                biased;
                answer = &mut sending => return answer.map_err(Some),
                () = sent.more() => {}
                () = sleep(self.silence) => return Err(None),
            }
        }
    }

    /// The next piece of an answer's body; `None` at its end.
    pub(super) async fn chunk(&self, answer: &mut Response) -> Result<Option<Bytes>> {
        let next = timeout(self.silence, answer.chunk()).await;
        let host = answer.url().host_str().unwrap_or_default();
        match next {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(broken(host, &error)),
            Err(_) => Err(silent(host, self.silence)),
        }
    }

    /// The whole body of an answer.
    async fn whole(&self, mut answer: Response) -> Result<Bytes> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk(&mut answer).await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.into())
    }

    /// The error of an answer of 400 and above.
    async fn refused(&self, answer: Response) -> Error {
        let status = answer.status();
        let body: Value = match self.whole(answer).await {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(_) => Value::Null,
        };
        let error = match body["error"].as_str() {
            Some(message) => Error::new(kind_of_answer(status, &body), message.to_owned()),
            None => Error::new(kind_of_answer(status, &body), format!("the server answers {status}")),
        };
        match error.kind() {
            ErrorKind::Unauthenticated => {
                error.hint("the key may be mistyped or revoked, or of another server")
            }
            ErrorKind::TooManyRequests => error.hint("wait, then repeat the command"),
            _ => error,
        }
    }
}

/// Where an answer redirects to.
fn target(answer: &Response) -> Option<Url> {
    let location = answer.headers().get(LOCATION).filter(|_| answer.status().is_redirection())?;
    answer.url().join(location.to_str().ok()?).ok()
}

/// What may be shown of an address: what follows may be a permission.
fn place(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The answer, unless it is a redirect: of a request that has the key with it, or does something, that is not followed.
fn not_moved(answer: Response) -> Result<Response> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let what = match target(&answer) {
        Some(target) => format!("a redirect to {}", place(&target)),
        None => format!("the status {}", answer.status()),
    };
    Err(Error::new(ErrorKind::Io, format!("{} answers with {what}", place(answer.url())))
        .hint("give the address at which the server itself answers"))
}

/// About 0.2 seconds, 0.4, 0.8 and so on, not the same for all clients of a server that was away.
fn backoff(attempt: u32) -> Duration {
    let random = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
    let steps = 2f64.powi(attempt.min(16) as i32);
    Duration::from_secs_f64((0.1 * steps).min(10.0) * (0.8 + 0.4 * random))
}

/// How long `Retry-After` asks to wait, as a number or a point in time.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    Some(then.duration_since(SystemTime::now()).unwrap_or_default())
}

/// The connection failed, or broke.
fn broken(host: &str, error: &reqwest::Error) -> Error {
    // Only to connect has a time of its own.
    if error.is_timeout() {
        return silent(host, SILENCE);
    }
    failed(host, &innermost(error))
}

/// There was no sign of life for so long.
fn silent(host: &str, silence: Duration) -> Error {
    failed(host, &format!("no sign of life for {} seconds", silence.as_secs()))
}

fn failed(host: &str, why: &str) -> Error {
    Error::new(ErrorKind::Io, format!("the connection to {host} failed: {why}"))
        .hint("see whether the address is right and the server runs; the same command can be repeated")
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn is_of_a_certificate(error: &reqwest::Error) -> bool {
    error.is_connect() && innermost(error).contains("certificate")
}

/// What went wrong, seen from here. A fault of the server or of what is before it is none of this program: the server, or the way to
/// it, fails.
fn kind_of_answer(status: StatusCode, body: &Value) -> ErrorKind {
    if status.is_server_error() && !matches!(status.as_u16(), 501 | 507) {
        return ErrorKind::Io;
    }
    kind_of(body["code"].as_str().unwrap_or_default()).unwrap_or(match status.as_u16() {
        400 | 415 => ErrorKind::InvalidArgument,
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        404 => ErrorKind::NotFound,
        405 | 501 => ErrorKind::Unsupported,
        408 => ErrorKind::DeadlineExceeded,
        409 => ErrorKind::Conflict,
        413 => ErrorKind::TooLarge,
        422 => ErrorKind::IdempotencyMismatch,
        429 => ErrorKind::TooManyRequests,
        507 => ErrorKind::DiskFull,
        _ => ErrorKind::Internal,
    })
}

/// The kind of this name.
pub(crate) fn kind_of(slug: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| kind.slug() == slug)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::super::body::of_bytes;
    use super::*;

    #[test]
    fn what_is_no_address_is_named() {
        for bad in ["", "scenes.example.org", "ftp://scenes.example.org", "https://", "http://[::1"] {
            let error = Client::new(bad, "k", None).err().unwrap();
            assert!(error.message().contains(&format!("{bad:?} is no address of a server")), "{error}");
        }
        let client = Client::new("https://scenes.example.org/sub//", "k", None).unwrap();
        assert_eq!(client.base(), "https://scenes.example.org/sub");
    }

    #[test]
    fn a_server_that_fails_is_not_a_fault_of_this_program() {
        let kind = |status: u16, body: &str| {
            kind_of_answer(StatusCode::from_u16(status).unwrap(), &serde_json::from_str(body).unwrap())
        };
        for status in [500, 502, 503, 504, 520] {
            let kind = kind(status, r#"{"error": "Internal server error", "code": "internal"}"#);
            assert_eq!((kind, kind.exit_code()), (ErrorKind::Io, 6), "{status}");
        }
        assert_eq!(kind(501, "null"), ErrorKind::Unsupported);
        assert_eq!(kind(507, r#"{"error": "Insufficient storage"}"#), ErrorKind::DiskFull);
        assert_eq!(kind(404, "{}"), ErrorKind::NotFound);
        // Where the server says what it is, it knows better.
        assert_eq!(kind(400, r#"{"code": "invalid_media"}"#), ErrorKind::InvalidMedia);
    }

    #[test]
    fn retry_after_is_a_number_or_a_time() {
        let asked = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(20));
        assert!((15..=20).contains(&asked(&soon).unwrap().as_secs()));
        assert_eq!(asked("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("soon"), None);
        assert!(backoff(1) < backoff(3) && backoff(u32::MAX) <= Duration::from_secs(12));
    }

    /// The address of a server that reads `pace` bytes of a request every 10 milliseconds until it has `size`, then says `answer` and
    /// keeps the connection. Without a pace it never reads.
    async fn slow_server(size: usize, pace: usize, answer: &'static [u8]) -> Url {
        let socket = TcpSocket::new_v4().unwrap();
        // What lies in a buffer has gone out for the client, and is still to be read.
        socket.set_recv_buffer_size(512 << 10).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(16).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut left, mut piece) = (size, vec![0; pace]);
                while pace > 0 && left > 0 {
                    sleep(Duration::from_millis(10)).await;
                    match stream.read(&mut piece).await {
                        Ok(0) | Err(_) => break,
                        Ok(read) => left = left.saturating_sub(read),
                    }
                }
                if pace > 0 {
                    let _ = stream.write_all(answer).await;
                }
                kept.push(stream);
            }
        });
        url.parse().unwrap()
    }

    /// A client of the server at `url` that is not patient with silence.
    fn impatient(url: &Url) -> Client {
        let client = Client::new(url.as_str(), "k", None).unwrap();
        Client { silence: Duration::from_millis(500), ..client }
    }

    /// Sends so many bytes, once.
    async fn sent_once(client: &Client, url: &Url, size: usize) -> Result<Response> {
        let (bytes, sent) = (Bytes::from(vec![7; size]), Sent::default());
        let body = || Ok(of_bytes(bytes.clone(), &sent));
        client.send(Method::PUT, url, &[], Repeat::Never, &sent, body).await
    }

    #[tokio::test]
    async fn a_body_may_take_longer_than_silence() {
        // More than what buffers hold.
        let size = 32 << 20;
        let url = slow_server(size, 256 << 10, b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await;
        let (client, began) = (impatient(&url), Instant::now());
        assert_eq!(sent_once(&client, &url, size).await.unwrap().status(), StatusCode::CREATED);
        assert!(began.elapsed() > 2 * client.silence);
    }

    #[tokio::test]
    async fn silence_ends_a_request() {
        let url = slow_server(0, 0, b"").await;
        let (client, began) = (impatient(&url), Instant::now());
        let error = sent_once(&client, &url, 32 << 20).await.unwrap_err();
        assert!(error.message().contains("no sign of life"), "{error}");
        assert!((client.silence..10 * client.silence).contains(&began.elapsed()));
        // The answer may stop, too.
        let url = slow_server(1, 4096, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await;
        let error = impatient(&url).look("jobs/").await.unwrap_err();
        assert!(error.message().contains("no sign of life"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_minute_is_waited_for() {
        let url = slow_server(
            1,
            4096,
            b"HTTP/1.1 429 Busy\r\nretry-after: 60\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        let (tell, told) = mpsc::channel();
        let client = impatient(&url).telling(move |why| tell.send(why.to_owned()).unwrap());
        let asked = client.api(Method::GET, "jobs/", None, &[]);
        assert!(timeout(Duration::from_millis(300), asked).await.is_err(), "it waits");
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["127.0.0.1 is busy and asks to wait for 60 s"]);
        // Who asks again soon is told at once.
        assert_eq!(client.look("jobs/").await.unwrap_err().kind(), ErrorKind::TooManyRequests);
        // A server that is at a limit of its own is not away either.
        let url = slow_server(
            1,
            4096,
            b"HTTP/1.1 503 Busy\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        assert_eq!(impatient(&url).look("jobs/").await.unwrap_err().kind(), ErrorKind::TooManyRequests);
        let url = slow_server(
            1,
            4096,
            b"HTTP/1.1 429 Busy\r\nretry-after: 900\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        let refused = impatient(&url).api(Method::GET, "jobs/", None, &[]).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::TooManyRequests);
    }
}
