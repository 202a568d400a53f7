//! Who sent a request, and by which address that client knows this server; both also behind a proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hyper::header::HOST;
use hyper::http::request::Parts;

/// A client of whom nothing is known but that it is none of the proxies: it is nobody's address, and so in no operator's network.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// One side of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    /// The other end of the connection: the client or a proxy.
    pub(crate) peer: SocketAddr,
    /// This end of it.
    pub(crate) local: SocketAddr,
    /// Whether it is encrypted.
    pub(crate) tls: bool,
}

impl Connection {
    /// The client's address. `X-Forwarded-For` is believed only from a proxy that the configuration names, and then from the
    /// right: the last address that is not itself such a proxy. Who is named there and cannot be read is unknown, and never the proxy:
    /// that may be this machine, which may see more than others.
    pub(crate) fn client(&self, parts: &Parts, trusted_proxies: &[IpAddr]) -> IpAddr {
        let mut client = self.peer.ip().to_canonical();
        // As bytes: one that is not ASCII would else take all others of its line with it.
        let lines = parts.headers.get_all("x-forwarded-for").iter();
        let hops = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
        let mut hops: Vec<&[u8]> = hops.filter(|hop| !hop.is_empty()).collect();
        while trusted_proxies.contains(&client) {
            let Some(hop) = hops.pop() else { break };
            let Some(address) = address(hop) else { return UNKNOWN };
            client = address.to_canonical();
        }
        client
    }

    /// Whether a proxy on this machine passed the request on that the configuration does not name. It speaks for others, and nobody
    /// knows for whom: what is for this machine is not for them.
    pub(crate) fn is_by_unknown_proxy(&self, parts: &Parts, trusted_proxies: &[IpAddr]) -> bool {
        let peer = self.peer.ip().to_canonical();
        let says_so =
            || ["x-forwarded-for", "forwarded", "via"].iter().any(|name| parts.headers.contains_key(*name));
        peer.is_loopback() && !trusted_proxies.contains(&peer) && says_so()
    }

    /// `scheme://host[:port]` by which the client reached this server; addresses that it is given begin with it.
    pub(crate) fn base(&self, parts: &Parts, trusted_proxies: &[IpAddr]) -> String {
        let by_proxy = trusted_proxies.contains(&self.peer.ip().to_canonical());
        let forwarded = |name: &str| {
            let value = parts.headers.get(name).filter(|_| by_proxy)?.to_str().ok()?;
            value.split(',').next().map(str::trim)
        };
        let own = if self.tls { "https" } else { "http" };
        let scheme = forwarded("x-forwarded-proto").filter(|s| ["http", "https"].contains(s)).unwrap_or(own);
        // HTTP/2 names the host in its pseudo-header, HTTP/1.1 in `Host`, HTTP/1.0 not at all.
        let host = forwarded("x-forwarded-host")
            .or_else(|| parts.uri.authority().map(|a| a.as_str()))
            .or_else(|| parts.headers.get(HOST)?.to_str().ok())
            .filter(|host| is_host(host));
        match host {
            Some(host) => format!("{scheme}://{host}"),
            None => format!("{scheme}://{}", self.local),
        }
    }
}

/// An address as proxies write it: alone, in brackets, or with the port of the client.
fn address(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|end| end.ip());
    bare.parse::<IpAddr>().ok().or_else(with_port)
}

/// Names, addresses and ports, nothing that would change the meaning of an address.
fn is_host(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    !text.is_empty() && text.len() <= 255 && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn connection(peer: &str) -> Connection {
        let local = "127.0.0.1:8080".parse().unwrap();
        Connection { peer: format!("{peer}:5000").parse().unwrap(), local, tls: false }
    }

    fn request(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/api/v1/jobs/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let parts = request(&[
            ("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.0.0.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "scenes.example.org"),
            ("host", "internal:8080"),
        ]);
        let proxies: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse().unwrap()).into();
        let stranger = connection("203.0.113.9");
        assert_eq!(stranger.client(&parts, &proxies).to_string(), "203.0.113.9");
        assert_eq!(stranger.base(&parts, &proxies), "http://internal:8080");
        let proxy = connection("10.0.0.1");
        assert_eq!(proxy.client(&parts, &proxies).to_string(), "192.0.2.7");
        assert_eq!(proxy.base(&parts, &proxies), "https://scenes.example.org");
    }

    /// The client that `proxy`, which is trusted, names in these lines.
    fn named_by_proxy(proxy: &str, lines: &[&[u8]]) -> String {
        let mut request = Request::get("/metrics");
        for line in lines {
            request = request.header("x-forwarded-for", *line);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        connection(proxy).client(&parts, &[proxy.parse().unwrap()]).to_string()
    }

    /// Else it would be taken for the proxy, which may be on this machine (rule 90 of docs/rest.md).
    #[test]
    fn rule_90_a_client_that_cannot_be_read_is_unknown() {
        let unreadable: [&[&[u8]]; 6] = [
            &[b"\xe9"],
            &[b"192.0.2.7, \xff"],
            &[b"unknown"],
            &[b"192.0.2.7:port"],
            &[b"127.0.0.1 192.0.2.7"],
            &[b"127.0.0.1", b"_hidden"],
        ];
        for lines in unreadable {
            assert_eq!(named_by_proxy("127.0.0.1", lines), "0.0.0.0", "{lines:?}");
        }
        // What is wrong further left is not asked for.
        assert_eq!(named_by_proxy("127.0.0.1", &[b"\xe9, 192.0.2.7"]), "192.0.2.7");
        assert_eq!(named_by_proxy("127.0.0.1", &[b"\xe9", b"192.0.2.7"]), "192.0.2.7");
        let nobody: [&[&[u8]]; 3] = [&[], &[b""], &[b" , "]];
        for lines in nobody {
            assert_eq!(named_by_proxy("127.0.0.1", lines), "127.0.0.1", "{lines:?}");
        }
    }

    #[test]
    fn rule_90_a_proxy_on_this_machine_that_is_not_named_is_not_this_machine() {
        let is_by_unknown = |peer: &str, headers: &[(&str, &str)], trusted: &[&str]| {
            let proxies: Vec<IpAddr> = trusted.iter().map(|address| address.parse().unwrap()).collect();
            connection(peer).is_by_unknown_proxy(&request(headers), &proxies)
        };
        for header in [("x-forwarded-for", "192.0.2.7"), ("forwarded", "for=192.0.2.7"), ("via", "1.1 proxy")]
        {
            for peer in ["127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]"] {
                assert!(is_by_unknown(peer, &[header], &[]), "{peer} {header:?}");
            }
            assert!(!is_by_unknown("127.0.0.1", &[header], &["127.0.0.1"]));
            assert!(!is_by_unknown("192.0.2.1", &[header], &[]));
        }
        assert!(!is_by_unknown("127.0.0.1", &[("user-agent", "Prometheus")], &[]));
    }

    #[test]
    fn a_client_may_be_named_with_its_port() {
        for (line, client) in [
            ("192.0.2.7:4711", "192.0.2.7"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[::ffff:192.0.2.7]:4711", "192.0.2.7"),
            ("192.0.2.7, 127.0.0.1:80", "192.0.2.7"),
        ] {
            assert_eq!(named_by_proxy("127.0.0.1", &[line.as_bytes()]), client, "{line}");
        }
    }

    #[test]
    fn a_host_that_is_none_is_not_repeated() {
        let parts = request(&[("host", "a/b?c#d@e")]);
        assert_eq!(connection("192.0.2.1").base(&parts, &[]), "http://127.0.0.1:8080");
        assert_eq!(connection("192.0.2.1").base(&request(&[]), &[]), "http://127.0.0.1:8080");
        let six = request(&[("host", "[::1]:8080")]);
        assert_eq!(connection("192.0.2.1").base(&six, &[]), "http://[::1]:8080");
    }
}
