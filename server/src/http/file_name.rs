//! Names of files in headers: the name of an upload, where the client tells it, and the name of a download.

use hyper::HeaderMap;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use libreconstruct::job::file_name_in_disposition;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// `attr-char` of RFC 5987 §3.2.1 may stand as it is.
const NOT_ATTR_CHAR: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// `Content-Disposition` of a download (rule 70 of docs/rest.md, RFC 6266): the name is user text, so it is encoded.
pub(crate) fn attachment(name: &str) -> HeaderValue {
    let value = format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, &NOT_ATTR_CHAR));
    HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("attachment"))
}

/// The original name of an upload, as it is sent (rule 48): `Content-Disposition: …filename…` or `x-ms-meta-filename`.
/// The service makes a title of it.
pub(crate) fn of_upload(headers: &HeaderMap) -> Option<String> {
    [CONTENT_DISPOSITION.as_str(), "x-ms-blob-content-disposition"]
        .iter()
        .filter_map(|name| headers.get(*name))
        .find_map(|value| file_name_in_disposition(&String::from_utf8_lossy(value.as_bytes())))
        .or_else(|| {
            headers.get("x-ms-meta-filename").map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(header: &str, value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        let name: hyper::header::HeaderName = header.parse().unwrap();
        headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        of_upload(&headers)
    }

    #[test]
    fn rule_48_the_name_of_an_upload() {
        let given = |value| name("content-disposition", value);
        assert_eq!(given("attachment; filename=kitchen.mp4").as_deref(), Some("kitchen.mp4"));
        assert_eq!(given("attachment"), None);
        assert_eq!(name("x-ms-meta-filename", "a.mov").as_deref(), Some("a.mov"));
    }

    #[test]
    fn rule_70_the_name_of_a_download_is_encoded() {
        let value = attachment("Küche \"1\"\r\nX: y;.ply");
        assert_eq!(value, "attachment; filename*=UTF-8''K%C3%BCche%20%221%22%0D%0AX%3A%20y%3B.ply");
    }
}
