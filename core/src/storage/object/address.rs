//! Where a storage is: what is written in the settings, taken apart and checked.
//!
//! An address holds no secret: what opens a store is told by the environment. So it may be shown, also in errors; what may be a
//! secret that somebody wrote into it by mistake is not.

use std::fmt;

use object_store::signer::Url;
use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

/// The kinds of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Amazon S3, and all that speak like it.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl Kind {
    const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// How an address looks.
    fn example(self) -> &'static str {
        match self {
            Self::S3 => {
                "s3://bucket/prefix?region=eu-central-1, with endpoint=https://… for a store that is not Amazon's"
            }
            Self::Google => "gs://bucket/prefix",
            Self::Azure => "az://account/container/prefix",
        }
    }

    /// What may stand behind the `?`.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["region", "endpoint", "public_endpoint", "path_style"],
            Self::Google | Self::Azure => &["endpoint", "public_endpoint"],
        }
    }

    /// What the store calls that which holds blobs.
    pub(super) fn bucket(self) -> &'static str {
        match self {
            Self::S3 | Self::Google => "bucket",
            Self::Azure => "container",
        }
    }
}

/// The place of a storage in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: Kind,
    /// The account of Azure, empty for others.
    pub(super) account: String,
    /// The bucket, which Azure calls a container.
    pub(super) bucket: String,
    /// What the names of all blobs begin with, without a slash at its ends. May be empty.
    pub(super) prefix: String,
    /// The region of S3, if it is named.
    pub(super) region: Option<String>,
    /// Where the store is, if not where its maker has it.
    pub(super) endpoint: Option<Url>,
    /// Where clients reach the store, if not where we do.
    pub(super) public_endpoint: Option<Url>,
    /// Whether the bucket stands in the path (`host/bucket/…`) or in the name of the host (`bucket.host/…`), if it is said.
    pub(super) path_style: Option<bool>,
}

impl Address {
    /// Whether `text` is meant for an object store.
    pub(super) fn is_meant(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// Takes an address apart.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument): what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let kind = scheme(text).ok_or_else(|| {
            Error::argument("the address of the storage names no object store")
                .hint("it begins with s3://, gs:// or az://")
        })?;
        let wrong = |what: String| {
            Error::argument(format!("the address of the storage {what}"))
                .hint(format!("it looks like {}", kind.example()))
        };
        let url = Url::parse(text).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
            return Err(Error::argument("the address of the storage has a user or a key in it").hint(
                "leave them out: they are told by the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        }
        if url.port().is_some() || url.fragment().is_some() {
            return Err(wrong("has a port or a fragment".to_owned()));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut parts = Vec::new();
        for part in url.path().split('/').filter(|part| !part.is_empty()) {
            let part = percent_decode_str(part)
                .decode_utf8()
                .map_err(|_| wrong(format!("has {part:?} in it, which is no text")))?;
            if part == "." || part == ".." || part.contains(['/', '\\']) || part.chars().any(char::is_control)
            {
                return Err(wrong(format!("has the part {part:?}, which no name of a blob may have")));
            }
            parts.push(part.into_owned());
        }
        let (account, bucket) = match kind {
            Kind::Azure if parts.is_empty() => return Err(wrong("names no container".to_owned())),
            Kind::Azure => (host, parts.remove(0)),
            _ => (String::new(), host),
        };
        for (name, what) in [(&bucket, kind.bucket()), (&account, "account")] {
            let is_needed = what != "account" || kind == Kind::Azure;
            let is_right = |c: char| c.is_ascii_alphanumeric() || (what != "account" && ".-_$".contains(c));
            if is_needed && (name.is_empty() || !name.chars().all(is_right)) {
                return Err(wrong(format!("names the {what} {name:?}, which cannot be its name")));
            }
        }
        let mut address = Self {
            kind,
            account,
            bucket,
            prefix: parts.join("/"),
            region: None,
            endpoint: None,
            public_endpoint: None,
            path_style: None,
        };
        for (name, value) in url.query_pairs() {
            if !kind.parameters().contains(&name.as_ref()) {
                return Err(Error::argument(format!(
                    "the address of the storage has the parameter {name:?}"
                ))
                .hint(format!(
                    "for {}:// there are {}",
                    kind.scheme(),
                    kind.parameters().join(", ")
                )));
            }
            match name.as_ref() {
                "region" => address.region = Some(value.into_owned()).filter(|region| !region.is_empty()),
                "endpoint" => address.endpoint = Some(endpoint(&name, &value)?),
                "public_endpoint" => address.public_endpoint = Some(endpoint(&name, &value)?),
                _ => address.path_style = Some(yes_or_no(&name, &value)?),
            }
        }
        Ok(address)
    }

    /// The whole name of the blob `key` in the bucket; of `""`, what the names of all begin with.
    pub(super) fn full(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) }
    }
}

impl fmt::Display for Address {
    /// What may be shown, and tells one storage from another.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.kind.scheme())?;
        if self.kind == Kind::Azure {
            write!(f, "{}/", self.account)?;
        }
        f.write_str(&self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

fn scheme(text: &str) -> Option<Kind> {
    let (scheme, _) = text.split_once("://")?;
    Kind::ALL.into_iter().find(|kind| scheme.eq_ignore_ascii_case(kind.scheme()))
}

fn endpoint(name: &str, value: &str) -> Result<Url> {
    let wrong = |what: &str| {
        Error::argument(format!("the {name} in the address of the storage {what}"))
            .hint("it looks like https://storage.example.org:9000, or http://… on a network that is trusted")
    };
    let url = Url::parse(value).map_err(|e| wrong(&format!("cannot be read: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("begins with neither https:// nor http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("has a user or a password in it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(
            "has more behind its path: write & between the parameters of the address, and %26 inside of one",
        ));
    }
    Ok(url)
}

fn yes_or_no(name: &str, value: &str) -> Result<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Error::argument(format!("{name} is {value:?} in the address of the storage"))
            .hint("it is true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn addresses_are_taken_apart() {
        let s3 = Address::parse("s3://my.bucket/a/b%20c/?region=eu-west-3&path_style=true&endpoint=http%3A%2F%2Fstore%3A9000&public_endpoint=https://s3.example.org").unwrap();
        assert_eq!((s3.kind, s3.bucket.as_str(), s3.prefix.as_str()), (Kind::S3, "my.bucket", "a/b c"));
        assert_eq!((s3.region.as_deref(), s3.path_style), (Some("eu-west-3"), Some(true)));
        assert_eq!(s3.endpoint.as_ref().map(Url::as_str), Some("http://store:9000/"));
        assert_eq!(s3.public_endpoint.as_ref().map(Url::as_str), Some("https://s3.example.org/"));
        assert_eq!(s3.full("videos/x"), "a/b c/videos/x");
        assert_eq!(s3.to_string(), "s3://my.bucket/a/b c");
        let google = Address::parse("gs://bucket").unwrap();
        assert_eq!((google.kind, google.full("videos/x").as_str()), (Kind::Google, "videos/x"));
        let azure = Address::parse("az://account/container/deep/er").unwrap();
        assert_eq!((azure.account.as_str(), azure.bucket.as_str()), ("account", "container"));
        assert_eq!(azure.to_string(), "az://account/container/deep/er");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        for (text, part) in [
            ("s3://", "bucket \"\""),
            ("s3://bucket:80/", "a port"),
            ("s3://b/../c%2F", "part \"c/\""),
            ("s3://b?colour=blue", "parameter \"colour\""),
            ("s3://b?endpoint=store:9000", "neither https:// nor http://"),
            ("s3://b?endpoint=/x", "cannot be read"),
            ("s3://b?path_style=yes", "path_style is \"yes\""),
            ("gs://b?region=eu", "parameter \"region\""),
            ("az://account", "no container"),
            ("az://acc.ount/container", "account \"acc.ount\""),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(error.message().contains(part), "{text}: {error}");
            assert!(error.hint_text().is_some(), "{text}");
        }
    }

    #[test]
    fn a_key_is_refused_and_not_shown() {
        for text in [
            "s3://AKIA:s3cret@bucket/p",
            "S3://AKIA:s3cret@bucket/p",
            "s3://b?endpoint=http://u:s3cret@store",
            "s3://b?secret_access_key=s3cret",
            "s3://AKIA:s3cret/x@bucket",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
        }
    }
}
