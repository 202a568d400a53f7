//! The files of the server that are tried. The server is a program, not a library, so they are compiled here once more.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::all,
    reason = "the server uses all of what is in its files"
)]

#[path = "../../server/src/http/blob/block_list.rs"]
mod block_list_file;
#[path = "../../server/src/http/body.rs"]
mod body;
#[path = "../../server/src/http/drain.rs"]
mod drain;
#[path = "../../server/src/http/error.rs"]
mod error;
#[path = "../../server/src/http/json.rs"]
mod json;
#[path = "../../server/src/http/range.rs"]
pub(crate) mod range;
#[path = "../../server/src/http/response.rs"]
mod response;
#[path = "../../server/src/http/signature.rs"]
pub(crate) mod signature;

use bytes::Bytes;
use http_body_util::Full;
use hyper::HeaderMap;

/// The blocks that a list names.
pub(crate) fn block_list(bytes: &[u8]) -> Result<Vec<String>, String> {
    block_list_file::parse(bytes)
}

/// The body of a request, as an object of JSON.
pub(crate) fn json_object(bytes: &[u8]) -> Option<serde_json::Map<String, serde_json::Value>> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    let body = Full::new(Bytes::copy_from_slice(bytes));
    RUNTIME.with(|runtime| runtime.block_on(json::read_object(&HeaderMap::new(), body))).ok()
}
