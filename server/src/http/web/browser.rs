//! The browser that asks: whether its line is private, whether the page that sent a form is ours, and its cookie.

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{COOKIE, HeaderValue, ORIGIN, USER_AGENT};
use libreconstruct::service::Site;

use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::network::network;
use crate::http::response::header_value;

/// The browser keeps a cookie of this name to this host and to lines that are private (RFC 6265bis, section 4.1.3.2).
const COOKIE_NAME: &str = "__Host-session";
/// The same while somebody is elsewhere to sign in.
const WAY_COOKIE: &str = "__Host-way";
/// As long as a session can be, seconds; that it has ended earlier is looked up.
const COOKIE_SECONDS: u64 = 30 * 24 * 3600;

/// The token of the session that the browser says it has.
pub(super) fn token<'a>(exchange: &Exchange<'a>) -> Option<&'a str> {
    cookie(exchange, COOKIE_NAME)
}

/// What the browser was given when it went elsewhere to sign in.
pub(super) fn kept_for_the_way<'a>(exchange: &Exchange<'a>) -> Option<&'a str> {
    cookie(exchange, WAY_COOKIE)
}

fn cookie<'a>(exchange: &Exchange<'a>, wanted: &str) -> Option<&'a str> {
    let headers = &exchange.parts.headers;
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value)
}

/// Has the browser keep `token`, away from scripts and from other sites.
pub(super) fn keep(token: &str) -> Result<HeaderValue, ApiError> {
    let cookie =
        format!("{COOKIE_NAME}={token}; Path=/; Max-Age={COOKIE_SECONDS}; Secure; HttpOnly; SameSite=Lax");
    let mut value = header_value(&cookie)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Has the browser forget it.
pub(super) fn forget() -> HeaderValue {
    HeaderValue::from_static("__Host-session=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax")
}

/// Has the browser keep `token` until it comes back from where it signs in, a quarter of an hour at most. `Lax` lets it come back with
/// it: from another site, by a link.
pub(super) fn keep_for_the_way(token: &str) -> Result<HeaderValue, ApiError> {
    let mut value =
        header_value(&format!("{WAY_COOKIE}={token}; Path=/; Max-Age=900; Secure; HttpOnly; SameSite=Lax"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Has the browser forget it.
pub(super) fn forget_the_way() -> HeaderValue {
    HeaderValue::from_static("__Host-way=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax")
}

/// What the browser calls itself.
pub(super) fn agent(exchange: &Exchange<'_>) -> String {
    let agent = exchange.parts.headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    String::from_utf8_lossy(agent).into_owned()
}

/// Where the request comes from, as far as tries to sign in are counted.
pub(super) fn address(exchange: &Exchange<'_>) -> IpAddr {
    network(exchange.connection.client(exchange.parts, &exchange.api.config().trusted_proxies))
}

/// Refuses what a page of another site has sent with our cookie: browsers say where a request comes from. One that says nothing is
/// refused, too; all of the last years do.
///
/// # Errors
/// 403.
pub(super) fn check_same_origin(exchange: &Exchange<'_>) -> Result<(), ApiError> {
    let headers = &exchange.parts.headers;
    let is_ours = match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => {
            let config = exchange.api.config();
            let as_reached = exchange.connection.base(exchange.parts, &config.trusted_proxies);
            let given = config.public_url.as_deref().map(origin_of);
            headers.get(ORIGIN).and_then(|value| value.to_str().ok()).is_some_and(|origin| {
                origin.eq_ignore_ascii_case(&as_reached)
                    || given.is_some_and(|given| origin.eq_ignore_ascii_case(given))
            })
        }
    };
    if is_ours {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "cross_origin",
        "This was not sent by a page of this server. Go back to the page and try again there.",
    ))
}

/// Scheme, host and port of the pages: as the operator says, else as they were reached.
pub(super) fn origin(exchange: &Exchange<'_>) -> String {
    origin_of(&exchange.api.base(&exchange.connection, exchange.parts)).to_ascii_lowercase()
}

/// Scheme, host and port of an address.
fn origin_of(address: &str) -> &str {
    let host = address.find("://").map_or(0, |at| at + 3);
    let rest = address.get(host..).unwrap_or_default();
    let end = rest.find('/').map_or(address.len(), |at| host + at);
    address.get(..end).unwrap_or(address)
}

/// Whether nobody in between can read what is sent: TLS, also in front of a proxy, or this machine itself. Browsers tell only those
/// servers where a request comes from whose line they think private, so that this shows a proxy that was not named.
pub(super) fn has_private_line(exchange: &Exchange<'_>) -> bool {
    let base = exchange.api.base(&exchange.connection, exchange.parts);
    exchange.parts.headers.contains_key("sec-fetch-site")
        || base.starts_with("https://")
        || is_this_machine(&exchange.connection.base(exchange.parts, &[]))
}

/// Whether an address is one by which a machine calls itself.
fn is_this_machine(base: &str) -> bool {
    let host = base.split("://").nth(1).unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// Where the page is, if browsers have passkeys there: at a name, not at a number, and over lines that nobody else reads.
pub(super) fn site(exchange: &Exchange<'_>) -> Option<Site> {
    site_of(origin(exchange))
}

fn site_of(origin: String) -> Option<Site> {
    let (scheme, host) = origin.split_once("://")?;
    // A number of IPv6 stands in brackets.
    let host = host.split(':').next().filter(|host| !host.is_empty() && !host.starts_with('['))?;
    let is_number = host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    let is_private = scheme == "https" || host == "localhost" || host.ends_with(".localhost");
    let host = host.to_owned();
    (!is_number && is_private).then_some(Site { origin, host })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_the_beginning_of_an_address() {
        for (address, origin) in [
            ("https://a.example", "https://a.example"),
            ("https://a.example/", "https://a.example"),
            ("https://a.example:8443/scenes/", "https://a.example:8443"),
            ("http://[::1]:8080/x", "http://[::1]:8080"),
        ] {
            assert_eq!(origin_of(address), origin);
        }
    }

    #[test]
    fn a_machine_calls_itself_by_few_names() {
        for base in [
            "http://localhost",
            "http://localhost:8080",
            "http://127.0.0.1:80",
            "http://127.8.0.1",
            "http://[::1]:8080",
        ] {
            assert!(is_this_machine(base), "{base}");
        }
        for base in [
            "http://192.168.0.2:8080",
            "http://localhost.example.org",
            "http://[2001:db8::1]:80",
            "",
            "http://127.0.0.1.example.org",
        ] {
            assert!(!is_this_machine(base), "{base}");
        }
    }

    #[test]
    fn the_cookie_is_for_this_host_alone() {
        let kept = keep("ab").unwrap();
        for value in [kept.to_str().unwrap(), forget().to_str().unwrap()] {
            assert!(value.starts_with("__Host-session="));
            for part in ["; Path=/;", "; Secure;", "; HttpOnly;", "; SameSite=Lax"] {
                assert!(value.contains(part), "{value}");
            }
            assert!(!value.contains("Domain"));
        }
        assert!(!format!("{kept:?}").contains("ab"));
    }

    #[test]
    fn browsers_have_passkeys_for_names_over_private_lines() {
        for (origin, host) in [
            ("https://scenes.example.org", Some("scenes.example.org")),
            ("https://scenes.example.org:8443", Some("scenes.example.org")),
            ("http://localhost:8080", Some("localhost")),
            ("http://a.localhost", Some("a.localhost")),
            ("http://scenes.example.org", None),
            ("https://192.0.2.1", None),
            ("http://127.0.0.1:8080", None),
            ("https://[2001:db8::1]:8443", None),
            ("https://", None),
            ("nonsense", None),
        ] {
            let site = site_of(origin.to_owned());
            assert_eq!(site.as_ref().map(|site| site.host.as_str()), host, "{origin}");
            assert!(site.is_none_or(|site| site.origin == origin));
        }
    }
}
