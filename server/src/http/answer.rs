//! One request, from its arrival to its line in the log.
//!
//! A request is checked in this order (rule 11 of docs/rest.md): route and method; then, under `/api/v1`, the key, the
//! tier, the rate limit, the parameters of the path and whether the job exists. So nobody without a key learns which
//! jobs exist.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use hyper::body::{Body, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use libreconstruct::job::ArtifactKind;
use uuid::Uuid;

use super::api::Api;
use super::body::ResponseBody;
use super::client::Connection;
use super::error::ApiError;
use super::exchange::{Exchange, Facts};
use super::route::Route;
use super::{
    artifacts, blob, cors, drain, jobs, json, operations, report, submit, uploads, view, web, webhooks,
};
use crate::telemetry::traces::{self, Kind, Span};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers a request. Whatever happens there is an answer, and a line in the log.
pub(crate) async fn answer(
    api: &Arc<Api>,
    connection: Connection,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let request_id = request_id(api, &connection, &parts);
    let has_pages = api.config().web;
    let route = Route::of(parts.uri.path()).filter(|route| has_pages || !matches!(route, Route::Web(_)));
    let exchange = Exchange { api, parts: &parts, connection, facts: Facts::default() };
    let mut asked = Asked { exchange, route, request_id, started, is_answered: false };

    let answered = catch_panic(dispatch(&mut asked.exchange, route, body)).await;
    let result = answered.and_then(|mut response| {
        json::compress(&parts.headers, &mut response);
        hold(&asked.exchange, response)
    });
    let mut detail = None;
    let mut response = result.unwrap_or_else(|mut error| {
        detail = error.detail.take();
        let mut refused = match route {
            Some(Route::Web(_)) if !web::is_script(&parts.headers) => web::refused(api, error),
            _ => refuse(api, error, &asked.request_id),
        };
        json::compress(&parts.headers, &mut refused);
        refused
    });
    if let Some(Route::Web(_)) = route {
        web::protect(&mut response);
    }
    cors::allow_origin(api, &parts, route, &mut response);
    complete(api, &parts, &asked.request_id, &mut response);

    asked.is_answered = true;
    asked.note(response.status(), detail.as_deref());
    response
}

/// A request until it is answered. It is dropped when its client hangs up before that, and is noted all the same: what it asked for may
/// be done nevertheless.
struct Asked<'a> {
    exchange: Exchange<'a>,
    route: Option<Route<'a>>,
    request_id: HeaderValue,
    started: Instant,
    is_answered: bool,
}

impl Asked<'_> {
    /// Counts the request and writes its lines.
    fn note(&self, status: StatusCode, detail: Option<&str>) {
        let Exchange { api, parts, connection, facts } = &self.exchange;
        let took = self.started.elapsed();
        let client = connection.client(parts, &api.config().trusted_proxies);
        record(parts, self.route, status, took);
        trace(parts, self.route, status, &self.request_id, facts, took);
        log(parts, self.route, status, &self.request_id, client, facts, took, detail);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // As other servers have it; nobody is answered with it.
            self.note(StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST), None);
        }
    }
}

async fn dispatch(
    exchange: &mut Exchange<'_>,
    route: Option<Route<'_>>,
    body: Incoming,
) -> Result<Response<ResponseBody>, ApiError> {
    let method = &exchange.parts.method;
    match route {
        Some(Route::Job { job_id }) if method == Method::PATCH => jobs::update(exchange, job_id, body).await,
        Some(Route::GenerateUploadUrl) if method == Method::POST => uploads::generate(exchange, body).await,
        Some(Route::Restart { job_id }) if method == Method::POST => {
            submit::restart(exchange, job_id, body).await
        }
        Some(Route::SubmitJob) if method == Method::POST => submit::submit(exchange, body).await,
        Some(Route::Webhooks) if method == Method::POST => webhooks::add(exchange, body).await,
        Some(Route::Blob { name }) if method == Method::PUT => blob::put(exchange, name, body).await,
        Some(Route::Blob { name }) if method == Method::PATCH => blob::patch(exchange, name, body).await,
        Some(route @ Route::Web(page)) if method == Method::POST && route.allows(method) => {
            web::act(exchange, page, body).await
        }
        // No other request needs a body. A client that sends one all the same still gets its answer.
        route => {
            drain::discard(body);
            dispatch_without_body(exchange, route).await
        }
    }
}

async fn dispatch_without_body(
    exchange: &mut Exchange<'_>,
    route: Option<Route<'_>>,
) -> Result<Response<ResponseBody>, ApiError> {
    let parts = exchange.parts;
    let method = &parts.method;
    if method == Method::OPTIONS && parts.uri.path() == "*" {
        return Ok(options("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    let Some(route) = route else { return Err(ApiError::no_route()) };
    if method == Method::OPTIONS {
        let mut response = options(route.allow());
        cors::preflight(exchange.api, parts, route, &mut response);
        return if matches!(route, Route::Blob { .. } | Route::Tus { .. }) {
            blob::options(exchange.api, response)
        } else {
            Ok(response)
        };
    }
    let refused = || ApiError::method_not_allowed(route.allow());
    if !route.allows(method) {
        return Err(refused());
    }
    match route {
        Route::Jobs => jobs::list(exchange).await,
        Route::Job { job_id } if method == Method::DELETE => jobs::delete(exchange, job_id).await,
        Route::Job { job_id } => jobs::get(exchange, job_id).await,
        Route::Download { job_id, file_type } => artifacts::download(exchange, job_id, file_type).await,
        Route::Report { job_id } => report::get(exchange, job_id).await,
        Route::Cancel { job_id } => jobs::cancel(exchange, job_id).await,
        Route::Preview { job_id } => artifacts::preview(exchange, job_id).await,
        Route::Webhooks => webhooks::list(exchange).await,
        Route::Webhook { webhook_id } if method == Method::DELETE => {
            webhooks::remove(exchange, webhook_id).await
        }
        Route::Webhook { webhook_id } => webhooks::get(exchange, webhook_id).await,
        Route::Deliveries { webhook_id } => webhooks::deliveries(exchange, webhook_id).await,
        Route::Replay { webhook_id, delivery_id } => {
            webhooks::replay(exchange, webhook_id, delivery_id).await
        }
        Route::Blob { name } if method == Method::DELETE => blob::delete(exchange, name).await,
        Route::Tus { name } if method == Method::POST => blob::begin_tus(exchange, name).await,
        Route::Blob { name } => blob::get(exchange, name).await,
        Route::View { job_id } => view::page(exchange, job_id).await,
        Route::ViewCamera { job_id } => view::camera(exchange, job_id).await,
        Route::ViewScene { job_id } => view::file(exchange, job_id, ArtifactKind::Spz).await,
        Route::ViewFirst { job_id } => view::file(exchange, job_id, ArtifactKind::FirstLook).await,
        Route::ViewPreview { job_id } => view::file(exchange, job_id, ArtifactKind::Preview).await,
        // OPTIONS was answered above, and POST, which has a body, before that.
        Route::GenerateUploadUrl | Route::SubmitJob | Route::Restart { .. } | Route::Tus { .. } => {
            Err(refused())
        }
        Route::Health => operations::health(),
        Route::Ready => operations::ready(exchange).await,
        Route::Metrics => operations::metrics(exchange).await,
        Route::OpenApi => operations::open_api(exchange),
        Route::Docs => Ok(operations::docs(exchange)),
        Route::Web(page) => web::show(exchange, page).await,
    }
}

/// Turns a panic of `work` into an answer: the connection and the server go on.
async fn catch_panic<T>(work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // What was borrowed is dropped with the future; shared state is behind locks that recover.
        catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)))
            .unwrap_or_else(|_| Poll::Ready(Err(ApiError::internal("a handler panicked"))))
    })
    .await
}

/// The id under which the log knows the request: that of a trusted proxy, or a new one.
fn request_id(api: &Api, connection: &Connection, parts: &Parts) -> HeaderValue {
    let by_proxy = api.config().trusted_proxies.contains(&connection.peer.ip().to_canonical());
    let plain = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=64).contains(&bytes.len())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    if let Some(id) = parts.headers.get(&REQUEST_ID).filter(|_| by_proxy).filter(plain) {
        return id.clone();
    }
    let id = Uuid::new_v4().to_string();
    HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("-"))
}

/// Counts the memory of an answer until it is taken; if too much is not taken already, there is none.
fn hold(
    exchange: &Exchange<'_>,
    mut response: Response<ResponseBody>,
) -> Result<Response<ResponseBody>, ApiError> {
    // A HEAD is sent no body. What others have done must not look as if it were not done, and what they are told is short.
    if exchange.parts.method == Method::GET
        && let ResponseBody::Whole(bytes) = response.body_mut()
    {
        *bytes = exchange.api.bodies.hold(exchange.taker(), std::mem::take(bytes))?;
    }
    Ok(response)
}

/// The body of an error: `error` alone, with more if the operator wants it (rule 9).
fn refuse(api: &Api, error: ApiError, request_id: &HeaderValue) -> Response<ResponseBody> {
    let mut body = serde_json::json!({ "error": error.message });
    if api.config().error_details {
        body["code"] = error.code.into();
        body["request_id"] = request_id.to_str().unwrap_or("").into();
    }
    let mut response = Response::new(ResponseBody::from(body.to_string()));
    *response.status_mut() = error.status;
    *response.headers_mut() = *error.headers;
    response.headers_mut().insert(CONTENT_TYPE, json::JSON);
    response
}

fn options(allow: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// What every answer has.
fn complete(api: &Api, parts: &Parts, request_id: &HeaderValue, response: &mut Response<ResponseBody>) {
    let status = response.status();
    let length = response.body().size_hint().exact();
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id.clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_a_host_of_tls(api.config().public_url.as_deref().unwrap_or_default()) {
        // Browsers do without plain HTTP then, also where somebody types the address.
        headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    // A copy in a cache would hide what has changed since (rule 77).
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let has_length = status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if let Some(length) = length.filter(|_| has_length) {
        // The answer to the HEAD of a file has its length already.
        headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    if parts.method == Method::HEAD {
        *response.body_mut() = ResponseBody::empty();
    }
}

/// Whether a public address says that its host is reached by TLS. With a port of its own others may be at the same host, who would
/// be cut off: a browser takes the promise for all ports.
fn is_a_host_of_tls(public_url: &str) -> bool {
    let host = public_url.strip_prefix("https://").and_then(|rest| rest.split('/').next());
    // The last colon of a number in brackets is no port.
    host.is_some_and(|host| !host.rsplit(']').next().unwrap_or_default().contains(':'))
}

/// The method of a request for counts, spans and lines; one that is none of ours is as long and as manifold as its client likes. Its word
/// is that of OpenTelemetry.
fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "_OTHER",
    }
}

/// Counts the request for `/metrics`.
fn record(parts: &Parts, route: Option<Route<'_>>, status: StatusCode, took: Duration) {
    let route = route.map_or("other", Route::template);
    let method = method_name(&parts.method);
    let status = status.as_u16().to_string();
    metrics::counter!("reconstruct_http_requests_total", "route" => route, "method" => method, "status" => status)
        .increment(1);
    metrics::histogram!("reconstruct_http_request_seconds", "route" => route).record(took.as_secs_f64());
}

/// A span for a collector, if there is one.
fn trace(
    parts: &Parts,
    route: Option<Route<'_>>,
    status: StatusCode,
    request_id: &HeaderValue,
    facts: &Facts,
    took: Duration,
) {
    // What asks whether the server lives would drown all else.
    let is_probe = matches!(route, Some(Route::Health | Route::Ready | Route::Metrics));
    if !traces::are_wanted() || is_probe {
        return;
    }
    let Some((trace, parent)) = traces::context(&parts.headers) else { return };
    let (method, route_name) = (method_name(&parts.method), route.map_or("other", Route::template));
    let submitted = facts.job.filter(|_| matches!(route, Some(Route::SubmitJob)));
    let until = SystemTime::now();
    traces::send(|| Span {
        trace,
        id: traces::new_span(),
        parent,
        link: submitted.map(|job| (traces::trace_of(job), traces::span_of(job, 1, "attempt"))),
        name: format!("{method} {route_name}"),
        kind: Kind::Server,
        since: until.checked_sub(took).unwrap_or(until),
        until,
        attributes: vec![
            ("http.request.method", method.to_owned()),
            ("http.route", route_name.to_owned()),
            ("http.response.status_code", status.as_u16().to_string()),
            ("request_id", request_id.to_str().unwrap_or_default().to_owned()),
            ("user", facts.user.map(|user| user.to_string()).unwrap_or_default()),
            ("job", facts.job.map(|job| job.to_string()).unwrap_or_default()),
        ],
        failed: status.is_server_error(),
    });
}

/// One line for each request; polls that went well at level debug. Changes go to the target `audit` too. Neither has queries
/// (signatures), bodies or titles.
fn log(
    parts: &Parts,
    route: Option<Route<'_>>,
    status: StatusCode,
    request_id: &HeaderValue,
    client: IpAddr,
    facts: &Facts,
    took: Duration,
    detail: Option<&str>,
) {
    let request_id = request_id.to_str().unwrap_or("");
    let status = status.as_u16();
    let method = method_name(&parts.method);
    if let Some(detail) = detail {
        tracing::error!(target: "access", request_id, detail, "request failed");
    }
    let safe = parts.method.is_safe();
    let user = facts.user.as_ref().map(tracing::field::display);
    let key = facts.key_prefix.as_deref();
    let job = facts.job.as_ref().map(tracing::field::display);
    // A path can be anything that somebody sends; its template cannot.
    let path =
        route.map_or_else(|| parts.uri.path().chars().take(200).collect(), |r| r.template().to_owned());
    let milliseconds = took.as_secs_f64() * 1e3;
    macro_rules! line {
        ($level:ident, $target:literal, $text:literal) => {
            tracing::$level!(target: $target, request_id, method, path, status, milliseconds, %client, user, key, job, $text)
        };
    }
    if safe && status < 400 {
        line!(debug, "access", "request");
    } else {
        line!(info, "access", "request");
    }
    if (!safe || route.is_some_and(Route::gives_file)) && facts.user.is_some() {
        line!(info, "audit", "action");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_host_promises_for_all_of_it() {
        for url in ["https://scenes.example.org", "https://example.org/scans/", "https://[2001:db8::1]/"] {
            assert!(is_a_host_of_tls(url), "{url}");
        }
        for url in ["", "http://example.org", "https://example.org:8443/", "https://[2001:db8::1]:8443"] {
            assert!(!is_a_host_of_tls(url), "{url}");
        }
    }

    #[test]
    fn a_method_of_somebody_s_own_has_no_name() {
        for own in ["get", "PROPFIND", "CONNECT", "TRACE", &"A".repeat(10_000)] {
            assert_eq!(method_name(&own.parse().unwrap()), "_OTHER", "{own}");
        }
        for ours in [Method::GET, Method::HEAD, Method::PATCH, Method::OPTIONS] {
            assert_eq!(method_name(&ours), ours.as_str());
        }
    }

    #[tokio::test]
    async fn a_panic_becomes_an_answer() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let error = catch_panic(async {
            tokio::task::yield_now().await;
            if true {
                panic!("broken");
            }
            Ok(())
        })
        .await
        .unwrap_err();
        std::panic::set_hook(hook);
        assert_eq!(error.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
