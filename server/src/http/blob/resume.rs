//! Uploads that go on after a break (rule 100 of docs/rest.md): as the IETF's drafts have it, and as tus 1.0 has it for clients
//! that speak that. The signed address is what both call the upload: HEAD says how much has come, PATCH adds to its end, DELETE forgets
//! it.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use libreconstruct::job::BlobName;
use libreconstruct::service::{Appended, Appending, Arrived, UploadFacts};

use super::super::api::Api;
use super::super::artifacts::now;
use super::super::body::ResponseBody;
use super::super::drain::{discard, or_drain};
use super::super::error::ApiError;
use super::super::exchange::Exchange;
use super::super::response::{Answer, header_value, response};
use super::super::{file_name, route};
use super::intake;
use super::upload::{created, facts};

const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
const UPLOAD_LIMIT: HeaderName = HeaderName::from_static("upload-limit");
const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");

const TUS_1: HeaderValue = HeaderValue::from_static("1.0.0");

/// What the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// draft-ietf-httpbis-resumable-upload.
    Ietf,
    /// tus 1.0: its requests say so.
    Tus,
}

impl Protocol {
    fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        match headers.get(TUS_RESUMABLE) {
            None => Ok(Self::Ietf),
            Some(version) if *version == TUS_1 => Ok(Self::Tus),
            Some(version) => {
                let text = format!("Tus-Resumable is {version:?}: this server speaks 1.0.0");
                let error = ApiError::new(StatusCode::PRECONDITION_FAILED, "invalid_request", text);
                Err(error.with_header(TUS_VERSION, TUS_1))
            }
        }
    }

    /// The type of what is added to an upload.
    fn media_type(self) -> &'static str {
        match self {
            Self::Ietf => "application/partial-upload",
            Self::Tus => "application/offset+octet-stream",
        }
    }

    /// Without a type it is taken for the right one: the first drafts had none.
    fn check_media_type(self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(given) = headers.get(CONTENT_TYPE) else { return Ok(()) };
        let given = given.to_str().unwrap_or_default();
        let essence = given.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(self.media_type()) {
            return Ok(());
        }
        let wanted = self.media_type();
        let text = format!("Content-Type is {given:?}: it must be {wanted}");
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", text)
            .with_header(ACCEPT_PATCH, HeaderValue::from_static(wanted)))
    }
}

/// What a request says of the transfer that it is.
struct Said {
    protocol: Protocol,
    offset: Option<u64>,
    /// Whether its end is that of the video.
    is_last: Option<bool>,
    /// Bytes of the whole video.
    length: Option<u64>,
}

impl Said {
    fn in_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        Ok(Self {
            protocol: Protocol::of(headers)?,
            offset: number(headers, &UPLOAD_OFFSET)?,
            is_last: boolean(headers, &UPLOAD_COMPLETE)?,
            length: number(headers, &UPLOAD_LENGTH)?,
        })
    }
}

/// A whole number as structured fields have it: at most 15 digits.
fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let digits = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(Some(number)),
        _ => Err(ApiError::bad_request(format!("{name} is {value:?}: it must be a number of bytes"))),
    }
}

fn boolean(headers: &HeaderMap, name: &HeaderName) -> Result<Option<bool>, ApiError> {
    match headers.get(name).map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"?1") => Ok(Some(true)),
        Some(b"?0") => Ok(Some(false)),
        Some(_) => Err(ApiError::bad_request(format!("{name} must be ?1, or ?0 if more is to come"))),
    }
}

/// Whether a PUT begins an upload that can go on after a break.
pub(super) fn is_creation(headers: &HeaderMap) -> bool {
    headers.contains_key(UPLOAD_COMPLETE)
}

/// Says how much has come.
pub(super) async fn show(exchange: &Exchange<'_>, name: BlobName) -> Answer {
    let protocol = Protocol::of(&exchange.parts.headers)?;
    let arrived = exchange.api.stored(move |service| service.arrived(&name)).await?;
    let status = match protocol {
        Protocol::Ietf => StatusCode::NO_CONTENT,
        Protocol::Tus => StatusCode::OK,
    };
    let mut answer = response(status, ResponseBody::empty());
    describe(exchange.api, protocol, &arrived, answer.headers_mut())?;
    Ok(answer)
}

/// Forgets what has come and is not complete.
pub(super) async fn forget(exchange: &Exchange<'_>, name: BlobName) -> Answer {
    let protocol = Protocol::of(&exchange.parts.headers)?;
    exchange.api.stored(move |service| service.forget_arrived(&name)).await?;
    let mut answer = response(StatusCode::NO_CONTENT, ResponseBody::empty());
    if protocol == Protocol::Tus {
        answer.headers_mut().insert(TUS_RESUMABLE, TUS_1);
    }
    Ok(answer)
}

/// Adds to the end of an upload.
pub(super) async fn append(exchange: &Exchange<'_>, name: BlobName, body: Incoming) -> Answer {
    let headers = &exchange.parts.headers;
    let said = Said::in_headers(headers).and_then(|said| {
        said.protocol.check_media_type(headers)?;
        let offset = said.offset.ok_or_else(|| missing(&UPLOAD_OFFSET))?;
        let is_last = match said.protocol {
            Protocol::Ietf => said.is_last.ok_or_else(|| missing(&UPLOAD_COMPLETE))?,
            // Its length says where the video ends.
            Protocol::Tus => false,
        };
        Ok((said, Some(offset), is_last))
    });
    let ((said, offset, is_last), body) = or_drain(said, body)?;
    transfer(exchange, name, &said, offset, is_last, body).await
}

/// Begins an upload anew, with its first bytes or with all.
pub(super) async fn create(exchange: &Exchange<'_>, name: BlobName, body: Incoming) -> Answer {
    let said = Said::in_headers(&exchange.parts.headers);
    let (said, body) = or_drain(said, body)?;
    let is_last = said.is_last.unwrap_or(true);
    transfer(exchange, name, &said, None, is_last, body).await
}

/// Begins an upload anew, without any of its bytes, for a client of tus.
pub(super) async fn begin_tus(exchange: &Exchange<'_>, name: BlobName) -> Answer {
    let (api, headers) = (exchange.api, &exchange.parts.headers);
    if Protocol::of(headers)? != Protocol::Tus {
        let text = "Tus-Resumable is missing: this address is for clients of tus 1.0.0";
        let error = ApiError::new(StatusCode::PRECONDITION_FAILED, "invalid_request", text);
        return Err(error.with_header(TUS_VERSION, TUS_1));
    }
    let length = number(headers, &UPLOAD_LENGTH)?;
    if length.is_none() && headers.get(UPLOAD_DEFER_LENGTH).is_none_or(|value| value != "1") {
        return Err(ApiError::bad_request("Upload-Length is missing, or Upload-Defer-Length: 1"));
    }
    let file_name = match tus_file_name(headers)? {
        None => file_name::of_upload(headers),
        named => named,
    };
    let facts = UploadFacts { file_name, size: Some(0), ..UploadFacts::default() };
    let begun = api.stored(move |service| service.append_anew(&name, length, facts)?.finish(false)).await;
    let arrived = begun.map_err(|error| limited(api, error))?;
    let mut answer = begun_at(exchange)?;
    describe(api, Protocol::Tus, &arrived, answer.headers_mut())?;
    Ok(answer)
}

/// The name in `Upload-Metadata`: pairs of a key and a value in base64, between commas.
fn tus_file_name(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(metadata) = headers.get(UPLOAD_METADATA) else { return Ok(None) };
    let pairs =
        metadata.to_str().unwrap_or_default().split(',').filter_map(|pair| pair.trim().split_once(' '));
    let Some((_, value)) = pairs.into_iter().find(|(key, _)| *key == "filename") else { return Ok(None) };
    let bytes = STANDARD.decode(value.trim()).map_err(|_| {
        ApiError::bad_request(format!("Upload-Metadata: filename is {value:?}, which is not base64"))
    })?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Takes the bytes from `offset` on, or from the first one of an upload that begins anew.
async fn transfer(
    exchange: &Exchange<'_>,
    name: BlobName,
    said: &Said,
    offset: Option<u64>,
    is_last: bool,
    body: Incoming,
) -> Answer {
    let api = exchange.api;
    let facts = facts(exchange, &body).map_err(|error| limited(api, error));
    let (facts, body) = or_drain(facts, body)?;
    let owner = api.quick(|service| service.upload_owner(&name)).await;
    let (place, body) = or_drain(owner.and_then(|user| api.transfers.begin(user)), body)?;
    let last_byte = facts.size.filter(|_| is_last).map(|size| offset.unwrap_or(0).saturating_add(size));
    let length = said.length.or(last_byte);
    let begun = api.stored(move |service| match offset {
        Some(offset) => service.append(&name, offset, length, facts),
        None => service.append_anew(&name, length, facts).map(|begun| Appended::Begun(Box::new(begun))),
    });
    let begun = begun.await.map_err(|error| limited(api, error));
    let (begun, body) = or_drain(begun, body)?;
    let arrived = match begun {
        Appended::Begun(appending) => {
            let api = Arc::clone(api);
            // When the client goes away this answer is dropped; what it has sent is stored all the same.
            let task = tokio::spawn(async move {
                let _place = place;
                bring(&api, body, appending, is_last).await
            });
            let brought =
                task.await.map_err(|error| ApiError::internal(format!("a transfer ended: {error}")))?;
            brought.map_err(|error| limited(exchange.api, error))?
        }
        Appended::Elsewhere(arrived) => {
            // Whoever did not get the last answer may ask again.
            let is_nothing = body.is_end_stream();
            discard(body);
            if !(arrived.is_complete && is_nothing && offset == Some(arrived.bytes)) {
                return Err(elsewhere(api, said.protocol, &arrived));
            }
            arrived
        }
    };
    let mut answer = match (&arrived.tag, said.protocol) {
        (Some(tag), Protocol::Ietf) => created(tag)?,
        _ if offset.is_some() => response(StatusCode::NO_CONTENT, ResponseBody::empty()),
        _ => begun_at(exchange)?,
    };
    describe(api, said.protocol, &arrived, answer.headers_mut())?;
    Ok(answer)
}

/// Takes the body; what came before it was cut off, or before the server stops, is stored.
async fn bring(
    api: &Arc<Api>,
    body: Incoming,
    appending: Box<Appending>,
    is_last: bool,
) -> Result<Arrived, ApiError> {
    let superseded = appending.superseded();
    // As long as the server only says that it will stop, the transfer may come to its end.
    let leave = || match superseded.is_cancelled() {
        true => Some(replaced()),
        false => api.waits.have_ended().then(stopping),
    };
    let (mut appending, ended) = intake::take_in(body, *appending, Some(&leave)).await?;
    match ended {
        Ok(()) => api.ended(move |_| appending.finish(is_last)).await,
        Err(error) => {
            api.ended(move |_| appending.store().map(drop)).await?;
            Err(error)
        }
    }
}

/// What is told to who is hardly there any more.
fn replaced() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "conflict", "Another transfer goes on with this upload")
}

/// 503 for a sender for whom this server cannot wait: it goes on with another one, or with this after its next start.
fn stopping() -> ApiError {
    ApiError::not_ready("Server is stopping: what has come is kept")
        .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
}

/// 201 with the address that the client knows.
fn begun_at(exchange: &Exchange<'_>) -> Result<Response<ResponseBody>, ApiError> {
    let base = exchange.api.base(&exchange.connection, exchange.parts);
    let path = exchange.parts.uri.path_and_query().map_or("", |path| path.as_str());
    let path = path
        .strip_prefix(route::TUS)
        .map_or(Cow::Borrowed(path), |rest| format!("{}{rest}", route::BLOB).into());
    let mut answer = response(StatusCode::CREATED, ResponseBody::empty());
    answer.headers_mut().insert(LOCATION, header_value(&format!("{base}{path}"))?);
    Ok(answer)
}

/// 409, with the place from which the client is to go on.
fn elsewhere(api: &Api, protocol: Protocol, arrived: &Arrived) -> ApiError {
    let bytes = arrived.bytes;
    let text = match arrived.is_complete {
        true => format!("The upload is complete, with {bytes} bytes"),
        false => format!("The upload has {bytes} bytes: go on from there"),
    };
    let mut error = ApiError::new(StatusCode::CONFLICT, "conflict", text);
    match describe(api, protocol, arrived, &mut error.headers) {
        Ok(()) => error,
        Err(fault) => fault,
    }
}

fn missing(name: &HeaderName) -> ApiError {
    ApiError::bad_request(format!("{name} is missing"))
}

/// Says with a 413 how much there may be.
fn limited(api: &Api, error: ApiError) -> ApiError {
    match header_value(&max_size(api)) {
        Ok(limit) if error.status == StatusCode::PAYLOAD_TOO_LARGE => error.with_header(UPLOAD_LIMIT, limit),
        _ => error,
    }
}

fn max_size(api: &Api) -> String {
    format!("max-size={}", api.service().limits().max_upload_bytes)
}

/// How much has come, in headers.
fn describe(
    api: &Api,
    protocol: Protocol,
    arrived: &Arrived,
    headers: &mut HeaderMap,
) -> Result<(), ApiError> {
    headers.insert(UPLOAD_OFFSET, arrived.bytes.into());
    if let Some(length) = arrived.length {
        headers.insert(UPLOAD_LENGTH, length.into());
    }
    match protocol {
        Protocol::Ietf => {
            let complete = if arrived.is_complete { "?1" } else { "?0" };
            headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static(complete));
            let expiry = u64::try_from(arrived.expires_at.as_micros() / 1_000_000).unwrap_or(0);
            let left = expiry.saturating_sub(now());
            headers.insert(UPLOAD_LIMIT, header_value(&format!("{}, max-age={left}", max_size(api)))?);
        }
        Protocol::Tus => {
            headers.insert(TUS_RESUMABLE, TUS_1);
            if arrived.length.is_none() {
                headers.insert(UPLOAD_DEFER_LENGTH, HeaderValue::from_static("1"));
            }
        }
    }
    Ok(())
}

/// Says to who asks for the options of an address what it can do.
pub(super) fn offer(api: &Api, headers: &mut HeaderMap) -> Result<(), ApiError> {
    headers.insert(ACCEPT_PATCH, HeaderValue::from_static(Protocol::Ietf.media_type()));
    headers.insert(UPLOAD_LIMIT, header_value(&max_size(api))?);
    headers.insert(TUS_RESUMABLE, TUS_1);
    headers.insert(TUS_VERSION, TUS_1);
    headers.insert(TUS_EXTENSION, HeaderValue::from_static("creation,creation-defer-length,termination"));
    headers.insert(TUS_MAX_SIZE, api.service().limits().max_upload_bytes.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn rule_100_numbers_and_booleans_are_read_or_refused() {
        let read = |value| Said::in_headers(&with("upload-offset", value)).map(|said| said.offset);
        assert_eq!(read("0").unwrap(), Some(0));
        assert_eq!(read("999999999999999").unwrap(), Some(999_999_999_999_999));
        for wrong in ["", "-1", "+1", "1.0", "1, 1", "0x1", "one", "1000000000000000"] {
            assert_eq!(read(wrong).unwrap_err().status, StatusCode::BAD_REQUEST, "{wrong}");
        }
        let read = |value| Said::in_headers(&with("upload-complete", value)).map(|said| said.is_last);
        assert_eq!((read("?1").unwrap(), read("?0").unwrap()), (Some(true), Some(false)));
        for wrong in ["", "1", "true", "?2", "?1, ?0"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rule_100_the_name_of_a_file_as_tus_has_it() {
        let name = |value| tus_file_name(&with("upload-metadata", value));
        assert_eq!(name("size MTI=,filename Z2FyZGVuLm1wNA==,flag").unwrap().as_deref(), Some("garden.mp4"));
        for without in ["", ",", " ", "filename", "name Zm9v", "Filename Zm9v"] {
            assert_eq!(name(without).unwrap(), None, "{without}");
        }
        assert!(name("filename no base64!").is_err());
    }

    #[test]
    fn rule_100_each_protocol_has_its_type() {
        let tus = Protocol::of(&with("tus-resumable", "1.0.0")).unwrap();
        assert_eq!((tus, Protocol::of(&HeaderMap::new()).unwrap()), (Protocol::Tus, Protocol::Ietf));
        let old = Protocol::of(&with("tus-resumable", "0.2.2")).unwrap_err();
        assert_eq!(old.status, StatusCode::PRECONDITION_FAILED);
        let partial = with("content-type", "application/partial-upload; x=y");
        assert!(Protocol::Ietf.check_media_type(&partial).is_ok() && tus.check_media_type(&partial).is_err());
        assert!(Protocol::Ietf.check_media_type(&HeaderMap::new()).is_ok());
        assert!(Protocol::Ietf.check_media_type(&with("content-type", "video/mp4")).is_err());
    }
}
