//! What answers are made of.

use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};

use super::body::ResponseBody;
use super::error::ApiError;

/// What a handler returns.
pub(crate) type Answer = Result<Response<ResponseBody>, ApiError>;

/// An answer without headers of its own.
pub(crate) fn response(status: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// The value of a header that was made here, so that what cannot stand in a header is a fault of the server.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text).map_err(|e| ApiError::internal(format!("{text:?} is no header: {e}")))
}
