//! Which addresses may be told (docs/rest.md, rule 97): those that everybody on the Internet can reach, and those in networks that
//! the operator names.

use ipnet::IpNet;
use libreconstruct::{Error, Result};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::reach::Reach;

/// What the operator sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WebhookSettings {
    pub(crate) max_per_user: u32,
    pub(crate) allow_http: bool,
    pub(crate) allowed_networks: Vec<IpNet>,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self { max_per_user: 10, allow_http: false, allowed_networks: Vec::new() }
    }
}

impl WebhookSettings {
    /// Reads an address as a user gives it.
    ///
    /// # Errors
    /// [`InvalidArgument`](libreconstruct::ErrorKind::InvalidArgument) with what is wrong, in words for the user.
    pub(crate) fn check(&self, text: &str) -> Result<Url> {
        self.reach().read(text).map_err(|why| Error::argument(format!("url is {text:?}: {why}")))
    }

    /// What may be connected to.
    pub(super) fn reach(&self) -> Reach {
        Reach { allow_http: self.allow_http, allowed_networks: self.allowed_networks.clone() }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::dns::Resolve as _;

    use super::*;
    use crate::reach::{NotAllowed, Resolver};

    #[test]
    fn rule_97_only_what_everybody_can_reach() {
        let settings = WebhookSettings::default();
        for good in [
            "https://hooks.example.org/a?b=c",
            "https://8.8.8.8:8443/",
            "https://[2600:1f18::1]/",
            "https://[::ffff:8.8.8.8]/",
            "https://172.32.0.1/",
            "https://100.128.0.1/",
            // A name, whatever it leads to: that is seen when it is connected to.
            "https://localhost/",
        ] {
            assert!(settings.check(good).is_ok(), "{good}");
        }
        for bad in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://0x7f.0.0.1/",
            "https://2130706433/",
            "https://0177.0.0.1/",
            "https://0.0.0.0/",
            "https://10.1.2.3/",
            "https://172.16.0.1/",
            "https://172.31.255.255/",
            "https://192.168.1.1/",
            "https://169.254.169.254/latest/meta-data/",
            "https://100.100.100.200/",
            "https://192.0.0.192/",
            "https://198.18.0.1/",
            "https://224.0.0.1/",
            "https://255.255.255.255/",
            "https://[::]/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:a9fe:a9fe]/",
            "https://[::127.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[fe80::1]/",
            "https://[fd00:ec2::254]/",
            "https://[ff02::1]/",
            "https://[2002:7f00:1::]/",
            "https://[2001:0:7f00:1::]/",
            "https://[2001:db8::1]/",
        ] {
            let error = settings.check(bad).unwrap_err();
            assert!(error.message().contains("no other may be told"), "{bad}: {error}");
        }
    }

    #[test]
    fn rule_93_what_is_no_address_is_named() {
        let settings = WebhookSettings::default();
        for (bad, word) in [
            ("", "no address"),
            ("hooks.example.org", "no address"),
            ("https://", "no address"),
            ("http://hooks.example.org/", "without TLS"),
            ("ftp://hooks.example.org/", "https:// is expected"),
            ("file:///etc/passwd", "https:// is expected"),
            ("https://me:secret@hooks.example.org/", "name or password"),
            ("https://me@hooks.example.org/", "name or password"),
            ("https://hooks.example.org/#a", "#"),
        ] {
            let error = settings.check(bad).unwrap_err();
            assert!(error.message().contains(word) && error.message().contains(bad), "{bad}: {error}");
        }
    }

    #[test]
    fn rule_97_operators_may_name_more() {
        let settings = WebhookSettings {
            allow_http: true,
            allowed_networks: vec!["10.1.0.0/16".parse().unwrap(), "fd00:1::/32".parse().unwrap()],
            ..WebhookSettings::default()
        };
        for good in ["http://10.1.2.3:8080/", "http://[::ffff:10.1.2.3]/", "https://[fd00:1::5]/"] {
            assert!(settings.check(good).is_ok(), "{good}");
        }
        for bad in ["http://10.2.0.1/", "https://[fd00:2::5]/", "http://127.0.0.1/"] {
            assert!(settings.check(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn rule_97_a_name_is_judged_by_where_it_leads() {
        let resolve = |networks: &[&str]| {
            let allowed_networks = networks.iter().map(|network| network.parse().unwrap()).collect();
            Resolver(Reach { allow_http: false, allowed_networks }).resolve("localhost".parse().unwrap())
        };
        let refused = resolve(&[]).await.err().unwrap();
        assert!(refused.is::<NotAllowed>(), "{refused}");
        let found: Vec<_> = resolve(&["127.0.0.0/8"]).await.unwrap().collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.is_ipv4()), "{found:?}");
    }
}
