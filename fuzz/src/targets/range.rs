//! Headers that ask for a part of a file. The input: a line with the size of the file, then one header a line. A part that is
//! sent is in the file.

use std::time::{Duration, UNIX_EPOCH};

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

use super::super::server::range::{Selection, select};

const TAG: &str = "\"abc\"";

pub fn run(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let size = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.parse().ok()).unwrap_or(1000);
    let mut headers = HeaderMap::new();
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..at], line.get(at + 1..).unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let modified = Some(UNIX_EPOCH + Duration::from_secs(784_111_777));
    let of_head = select(&Method::HEAD, &headers, size, TAG, modified);
    assert!(
        !matches!(of_head, Selection::Part { .. } | Selection::Unsatisfiable),
        "a HEAD is of the whole file"
    );
    match select(&Method::GET, &headers, size, TAG, modified) {
        Selection::Part { first, last } => {
            assert!(first <= last && last < size, "{first} to {last} of {size}")
        }
        Selection::Unsatisfiable => assert!(headers.contains_key("range")),
        Selection::OtherVersion => assert!(headers.contains_key("if-match")),
        Selection::Whole | Selection::NotModified => {}
    }
}
