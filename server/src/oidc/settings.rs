//! What the operator sets, and who may sign in by it.

use std::path::PathBuf;

use ipnet::IpNet;
use libreconstruct::job::Tier;
use libreconstruct::service::Newcomer;
use libreconstruct::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hidden::Hidden;
use crate::reach::Reach;

/// What the operator sets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OidcSettings {
    pub(crate) issuer: Option<String>,
    pub(crate) client_id: Option<String>,
    pub(crate) client_secret_file: Option<PathBuf>,
    /// From the environment alone, so that it stands in no file of settings and is never printed.
    #[serde(skip)]
    pub(crate) client_secret: Option<Hidden>,
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) allowed_domains: Vec<String>,
    pub(crate) required_claims: Vec<String>,
    pub(crate) create_users: bool,
    pub(crate) new_users_tier: Tier,
    pub(crate) allow_http: bool,
    pub(crate) allowed_networks: Vec<IpNet>,
}

impl Default for OidcSettings {
    fn default() -> Self {
        Self {
            issuer: None,
            client_id: None,
            client_secret_file: None,
            client_secret: None,
            name: "your company".to_owned(),
            scopes: ["openid", "email", "profile"].map(str::to_owned).to_vec(),
            allowed_domains: Vec::new(),
            required_claims: Vec::new(),
            create_users: false,
            new_users_tier: Tier::Free,
            allow_http: false,
            allowed_networks: Vec::new(),
        }
    }
}

impl OidcSettings {
    /// What may be connected to.
    pub(super) fn reach(&self) -> Reach {
        Reach { allow_http: self.allow_http, allowed_networks: self.allowed_networks.clone() }
    }

    /// # Errors
    /// [`InvalidArgument`](libreconstruct::ErrorKind::InvalidArgument) with what is missing or wrong.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(issuer) = &self.issuer else { return Ok(()) };
        self.reach()
            .read(issuer)
            .map_err(|why| Error::argument(format!("oidc.issuer is {issuer:?}: {why}")))?;
        if issuer.contains('?') {
            return Err(Error::argument(format!("oidc.issuer is {issuer:?}: an issuer has no query")));
        }
        if self.client_id.as_deref().unwrap_or_default().is_empty() {
            return Err(Error::argument("oidc.issuer needs oidc.client_id").hint(
                "the service that you name as the issuer gives it to you when you register this server there",
            ));
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            return Err(Error::argument("oidc.scopes lacks openid"));
        }
        for claim in &self.required_claims {
            if claim.split_once('=').is_none_or(|(name, value)| name.is_empty() || value.is_empty()) {
                return Err(Error::argument(format!(
                    "oidc.required_claims has {claim:?}: name=value is expected"
                )));
            }
        }
        if self.create_users && self.allowed_domains.is_empty() && self.required_claims.is_empty() {
            return Err(Error::argument("oidc.create_users would add whoever has an account at the issuer")
                .hint("say who may sign in: oidc.allowed_domains or oidc.required_claims"));
        }
        Ok(())
    }

    /// Whether who the issuer says this is may sign in here at all.
    pub(super) fn admits(&self, claims: &Map<String, Value>) -> bool {
        let domain =
            verified_email(claims).and_then(|email| email.rsplit_once('@')).map(|(_, domain)| domain);
        let is_from_here = self.allowed_domains.is_empty()
            || domain.is_some_and(|domain| {
                self.allowed_domains.iter().any(|own| own.eq_ignore_ascii_case(domain))
            });
        let has = |claim: &String| {
            // Checked when the settings were read.
            let (name, wanted) = claim.split_once('=').unwrap_or_default();
            match claims.get(name) {
                Some(Value::Array(values)) => values.iter().any(|value| is(value, wanted)),
                Some(value) => is(value, wanted),
                None => false,
            }
        };
        is_from_here && self.required_claims.iter().all(has)
    }

    /// Who is to be added, if nobody here is known by this account: by the address of mail if that was verified, else by what the
    /// issuer calls the user.
    pub(super) fn newcomer(&self, claims: &Map<String, Value>) -> Option<Newcomer> {
        let name = verified_email(claims)
            .or_else(|| claims.get("preferred_username").and_then(Value::as_str))
            .or_else(|| claims.get("sub").and_then(Value::as_str))?;
        self.create_users.then(|| Newcomer { name: name.to_owned(), tier: self.new_users_tier })
    }
}

/// Text as it is, and what is no text as JSON writes it.
fn is(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(value) => wanted == if *value { "true" } else { "false" },
        Value::Number(value) => value.to_string() == wanted,
        _ => false,
    }
}

fn verified_email(claims: &Map<String, Value>) -> Option<&str> {
    // Some write the truth value as text.
    let is_verified = claims.get("email_verified").is_some_and(|value| is(value, "true"));
    claims.get("email").and_then(Value::as_str).filter(|_| is_verified)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn settings_are_whole_or_refused() {
        let good = OidcSettings {
            issuer: Some("https://login.example.org/realms/main".into()),
            client_id: Some("scenes".into()),
            ..OidcSettings::default()
        };
        good.check().unwrap();
        OidcSettings::default().check().unwrap();
        let issuer = |text: &str| OidcSettings { issuer: Some(text.into()), ..good.clone() };
        for (bad, word) in [
            (issuer("http://login.example.org"), "without TLS"),
            (issuer("https://10.0.0.1"), "no other may be told"),
            (issuer("login.example.org"), "no address"),
            (issuer("https://login.example.org?a=b"), "no query"),
            (OidcSettings { client_id: None, ..good.clone() }, "client_id"),
            (OidcSettings { scopes: vec!["email".into()], ..good.clone() }, "openid"),
            (OidcSettings { required_claims: vec!["groups".into()], ..good.clone() }, "name=value"),
            (OidcSettings { create_users: true, ..good.clone() }, "whoever has an account"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.message().contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn who_may_sign_in_is_said_by_domains_and_claims() {
        let open = OidcSettings::default();
        assert!(open.admits(&claims(json!({}))));
        let domain = OidcSettings { allowed_domains: vec!["Example.org".into()], ..OidcSettings::default() };
        for (email, verified, admitted) in [
            ("a@example.org", json!(true), true),
            ("a@EXAMPLE.ORG", json!("true"), true),
            ("a@example.org", json!(false), false),
            ("a@example.org", json!(null), false),
            ("a@example.org.evil.example", json!(true), false),
            ("a@sub.example.org", json!(true), false),
            ("example.org", json!(true), false),
        ] {
            let claims = claims(json!({"email": email, "email_verified": verified}));
            assert_eq!(domain.admits(&claims), admitted, "{email} {verified}");
        }
        let group = OidcSettings {
            required_claims: vec!["groups=scenes".into(), "staff=true".into()],
            ..OidcSettings::default()
        };
        assert!(group.admits(&claims(json!({"groups": ["a", "scenes"], "staff": true}))));
        assert!(group.admits(&claims(json!({"groups": "scenes", "staff": "true"}))));
        for other in [
            json!({"groups": ["scenes"]}),
            json!({"staff": true}),
            json!({"groups": ["scene"], "staff": true}),
        ] {
            assert!(!group.admits(&claims(other)));
        }
    }

    #[test]
    fn newcomers_are_called_by_what_is_verified() {
        let settings = OidcSettings { create_users: true, ..OidcSettings::default() };
        let name = |value: Value| settings.newcomer(&claims(value)).map(|newcomer| newcomer.name);
        let all =
            json!({"sub": "7", "email": "a@b.example", "email_verified": true, "preferred_username": "anna"});
        assert_eq!(name(all.clone()).as_deref(), Some("a@b.example"));
        let unverified = json!({"sub": "7", "email": "a@b.example", "preferred_username": "anna"});
        assert_eq!(name(unverified).as_deref(), Some("anna"));
        assert_eq!(name(json!({"sub": "7"})).as_deref(), Some("7"));
        assert_eq!(OidcSettings::default().newcomer(&claims(all)), None);
    }
}
