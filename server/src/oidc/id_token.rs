//! Tokens that say who somebody is: signed JSON (RFC 7515, RFC 7519), verified as OpenID Connect Core wants it (section 3.1.3.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// How far the clock of the issuer may be off, seconds.
const CLOCKS: f64 = 60.0;
/// The longest token that is looked at, bytes. As a rule one has 1 to 2 KiB.
const LONGEST: usize = 64 << 10;

/// A public key of the issuer (RFC 7517).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// For whom a token must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Seconds since 1970.
    pub(super) now: f64,
}

/// Why a token is not believed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// None of the keys has signed it: the issuer may have new ones.
    Key,
    /// For the log.
    Token(&'static str),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The claims of a token, if the issuer has signed it, for us, in answer to what was asked, and not too long ago.
pub(super) fn verify(
    token: &str,
    keys: &[Jwk],
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, Wrong> {
    let wrong = Wrong::Token;
    if token.len() > LONGEST {
        return Err(wrong("it is too long"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(wrong("it has no signature"))?;
    let (header, claims) = signed.split_once('.').ok_or(wrong("it has no header"))?;
    let header: Header = decode(header)
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or(wrong("its header is damaged"))?;
    if header.crit.is_some() {
        return Err(wrong("it has extensions that are not known here"));
    }
    if !["RS256", "ES256", "EdDSA"].contains(&header.alg.as_str()) {
        return Err(wrong("it is signed by none of RS256, ES256, EdDSA"));
    }
    let signature = decode(signature).ok_or(wrong("its signature is damaged"))?;
    let mut fitting = keys.iter().filter(|key| key.fits(&header));
    if !fitting.any(|key| key.verify(signed.as_bytes(), &signature)) {
        return Err(Wrong::Key);
    }
    let claims: Map<String, Value> = decode(claims)
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or(wrong("its claims are damaged"))?;
    check(&claims, expected)?;
    Ok(claims)
}

fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), Wrong> {
    let wrong = |why| Err(Wrong::Token(why));
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    if text("iss") != Some(expected.issuer) {
        return wrong("it is of another issuer");
    }
    let for_us = |value: &Value| value.as_str() == Some(expected.client_id);
    let (is_for_us, is_for_others) = match claims.get("aud") {
        Some(Value::Array(all)) => (all.iter().any(for_us), all.len() > 1),
        Some(one) => (for_us(one), false),
        None => (false, false),
    };
    let asked_by_us = match claims.get("azp") {
        Some(party) => for_us(party),
        None => !is_for_others,
    };
    if !is_for_us || !asked_by_us {
        return wrong("it is for another client");
    }
    if text("nonce") != Some(expected.nonce) {
        return wrong("it answers to something else");
    }
    if time("exp").is_none_or(|end| expected.now >= end + CLOCKS) {
        return wrong("it holds no more");
    }
    if time("iat").is_none_or(|made| made > expected.now + CLOCKS) {
        return wrong("it is from the future");
    }
    if claims.contains_key("nbf") && time("nbf").is_none_or(|begin| begin > expected.now + CLOCKS) {
        return wrong("it does not hold yet");
    }
    if text("sub").is_none_or(|subject| subject.is_empty() || subject.len() > 255) {
        return wrong("it names nobody");
    }
    Ok(())
}

impl Jwk {
    /// Whether what has this header may be signed by it.
    fn fits(&self, header: &Header) -> bool {
        let kind = match header.alg.as_str() {
            "RS256" => self.kty == "RSA",
            "ES256" => self.kty == "EC" && self.crv.as_deref() == Some("P-256"),
            _ => self.kty == "OKP" && self.crv.as_deref() == Some("Ed25519"),
        };
        kind && header.kid.as_ref().is_none_or(|kid| self.kid.as_ref().is_none_or(|own| own == kid))
            && self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.alg.as_ref().is_none_or(|alg| *alg == header.alg)
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        let part = |text: &Option<String>| text.as_deref().and_then(decode).unwrap_or_default();
        match self.kty.as_str() {
            "RSA" => RsaPublicKeyComponents { n: part(&self.n), e: part(&self.e) }
                .verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok(),
            "EC" => {
                let point = [vec![4], part(&self.x), part(&self.y)].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
            _ => UnparsedPublicKey::new(&ED25519, part(&self.x)).verify(signed, signature).is_ok(),
        }
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    const NOW: f64 = 1_800_000_000.0;

    fn expected() -> Expected<'static> {
        Expected { issuer: "https://login.example", client_id: "scenes", nonce: "n", now: NOW }
    }

    fn good() -> Value {
        json!({"iss": "https://login.example", "sub": "7", "aud": "scenes", "nonce": "n", "iat": NOW, "exp": NOW + 300.0})
    }

    fn encode(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    struct Issuer {
        pair: Ed25519KeyPair,
    }

    impl Issuer {
        fn new() -> Self {
            let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            Self { pair: Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap() }
        }

        fn key(&self) -> Jwk {
            let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
            serde_json::from_value(json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "use": "sig", "x": x}))
                .unwrap()
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let signed = format!("{}.{}", encode(header), encode(claims));
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes())))
        }
    }

    fn header() -> Value {
        json!({"alg": "EdDSA", "kid": "a", "typ": "JWT"})
    }

    #[test]
    fn what_the_issuer_has_signed_for_us_is_believed() {
        let issuer = Issuer::new();
        let keys = [Issuer::new().key(), issuer.key()];
        let claims = verify(&issuer.sign(&header(), &good()), &keys, &expected()).unwrap();
        assert_eq!(claims["sub"], "7");
        // Without a name of the key each is tried.
        verify(&issuer.sign(&json!({"alg": "EdDSA"}), &good()), &keys, &expected()).unwrap();
        for aud in [json!(["scenes"]), json!(["scenes", "other"])] {
            let mut claims = good();
            claims["aud"] = aud;
            claims["azp"] = json!("scenes");
            verify(&issuer.sign(&header(), &claims), &keys, &expected()).unwrap();
        }
    }

    #[test]
    fn what_is_for_others_or_from_others_or_too_old_is_not_believed() {
        let issuer = Issuer::new();
        let keys = [issuer.key()];
        for (name, value, word) in [
            ("iss", json!("https://login.example/"), "another issuer"),
            ("iss", json!(null), "another issuer"),
            ("aud", json!("other"), "another client"),
            ("aud", json!([]), "another client"),
            ("aud", json!(["scenes", "other"]), "another client"),
            ("azp", json!("other"), "another client"),
            ("nonce", json!("m"), "something else"),
            ("nonce", json!(null), "something else"),
            ("exp", json!(NOW - 61.0), "no more"),
            ("exp", json!("never"), "no more"),
            ("iat", json!(NOW + 61.0), "future"),
            ("nbf", json!(NOW + 61.0), "not hold yet"),
            ("sub", json!(""), "nobody"),
            ("sub", json!(7), "nobody"),
            ("sub", json!("x".repeat(256)), "nobody"),
        ] {
            let mut claims = good();
            claims[name] = value;
            match verify(&issuer.sign(&header(), &claims), &keys, &expected()) {
                Err(Wrong::Token(why)) => assert!(why.contains(word), "{name}: {why}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_not_signed_by_the_issuer_is_not_believed() {
        let issuer = Issuer::new();
        let keys = [issuer.key()];
        let token = issuer.sign(&header(), &good());
        assert_eq!(verify(&Issuer::new().sign(&header(), &good()), &keys, &expected()), Err(Wrong::Key));
        assert_eq!(verify(&token, &[], &expected()), Err(Wrong::Key));
        let other_kid = issuer.sign(&json!({"alg": "EdDSA", "kid": "b"}), &good());
        assert_eq!(verify(&other_kid, &keys, &expected()), Err(Wrong::Key));
        let for_encryption: Jwk = Jwk { usage: Some("enc".into()), ..issuer.key() };
        assert_eq!(verify(&token, &[for_encryption], &expected()), Err(Wrong::Key));
        let parts: Vec<&str> = token.split('.').collect();
        let mut claims = good();
        claims["sub"] = json!("8");
        let changed = format!("{}.{}.{}", parts[0], encode(&claims), parts[2]);
        assert_eq!(verify(&changed, &keys, &expected()), Err(Wrong::Key));
        let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), parts[1]);
        let x = keys[0].x.clone().unwrap();
        for bad in [
            unsigned,
            // The public key as the secret of a code.
            issuer.sign(&json!({"alg": "HS256", "k": x}), &good()),
            issuer.sign(&json!({"alg": "EdDSA", "crit": ["b64"]}), &good()),
            parts[1].to_owned(),
            format!("{}.{}", parts[0], parts[1]),
            format!("{}.{}.!", parts[0], parts[1]),
            String::new(),
            "..".to_owned(),
            "x".repeat(LONGEST + 1),
        ] {
            assert!(matches!(verify(&bad, &keys, &expected()), Err(Wrong::Token(_))), "{bad}");
        }
    }

    #[test]
    fn keys_of_elliptic_curves_are_known_too() {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        let key: Jwk = serde_json::from_value(json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})).unwrap();
        let signed = format!("{}.{}", encode(&json!({"alg": "ES256"})), encode(&good()));
        let signature = pair.sign(&random, signed.as_bytes()).unwrap();
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
        verify(&token, std::slice::from_ref(&key), &expected()).unwrap();
        // A key for something else is not tried.
        let other = Jwk { alg: Some("ES384".into()), ..key };
        assert_eq!(verify(&token, &[other], &expected()), Err(Wrong::Key));
    }
}
