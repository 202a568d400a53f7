//! A video comes in, whole or in blocks (rules 23 to 32 of docs/rest.md).

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, RETRY_AFTER};
use libreconstruct::CancelToken;
use libreconstruct::job::{BlobName, UserId};
use libreconstruct::service::{Service, UploadFacts};
use tokio::time::timeout;

use super::super::body::ResponseBody;
use super::super::drain::or_drain;
use super::super::error::ApiError;
use super::super::exchange::Exchange;
use super::super::response::{Answer, header_value, response};
use super::super::shares::Share;
use super::super::{digest, file_name};
use super::{block_list, intake};

/// A list of 50,000 blocks with ids of 64 bytes fits.
const BLOCK_LIST_BYTES: usize = 8 << 20;
/// A list of blocks must be here by then.
const BLOCK_LIST_DEADLINE: Duration = Duration::from_secs(60);

/// What a PUT carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole video.
    Whole,
    /// One block of it (`comp=block`).
    Block { id: String },
    /// The list of its blocks (`comp=blocklist`).
    BlockList,
}

impl Part {
    /// By Azure's parameters; others are ignored.
    pub(super) fn of(query: &str) -> Result<Self, ApiError> {
        let find = |wanted: &str| {
            form_urlencoded::parse(query.as_bytes())
                .find(|(name, _)| name == wanted)
                .map(|(_, v)| v.into_owned())
        };
        match find("comp").as_deref() {
            None => Ok(Self::Whole),
            Some("block") => match find("blockid") {
                Some(id) if (1..=128).contains(&id.len()) => Ok(Self::Block { id }),
                _ => Err(ApiError::bad_request("blockid must have 1 to 128 characters")),
            },
            Some("blocklist") => Ok(Self::BlockList),
            Some(_) => Err(ApiError::bad_request("comp must be block or blocklist")),
        }
    }
}

/// Refuses what says by its `Content-Range` that it is a part: stored as it is, it would take the place of the whole (RFC 9110,
/// section 14.5). `size` is that of the body, if it is announced.
pub(super) fn check_is_whole(headers: &HeaderMap, size: Option<u64>) -> Result<(), ApiError> {
    let whole = size.filter(|size| *size > 0).map(|size| format!("bytes 0-{}/{size}", size - 1));
    let is_whole = |range: &[u8]| whole.as_ref().is_some_and(|w| range.eq_ignore_ascii_case(w.as_bytes()));
    match headers.get_all(CONTENT_RANGE).iter().find(|range| !is_whole(range.as_bytes())) {
        None => Ok(()),
        Some(range) => Err(ApiError::bad_request(format!(
            "Content-Range is {range:?}: a PUT is the whole video; a part is sent with PATCH and Upload-Offset"
        ))),
    }
}

pub(super) async fn receive(exchange: &Exchange<'_>, name: BlobName, part: Part, body: Incoming) -> Answer {
    let (facts, body) = or_drain(facts(exchange, &body), body)?;
    let owner = exchange.api.quick(|service| service.upload_owner(&name)).await;
    let place = owner.and_then(|user| exchange.api.transfers.begin(user));
    let (place, body) = or_drain(place, body)?;
    if part == Part::BlockList {
        return commit(exchange, name, facts, body, place).await;
    }
    let begun = match part {
        Part::Block { id } => exchange.api.stored(move |service| service.put_block(&name, &id, facts)).await,
        _ => exchange.api.stored(move |service| service.begin_upload(&name, facts)).await,
    };
    let (writer, body) = or_drain(begun, body)?;
    let (writer, ended) = intake::take_in(body, writer, None).await?;
    // One that has not come whole leaves nothing (rule 30).
    ended?;
    let etag = exchange.api.ended(move |_| writer.finish()).await?;
    created(&etag)
}

/// What the request says of its body. What is too large is refused before a byte of it is read (rule 28).
pub(super) fn facts(exchange: &Exchange<'_>, body: &Incoming) -> Result<UploadFacts, ApiError> {
    let limit = exchange.api.service().limits().max_upload_bytes;
    if body.size_hint().lower() > limit {
        return Err(ApiError::too_large(format!("The video is larger than {limit} bytes")));
    }
    let expected = digest::expected(&exchange.parts.headers)?;
    Ok(UploadFacts {
        file_name: file_name::of_upload(&exchange.parts.headers),
        size: body.size_hint().exact(),
        md5: expected.md5,
        sha256: expected.sha256,
    })
}

/// Puts the blocks together. `place` is that of the transfer.
async fn commit(
    exchange: &Exchange<'_>,
    name: BlobName,
    mut facts: UploadFacts,
    mut body: Incoming,
    place: Share<UserId>,
) -> Answer {
    let whole = timeout(BLOCK_LIST_DEADLINE, Limited::new(&mut body, BLOCK_LIST_BYTES).collect()).await;
    let whole = match whole {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(_)) => Err(ApiError::bad_request("The list of blocks could not be read")),
        Err(_) => Err(ApiError::timeout("The list of blocks did not arrive in time")),
    };
    // Who is refused may still be sending.
    let (whole, _) = or_drain(whole, body)?;
    let ids = block_list::parse(&whole)
        .map_err(|why| ApiError::bad_request(format!("The list of blocks is not valid: {why}")))?;
    // Size and digests in these headers are those of the list, not of the video.
    (facts.size, facts.md5, facts.sha256) = (None, None, None);
    // When the client leaves, this is dropped, and the work on its list ends unless it comes back soon. Until then it has its place.
    let present = Present::default();
    let left = present.left.clone();
    let work = move |service: &Service| {
        let _place = place;
        service.commit_blocks(&name, &ids, facts, &left)
    };
    let error = match exchange.api.stored(work).await {
        Ok(etag) => return created(&etag),
        Err(error) => error,
    };
    // That another list is at work passes; that a job uses the video does not.
    let passes = error.status == StatusCode::CONFLICT
        && exchange.api.quick(|service| service.upload_owner(&name)).await.is_ok();
    Err(if passes { error.with_header(RETRY_AFTER, HeaderValue::from_static("5")) } else { error })
}

/// A client that waits for its answer.
#[derive(Default)]
struct Present {
    left: CancelToken,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.left.cancel();
    }
}

/// 201, empty (rule 24).
pub(super) fn created(etag: &str) -> Answer {
    let mut response = response(StatusCode::CREATED, ResponseBody::empty());
    response.headers_mut().insert(ETAG, header_value(etag)?);
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    response.headers_mut().insert(LAST_MODIFIED, header_value(&now)?);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_23_what_says_that_it_is_a_part_is_not_the_whole() {
        let check = |ranges: &[&str], size| {
            let mut headers = HeaderMap::new();
            for range in ranges {
                headers.append(CONTENT_RANGE, range.parse().unwrap());
            }
            check_is_whole(&headers, size)
        };
        assert!(check(&[], Some(10)).is_ok() && check(&[], None).is_ok());
        assert!(check(&["bytes 0-9/10"], Some(10)).is_ok() && check(&["Bytes 0-9/10"], Some(10)).is_ok());
        for part in
            ["bytes 0-9/20", "bytes 10-19/20", "bytes 0-9/*", "bytes */10", "bytes 0-8/10", "0-9/10", ""]
        {
            assert_eq!(check(&[part], Some(10)).unwrap_err().status, StatusCode::BAD_REQUEST, "{part}");
        }
        assert!(check(&["bytes 0-9/10", "bytes 10-19/20"], Some(10)).is_err());
        assert!(check(&["bytes 0-9/10"], None).is_err() && check(&["bytes 0-0/0"], Some(0)).is_err());
    }

    #[test]
    fn rule_32_parameters_of_azure() {
        assert_eq!(Part::of("se=1&sig=x").unwrap(), Part::Whole);
        assert_eq!(
            Part::of("comp=block&blockid=MDA%3D&se=1").unwrap(),
            Part::Block { id: "MDA=".to_owned() }
        );
        assert_eq!(Part::of("comp=blocklist").unwrap(), Part::BlockList);
        for bad in ["comp=block", "comp=block&blockid=", "comp=tags", "comp="] {
            assert!(Part::of(bad).is_err(), "{bad}");
        }
    }
}
