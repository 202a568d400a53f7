//! Users and their API keys. How a key is checked is in [`crate::service`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Timestamp, UserId};
use crate::error::{Error, ErrorKind, Result};

/// What a user may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Nothing through the interface.
    Free,
    /// Everything.
    #[default]
    Enterprise,
}

impl Tier {
    /// Lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Enterprise => "enterprise",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Free, Self::Enterprise]
            .into_iter()
            .find(|t| t.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| Error::argument(format!("tier is {text:?}: free and enterprise are known")))
    }
}

/// Somebody who has jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Identifies the user.
    pub user_id: UserId,
    /// Unique name, for people.
    pub name: String,
    /// What the user may do.
    pub tier: Tier,
    /// When the user was added.
    pub created_at: Timestamp,
}

/// What is shown of an API key after it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Label chosen by the user.
    pub name: String,
    /// The leading part of the key, up to the dot; identifies it.
    pub prefix: String,
    /// When the key was made.
    pub created_at: Timestamp,
    /// When it was last used; not older than the last minute's truth.
    pub last_used: Option<Timestamp>,
    /// Since when it no longer works.
    pub revoked_at: Option<Timestamp>,
}

/// Letters of a key.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// What every key begins with, so that scanners of source code find one that leaked.
const HEAD: &str = "lrk_";
/// Letters between the head and the dot.
const PREFIX_LETTERS: usize = 8;
/// Letters after the dot: 43 of 62 are just above 256 bits.
const SECRET_LETTERS: usize = 43;

/// A whole API key, `lrk_<8 letters>.<43 letters>`; shown once, when it is made. `Display` and `Debug` show the prefix only.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeySecret(String);

impl ApiKeySecret {
    /// A new random key.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the system gives no random numbers.
    pub fn random() -> Result<Self> {
        let mut text = String::with_capacity(HEAD.len() + PREFIX_LETTERS + 1 + SECRET_LETTERS);
        text.push_str(HEAD);
        push_letters(&mut text, PREFIX_LETTERS)?;
        text.push('.');
        push_letters(&mut text, SECRET_LETTERS)?;
        Ok(Self(text))
    }

    /// The key itself. Show it to its owner, once, and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part that identifies the key.
    pub fn prefix(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// The prefix of what somebody presents as a key, if it has the form of one.
    pub(crate) fn prefix_of(presented: &str) -> Option<&str> {
        let (prefix, secret) = presented.split_once('.')?;
        let letters = prefix.strip_prefix(HEAD)?;
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric());
        (letters.len() == PREFIX_LETTERS && secret.len() == SECRET_LETTERS && plain(letters) && plain(secret))
            .then_some(prefix)
    }
}

/// Appends random letters, each equally likely.
fn push_letters(text: &mut String, count: usize) -> Result<()> {
    let mut bytes = [0u8; 64];
    let end = text.len() + count;
    while text.len() < end {
        getrandom::fill(&mut bytes).map_err(|e| {
            Error::new(ErrorKind::Internal, "the system gives no random numbers").caused_by(e)
        })?;
        // 248 = 4 * 62: the bytes above would make the first letters likelier.
        let letters = bytes.iter().filter(|b| **b < 248).map(|b| char::from(BASE62[usize::from(b % 62)]));
        text.extend(letters.take(end - text.len()));
    }
    Ok(())
}

impl fmt::Display for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.…", self.prefix())
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeySecret({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_form_and_is_never_printed() {
        let key = ApiKeySecret::random().unwrap();
        assert_eq!(key.reveal().len(), 4 + 8 + 1 + 43);
        assert_eq!(ApiKeySecret::prefix_of(key.reveal()), Some(key.prefix()));
        let secret = key.reveal().split_once('.').unwrap().1;
        assert!(!format!("{key} {key:?}").contains(secret));
        assert_ne!(ApiKeySecret::random().unwrap(), key);
        for bad in [
            "",
            "lrk_",
            "x",
            &key.reveal()[1..],
            &format!("{} ", key.reveal()),
            &key.reveal().replace('.', "é"),
        ] {
            assert_eq!(ApiKeySecret::prefix_of(bad), None, "{bad}");
        }
    }
}
