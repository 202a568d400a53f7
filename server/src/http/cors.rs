//! Pages of other origins may upload and download from a browser if the operator names the origins (rule 33 of
//! docs/rest.md). By default none may.

use hyper::Response;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue,
    ORIGIN, VARY,
};
use hyper::http::request::Parts;

use super::api::Api;
use super::body::ResponseBody;
use super::route::Route;

/// The headers of answers that a page may read.
const EXPOSED: &str = "ETag, Content-Length, Content-Range, Location, X-Request-Id, Upload-Offset, Upload-Complete, \
                       Upload-Length, Upload-Limit, Upload-Defer-Length, Tus-Resumable, Tus-Version, Tus-Max-Size, Tus-Extension";

/// The origin of the request if it may use the blob route, which needs no key; nothing else is open to other origins.
fn permitted<'a>(api: &Api, parts: &'a Parts, route: Option<Route<'_>>) -> Option<&'a HeaderValue> {
    let origin = parts.headers.get(ORIGIN)?;
    let named = api.config().cors_origins.iter().any(|o| o == "*" || o.as_bytes() == origin.as_bytes());
    (named && matches!(route, Some(Route::Blob { .. } | Route::Tus { .. }))).then_some(origin)
}

/// Lets the browser read the answer.
pub(crate) fn allow_origin(
    api: &Api,
    parts: &Parts,
    route: Option<Route<'_>>,
    response: &mut Response<ResponseBody>,
) {
    if let Some(origin) = permitted(api, parts, route) {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let exposed = HeaderValue::from_static(EXPOSED);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// Answers the question that a browser asks before an upload.
pub(crate) fn preflight(api: &Api, parts: &Parts, route: Route<'_>, response: &mut Response<ResponseBody>) {
    if permitted(api, parts, Some(route)).is_some() {
        let headers = response.headers_mut();
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, HEAD, PUT, POST, PATCH, DELETE"),
        );
        if let Some(asked) = parts.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}
