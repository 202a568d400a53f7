//! JSON in and out: bodies of requests with their limits, bodies of answers with their compression.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY};
use hyper::{HeaderMap, Response, StatusCode};
use libreconstruct::job::UniqueJson;
use serde_json::{Map, Value};

use super::body::ResponseBody;
use super::drain::or_drain;
use super::error::ApiError;
use super::response::Answer;

/// Largest JSON body of a request (rule 8 of docs/rest.md).
const MAX_BYTES: usize = 64 * 1024;
/// The whole body must have come by then, even if it keeps trickling in.
const DEADLINE: Duration = Duration::from_secs(10);
/// Answers up to this size are not compressed (rule 12).
pub(crate) const COMPRESS_ABOVE: usize = 1024;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Reads the body of a request as a JSON object; an empty one is an object without fields.
pub(crate) async fn read_options<B>(headers: &HeaderMap, body: B) -> Result<Map<String, Value>, ApiError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let bytes = read_bytes(headers, body).await?;
    if bytes.is_empty() { Ok(Map::new()) } else { parse_object(&bytes) }
}

/// Reads the body of a request as a JSON object.
pub(crate) async fn read_object<B>(headers: &HeaderMap, body: B) -> Result<Map<String, Value>, ApiError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    parse_object(&read_bytes(headers, body).await?)
}

async fn read_bytes<B>(headers: &HeaderMap, body: B) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    collect(check_type(headers), body).await
}

/// Reads a body if `known` is good; no more than [`MAX_BYTES`], and no longer than [`DEADLINE`].
pub(crate) async fn collect<B>(known: Result<(), ApiError>, body: B) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let too_large = || ApiError::too_large(format!("Request body is larger than {MAX_BYTES} bytes"));
    let fits = body.size_hint().lower() <= MAX_BYTES as u64;
    let known = known.and(if fits { Ok(()) } else { Err(too_large()) });
    let ((), mut body) = or_drain(known, body)?;
    let whole = match tokio::time::timeout(DEADLINE, Limited::new(&mut body, MAX_BYTES).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(ApiError::bad_request("Request body could not be read")),
        Err(_) => Err(ApiError::timeout("Request body did not arrive in time")),
    };
    // Who is refused may still be sending.
    let (bytes, _) = or_drain(whole, body)?;
    Ok(bytes)
}

/// Rule 6: a missing type or `application/json`, with or without a charset.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let unsupported = |message: &'static str| {
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
    };
    if let Some(value) = headers.get(CONTENT_TYPE) {
        let media_type = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
        if !media_type.is_empty() && !media_type.eq_ignore_ascii_case("application/json") {
            return unsupported("Content-Type must be application/json");
        }
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => unsupported("Content-Encoding is not supported"),
        _ => Ok(()),
    }
}

/// Rule 7: one message for everything that is no JSON object, with the place of the fault.
fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let wrong = |why: String| ApiError::bad_request(format!("Request body is not valid JSON: {why}"));
    match serde_json::from_slice(bytes) {
        Ok(UniqueJson(Value::Object(object))) => Ok(object),
        Ok(_) => Err(wrong("expected an object".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// An answer with `value` as its body.
pub(crate) fn response(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    let bytes =
        serde_json::to_vec(value).map_err(|e| ApiError::internal(format!("cannot serialise: {e}")))?;
    let mut response = super::response::response(status, bytes.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

/// Whether the client takes gzip (RFC 9110 §12.5.3).
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING);
    accepted.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        let refused = parts.any(|p| {
            p.strip_prefix("q=").is_some_and(|q| q.trim().parse::<f32>().map_or(true, |q| q <= 0.0))
        });
        name.eq_ignore_ascii_case("gzip") && !refused
    })
}

/// The same bytes, compressed.
pub(crate) fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Compresses a whole JSON body where that is worth it and the client takes it (rule 12).
pub(crate) fn compress(request: &HeaderMap, response: &mut Response<ResponseBody>) {
    if response.headers().get(CONTENT_TYPE) != Some(&JSON)
        || response.headers().contains_key(CONTENT_ENCODING)
    {
        return;
    }
    let ResponseBody::Whole(bytes) = response.body() else { return };
    if bytes.len() <= COMPRESS_ABOVE {
        return;
    }
    let compressed = accepts_gzip(request).then(|| gzip(bytes).ok()).flatten();
    if let Some(compressed) = compressed {
        *response.body_mut() = compressed.into();
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    fn refused(text: &str) -> String {
        let error = parse_object(text.as_bytes()).unwrap_err();
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        error.message.into_owned()
    }

    #[test]
    fn rule_7_what_is_no_json_object() {
        for text in ["", "{", "[]", "\"a\"", "nul", "{\"a\": NaN}", "{\"a\": 1e999}", "{\"a\":1}x", "{'a':1}"]
        {
            assert!(refused(text).starts_with("Request body is not valid JSON: "), "{text}");
        }
        assert!(parse_object(b"{\"a\": \"\xff\"}").is_err());
        assert!(refused("{\"a\": 1, \"a\": 2}").contains("duplicate key \"a\""));
        assert!(refused("{\"b\": [{\"a\": 1, \"\\u0061\": 2}]}").contains("duplicate key \"a\""));
        assert!(refused(&"[".repeat(100_000)).contains("recursion"));
    }

    #[test]
    fn numbers_and_nesting_are_kept() {
        let text = r#"{"a": [1, -2, 2.5, 1e6, true, null, "x"], "b": {"a": {}}}"#;
        let object = parse_object(text.as_bytes()).unwrap();
        assert_eq!(Value::Object(object), serde_json::from_str::<Value>(text).unwrap());
    }

    async fn read(content_type: Option<&str>, bytes: usize) -> Result<Map<String, Value>, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        }
        let text = format!("{{\"a\": \"{}\"}}", "x".repeat(bytes - 9));
        assert_eq!(text.len(), bytes);
        read_object(&headers, Full::new(Bytes::from(text))).await
    }

    #[tokio::test]
    async fn rule_6_types_of_bodies() {
        for right in [None, Some("application/json"), Some("Application/JSON; charset=utf-8")] {
            assert!(read(right, 20).await.is_ok(), "{right:?}");
        }
        for wrong in ["application/x-www-form-urlencoded", "text/plain", "application/json5"] {
            let error = read(Some(wrong), 20).await.unwrap_err();
            assert_eq!(error.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{wrong}");
        }
    }

    #[tokio::test]
    async fn rule_8_the_largest_body() {
        assert!(read(None, MAX_BYTES).await.is_ok());
        assert_eq!(read(None, MAX_BYTES + 1).await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn gzip_is_for_those_who_ask() {
        let headers = |text: &str| HeaderMap::from_iter([(ACCEPT_ENCODING, text.parse().unwrap())]);
        assert!(accepts_gzip(&headers("gzip, deflate, br")));
        assert!(accepts_gzip(&headers("br;q=1.0, gzip;q=0.5")));
        assert!(!accepts_gzip(&headers("gzip;q=0")));
        assert!(!accepts_gzip(&headers("br")));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
