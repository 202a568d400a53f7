//! What makes what an address is told genuine, as Standard Webhooks has it (standardwebhooks.com, version 1).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use libreconstruct::service::WebhookKey;
use sha2::Sha256;

/// The key as its user gets it.
pub(crate) fn secret_text(key: &WebhookKey) -> String {
    format!("whsec_{}", STANDARD.encode(key.reveal()))
}

/// The value of `webhook-signature`; `timestamp` is that of `webhook-timestamp`.
pub(super) fn sign(key: &[u8; 32], id: &str, timestamp: i64, body: &[u8]) -> String {
    // Half a block of the hash; HMAC pads the key with zeros (RFC 2104, section 2).
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with Python's `hmac`, and accepted by the package `standardwebhooks` with the secret
    /// `whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=`.
    #[test]
    fn rule_95_a_signature_is_that_of_the_standard() {
        let key: [u8; 32] = std::array::from_fn(|k| k as u8);
        let signature = sign(&key, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1_674_087_231, b"{\"type\":\"a\"}");
        assert_eq!(signature, "v1,J6ph3LlC5Sn4xEEoJxyagINOKAD8Dhr4cVxP9fT33U4=");
    }
}
