//! Challenges: what a browser or another server has to give back, once and soon, to show that it answers to us.
//!
//! One is made without a row, so that whoever only asks for them costs the disk nothing. It says itself until when it holds and has
//! an authentication code under the pepper, which also covers what it is for and whose it is. What has been answered rightly is noted
//! by whoever takes the answer, in the same transaction: no second answer counts.

use hmac::Mac;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Service;
use super::secrets::random;
use crate::database::UsedChallenge;
use crate::error::Result;
use crate::hex::hex;
use crate::job::Timestamp;

/// How long it is remembered after its end that a challenge was used, seconds: the clocks of servers and of their database may differ.
const REMEMBERED: u64 = 24 * 3600;
/// The longest text that can be a challenge.
const LONGEST: usize = 128;

impl Service {
    /// A challenge for `purpose` that holds for `seconds`. Only who has `of` again when it is checked is answered to.
    pub(super) fn new_challenge(&self, purpose: &str, of: &[u8], seconds: u64) -> Result<String> {
        let until = self.inner.clock.now().plus_seconds(seconds).as_micros();
        let begin = format!("{until}.{}", hex(&random::<16>()?));
        let code = self.code_of_challenge(&begin, purpose, of);
        Ok(format!("{begin}.{}", hex(&code)))
    }

    /// Whether a challenge is one of ours, for this, and still holds; by what it is noted as used.
    pub(super) fn check_challenge(&self, text: &str, purpose: &str, of: &[u8]) -> Option<UsedChallenge> {
        if text.len() > LONGEST {
            return None;
        }
        let (begin, code) = text.rsplit_once('.')?;
        let expected = hex(&self.code_of_challenge(begin, purpose, of));
        if !bool::from(expected.as_bytes().ct_eq(code.as_bytes())) {
            return None;
        }
        let until = Timestamp::from_micros(begin.split_once('.')?.0.parse().ok()?);
        let holds = self.inner.clock.now() < until;
        holds.then(|| UsedChallenge {
            challenge: Sha256::digest(text).into(),
            forgotten_at: until.plus_seconds(REMEMBERED),
        })
    }

    fn code_of_challenge(&self, begin: &str, purpose: &str, of: &[u8]) -> [u8; 32] {
        let mut mac = self.inner.secrets.mac();
        // No API key has a line break, so that no code of one is that of the other.
        mac.update(format!("challenge\n{purpose}\n{begin}\n").as_bytes());
        mac.update(of);
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;

    #[test]
    fn a_challenge_is_for_one_thing_and_for_its_time() {
        let w = World::new();
        let challenge = w.service.new_challenge("this", b"anna", 60).unwrap();
        let check = |text: &str, purpose: &str, of: &[u8]| w.service.check_challenge(text, purpose, of);
        let used = check(&challenge, "this", b"anna").unwrap();
        assert_eq!(check(&challenge, "this", b"anna").unwrap().challenge, used.challenge);
        assert_ne!(w.service.new_challenge("this", b"anna", 60).unwrap(), challenge);
        for (text, purpose, of) in [
            (&challenge[..], "that", &b"anna"[..]),
            (&challenge, "this", b"eve"),
            (&challenge, "this", b""),
            ("", "this", b"anna"),
            ("..", "this", b"anna"),
            (&challenge[1..], "this", b"anna"),
            (&challenge[..challenge.len() - 1], "this", b"anna"),
            (&challenge.replacen('1', "9", 1), "this", b"anna"),
            (&format!("{challenge}0"), "this", b"anna"),
            (&"0".repeat(1000), "this", b"anna"),
        ] {
            if text != challenge || purpose != "this" || of != b"anna" {
                assert_eq!(check(text, purpose, of), None, "{text} {purpose}");
            }
        }
        // Another service has another pepper.
        assert_eq!(World::new().service.check_challenge(&challenge, "this", b"anna"), None);
        w.clock.advance(59);
        assert!(check(&challenge, "this", b"anna").is_some());
        w.clock.advance(2);
        assert_eq!(check(&challenge, "this", b"anna"), None);
    }
}
