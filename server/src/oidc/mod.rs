//! Signing in by another service that knows who somebody is (OpenID Connect Core 1.0): the way there by the authorisation code with PKCE,
//! what it says on the way back, and whether it has said so.
//!
//! The service is the operator's choice. What it answers is read with bounds, and believed only if it is signed by it, for us, now.

mod id_token;
mod provider;
mod settings;

pub(crate) use provider::{Provider, Refusal};
pub(crate) use settings::OidcSettings;
