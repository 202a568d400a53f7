//! The digests that a client announces for its upload (rule 31 of docs/rest.md): `Content-MD5` and `Content-Digest`
//! (RFC 9530).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;

use super::error::ApiError;

/// The digests that the bytes must have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) md5: Option<[u8; 16]>,
    pub(crate) sha256: Option<[u8; 32]>,
}

/// Reads both headers; other algorithms in `Content-Digest` are left alone, as RFC 9530 §2 asks.
pub(crate) fn expected(headers: &HeaderMap) -> Result<Expected, ApiError> {
    let wrong = |name: &str| ApiError::bad_request(format!("{name} is not a valid digest"));
    let mut expected = Expected::default();
    if let Some(value) = headers.get("content-md5") {
        expected.md5 = Some(decode(value.to_str().unwrap_or("")).ok_or_else(|| wrong("Content-MD5"))?);
    }
    for value in headers.get_all("content-digest") {
        let value = value.to_str().map_err(|_| wrong("Content-Digest"))?;
        for member in value.split(',') {
            let Some((name, digest)) = member.split_once('=') else { continue };
            if name.trim().eq_ignore_ascii_case("sha-256") {
                let digest = digest.trim().strip_prefix(':').and_then(|d| d.strip_suffix(':'));
                let digest = digest.and_then(decode).ok_or_else(|| wrong("Content-Digest"))?;
                expected.sha256 = Some(digest);
            }
        }
    }
    Ok(expected)
}

fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text.trim()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &'static str, value: &str) -> Result<Expected, ApiError> {
        expected(&HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]))
    }

    #[test]
    fn rule_31_digests_are_read_or_refused() {
        let sha = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
        for value in [sha.to_owned(), format!("sha-512=:AAAA:, {sha}")] {
            let digest = of("content-digest", &value).unwrap().sha256.unwrap();
            assert_eq!(digest[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        }
        assert_eq!(of("content-digest", "sha-512=:AAAA:").unwrap(), Expected::default());
        let md5 = of("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==").unwrap().md5.unwrap();
        assert_eq!(md5[..2], [0xd4, 0x1d]);
        assert!(of("content-md5", "1B2M").is_err());
        assert!(of("content-md5", "*").is_err());
        assert!(of("content-digest", "sha-256=47DE").is_err());
    }
}
