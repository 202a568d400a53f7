//! The jobs of the caller: list, get, update, delete (docs/rest.md, §4.1 to §4.4).

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LINK, VARY};
use hyper::{Response, StatusCode};
use libreconstruct::job::{Cursor, Job, JobPage, JobSummary, JobUpdate, ListQuery};
use libreconstruct::service::Caller;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::api::Api;
use super::bodies::{Room, Taker};
use super::body::ResponseBody;
use super::drain::or_drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::job_value::job_value;
use super::rate_limit::Class;
use super::response::{Answer, header_value, response};
use super::{json as json_body, route};

/// Jobs that are read at a time where all are asked for.
const PAGE: u32 = 1000;
/// The most bytes of a page: a title has 255 characters of four bytes at most.
const PAGE_BYTES: usize = 1100 * PAGE as usize;
/// How often it is looked whether there is room for another page.
const LOOK: Duration = Duration::from_millis(500);

/// Newest first. Without `limit` all of them, with it a page and a `Link` to the next (rule 50).
pub(crate) async fn list(exchange: &mut Exchange<'_>) -> Answer {
    let caller = exchange.caller(Class::Request).await?;
    let user = caller.user_id;
    let query = list_query(exchange.parts.uri.query().unwrap_or(""))?;
    let first = ListQuery { limit: Some(query.limit.unwrap_or(PAGE)), ..query };
    let page = exchange.api.blocking(move |service| service.list(user, &first)).await?;
    match page.next {
        Some(_) if query.limit.is_none() => stream(exchange, caller, first, &page),
        next => {
            let mut response = json_body::response(StatusCode::OK, &page.jobs)?;
            if let Some(next) = next {
                response.headers_mut().insert(LINK, header_value(&next_link(exchange, &query, next))?);
            }
            Ok(response)
        }
    }
}

/// The filters of a list. Parameters of other names are ignored.
fn list_query(query: &str) -> Result<ListQuery, ApiError> {
    let mut parsed = ListQuery::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => {
                let limit = value.parse().map_err(|_| ApiError::bad_request("limit must be 1 to 1000"))?;
                parsed.limit = Some(limit);
            }
            "cursor" => parsed.cursor = Some(value.parse()?),
            "status" => parsed.status = Some(value.parse()?),
            "public" => {
                let wrong = |_| ApiError::bad_request("public must be true or false");
                parsed.public = Some(value.parse().map_err(wrong)?);
            }
            _ => {}
        }
    }
    parsed.check()?;
    Ok(parsed)
}

fn next_link(exchange: &Exchange<'_>, query: &ListQuery, next: Cursor) -> String {
    let base = exchange.api.base(&exchange.connection, exchange.parts);
    let mut link = format!("<{base}{}/jobs/?limit={}&cursor={next}", route::API, query.limit.unwrap_or(PAGE));
    // The filters go along as the client wrote them; both were parsed, so that each is one of a few words.
    for (name, value) in form_urlencoded::parse(exchange.parts.uri.query().unwrap_or("").as_bytes()) {
        if matches!(&*name, "status" | "public") {
            let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            let _ = write!(link, "&{name}={value}");
        }
    }
    link + ">; rel=\"next\""
}

/// An array too long for one read: page by page, while the client takes it.
fn stream(exchange: &Exchange<'_>, caller: Caller, query: ListQuery, first: &JobPage) -> Answer {
    let gzip = json_body::accepts_gzip(&exchange.parts.headers);
    let taker = exchange.taker();
    let mut array = ArrayWriter::new(gzip);
    let chunk = array.page(first).map_err(|e| ApiError::internal(format!("cannot write a list: {e}")))?;
    let chunk = exchange.api.bodies.room(taker, chunk.len())?.hold(chunk);
    let (sender, chunks) = mpsc::channel(1);
    tokio::spawn(send_pages(
        exchange.api.clone(),
        caller,
        taker,
        query,
        array,
        (Ok(chunk), first.next),
        sender,
    ));
    let mut response = Response::new(ResponseBody::Stream { chunks, remaining: None });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, json_body::JSON);
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Sends the first page, and where there is a next one that, and so on.
async fn send_pages(
    api: Arc<Api>,
    caller: Caller,
    taker: Taker,
    query: ListQuery,
    mut array: ArrayWriter,
    (mut chunk, mut next): (io::Result<Bytes>, Option<Cursor>),
    sender: mpsc::Sender<io::Result<Bytes>>,
) {
    loop {
        let failed = chunk.is_err();
        // An error breaks the connection: a list that ends early must not look complete.
        if sender.send(chunk).await.is_err() || failed {
            return;
        }
        let Some(cursor) = next else { return };
        // Room first: no page waits in memory for its client, and none is told that was read before the key was revoked.
        if sender.reserve().await.is_err() {
            return;
        }
        let Some(room) = room(&api, taker, &sender).await else { return };
        match further(&api, &caller, ListQuery { cursor: Some(cursor), ..query }).await {
            Ok(page) => {
                chunk = array.page(&page).map(|bytes| room.hold(bytes));
                next = page.next;
            }
            Err(error) => {
                if error.status.is_server_error() {
                    let detail = error.detail.as_deref().unwrap_or("");
                    tracing::error!(target: "access", detail, "a list of jobs broke off");
                }
                let _ = sender.send(Err(io::Error::other("the list broke off"))).await;
                return;
            }
        }
    }
}

/// Waits until there is memory for a further page; none if the client has left.
async fn room(api: &Api, taker: Taker, sender: &mpsc::Sender<io::Result<Bytes>>) -> Option<Room> {
    loop {
        if let Ok(room) = api.bodies.room(taker, PAGE_BYTES) {
            return Some(room);
        }
        tokio::select! {
            () = sender.closed() => return None,
            () = sleep(LOOK) => {}
        }
    }
}

/// A further page of a list, for a caller who may still have it.
async fn further(api: &Api, caller: &Caller, query: ListQuery) -> Result<JobPage, ApiError> {
    api.quick(|service| service.authorize_again(caller)).await?;
    let user = caller.user_id;
    api.blocking(move |service| service.list(user, &query)).await
}

/// Writes a JSON array in pieces, compressed or not.
struct ArrayWriter {
    /// What was written since the last piece.
    text: Vec<u8>,
    begun: bool,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl ArrayWriter {
    fn new(gzip: bool) -> Self {
        let gzip = gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { text: Vec::new(), begun: false, gzip }
    }

    /// One page, and the end of the array if it is the last.
    fn page(&mut self, page: &JobPage) -> io::Result<Bytes> {
        page.jobs.iter().try_for_each(|job| self.push(job))?;
        if page.next.is_some() { self.take() } else { self.finish() }
    }

    fn push(&mut self, job: &JobSummary) -> io::Result<()> {
        self.text.push(if self.begun { b',' } else { b'[' });
        self.begun = true;
        Ok(serde_json::to_writer(&mut self.text, job)?)
    }

    /// What has been written so far.
    fn take(&mut self) -> io::Result<Bytes> {
        self.piece(GzEncoder::flush)
    }

    /// The rest of the array.
    fn finish(&mut self) -> io::Result<Bytes> {
        self.text.extend_from_slice(if self.begun { b"]" } else { b"[]" });
        self.piece(GzEncoder::try_finish)
    }

    fn piece(&mut self, end: fn(&mut GzEncoder<Vec<u8>>) -> io::Result<()>) -> io::Result<Bytes> {
        let text = std::mem::take(&mut self.text);
        let Some(encoder) = &mut self.gzip else { return Ok(text.into()) };
        encoder.write_all(&text)?;
        end(encoder)?;
        Ok(std::mem::take(encoder.get_mut()).into())
    }
}

/// One job.
pub(crate) async fn get(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = exchange.authorize(Class::Request).await?;
    let job_id = exchange.job_id(job_id)?;
    let job = exchange.api.quick(|service| service.job(user, job_id)).await?;
    answer(exchange.api, &job)
}

/// Changes title, visibility or camera, and answers with the whole job (rule 60).
pub(crate) async fn update(exchange: &mut Exchange<'_>, job_id: &str, body: Incoming) -> Answer {
    let known =
        exchange.caller(Class::Request).await.and_then(|caller| Ok((caller, exchange.job_id(job_id)?)));
    let ((caller, job_id), body) = or_drain(known, body)?;
    let body = exchange.body(&caller, json_body::read_object(&exchange.parts.headers, body)).await?;
    let (user, update) = (caller.user_id, JobUpdate::from_json(&Value::Object(body))?);
    let job = exchange.api.blocking(move |service| service.update(user, job_id, &update)).await?;
    answer(exchange.api, &job)
}

/// Stops a job and keeps it: it has failed then. One that has ended stays as it is: 409 (rule 85).
pub(crate) async fn cancel(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = exchange.authorize(Class::Request).await?;
    let job_id = exchange.job_id(job_id)?;
    let job = exchange.api.blocking(move |service| service.cancel(user, job_id)).await?;
    answer(exchange.api, &job)
}

/// Removes a job and its files, and stops it if it runs (rule 64).
pub(crate) async fn delete(exchange: &mut Exchange<'_>, job_id: &str) -> Answer {
    let user = exchange.authorize(Class::Request).await?;
    let job_id = exchange.job_id(job_id)?;
    exchange.api.stored(move |service| service.delete(user, job_id)).await?;
    Ok(response(StatusCode::NO_CONTENT, ResponseBody::empty()))
}

fn answer(api: &Api, job: &Job) -> Answer {
    json_body::response(StatusCode::OK, &job_value(api.config(), job)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use libreconstruct::job::JobId;

    use super::*;

    #[test]
    fn rule_50_filters_are_read_or_refused() {
        let query = list_query("limit=5&public=true&status=generating+3d%20scene&other=1").unwrap();
        assert_eq!((query.limit, query.public), (Some(5), Some(true)));
        assert!(query.status.is_some());
        for bad in ["limit=0", "limit=1001", "limit=x", "public=1", "status=done", "cursor=x"] {
            assert_eq!(list_query(bad).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }

    #[test]
    fn an_array_in_pieces_is_the_array() {
        let jobs: Vec<JobSummary> =
            (0..5).map(|i| JobSummary { job_id: JobId::random(), title: format!("\"{i}\"") }).collect();
        for gzip in [false, true] {
            for length in [0, 1, 5] {
                let mut array = ArrayWriter::new(gzip);
                let mut bytes = Vec::new();
                for job in &jobs[..length] {
                    array.push(job).unwrap();
                    bytes.extend(array.take().unwrap());
                }
                bytes.extend(array.finish().unwrap());
                if gzip {
                    let mut plain = Vec::new();
                    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
                    bytes = plain;
                }
                assert_eq!(serde_json::from_slice::<Vec<JobSummary>>(&bytes).unwrap(), jobs[..length]);
            }
        }
    }
}
