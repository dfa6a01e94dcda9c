//! The address of a client: the other end of its connection, or what a trusted proxy says.

use std::net::IpAddr;

use axum::http::HeaderMap;
use ipnet::IpNet;

/// A reverse proxy in front of this node.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The header in which it names the client, in lower case.
    pub header: String,
    /// The addresses from which that header is believed.
    pub trusted: Vec<IpNet>,
}

impl Proxy {
    /// Whether a connection from this address comes through the proxy.
    pub(crate) fn is_at(&self, ip: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&ip))
    }

    /// The client that the proxy speaks for. Its header lists hops, the nearest last: the last hop that is no proxy of ours
    /// is the client. Hops before an unreadable one were written by nobody we trust.
    pub(crate) fn client_of(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let values = headers.get_all(self.header.as_str()).iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
        let readable = hops.iter().rev().map_while(|hop| address(hop.trim()));
        let mut nearest_proxy = None;
        for hop in readable {
            if !self.is_at(hop) {
                return Some(hop);
            }
            nearest_proxy = Some(hop);
        }
        nearest_proxy
    }
}

/// An address as proxies write it: bare, with a port, in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.trim_matches(['[', ']', '"']).parse::<IpAddr>().ok();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    bare().or_else(with_port).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_in_every_form_proxies_write() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:4711", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected.map(|ip| ip.parse().unwrap()), "{text}");
        }
    }
}
