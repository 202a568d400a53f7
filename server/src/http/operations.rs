//! For the people who run the server: is it alive, is it ready, how busy is it, and what is its interface.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, VARY,
};
use hyper::{Response, StatusCode};
use libreconstruct::ErrorKind;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::body::ResponseBody;
use super::error::ApiError;
use super::exchange::Exchange;
use super::json as json_body;
use super::response::{Answer, response};

/// The process answers.
pub(crate) fn health() -> Answer {
    json_body::response(StatusCode::OK, &json!({ "status": "ok" }))
}

/// The database answers, the storage is that of its rows, and the server is not about to stop: send requests here.
pub(crate) async fn ready(exchange: &Exchange<'_>) -> Answer {
    if exchange.api.is_stopping() {
        return Err(ApiError::not_ready("Server is stopping"));
    }
    // Why, in full, was logged when it was found.
    if exchange.api.service().wrong_storage().is_some() {
        return Err(ApiError::wrong_storage());
    }
    // Any read will do; nobody has an empty name.
    let read = exchange.api.blocking(|service| match service.user_by_name("") {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    });
    match timeout(Duration::from_secs(2), read).await {
        Ok(Ok(())) => {
            // Requests are served as ever, also while workers wait. Why they do, in full, is for the operator's log.
            let paused = exchange.api.service().paused_workers();
            let boxed: Map<String, Value> = libreconstruct::video::containment()
                .into_iter()
                .map(|protection| (protection.name.to_owned(), protection.holds.into()))
                .collect();
            let answer = json!({ "status": "ready", "paused_workers": paused, "containment": boxed });
            json_body::response(StatusCode::OK, &answer)
        }
        Ok(Err(mut error)) => {
            let mut answer = ApiError::not_ready("Database does not answer");
            answer.detail = error.detail.take();
            Err(answer)
        }
        Err(_) => Err(ApiError::not_ready("Database does not answer")),
    }
}

/// Prometheus' text format, for this machine and the operators' networks. To others there is no such path (rule 90 of
/// docs/rest.md).
pub(crate) async fn metrics(exchange: &Exchange<'_>) -> Answer {
    let config = exchange.api.config();
    let (connection, proxies) = (&exchange.connection, &config.trusted_proxies);
    let address = connection.client(exchange.parts, proxies);
    let is_operator =
        address.is_loopback() || config.operators.iter().any(|network| network.contains(&address));
    if !config.metrics || !is_operator || connection.is_by_unknown_proxy(exchange.parts, proxies) {
        return Err(ApiError::no_route());
    }
    // To count all rows takes a while when there are many: however often somebody asks, it is done now and then.
    if exchange.api.statistics_are_due() {
        let statistics = exchange.api.stored(|service| service.statistics()).await?;
        super::metrics::record_statistics(&statistics);
    }
    ::metrics::gauge!("reconstruct_workers_paused").set(exchange.api.service().paused_workers().len() as f64);
    let mut response = Response::new(ResponseBody::from(exchange.api.metrics.render()));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// The description of the interface for programs.
pub(crate) fn open_api(exchange: &Exchange<'_>) -> Answer {
    let texts = exchange.api.description.texts(exchange.api.config().public_url.as_deref())?;
    let gzip = json_body::accepts_gzip(&exchange.parts.headers);
    let text = if gzip { &texts.gzip } else { &texts.plain };
    let mut response = response(StatusCode::OK, ResponseBody::shared(text.clone()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, json_body::JSON);
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// The same for people: one page that needs nothing from elsewhere.
pub(crate) fn docs(exchange: &Exchange<'_>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::shared(page_at(exchange.parts.uri.path())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    let policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}

/// The page with the address of the description seen from `path`, which a proxy may serve below another one.
fn page_at(path: &str) -> Bytes {
    const PAGE: &str = include_str!("docs.html");
    static BELOW: OnceLock<Bytes> = OnceLock::new();
    if !path.ends_with('/') {
        return Bytes::from_static(PAGE.as_bytes());
    }
    BELOW.get_or_init(|| PAGE.replace("\"openapi.json\"", "\"../openapi.json\"").into()).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_page_lead_to_the_description() {
        for (path, address) in [("/docs", "openapi.json"), ("/docs/", "../openapi.json")] {
            let page = page_at(path);
            let page = std::str::from_utf8(&page).unwrap();
            let named: Vec<&str> = page.split('"').filter(|text| text.ends_with("openapi.json")).collect();
            assert_eq!(named, [address, address], "{path}");
            // The script follows the second.
            assert!(page.contains(&format!("id=\"for-programs\" href=\"{address}\"")));
        }
    }
}
