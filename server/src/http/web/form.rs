//! What a form sends.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};

use crate::http::error::ApiError;
use crate::http::json;

/// The fields of a form, in the order in which they were sent.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a body; at most as much as one of JSON may have.
    ///
    /// # Errors
    /// 415 for what no form sends, 413, 408.
    pub(super) async fn read(headers: &HeaderMap, body: Incoming) -> Result<Self, ApiError> {
        Ok(Self::of(&json::collect(check_type(headers), body).await?))
    }

    /// The fields in a body.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// The value of a field; empty if it was not sent. The last one counts: a box that is ticked follows the hidden field that says
    /// what it means if it is not.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().rfind(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Whether a field was sent, were it empty.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let value =
        headers.get(CONTENT_TYPE).map_or(Cow::Borrowed(""), |v| String::from_utf8_lossy(v.as_bytes()));
    let media_type = value.split(';').next().unwrap_or("").trim();
    if media_type.is_empty() || media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "Content-Type must be application/x-www-form-urlencoded",
    ))
}
