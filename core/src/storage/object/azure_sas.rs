//! Signatures of Azure's addresses (service SAS, version 2020-12-06 and later): the library's own have no place for what the answer
//! is to say of itself, and begin to hold at this moment by our clock, which the store's may lag behind.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use object_store::signer::Url;
use sha2::Sha256;

use crate::error::{Error, ErrorKind, Result};
use crate::job::Timestamp;

/// The version of the interface whose rules the signature follows, the library's too.
pub(super) const VERSION: &str = "2023-11-03";

/// What may be done at a signed address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// To get the blob.
    Read,
    /// To make and replace it, also in blocks.
    Write,
}

/// What the answer is to say of itself; empty for nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AnswerHeaders<'a> {
    pub(super) content_disposition: &'a str,
    pub(super) content_type: &'a str,
}

/// The key of a storage account.
pub(super) struct AccountKey(Vec<u8>);

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey(…)")
    }
}

impl AccountKey {
    /// The key as Azure writes it, in Base64.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: not Base64.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let key = STANDARD.decode(text).map_err(|_| {
            Error::argument("the key of the storage account is not Base64")
                .hint("copy it whole into AZURE_STORAGE_ACCOUNT_KEY")
        })?;
        Ok(Self(key))
    }

    fn sign(&self, text: &str) -> Result<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .map_err(|e| Error::new(ErrorKind::Internal, "an address cannot be signed").caused_by(e))?;
        mac.update(text.as_bytes());
        Ok(STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Who signs with a key that Azure gave to an identity: the fields of a user delegation SAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delegate {
    pub(super) object: String,
    pub(super) tenant: String,
    pub(super) start: String,
    pub(super) expiry: String,
    pub(super) service: String,
    pub(super) version: String,
}

/// A blob to whose address a signature is put.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blob<'a> {
    pub(super) account: &'a str,
    pub(super) container: &'a str,
    /// Its whole name in the container.
    pub(super) name: &'a str,
}

/// Puts a signature to `url` that holds until `expiry`, from now on by any clock.
pub(super) fn sign(
    url: &mut Url,
    blob: Blob<'_>,
    permission: Permission,
    expiry: &str,
    answer: AnswerHeaders<'_>,
    key: &AccountKey,
    delegate: Option<&Delegate>,
) -> Result<()> {
    // In the order in which Azure lists them.
    let permissions = match permission {
        Permission::Read => "r",
        Permission::Write => "cw",
    };
    let protocol = if url.scheme() == "https" { "https" } else { "https,http" };
    let Blob { account, container, name } = blob;
    let resource = format!("/blob/{account}/{container}/{name}");
    let mut lines = vec![permissions, "", expiry, resource.as_str()];
    match delegate {
        // No named policy.
        None => lines.push(""),
        Some(d) => {
            lines.extend([&*d.object, &d.tenant, &d.start, &d.expiry, &d.service, &d.version]);
            // Nobody else is authorised by it, and it is part of no correlation.
            lines.extend(["", "", ""]);
        }
    }
    // Of any address; a blob, no snapshot, no scope of encryption; the cache as it is.
    lines.extend(["", protocol, VERSION, "b", "", "", ""]);
    // Between them its encoding and language.
    lines.extend([answer.content_disposition, "", "", answer.content_type]);
    let signature = key.sign(&lines.join("\n"))?;
    let mut query = url.query_pairs_mut();
    query.extend_pairs([
        ("sv", VERSION),
        ("sr", "b"),
        ("sp", permissions),
        ("se", expiry),
        ("spr", protocol),
    ]);
    if let Some(d) = delegate {
        query.extend_pairs([
            ("skoid", &d.object),
            ("sktid", &d.tenant),
            ("skt", &d.start),
            ("ske", &d.expiry),
            ("sks", &d.service),
            ("skv", &d.version),
        ]);
    }
    for (name, value) in [("rscd", answer.content_disposition), ("rsct", answer.content_type)] {
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    query.append_pair("sig", &signature);
    Ok(())
}

/// The moment `lifetime` from `now`, as Azure writes it: in UTC, to the second.
pub(super) fn moment(now: Timestamp, lifetime: Duration) -> String {
    let whole = now.plus_seconds(lifetime.as_secs()).to_string();
    format!("{}Z", whole.split(['.', 'Z']).next().unwrap_or(&whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRY: &str = "2026-01-02T03:04:05Z";
    const BLOB: Blob<'_> = Blob { account: "account", container: "container", name: "pre/scenes/a b.ply" };

    fn signed(permission: Permission, answer: AnswerHeaders<'_>, delegate: Option<&Delegate>) -> Url {
        let key = AccountKey::parse("YSBrZXkgb2YgdGhlIGFjY291bnQ=").unwrap();
        let mut url =
            Url::parse("https://account.blob.core.windows.net/container/pre/scenes/a%20b.ply").unwrap();
        sign(&mut url, BLOB, permission, EXPIRY, answer, &key, delegate).unwrap();
        url
    }

    fn parameter(url: &Url, name: &str) -> Option<String> {
        url.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
    }

    /// The signatures were made by Python's `hmac` of the lines that Azure's manual lists: the permissions `r`, no start, the expiry,
    /// `/blob/account/container/pre/scenes/a b.ply`, no policy, no address, `https`, the version, `b`, no snapshot and scope, and the
    /// five headers of the answer.
    #[test]
    fn the_signature_is_that_of_the_lines_in_the_manual() {
        let disposition = "attachment; filename=\"a b\"";
        let answer = AnswerHeaders { content_disposition: disposition, content_type: "image/jpeg" };
        let url = signed(Permission::Read, answer, None);
        assert_eq!(parameter(&url, "sig").unwrap(), "p/dmhzOBkSAkf+tN6LR9ls7ZEUrbhN/y7Tv0PoH87gU=");
        assert_eq!(parameter(&url, "sp").unwrap(), "r");
        assert_eq!(parameter(&url, "rscd").unwrap(), disposition);
        assert_eq!(parameter(&url, "st"), None);
    }

    /// As above; behind the resource the key's six fields and three that are empty stand in place of the policy.
    #[test]
    fn a_delegate_signs_with_its_fields() {
        let delegate = Delegate {
            object: "object".to_owned(),
            tenant: "tenant".to_owned(),
            start: "2026-01-01T00:00:00Z".to_owned(),
            expiry: "2026-01-03T00:00:00Z".to_owned(),
            service: "b".to_owned(),
            version: VERSION.to_owned(),
        };
        let url = signed(Permission::Write, AnswerHeaders::default(), Some(&delegate));
        assert_eq!(parameter(&url, "sig").unwrap(), "mE2iuwGHjQV4R7Lw56fGaGnByKpThvgy6zofFJVNT3o=");
        assert_eq!(parameter(&url, "skoid").unwrap(), "object");
        assert_eq!(parameter(&url, "rscd"), None);
    }

    #[test]
    fn moments_are_whole_seconds() {
        let now = Timestamp::from_micros(1_767_225_600_123_456);
        assert_eq!(moment(now, Duration::from_secs(61)), "2026-01-01T00:01:01Z");
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = AccountKey::parse("YSBrZXkgb2YgdGhlIGFjY291bnQ=").unwrap();
        assert_eq!(format!("{key:?}"), "AccountKey(…)");
        let error = AccountKey::parse("s3cret!").unwrap_err();
        assert!(!format!("{error:?}").contains("s3cret"));
    }
}
