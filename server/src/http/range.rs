//! Which part of a file an answer carries: `Range`, `If-Range` and the conditions of RFC 9110 §13 and §14.

use std::time::SystemTime;

use hyper::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use hyper::{HeaderMap, Method};

/// What to send of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// 200: everything.
    Whole,
    /// 206: these bytes, first and last inclusive.
    Part { first: u64, last: u64 },
    /// 304: the client has it.
    NotModified,
    /// 412: the client wants another version of it, or none.
    OtherVersion,
    /// 416: the range begins behind the end.
    Unsatisfiable,
}

/// Chooses by the request; `etag` is strong, with its quotes.
pub(crate) fn select(
    method: &Method,
    headers: &HeaderMap,
    size: u64,
    etag: &str,
    modified: Option<SystemTime>,
) -> Selection {
    if !is_wanted(headers, etag) {
        return Selection::OtherVersion;
    }
    // HTTP dates have whole seconds.
    let modified = modified.map(httpdate::HttpDate::from);
    if let Some(tags) = text(headers, IF_NONE_MATCH) {
        let same = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag;
        if tags.split(',').any(|tag| same(tag.trim())) {
            return Selection::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, IF_MODIFIED_SINCE), modified)
        && modified <= since
    {
        return Selection::NotModified;
    }
    // Only a GET knows parts (RFC 9110 §14.2): HEAD asks how large the file is.
    let range = text(headers, RANGE).filter(|_| method == Method::GET);
    let Some(range) = range else { return Selection::Whole };
    if let Some(condition) = text(headers, IF_RANGE) {
        let date = condition.parse::<httpdate::HttpDate>().ok();
        if condition != etag && (date.is_none() || date != modified) {
            return Selection::Whole;
        }
    }
    parse(range, size)
}

/// Whether this version is one of those that `If-Match` names, if it is there. It may be there several times, and a weak tag is the same as
/// none (RFC 9110 §13.1.1).
fn is_wanted(headers: &HeaderMap, etag: &str) -> bool {
    let mut lines = headers.get_all(IF_MATCH).iter().map(|line| line.to_str().unwrap_or_default()).peekable();
    lines.peek().is_none()
        || lines.flat_map(|line| line.split(',')).any(|tag| tag.trim() == "*" || tag.trim() == etag)
}

/// One range of bytes. Several ranges and other units are answered with the whole file, as RFC 9110 §14.2 allows.
fn parse(range: &str, size: u64) -> Selection {
    let Some((unit, set)) = range.split_once('=') else { return Selection::Whole };
    let Some((first, last)) = set.trim().split_once('-') else { return Selection::Whole };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Selection::Whole;
    }
    match (number(first), number(last)) {
        (Number::Missing, Number::Is(suffix)) => match suffix.min(size) {
            0 => Selection::Unsatisfiable,
            suffix => Selection::Part { first: size - suffix, last: size - 1 },
        },
        (Number::Is(first), Number::Is(last)) if last < first => Selection::Whole,
        (Number::Is(first), _) if first >= size && !matches!(number(last), Number::Wrong) => {
            Selection::Unsatisfiable
        }
        (Number::Is(first), Number::Missing) => Selection::Part { first, last: size - 1 },
        (Number::Is(first), Number::Is(last)) => Selection::Part { first, last: last.min(size - 1) },
        _ => Selection::Whole,
    }
}

enum Number {
    Missing,
    Is(u64),
    Wrong,
}

fn number(text: &str) -> Number {
    match text.trim() {
        "" => Number::Missing,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            // More digits than fit are still a number: one behind every end.
            Number::Is(digits.parse().unwrap_or(u64::MAX))
        }
        _ => Number::Wrong,
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<httpdate::HttpDate> {
    text(headers, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const TAG: &str = "\"abc\"";

    fn chosen(headers: &[(HeaderName, &str)], size: u64) -> Selection {
        chosen_by(&Method::GET, headers, size)
    }

    fn chosen_by(method: &Method, headers: &[(HeaderName, &str)], size: u64) -> Selection {
        let headers = headers.iter().map(|(n, v)| (n.clone(), v.parse().unwrap())).collect();
        let modified = UNIX_EPOCH + Duration::from_millis(784_111_777_250);
        select(method, &headers, size, TAG, Some(modified))
    }

    #[test]
    fn rule_70_a_head_is_of_the_whole_file() {
        for range in ["bytes=0-1", "bytes=9-", "bytes=-0"] {
            assert_eq!(chosen_by(&Method::HEAD, &[(RANGE, range)], 9), Selection::Whole, "{range}");
            let same = [(RANGE, range), (IF_NONE_MATCH, TAG)];
            assert_eq!(chosen_by(&Method::HEAD, &same, 9), Selection::NotModified, "{range}");
        }
    }

    #[test]
    fn ranges_of_rfc_9110() {
        let part = |first, last| Selection::Part { first, last };
        for (range, expected) in [
            ("bytes=0-499", part(0, 499)),
            ("bytes=500-999", part(500, 999)),
            ("bytes=-500", part(9500, 9999)),
            ("bytes=9500-", part(9500, 9999)),
            ("bytes=0-0", part(0, 0)),
            ("bytes=-1", part(9999, 9999)),
            ("bytes=-20000", part(0, 9999)),
            ("bytes=9999-20000", part(9999, 9999)),
            ("Bytes=1-2", part(1, 2)),
            ("bytes=10000-", Selection::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=5-4", Selection::Whole),
            ("bytes=0-1,5-6", Selection::Whole),
            ("bytes=a-b", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("bytes", Selection::Whole),
            ("items=0-1", Selection::Whole),
        ] {
            assert_eq!(chosen(&[(RANGE, range)], 10_000), expected, "{range}");
        }
        assert_eq!(chosen(&[(RANGE, "bytes=0-")], 0), Selection::Unsatisfiable);
        assert_eq!(chosen(&[], 0), Selection::Whole);
    }

    #[test]
    fn a_part_of_another_version_is_never_sent() {
        let range = (RANGE, "bytes=0-1");
        let part = Selection::Part { first: 0, last: 1 };
        assert_eq!(chosen(&[range.clone(), (IF_RANGE, TAG)], 9), part);
        assert_eq!(chosen(&[range.clone(), (IF_RANGE, "\"other\"")], 9), Selection::Whole);
        assert_eq!(chosen(&[range.clone(), (IF_RANGE, "W/\"abc\"")], 9), Selection::Whole);
        assert_eq!(chosen(&[range.clone(), (IF_RANGE, "Sun, 06 Nov 1994 08:49:37 GMT")], 9), part);
        assert_eq!(chosen(&[range, (IF_RANGE, "Sun, 06 Nov 1994 08:49:38 GMT")], 9), Selection::Whole);
    }

    #[test]
    fn rule_70_who_wants_another_version_gets_nothing_of_this_one() {
        for wanted in [TAG, "*", "\"x\", \"abc\"", "\"x\",\"abc\" "] {
            assert_eq!(chosen(&[(IF_MATCH, wanted)], 9), Selection::Whole, "{wanted}");
            let part = Selection::Part { first: 0, last: 1 };
            assert_eq!(chosen(&[(IF_MATCH, wanted), (RANGE, "bytes=0-1")], 9), part, "{wanted}");
        }
        for other in ["\"other\"", "W/\"abc\"", "abc", ""] {
            for more in [(RANGE, "bytes=0-1"), (RANGE, "bytes=9-"), (IF_NONE_MATCH, TAG), (IF_RANGE, TAG)] {
                assert_eq!(chosen(&[(IF_MATCH, other), more], 9), Selection::OtherVersion, "{other}");
            }
        }
        let lines = |tags: [&str; 2]| {
            let mut headers = HeaderMap::new();
            for tag in tags {
                headers.append(IF_MATCH, tag.parse().unwrap());
            }
            select(&Method::GET, &headers, 9, TAG, None)
        };
        assert_eq!(lines(["\"x\"", TAG]), Selection::Whole);
        assert_eq!(lines(["\"x\"", "\"y\""]), Selection::OtherVersion);
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        assert_eq!(chosen(&[(IF_NONE_MATCH, "\"x\", W/\"abc\"")], 9), Selection::NotModified);
        assert_eq!(chosen(&[(IF_NONE_MATCH, "\"x\"")], 9), Selection::Whole);
        assert_eq!(
            chosen(&[(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT")], 9),
            Selection::NotModified
        );
        assert_eq!(chosen(&[(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT")], 9), Selection::Whole);
    }
}
