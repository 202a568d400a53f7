//! What a browser holds to be let in: the token of an invitation or of a session.
//!
//! It is random and long, so the rows have a plain SHA-256 of it: whoever reads them cannot sign in with what they read, and
//! finding a row by the hash tells nothing by the time that it takes.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::database::TokenHash;
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;

/// Bytes of a token: 256 bits, which nobody guesses.
const BYTES: usize = 32;

/// A token, as 64 hexadecimal digits. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl AccessToken {
    /// A new random token.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the system gives no random numbers.
    pub(super) fn random() -> Result<Self> {
        let mut bytes = [0; BYTES];
        fill_random(&mut bytes)?;
        Ok(Self(hex(&bytes)))
    }

    /// The token itself. Give it to whom it is for, and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// By what its row is found.
    pub(super) fn hash(&self) -> TokenHash {
        Sha256::digest(&self.0).into()
    }

    /// By what the row of a presented token is found, if it has the form of one.
    pub(super) fn hash_of(presented: &str) -> Option<TokenHash> {
        Self::presented(presented).map(|token| token.hash())
    }

    /// A presented token, if it has the form of one.
    pub(super) fn presented(text: &str) -> Option<Self> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (text.len() == 2 * BYTES && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// Fills `bytes` with what nobody can foresee.
///
/// # Errors
/// [`ErrorKind::Internal`] if the system gives no random numbers.
pub(super) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|e| Error::new(ErrorKind::Internal, "the system gives no random numbers").caused_by(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_random_and_is_never_printed() {
        let (token, other) = (AccessToken::random().unwrap(), AccessToken::random().unwrap());
        assert_ne!(token, other);
        assert_eq!(token.reveal().len(), 64);
        assert!(!format!("{token:?}").contains(&token.reveal()[..8]));
        assert_eq!(AccessToken::hash_of(token.reveal()), Some(token.hash()));
        assert_ne!(token.hash(), other.hash());
    }

    #[test]
    fn what_is_no_token_has_no_row() {
        let good = AccessToken::random().unwrap();
        for bad in [
            "",
            &good.reveal()[1..],
            &format!("{}0", good.reveal()),
            &"A".repeat(64),
            &"é".repeat(32),
            &"g".repeat(64),
        ] {
            assert_eq!(AccessToken::hash_of(bad), None, "{bad}");
        }
    }
}
