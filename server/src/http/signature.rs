//! Signed addresses: whoever holds one may do one thing with one blob until it expires (docs/rest.md, §2.3 and §4.5).
//!
//! ```text
//! {base}/blob/{blob}?se={expiry}&si={key id}&sig={signature}[&rscd={file name}]
//! signature = base64url(HMAC-SHA256(key, "v1|" method "|" blob "|" expiry "|" flags "|" key id))
//! ```
//!
//! `method` is PUT (with PATCH, and HEAD and DELETE of what has come) or GET (with HEAD of the file), so that an upload address reads nothing. `expiry` is in seconds since 1970.
//! `flags` is the percent-encoded name under which a download is saved. Bodies are not signed. The parameters have the names
//! that Azure gives those of its own signed addresses, because its clients keep only those when they add theirs.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use libreconstruct::service::SigningKeys;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;

use super::error::ApiError;

/// The code of the error of an address that was good once.
pub(crate) const EXPIRED: &str = "expired";

/// What an address permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All that sends a video: PUT, PATCH, HEAD of what has come, DELETE of it.
    Upload,
    /// GET and HEAD.
    Download,
}

/// What a genuine address says beside its blob.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The name under which a download is saved.
    pub(crate) file_name: Option<String>,
}

/// The query of an address for `blob` that holds until `expiry`.
pub(crate) fn sign(
    keys: &SigningKeys,
    access: Access,
    blob: &str,
    expiry: u64,
    file_name: Option<&str>,
) -> String {
    let key = keys.current();
    let id = &key.id;
    let flags = file_name.map(encode).unwrap_or_default();
    let tag = mac(key.secret(), access, blob, expiry, &flags, id).finalize().into_bytes();
    let signature = URL_SAFE_NO_PAD.encode(tag);
    let more = if flags.is_empty() { String::new() } else { format!("&rscd={flags}") };
    format!("se={expiry}&si={id}&sig={signature}{more}")
}

/// Checks the query of a request at `now` (seconds since 1970). Parameters that are not ours are ignored.
pub(crate) fn verify(
    keys: &SigningKeys,
    access: Access,
    blob: &str,
    query: &str,
    now: u64,
) -> Result<Grant, ApiError> {
    let invalid = || ApiError::forbidden("invalid_signature", "Invalid signature");
    let (mut expiry, mut id, mut signature, mut file_name) = (None, None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place = match &*name {
            "se" => &mut expiry,
            "si" => &mut id,
            "sig" => &mut signature,
            "rscd" => &mut file_name,
            _ => continue,
        };
        // A parameter that is there twice could mean two things.
        if place.replace(value).is_some() {
            return Err(invalid());
        }
    }
    let expiry = expiry.as_deref().and_then(canonical_number).ok_or_else(invalid)?;
    let id: Cow<'_, str> = id.ok_or_else(invalid)?;
    // 32 bytes have one encoding only: the engine refuses padding and stray bits.
    let signature =
        signature.and_then(|text| URL_SAFE_NO_PAD.decode(text.as_bytes()).ok()).ok_or_else(invalid)?;
    let secret = keys.find(&id).ok_or_else(invalid)?.secret();
    let flags = file_name.as_deref().map(encode).unwrap_or_default();
    // Compares in constant time.
    mac(secret, access, blob, expiry, &flags, &id).verify_slice(&signature).map_err(|_| invalid())?;
    if now >= expiry {
        return Err(ApiError::forbidden(EXPIRED, "This address has expired"));
    }
    Ok(Grant { file_name: file_name.map(Cow::into_owned) })
}

fn mac(secret: &[u8], access: Access, blob: &str, expiry: u64, flags: &str, id: &str) -> Hmac<Sha256> {
    let method = match access {
        Access::Upload => "PUT",
        Access::Download => "GET",
    };
    // HMAC takes keys of every length; the error type has no value that this could return.
    #[allow(clippy::expect_used)]
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of every length");
    mac.update(format!("v1|{method}|{blob}|{expiry}|{flags}|{id}").as_bytes());
    mac
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A number as this server writes it: no sign, no leading zero.
fn canonical_number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Keys of these names, each filled with its first letter.
    fn keys(names: &[&str]) -> SigningKeys {
        let key =
            |name: &&str| json!({ "id": name, "secret": format!("{:02x}", name.as_bytes()[0]).repeat(32) });
        serde_json::from_value(names.iter().map(key).collect()).unwrap()
    }

    const BLOB: &str = "videos/6f1c2d3e-0000-4000-8000-000000000000.mp4";
    const NAME: &str = "Küche & Bad; \"1|2\".ply";

    #[test]
    fn what_was_signed_is_genuine_and_nothing_else() {
        let ring = keys(&["a", "b"]);
        let query = sign(&ring, Access::Download, BLOB, 1000, Some(NAME));
        let check = |access, blob, query: &str, now| verify(&ring, access, blob, query, now);
        let grant = check(Access::Download, BLOB, &query, 999).unwrap();
        assert_eq!(grant.file_name.as_deref(), Some(NAME));
        // Azure's clients add parameters and reorder them.
        let mut parts: Vec<&str> = query.split('&').collect();
        parts.reverse();
        let other = format!("comp=block&blockid=AA%3D%3D&{}", parts.join("&"));
        assert_eq!(check(Access::Download, BLOB, &other, 999).unwrap(), grant);

        assert_eq!(check(Access::Download, BLOB, &query, 1000).unwrap_err().code, "expired");
        assert!(check(Access::Upload, BLOB, &query, 999).is_err());
        assert!(check(Access::Download, "videos/other.mp4", &query, 999).is_err());
        for (from, to) in [
            ("se=1000", "se=2000"),
            ("se=1000", "se=01000"),
            ("se=1000", "se=+1000"),
            ("se=1000", "se=1000&se=1000"),
            ("si=a", "si=b"),
            ("si=a", "si=c"),
            ("rscd=", "rscd=x"),
            ("&sig=", "&sig=A"),
            ("&sig=", "&other="),
        ] {
            let forged = query.replace(from, to);
            assert_ne!(forged, query);
            assert!(check(Access::Download, BLOB, &forged, 999).is_err(), "{from} → {to}");
        }
        assert!(check(Access::Download, BLOB, "", 999).is_err());
    }

    #[test]
    fn no_other_spelling_of_a_signature_is_taken() {
        let ring = keys(&["a", "b"]);
        let query = sign(&ring, Access::Upload, BLOB, 1000, None);
        // The last of 43 characters carries 4 bits; its other 2 must be zero.
        let last = query.chars().last().unwrap();
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut taken = 0;
        for other in alphabet.chars() {
            let text = format!("{}{other}", query.strip_suffix(last).unwrap());
            taken += usize::from(verify(&ring, Access::Upload, BLOB, &text, 1).is_ok());
        }
        assert_eq!(taken, 1);
        assert!(verify(&ring, Access::Upload, BLOB, &format!("{query}="), 1).is_err());
        assert!(verify(&ring, Access::Upload, BLOB, &format!("{query}%3D"), 1).is_err());
    }

    #[test]
    fn a_key_that_only_verifies_still_verifies() {
        let old = keys(&["b"]);
        let query = sign(&old, Access::Upload, BLOB, 1000, None);
        assert!(verify(&keys(&["a", "b"]), Access::Upload, BLOB, &query, 1).is_ok());
    }
}
