//! What makes keys and addresses genuine: a file of its own, so that a stolen database is worth nothing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use crate::error::{Error, ErrorKind, Result};
use crate::files::{create_private_file, replace_atomically};
use crate::hex::hex;

/// Where secrets come from.
pub(super) enum SecretsSource {
    /// A file that is made if it is not there.
    Own(PathBuf),
    /// A file that all machines of a service have alike.
    Shared(PathBuf),
    /// The content of such a file.
    Text(String),
}

impl SecretsSource {
    /// Reads them.
    pub(super) fn read(&self) -> Result<Secrets> {
        match self {
            Self::Own(path) => Secrets::open(path),
            Self::Shared(path) => Secrets::read_shared(path),
            Self::Text(text) => Secrets::parse(text.as_bytes()).map_err(|why| {
                Error::argument(format!("the secrets that were given as text cannot be read: {why}")).hint(
                    "give the whole content of a secrets.json, as `reconstruct serve` makes it on a folder of its own",
                )
            }),
        }
    }

    /// Their file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Own(path) | Self::Shared(path) => Some(path),
            Self::Text(_) => None,
        }
    }
}

/// The file's content.
#[derive(Serialize, Deserialize)]
pub(super) struct Secrets {
    /// Key of the authentication codes of API keys. If it is lost, no API key works any more.
    pub(super) pepper: Secret,
    /// See [`SigningKeys`].
    pub(super) signing_keys: SigningKeys,
}

/// Keys for signed addresses, newest first: sign with the first, accept any. To rotate, put a new one first, and take the
/// last out once no address that it signed is still good.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SigningKeys(Vec<SigningKey>);

/// A key for signed addresses.
#[derive(Clone, Serialize, Deserialize)]
pub struct SigningKey {
    /// Names the key in an address.
    pub id: String,
    secret: Secret,
}

impl SigningKeys {
    /// The key to sign with.
    pub fn current(&self) -> &SigningKey {
        // Never empty: made with two, and an empty list is refused when it is read.
        &self.0[0]
    }

    /// The key of this name.
    pub fn find(&self, id: &str) -> Option<&SigningKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl SigningKey {
    /// The key itself, 32 bytes. Never print it.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret.0
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

/// 32 random bytes, written as hexadecimal digits.
#[derive(Clone)]
pub(super) struct Secret(pub(super) [u8; 32]);

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = (0..32).map(|k| u8::from_str_radix(text.get(2 * k..2 * k + 2)?, 16).ok());
        let bytes: Option<Vec<u8>> = digits.collect();
        match bytes.and_then(|b| b.try_into().ok()) {
            Some(bytes) if text.len() == 64 => Ok(Self(bytes)),
            _ => Err(serde::de::Error::custom("a secret has 64 hexadecimal digits")),
        }
    }
}

/// `N` bytes from the system's generator.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(ErrorKind::Internal, "the system gives no random numbers").caused_by(e))?;
    Ok(bytes)
}

impl Secrets {
    /// Reads the file at `path`, or makes it. The caller sees to it that only one process does.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if !path.exists() {
            Self::random()?.write(path)?;
        }
        Self::read(path)
    }

    /// Reads the file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).map_err(|e| Error::io("read", path, e))?;
        let damaged = |why: String| {
            Error::new(ErrorKind::InvalidFile, format!("{} is damaged: {why}", path.display()))
                .hint("restore it from a backup; without it all API keys have to be made anew")
        };
        Self::parse(&text).map_err(damaged)
    }

    /// Reads the content of such a file, or says what is wrong with it in words that show nothing of it.
    fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let secrets: Self = serde_json::from_slice(text).map_err(|e| {
            let (place, why) = (format!("line {}, column {}", e.line(), e.column()), e.to_string());
            // Other messages may quote what stands there.
            let is_plain = ["missing field", "a secret has 64"].iter().any(|plain| why.starts_with(plain));
            match e.classify() {
                _ if is_plain => why,
                Category::Data => format!("something else is expected at {place}"),
                _ => format!("it is not JSON at {place}"),
            }
        })?;
        match secrets.signing_keys.0.is_empty() {
            true => Err("it has no signing key".to_owned()),
            false => Ok(secrets),
        }
    }

    /// Reads the file at `path`, which all machines of a service have alike.
    pub(super) fn read_shared(path: &Path) -> Result<Self> {
        Self::read(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => e.hint(
                "copy secrets.json from another machine of this service: its keys are good only with it",
            ),
            _ => e,
        })
    }

    /// Copies the file at `from` to `to`, or sees that it is there already.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if other secrets are there: keys would be good on one machine and not on the other.
    #[cfg(feature = "postgres")]
    pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
        let own = Self::read(from)?;
        if !to.exists() {
            return own.write(to);
        }
        let there = Self::read(to)?;
        let text = |secrets: &Self| serde_json::to_string(secrets).unwrap_or_default();
        if text(&own) != text(&there) {
            let message = format!("{} has other secrets than {}", to.display(), from.display());
            return Err(Error::new(ErrorKind::Conflict, message).hint(
                "name a file that is not there yet: keys are good only with the secrets of the folder",
            ));
        }
        Ok(())
    }

    fn random() -> Result<Self> {
        let key = || {
            let id = hex(&random::<4>()?);
            Ok(SigningKey { id, secret: Secret(random()?) })
        };
        Ok(Self { pepper: Secret(random()?), signing_keys: SigningKeys(vec![key()?, key()?]) })
    }

    /// Writes the file at `path`, for its owner only.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(ErrorKind::Internal, "secrets cannot be written as JSON").caused_by(e))?;
        replace_atomically(path, |temporary| {
            create_private_file(temporary)
                .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
                .map_err(|e| Error::io("write", path, e))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_as_text_too_and_are_never_shown() {
        let secrets = Secrets::random().unwrap();
        let text = serde_json::to_string(&secrets).unwrap();
        let read = SecretsSource::Text(text.clone()).read().unwrap();
        assert_eq!(read.pepper.0, secrets.pepper.0);
        let hidden = hex(&secrets.pepper.0);
        let (key, id) = (hex(secrets.signing_keys.current().secret()), &secrets.signing_keys.current().id);
        for (damaged, word) in [
            (text.replace("signing_keys", "keys"), "missing field `signing_keys`"),
            (text.replace(&hidden, &hidden[1..]), "64 hexadecimal digits"),
            (text.replace('}', ""), "not JSON at line 1"),
            (
                format!("{{\"pepper\": \"{hidden}\", \"signing_keys\": \"{key}\"}}"),
                "something else is expected",
            ),
            (format!("\"{hidden}\""), "something else is expected"),
            (format!("x{hidden}"), "not JSON"),
            (format!("{{\"pepper\": \"{hidden}\", \"signing_keys\": []}}"), "no signing key"),
        ] {
            let error = SecretsSource::Text(damaged).read().err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
            let all = format!("{error:?} {error}");
            assert!(![&hidden[1..], &key, id].iter().any(|part| all.contains(*part)), "{all}");
        }
    }

    #[test]
    fn secrets_are_made_once_and_for_the_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.json");
        let first = Secrets::open(&path).unwrap();
        let second = Secrets::open(&path).unwrap();
        assert_eq!(first.pepper.0, second.pepper.0);
        assert_ne!(first.pepper.0, [0; 32]);
        let current = first.signing_keys.current();
        assert_eq!(second.signing_keys.find(&current.id).unwrap().secret(), current.secret());
        assert!(second.signing_keys.find("none").is_none());
        assert!(first.signing_keys.0.len() >= 2);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&path, "{}").unwrap();
        assert_eq!(Secrets::open(&path).err().unwrap().kind(), ErrorKind::InvalidFile);
    }
}
