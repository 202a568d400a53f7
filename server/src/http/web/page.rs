//! What all pages have: their frame, and the headers that keep others out.
//!
//! Text goes into a page through `maud`, which escapes it; nothing else writes HTML.

use hyper::header::{
    ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY,
};
use hyper::{Response, StatusCode};
use libreconstruct::job::User;
use maud::{DOCTYPE, Markup, html};

use crate::http::api::Api;
use crate::http::body::ResponseBody;
use crate::http::error::ApiError;
use crate::http::response::{Answer, header_value, response};

/// What a page may do: show our style and pictures, run our scripts, ask and send to this server. The icon is an empty `data:` address,
/// so that no browser asks for one.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The same for a page with a viewer, whose script makes a worker of itself.
pub(super) const POLICY_WITH_VIEWER: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     worker-src blob:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// Whether a script of a page asks, which reads JSON; people read pages.
pub(crate) fn is_script(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|accepted| accepted == "application/json")
}

/// A page before it is sent.
pub(super) struct Page<'a> {
    pub(super) prefix: &'a str,
    pub(super) title: &'a str,
    /// Who is signed in.
    pub(super) user: Option<&'a User>,
    /// The path of the page, without the prefix, where the menu names it.
    pub(super) path: &'a str,
    /// A script of `web/`, if the page has a live part.
    pub(super) script: Option<&'a str>,
}

impl Page<'_> {
    /// The page with this content.
    pub(super) fn answer(&self, status: StatusCode, content: &Markup) -> Answer {
        Ok(sent(status, &self.around(content)))
    }

    fn around(&self, content: &Markup) -> Markup {
        let prefix = self.prefix;
        let current = |path: &str| (self.path == path).then_some("page");
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · reconstruct" }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href={ (prefix) "/web/style.css" };
                    @if let Some(script) = self.script {
                        script type="module" src={ (prefix) "/web/" (script) } {}
                    }
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        p.brand { "reconstruct" }
                        @if let Some(user) = self.user {
                            nav aria-label="Main" {
                                a href={ (prefix) "/scenes" } aria-current=[current("/scenes")] { "My scenes" }
                                a href={ (prefix) "/scenes/new" } aria-current=[current("/scenes/new")] { "New" }
                                a href={ (prefix) "/profile" } aria-current=[current("/profile")] { "Profile" }
                            }
                            form.sign-out method="post" action={ (prefix) "/sign-out" } {
                                span.who { (user.name) }
                                button { "Sign out" }
                            }
                        }
                    }
                    main id="content" { (content) }
                }
            }
        }
    }
}

fn sent(status: StatusCode, page: &Markup) -> Response<ResponseBody> {
    let mut response = response(status, page.0.clone().into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Leads the browser to the page at `path` with a GET.
pub(super) fn go_to(api: &Api, path: &str) -> Answer {
    let mut response = response(StatusCode::SEE_OTHER, ResponseBody::empty());
    response.headers_mut().insert(LOCATION, header_value(&format!("{}{path}", api.prefix()))?);
    Ok(response)
}

/// The page that says why a request was refused.
pub(crate) fn refused(api: &Api, error: ApiError) -> Response<ResponseBody> {
    let status = error.status;
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        status if status.is_server_error() => "The server has a problem",
        _ => "That did not work",
    };
    let prefix = api.prefix();
    let content = html! {
        h1 { (title) }
        p { (error.message) }
        p { a href={ (prefix) "/" } { "To the first page" } }
    };
    let page = Page { prefix, title, user: None, path: "", script: None };
    let mut response = sent(status, &page.around(&content));
    for (name, value) in error.headers.iter() {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

/// Adds what keeps other sites out to whatever the web application answers. Unless it says otherwise nobody keeps a copy.
pub(crate) fn protect(response: &mut Response<ResponseBody>) {
    let headers = response.headers_mut();
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    // Neither a title nor the token of an invitation goes elsewhere with a click.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        // For browsers that do not know frame-ancestors.
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}
