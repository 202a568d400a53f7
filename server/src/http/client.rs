//! Who sent a request, and by which address that client knows this server; both also behind a proxy.

use std::net::{IpAddr, SocketAddr};

use hyper::header::HOST;
use hyper::http::request::Parts;

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
    /// right: the last address that is not itself such a proxy.
    pub(crate) fn client(&self, parts: &Parts, trusted_proxies: &[IpAddr]) -> IpAddr {
        let mut client = self.peer.ip().to_canonical();
        let forwarded = parts.headers.get_all("x-forwarded-for").iter().filter_map(|v| v.to_str().ok());
        let mut hops: Vec<&str> = forwarded.flat_map(|v| v.split(',')).map(str::trim).collect();
        while trusted_proxies.contains(&client) {
            let Some(Ok(hop)) = hops.pop().map(str::parse::<IpAddr>) else { break };
            client = hop.to_canonical();
        }
        client
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

    #[test]
    fn a_host_that_is_none_is_not_repeated() {
        let parts = request(&[("host", "a/b?c#d@e")]);
        assert_eq!(connection("192.0.2.1").base(&parts, &[]), "http://127.0.0.1:8080");
        assert_eq!(connection("192.0.2.1").base(&request(&[]), &[]), "http://127.0.0.1:8080");
        let six = request(&[("host", "[::1]:8080")]);
        assert_eq!(connection("192.0.2.1").base(&six, &[]), "http://[::1]:8080");
    }
}
