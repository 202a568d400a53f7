//! Signed addresses. The input: a line with the blob, then the query. Only what this server signs is genuine, and the input taken
//! as the name of a download survives the way through an address.

use libreconstruct::service::SigningKeys;
use serde_json::json;

use super::super::server::signature::{Access, sign, verify};

/// Before any address expires, and the time until which those hold that are made here.
const NOW: u64 = 1000;
const EXPIRY: u64 = 2000;

/// Keys of these names, each filled with its first letter; the first one signs.
fn keys_of(names: &[&str]) -> SigningKeys {
    let key = |name: &&str| json!({ "id": name, "secret": format!("{:02x}", name.as_bytes()[0]).repeat(32) });
    serde_json::from_value(names.iter().map(key).collect()).expect("keys")
}

fn value(query: &str, wanted: &str) -> Option<String> {
    let mut all = form_urlencoded::parse(query.as_bytes());
    all.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

/// A genuine address, as an input.
pub fn seed(blob: &str, file_name: &str) -> Vec<u8> {
    let query = sign(&keys_of(&["a"]), Access::Download, blob, EXPIRY, Some(file_name));
    format!("{blob}\n{query}").into_bytes()
}

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (blob, query) = text.split_once('\n').unwrap_or(("videos/a.mp4", &text));
    let keys = keys_of(&["a", "b"]);
    let second = keys_of(&["b"]);
    for access in [Access::Upload, Access::Download] {
        if let Ok(grant) = verify(&keys, access, blob, query, NOW) {
            // Whatever else stood in the query, its signature is the one that is given out for the same.
            let expiry = value(query, "se").and_then(|number| number.parse().ok()).expect("an expiry");
            let keys = if value(query, "si").as_deref() == Some("a") { &keys } else { &second };
            let ours = sign(keys, access, blob, expiry, grant.file_name.as_deref());
            assert_eq!(value(&ours, "sig"), value(query, "sig"), "{query}");
            assert_eq!(value(query, "rscd"), grant.file_name);
        }
        let address = sign(&keys, access, blob, EXPIRY, Some(query));
        let grant = verify(&keys, access, blob, &address, NOW).expect("what was signed is genuine");
        assert_eq!(grant.file_name.as_deref().unwrap_or(""), query);
        assert!(verify(&keys, access, blob, &address, EXPIRY).is_err());
        assert!(verify(&keys, access, &format!("{blob}x"), &address, NOW).is_err());
    }
    let upload = sign(&keys, Access::Upload, blob, EXPIRY, Some(query));
    assert!(verify(&keys, Access::Download, blob, &upload, NOW).is_err());
}
