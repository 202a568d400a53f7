//! Spans on their way to a collector of OpenTelemetry: OTLP over HTTP in its JSON form, which every collector takes on port 4318.
//!
//! A request belongs to the trace that its `traceparent` names, or to a new one. A job is a trace of its own, whose id is the
//! job's: so a worker on another machine continues it without a word in the queue, and the request that submitted the job links
//! to its first attempt. Nobody waits for a collector: what it does not take in time is dropped and counted.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::Uri;
use hyper::header::HeaderMap;
use libreconstruct::job::JobId;
use libreconstruct::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Spans that wait: at a kilobyte each some megabytes at most. A busy server makes a thousand a second.
const WAITING: usize = 4096;
/// Spans in one message: the default of OpenTelemetry's own exporters.
const TOGETHER: usize = 512;
/// How long a span waits for others, as long as those of OpenTelemetry's own exporters.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a collector may take for a message.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is said that the collector does not answer.
const COMPLAIN: Duration = Duration::from_secs(60);

/// A trace's id.
pub(crate) type TraceId = [u8; 16];
/// A span's id.
pub(crate) type SpanId = [u8; 8];

/// On whose behalf a span is, in OTLP's numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A part of something.
    Internal = 1,
    /// A request.
    Server = 2,
    /// Something that waited in a queue.
    Consumer = 5,
}

/// Something that was done, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) trace: TraceId,
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) link: Option<(TraceId, SpanId)>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) since: SystemTime,
    pub(crate) until: SystemTime,
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) failed: bool,
}

/// On their way.
enum Message {
    Span(Box<Span>),
    /// All that came before is to be sent now; then this is dropped.
    Flush(SyncSender<()>),
}

static SENDER: OnceLock<SyncSender<Message>> = OnceLock::new();

/// Where a collector is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    host: String,
    port: u16,
    path: String,
}

impl Collector {
    /// Reads `http://host:port`, with a path if it is behind one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for another address.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::argument(format!("otlp_endpoint is {text:?}: http://host:4318 is expected"))
                .hint("spans go over plain HTTP: let a collector on this machine or beside it do TLS and authentication")
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let plain = uri.scheme_str() == Some("http") && uri.query().is_none();
        let host = uri.host().filter(|_| plain).ok_or_else(wrong)?;
        let path = format!("{}/v1/traces", uri.path().trim_end_matches('/'));
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(4318),
            path,
        })
    }
}

/// Starts to send spans to the collector at `address`.
///
/// # Errors
/// As for [`Collector::parse`]; [`ErrorKind::Io`] if no thread can be started.
pub(super) fn start(address: &str) -> Result<()> {
    let collector = Collector::parse(address)?;
    let (sender, receiver) = sync_channel(WAITING);
    if SENDER.set(sender).is_ok() {
        let work = move || work(&collector, &receiver);
        std::thread::Builder::new().name("traces".into()).spawn(work).map_err(|e| {
            Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}")).caused_by(e)
        })?;
    }
    Ok(())
}

/// Whether anybody wants spans.
pub(crate) fn are_wanted() -> bool {
    SENDER.get().is_some()
}

/// Sends a span, if anybody wants it and there is room.
pub(crate) fn send(span: impl FnOnce() -> Span) {
    if let Some(sender) = SENDER.get()
        && sender.try_send(Message::Span(Box::new(span()))).is_err()
    {
        metrics::counter!("reconstruct_spans_dropped_total").increment(1);
    }
}

/// Sends what waits, before the process ends; as long as a message may take.
pub(crate) fn flush() {
    let Some(sender) = SENDER.get() else { return };
    let (done, ended) = sync_channel(1);
    if sender.send(Message::Flush(done)).is_ok() {
        let _ = ended.recv_timeout(TIMEOUT);
    }
}

/// The trace of a job.
pub(crate) fn trace_of(job: JobId) -> TraceId {
    // A job's id is a random UUID: 32 hexadecimal digits between hyphens.
    let digits: String = job.to_string().chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
}

/// The span of a part of an attempt at a job: who knows the job knows it.
pub(crate) fn span_of(job: JobId, attempt: u32, part: &str) -> SpanId {
    let hash = Sha256::digest(format!("{job}/{attempt}/{part}"));
    let mut id = [0; 8];
    id.copy_from_slice(&hash[..8]);
    id
}

/// The trace, and the span in it that caused this, as the header `traceparent` says; a new one without. Nothing if who began the
/// trace does not want it recorded.
pub(crate) fn context(headers: &HeaderMap) -> Option<(TraceId, Option<SpanId>)> {
    match headers.get("traceparent").and_then(|value| parent(value.to_str().ok()?)) {
        Some((trace, span, true)) => Some((trace, Some(span))),
        Some((.., false)) => None,
        None => Some((*Uuid::new_v4().as_bytes(), None)),
    }
}

/// A new span's id.
pub(crate) fn new_span() -> SpanId {
    let mut id = [0; 8];
    id.copy_from_slice(&Uuid::new_v4().as_bytes()[..8]);
    id
}

/// Reads `00-TRACE-SPAN-FLAGS` (W3C Trace Context); the last says whether it is recorded.
fn parent(text: &str) -> Option<(TraceId, SpanId, bool)> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, digits: usize| {
        let plain =
            text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        u128::from_str_radix(text, 16).ok().filter(|_| plain)
    };
    let (_, flags) = (hex(version, 2).filter(|version| *version != 0xff)?, hex(flags, 2)?);
    let (trace, span) = (hex(trace, 32).filter(|id| *id != 0)?, hex(span, 16).filter(|id| *id != 0)?);
    Some((trace.to_be_bytes(), u64::try_from(span).ok()?.to_be_bytes(), flags & 1 == 1))
}

/// Collects spans and sends them, until the process ends.
fn work(collector: &Collector, spans: &Receiver<Message>) {
    let mut complained: Option<Instant> = None;
    loop {
        let (mut together, mut flushed) = (vec![], None);
        let mut end: Option<Instant> = None;
        while together.len() < TOGETHER {
            // Without a span there is nothing to wait with.
            let rest = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            match spans.recv_timeout(rest.min(Duration::from_secs(3600))) {
                Ok(Message::Span(span)) => {
                    together.push(span);
                    end.get_or_insert_with(|| Instant::now() + PATIENCE);
                }
                Ok(Message::Flush(done)) => {
                    flushed = Some(done);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if !together.is_empty() {
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        if !together.is_empty()
            && let Err(error) = post(collector, &message(&together))
        {
            metrics::counter!("reconstruct_spans_dropped_total").increment(together.len() as u64);
            if complained.is_none_or(|when| when.elapsed() >= COMPLAIN) {
                complained = Some(Instant::now());
                let (host, port) = (&collector.host, collector.port);
                tracing::warn!(%error, spans = together.len(), "the collector of traces at {host}:{port} did not take spans");
            }
        }
        drop(flushed);
    }
}

/// `ExportTraceServiceRequest`, in the JSON form of OTLP: ids as hexadecimal digits, large numbers as text.
fn message(spans: &[Box<Span>]) -> Value {
    let spans: Vec<Value> = spans.iter().map(|span| one(span)).collect();
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "reconstruct"),
            text("service.version", libreconstruct::VERSION),
            text("service.instance.id", &std::process::id().to_string()),
        ]},
        "scopeSpans": [{ "scope": { "name": "reconstruct" }, "spans": spans }],
    }]})
}

fn one(span: &Span) -> Value {
    let nanos = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }))
        .collect();
    let mut value = json!({
        "traceId": hex(&span.trace), "spanId": hex(&span.id), "name": span.name, "kind": span.kind as u8,
        "startTimeUnixNano": nanos(span.since), "endTimeUnixNano": nanos(span.until), "attributes": attributes,
        "status": { "code": if span.failed { 2 } else { 0 } },
    });
    if let Some(parent) = &span.parent {
        value["parentSpanId"] = hex(parent).into();
    }
    if let Some((trace, id)) = &span.link {
        value["links"] = json!([{ "traceId": hex(trace), "spanId": hex(id) }]);
    }
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a message, and waits until the collector has it.
fn post(collector: &Collector, message: &Value) -> io::Result<()> {
    let body = message.to_string();
    let Collector { host, port, path } = collector;
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    let mut connection = None;
    for address in (host.as_str(), *port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(made) => {
                connection = Some(made);
                break;
            }
            Err(error) => failed = error,
        }
    }
    let mut connection = connection.ok_or(failed)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    let name = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {name}:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes())?;
    connection.write_all(body.as_bytes())?;
    let mut status = String::new();
    BufReader::new(connection).read_line(&mut status)?;
    match status.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=299) => Ok(()),
        _ => Err(io::Error::other(format!("it answered {:?}", status.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_as_the_standard_has_it() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, span, recorded) = parent(good).unwrap();
        assert_eq!(
            (hex(&trace), hex(&span)),
            ("4bf92f3577b34da6a3ce929d0e0e4736".into(), "00f067aa0ba902b7".into())
        );
        assert!(recorded && !parent(&good.replace("-01", "-00")).unwrap().2);
        let zeros = "0".repeat(32);
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            &format!("00-{zeros}-00f067aa0ba902b7-01"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert!(parent(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_job_is_its_trace() {
        let job: JobId = "0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70".parse().unwrap();
        assert_eq!(hex(&trace_of(job)), "0d8bbd3c3e2c4b5a9d3f2f4e3a1b9c70");
        assert_eq!(span_of(job, 1, "sfm"), span_of(job, 1, "sfm"));
        assert_ne!(span_of(job, 1, "sfm"), span_of(job, 2, "sfm"));
    }

    #[test]
    fn collectors_are_named_by_plain_addresses() {
        let read = |text: &str| Collector::parse(text).map(|c| (c.host, c.port, c.path));
        assert_eq!(read("http://otel:4318").unwrap(), ("otel".into(), 4318, "/v1/traces".into()));
        assert_eq!(read("http://[::1]/x/").unwrap(), ("::1".into(), 4318, "/x/v1/traces".into()));
        for bad in ["https://otel:4318", "otel:4318", "", "http://otel/?a=b"] {
            assert!(read(bad).unwrap_err().message().contains("otlp_endpoint"), "{bad}");
        }
    }
}
