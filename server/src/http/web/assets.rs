//! The style and the scripts of the pages: plain files in the program, as they are written.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

use crate::http::body::ResponseBody;
use crate::http::error::ApiError;
use crate::http::response::{Answer, response};
use crate::http::view;

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
/// Five minutes: a new version of the program is seen soon, and a page does not ask for it each time.
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// A file of the pages.
pub(super) fn get(name: &str) -> Answer {
    let (content_type, text) = match name {
        "style.css" => (STYLE, include_str!("style.css")),
        "archive.js" => (SCRIPT, include_str!("archive.js")),
        "new_scene.js" => (SCRIPT, include_str!("new_scene.js")),
        "copy.js" => (SCRIPT, include_str!("copy.js")),
        "passkeys.js" => (SCRIPT, include_str!("passkeys.js")),
        "profile.js" => (SCRIPT, include_str!("profile.js")),
        "scene.js" => (SCRIPT, include_str!("scene.js")),
        "viewer.js" => (SCRIPT, view::SCRIPT),
        "scenes.js" => (SCRIPT, include_str!("scenes.js")),
        _ => return Err(ApiError::no_route()),
    };
    let body = ResponseBody::shared(Bytes::from_static(text.as_bytes()));
    let mut response = response(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, CACHE);
    Ok(response)
}
