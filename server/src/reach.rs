//! Which addresses this server asks or tells something on somebody's behalf: those that everybody on the Internet can reach, and those in
//! networks that the operator names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use libreconstruct::{Error, ErrorKind, Result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tokio_rustls::rustls::crypto::ring;

/// What the operator allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Also addresses without TLS.
    pub(crate) allow_http: bool,
    pub(crate) allowed_networks: Vec<IpNet>,
}

impl Reach {
    /// Reads an address. What a name leads to is looked at when it is connected to: it may be something else by then.
    ///
    /// # Errors
    /// What is wrong, in words for whoever gave it.
    pub(crate) fn read(&self, text: &str) -> std::result::Result<Url, String> {
        let url = Url::parse(text).map_err(|e| format!("this is no address ({e})"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return Err("https:// is expected; this server tells nothing without TLS".into()),
            _ => return Err("https:// is expected".into()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a name or password in it is not sent; leave it out".into());
        }
        if url.fragment().is_some() {
            return Err("what follows # is not sent; leave it out".into());
        }
        match literal(&url) {
            Some(ip) if !self.allows(ip) => {
                Err("not an address that everybody on the Internet can reach, and no other may be told"
                    .into())
            }
            _ => Ok(url),
        }
    }

    /// Whether an address may be connected to.
    fn allows(&self, ip: IpAddr) -> bool {
        // An IPv4 address that is written as one of IPv6 leads to the same place.
        let ip = ip.to_canonical();
        self.allowed_networks.iter().any(|network| network.contains(&ip)) || is_global(ip)
    }

    /// A client that connects to nothing else, and gives each request up after `longest`: from the look-up of the name to the end of the
    /// answer. It asks for the addresses of names only: a number is looked at by [`Reach::read`].
    ///
    /// # Errors
    /// If the certificates of this system cannot be read.
    pub(crate) fn client(self, longest: Duration) -> Result<Client> {
        // Whoever was first has chosen the same.
        let _ = ring::default_provider().install_default();
        Client::builder()
            .dns_resolver(Arc::new(Resolver(self)))
            // What is connected to is what was looked at: not another address to which it leads, nor a proxy.
            .redirect(Policy::none())
            .no_proxy()
            .http1_only()
            .timeout(longest)
            .pool_max_idle_per_host(0)
            .user_agent(concat!("libreconstruct/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::new(ErrorKind::Internal, "cannot set up a client of HTTP").caused_by(e))
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
pub(crate) struct Resolver(pub(crate) Reach);

/// A name leads only to what may not be told. Where it leads is not said: users learn nothing of the operator's network.
#[derive(Debug)]
pub(crate) struct NotAllowed;

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
