//! The name that a client gave its file, in a `Content-Disposition` (RFC 6266).

use percent_encoding::percent_decode_str;

/// The name in `value`, the header's; `filename*` goes before `filename` (RFC 6266 §4.3). What charset or form nobody knows is
/// passed over.
pub fn file_name_in_disposition(value: &str) -> Option<String> {
    let mut plain = None;
    for (name, value) in parameters(value) {
        if name.eq_ignore_ascii_case("filename*") {
            let mut parts = value.splitn(3, '\'');
            if let (Some(charset), Some(_language), Some(encoded)) =
                (parts.next(), parts.next(), parts.next())
                && charset.eq_ignore_ascii_case("utf-8")
                && let Ok(text) = percent_decode_str(encoded).decode_utf8()
            {
                return Some(text.into_owned());
            }
        } else if name.eq_ignore_ascii_case("filename") {
            plain = Some(value);
        }
    }
    plain
}

/// The `name=value` parameters behind the first `;`, quotes and their escapes taken away.
fn parameters(value: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((name, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let text;
        if let Some(quoted) = after.strip_prefix('"') {
            let behind;
            (text, behind) = unquoted(quoted);
            rest = behind.split_once(';').map_or("", |(_, rest)| rest);
        } else {
            let (token, behind) = after.split_once(';').unwrap_or((after, ""));
            text = token.trim().to_owned();
            rest = behind;
        }
        found.push((name.trim().to_owned(), text));
    }
    found
}

/// The text up to the next quote that is not escaped, and what is behind that.
fn unquoted(quoted: &str) -> (String, &str) {
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => text.extend(characters.next()),
            c => text.push(c),
        }
    }
    (text, characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found() {
        for (value, name) in [
            ("attachment; filename=kitchen.mp4", Some("kitchen.mp4")),
            ("attachment; filename=\"my \\\"old\\\" film; 1.mp4\"; x=y", Some("my \"old\" film; 1.mp4")),
            ("attachment; filename=\"x.mp4\"; filename*=UTF-8''K%C3%BCche.mp4", Some("Küche.mp4")),
            ("attachment; filename*=latin1''x; filename=y", Some("y")),
            ("attachment; filename*=broken; filename=y", Some("y")),
            ("form-data; filename=\"Küche.mp4\"", Some("Küche.mp4")),
            ("attachment; filename=\"C:\\\\films\\\\a.mp4\"", Some("C:\\films\\a.mp4")),
            ("attachment; filename=\"unclosed", Some("unclosed")),
            ("attachment", None),
            ("", None),
        ] {
            assert_eq!(file_name_in_disposition(value).as_deref(), name, "{value}");
        }
    }
}
