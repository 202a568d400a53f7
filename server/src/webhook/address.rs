//! Which addresses may be told (docs/rest.md, rule 97): those that everybody on the Internet can reach, and those in networks that
//! the operator names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use libreconstruct::{Error, Result};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::{Deserialize, Serialize};

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
    /// Reads an address as a user gives it. What a name leads to is looked at when it is connected to: it may be something else by
    /// then.
    ///
    /// # Errors
    /// [`InvalidArgument`](libreconstruct::ErrorKind::InvalidArgument) with what is wrong, in words for the user.
    pub(crate) fn check(&self, text: &str) -> Result<Url> {
        let wrong = |why: &str| Error::argument(format!("url is {text:?}: {why}"));
        let url = Url::parse(text).map_err(|e| wrong(&format!("this is no address ({e})")))?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return Err(wrong("https:// is expected; this server tells nothing without TLS")),
            _ => return Err(wrong("https:// is expected")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("a name or password is not sent; tell who asks by the signature"));
        }
        if url.fragment().is_some() {
            return Err(wrong("what follows # is not sent; leave it out"));
        }
        match literal(&url) {
            Some(ip) if !self.allows(ip) => Err(wrong(
                "not an address that everybody on the Internet can reach, and no other may be told",
            )),
            _ => Ok(url),
        }
    }

    /// Whether an address may be connected to.
    fn allows(&self, ip: IpAddr) -> bool {
        // An IPv4 address that is written as one of IPv6 leads to the same place.
        let ip = ip.to_canonical();
        self.allowed_networks.iter().any(|network| network.contains(&ip)) || is_global(ip)
    }
}

/// The host of an address, if it is a number already. All the ways to write IPv4 (`0x7f.1`) were read by the parser.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// Whether everybody on the Internet means the same by this address and can reach it (IANA's registries of special-purpose
/// addresses). The standard library's own word on it is not stable yet.
fn is_global(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_global_v4(ip),
        IpAddr::V6(ip) => is_global_v6(ip),
    }
}

fn is_global_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, ..)      // this network, private, loopback, multicast, reserved, broadcast
            | (100, 64..=127, _)            // behind the NAT of a provider
            | (169, 254, _)                 // link-local, and the metadata of clouds
            | (172, 16..=31, _) | (192, 168, _)             // private
            | (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113)  // protocols, documentation
            | (192, 88, 99)                 // relays from IPv6
            | (198, 18..=19, _) // measurements
    );
    !special
}

fn is_global_v6(ip: Ipv6Addr) -> bool {
    let [a, b, ..] = ip.segments();
    // Loopback, link-local, private, multicast, mapped and translated addresses all lie outside of what is given out.
    let given_out = a & 0xe000 == 0x2000;
    let special = matches!(
        (a, b),
        (0x2001, 0..=0x01ff)                // protocols, with tunnels to IPv4 addresses among them
            | (0x2001, 0x0db8) | (0x3fff, 0..=0x0fff)       // documentation
            | (0x2002, _) // tunnels to IPv4 addresses
    );
    given_out && !special
}

/// Says of a name only the addresses that may be told: what it says is what is connected to.
pub(super) struct Resolver(pub(super) Arc<WebhookSettings>);

/// A name leads only to what may not be told. Where it leads is not said: users learn nothing of the operator's network.
#[derive(Debug)]
pub(super) struct NotAllowed;

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its name does not lead to an address that everybody on the Internet can reach")
    }
}

impl std::error::Error for NotAllowed {}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let settings = self.0.clone();
        Box::pin(async move {
            // The port is put in by who connects.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|address| settings.allows(address.ip())).collect();
            match allowed.is_empty() {
                true => Err(NotAllowed.into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let settings = WebhookSettings { allowed_networks, ..WebhookSettings::default() };
            Resolver(Arc::new(settings)).resolve("localhost".parse().unwrap())
        };
        let refused = resolve(&[]).await.err().unwrap();
        assert!(refused.is::<NotAllowed>(), "{refused}");
        let found: Vec<_> = resolve(&["127.0.0.0/8"]).await.unwrap().collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.is_ipv4()), "{found:?}");
    }
}
