//! What an authenticator says (Web Authentication, Level 3), read and verified: no rows, no network, no memory of its own.
//!
//! Of the kinds of keys those are known that authenticators make: ECDSA on P-256, Ed25519, RSA. An attestation, which would say who
//! built the authenticator, is not asked for: here it matters who has the key, not who has made its home. So all that is read is of
//! fixed form (WebAuthn demands the canonical encoding of keys, CTAP2's), and no reader of CBOR is needed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// The numbers of the kinds of keys (IANA's registry of COSE algorithms): what a page may offer, the best first.
pub const PASSKEY_ALGORITHMS: [i32; 3] = [-7, -8, -257];

/// The longest name of a key that an authenticator may give (WebAuthn, section 7.1, step 25).
const LONGEST_CREDENTIAL: usize = 1023;
/// The longest text of a browser about a signature. As a rule it has 200 bytes.
const LONGEST_CLIENT_DATA: usize = 4096;

/// Somebody was there.
const PRESENT: u8 = 0x01;
/// The authenticator knows who: by a finger, a face or a number.
const VERIFIED: u8 = 0x04;
/// A new key follows.
const HAS_KEY: u8 = 0x40;

/// Where a passkey is used, as the browser calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Scheme, host and port: `https://scenes.example.org`.
    pub origin: String,
    /// The host alone, for which a passkey is made.
    pub host: String,
}

/// What an authenticator said, and the browser about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// `clientDataJSON`.
    pub client_data: Vec<u8>,
    /// `authenticatorData`.
    pub authenticator_data: Vec<u8>,
}

/// A key that an authenticator has made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewKey {
    pub(super) credential: Vec<u8>,
    /// As COSE has it.
    pub(super) public_key: Vec<u8>,
    pub(super) sign_count: u32,
}

/// What the browser says of what was asked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

/// What was wrong, for people who look for the reason. Who signs in hears less.
fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, format!("this passkey cannot be used here: {why}"))
}

impl Said {
    /// The challenge that was signed: what [`Said::check`] says of everything else must still hold.
    pub(super) fn challenge(&self) -> Result<String> {
        let challenge = URL_SAFE_NO_PAD.decode(self.read_client_data()?.challenge);
        challenge
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| wrong("it answers to nothing"))
    }

    fn read_client_data(&self) -> Result<ClientData> {
        if self.client_data.len() > LONGEST_CLIENT_DATA {
            return Err(wrong("the browser says too much"));
        }
        serde_json::from_slice(&self.client_data).map_err(|_| wrong("what the browser says cannot be read"))
    }

    /// Whether it was said here, for this, by an authenticator that knows its user; returns the counter.
    fn check(&self, kind: &str, site: &Site) -> Result<u32> {
        let said = self.read_client_data()?;
        if said.kind != kind {
            return Err(wrong("it was asked for something else"));
        }
        if said.origin != site.origin || said.cross_origin {
            return Err(wrong("it was used on another page"));
        }
        let (Some(host), Some(&flags), Some(count)) = (
            self.authenticator_data.get(..32),
            self.authenticator_data.get(32),
            self.authenticator_data.get(33..37).and_then(|count| count.try_into().ok()),
        ) else {
            return Err(wrong("what it says is cut short"));
        };
        if host != Sha256::digest(&site.host).as_slice() {
            return Err(wrong("it is for another host"));
        }
        if flags & PRESENT == 0 || flags & VERIFIED == 0 {
            return Err(wrong("it does not know its user: unlock it by a finger, a face or a number"));
        }
        Ok(u32::from_be_bytes(count))
    }

    /// The key that was made.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] with what is wrong.
    pub(super) fn new_key(&self, site: &Site) -> Result<NewKey> {
        let sign_count = self.check("webauthn.create", site)?;
        let data = &self.authenticator_data;
        let cut = || wrong("what it says is cut short");
        if data.get(32).is_none_or(|flags| flags & HAS_KEY == 0) {
            return Err(wrong("it has made no key"));
        }
        // Behind the counter: 16 bytes for its make, the length of the name, the name, the key.
        let length: [u8; 2] = data.get(53..55).and_then(|length| length.try_into().ok()).ok_or_else(cut)?;
        let length = usize::from(u16::from_be_bytes(length));
        if length == 0 || length > LONGEST_CREDENTIAL {
            return Err(wrong("the name of its key is too long"));
        }
        let credential = data.get(55..55 + length).ok_or_else(cut)?.to_vec();
        let key = data.get(55 + length..).unwrap_or_default();
        let (_, length) = PublicKey::read(key).ok_or_else(|| wrong("it makes keys of an unknown kind"))?;
        let public_key = key.get(..length).ok_or_else(cut)?.to_vec();
        Ok(NewKey { credential, public_key, sign_count })
    }

    /// Whether `signature` is by this key, and of this; returns the counter.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] with what is wrong.
    pub(super) fn verify(&self, site: &Site, public_key: &[u8], signature: &[u8]) -> Result<u32> {
        let sign_count = self.check("webauthn.get", site)?;
        let signed = [&self.authenticator_data[..], &Sha256::digest(&self.client_data)].concat();
        let (key, _) = PublicKey::read(public_key).ok_or_else(|| wrong("its key cannot be read"))?;
        match key.verify(&signed, signature) {
            true => Ok(sign_count),
            false => Err(wrong("its signature is wrong")),
        }
    }
}

/// A public key, in parts of what COSE (RFC 9053) has of it.
enum PublicKey<'a> {
    /// The point's two coordinates.
    P256(&'a [u8], &'a [u8]),
    Ed25519(&'a [u8]),
    /// Modulus and exponent.
    Rsa(&'a [u8], &'a [u8]),
}

impl<'a> PublicKey<'a> {
    /// Reads the key at the beginning of `bytes`; how long it is.
    fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (key, rest) = if let Some(after) = bytes.strip_prefix(b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20")
        {
            // {kty: EC2, alg: ES256, crv: P-256, x: 32 bytes, y: 32 bytes}
            let (x, after) = after.split_at_checked(32)?;
            let (y, after) = after.strip_prefix(b"\x22\x58\x20")?.split_at_checked(32)?;
            (Self::P256(x, y), after)
        } else if let Some(after) = bytes.strip_prefix(b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20") {
            // {kty: OKP, alg: EdDSA, crv: Ed25519, x: 32 bytes}
            let (x, after) = after.split_at_checked(32)?;
            (Self::Ed25519(x), after)
        } else {
            // {kty: RSA, alg: RS256, n: up to 512 bytes, e: 3 bytes}
            let after = bytes.strip_prefix(b"\xa4\x01\x03\x03\x39\x01\x00\x20\x59")?;
            let (length, after) = after.split_first_chunk::<2>()?;
            let (n, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            let (e, after) = after.strip_prefix(b"\x21\x43")?.split_at_checked(3)?;
            if n.len() > 512 {
                return None;
            }
            (Self::Rsa(n, e), after)
        };
        Some((key, bytes.len() - rest.len()))
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::P256(x, y) => {
                let point = [&[4][..], x, y].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(signed, signature).is_ok()
            }
            Self::Ed25519(x) => UnparsedPublicKey::new(&ED25519, x).verify(signed, signature).is_ok(),
            Self::Rsa(n, e) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

    use super::*;

    pub(in crate::service) fn site() -> Site {
        Site { origin: "https://scenes.example.org".into(), host: "scenes.example.org".into() }
    }

    enum Pair {
        P256(EcdsaKeyPair),
        Ed25519(Ed25519KeyPair),
    }

    /// An authenticator with one key.
    pub(in crate::service) struct Authenticator {
        pair: Pair,
        pub(in crate::service) credential: Vec<u8>,
        pub(in crate::service) flags: u8,
        pub(in crate::service) count: u32,
    }

    impl Authenticator {
        pub(in crate::service) fn p256() -> Self {
            let random = SystemRandom::new();
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random);
            Self::with(Pair::P256(pair.unwrap()))
        }

        fn ed25519() -> Self {
            let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            Self::with(Pair::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()))
        }

        fn with(pair: Pair) -> Self {
            let mut credential = vec![0; 16];
            getrandom::fill(&mut credential).unwrap();
            Self { pair, credential, flags: PRESENT | VERIFIED, count: 0 }
        }

        fn public_key(&self) -> Vec<u8> {
            match &self.pair {
                Pair::P256(pair) => {
                    let point = pair.public_key().as_ref();
                    let (x, y) = (&point[1..33], &point[33..]);
                    [b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20", x, b"\x22\x58\x20", y].concat()
                }
                Pair::Ed25519(pair) => {
                    [b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20", pair.public_key().as_ref()].concat()
                }
            }
        }

        fn client_data(kind: &str, challenge: &str, origin: &str) -> Vec<u8> {
            let challenge = URL_SAFE_NO_PAD.encode(challenge);
            format!(
                r#"{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false}}"#
            )
            .into_bytes()
        }

        fn head(&self, site: &Site, flags: u8) -> Vec<u8> {
            [&Sha256::digest(&site.host)[..], &[flags], &self.count.to_be_bytes()].concat()
        }

        pub(in crate::service) fn create(&self, site: &Site, challenge: &str) -> Said {
            let length = u16::try_from(self.credential.len()).unwrap().to_be_bytes();
            let made = [&[0; 16][..], &length, &self.credential, &self.public_key()].concat();
            let authenticator_data = [self.head(site, self.flags | HAS_KEY), made].concat();
            Said {
                client_data: Self::client_data("webauthn.create", challenge, &site.origin),
                authenticator_data,
            }
        }

        pub(in crate::service) fn get(&self, site: &Site, challenge: &str) -> (Said, Vec<u8>) {
            let said = Said {
                client_data: Self::client_data("webauthn.get", challenge, &site.origin),
                authenticator_data: self.head(site, self.flags),
            };
            let signature = self.sign(&said);
            (said, signature)
        }

        fn sign(&self, said: &Said) -> Vec<u8> {
            let signed = [&said.authenticator_data[..], &Sha256::digest(&said.client_data)].concat();
            match &self.pair {
                Pair::P256(pair) => pair.sign(&SystemRandom::new(), &signed).unwrap().as_ref().to_vec(),
                Pair::Ed25519(pair) => pair.sign(&signed).as_ref().to_vec(),
            }
        }
    }

    #[test]
    fn what_an_authenticator_signs_is_verified_with_the_key_that_it_made() {
        for authenticator in [Authenticator::p256(), Authenticator::ed25519()] {
            let made = authenticator.create(&site(), "challenge").new_key(&site()).unwrap();
            assert_eq!((&made.credential, made.sign_count), (&authenticator.credential, 0));
            assert_eq!(made.public_key, authenticator.public_key());
            let (said, signature) = authenticator.get(&site(), "challenge");
            assert_eq!(said.challenge().unwrap(), "challenge");
            assert_eq!(said.verify(&site(), &made.public_key, &signature).unwrap(), 0);
            // Each bit of what is signed counts.
            for at in 0..said.authenticator_data.len() {
                let mut changed = said.clone();
                changed.authenticator_data[at] ^= 0x10;
                assert!(changed.verify(&site(), &made.public_key, &signature).is_err(), "{at}");
            }
            let mut changed = said.clone();
            changed.client_data = Authenticator::client_data("webauthn.get", "other", &site().origin);
            assert!(changed.verify(&site(), &made.public_key, &signature).is_err());
            let stranger = Authenticator::p256();
            assert!(said.verify(&site(), &stranger.public_key(), &signature).is_err());
            assert!(said.verify(&site(), &made.public_key, &stranger.sign(&said)).is_err());
            assert!(said.verify(&site(), &made.public_key, b"").is_err());
        }
    }

    /// By OpenSSL: `openssl genrsa 2048`, `openssl dgst -sha256 -sign`.
    #[test]
    fn rsa_is_known_too() {
        let hex = |text: &str| -> Vec<u8> {
            let text: String = text.split_whitespace().collect();
            (0..text.len() / 2).map(|k| u8::from_str_radix(&text[2 * k..2 * k + 2], 16).unwrap()).collect()
        };
        let (n, signature) =
            (hex(include_str!("test_rsa_modulus.txt")), hex(include_str!("test_rsa_signature.txt")));
        let key = [b"\xa4\x01\x03\x03\x39\x01\x00\x20\x59\x01\x00", &n[..], b"\x21\x43\x01\x00\x01"].concat();
        let (read, length) = PublicKey::read(&key).unwrap();
        assert_eq!(length, key.len());
        assert!(read.verify(b"signed by RSA", &signature));
        assert!(!read.verify(b"signed by RSA?", &signature));
    }

    #[test]
    fn what_was_said_elsewhere_or_for_something_else_is_refused() {
        let authenticator = Authenticator::p256();
        let key = authenticator.public_key();
        let refused = |site: &Site, said: &Said| {
            let signature = authenticator.sign(said);
            let error = said.verify(site, &key, &signature).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            error.message().to_owned()
        };
        let (said, _) = authenticator.get(&site(), "challenge");
        let with = |client_data: &str| Said { client_data: client_data.into(), ..said.clone() };
        let other = Site { origin: "https://scenes.example.org:8443".into(), ..site() };
        assert!(refused(&other, &said).contains("another page"));
        let (elsewhere, _) = authenticator.get(&Site { host: "evil.example".into(), ..site() }, "challenge");
        assert!(refused(&site(), &elsewhere).contains("another host"));
        let created = authenticator.create(&site(), "challenge");
        assert!(refused(&site(), &created).contains("something else"));
        assert!(said.new_key(&site()).unwrap_err().message().contains("something else"));
        let framed = r#"{"type":"webauthn.get","challenge":"eA","origin":"https://scenes.example.org","crossOrigin":true}"#;
        assert!(refused(&site(), &with(framed)).contains("another page"));
        for text in ["", "{}", "[]", "null", r#"{"type":1}"#] {
            assert!(refused(&site(), &with(text)).contains("cannot be read"), "{text}");
        }
        assert!(refused(&site(), &with(&" ".repeat(5000))).contains("too much"));
        for flags in [0, PRESENT, VERIFIED] {
            let authenticator = Authenticator { flags, ..Authenticator::p256() };
            let error = authenticator.create(&site(), "x").new_key(&site()).unwrap_err();
            assert!(error.message().contains("does not know its user"), "{flags}");
        }
    }

    #[test]
    fn what_is_cut_short_or_strange_is_refused_at_every_place() {
        let authenticator = Authenticator::ed25519();
        let made = authenticator.create(&site(), "x");
        for length in 0..made.authenticator_data.len() {
            let authenticator_data = made.authenticator_data[..length].to_vec();
            assert!(Said { authenticator_data, ..made.clone() }.new_key(&site()).is_err(), "{length}");
        }
        let mut longer = made.clone();
        longer.authenticator_data.extend(b"\xa0");
        assert_eq!(longer.new_key(&site()).unwrap().public_key, authenticator.public_key());
        let mut nameless = made.clone();
        nameless.authenticator_data[53..55].fill(0);
        assert!(nameless.new_key(&site()).is_err());
        let mut endless = made;
        endless.authenticator_data[53..55].fill(0xff);
        assert!(endless.new_key(&site()).is_err());
    }
}
