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
    /// is the client. If all are proxies of ours, the nearest is: it has written no other, and the rest is hearsay. Hops
    /// before an unreadable one were written by nobody we trust.
    pub(crate) fn client_of(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let values = headers.get_all(self.header.as_str()).iter();
        let hops: Vec<&[u8]> = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).collect();
        let mut readable =
            hops.iter().rev().map_while(|hop| address(str::from_utf8(hop).ok()?.trim_ascii())).peekable();
        let nearest = readable.peek().copied();
        readable.find(|hop| !self.is_at(*hop)).or(nearest)
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
    fn client_is_the_nearest_hop_that_is_no_proxy_of_ours() {
        let trusted = ["127.0.0.0/8", "10.0.0.0/8"].map(|net| net.parse().unwrap()).to_vec();
        let proxy = Proxy { header: "x-forwarded-for".to_owned(), trusted };
        for (headers, expected, why) in [
            (&["192.0.2.1"][..], Some("192.0.2.1"), "one hop"),
            (&["198.51.100.9, 192.0.2.1"], Some("192.0.2.1"), "the farther hop is the client's own claim"),
            (&["192.0.2.1, 10.0.0.2"], Some("192.0.2.1"), "a proxy of ours in between"),
            (&["192.0.2.1", "10.0.0.2"], Some("192.0.2.1"), "each proxy adds a header of its own"),
            (&["127.0.0.9, 10.0.0.3, 10.0.0.2"], Some("10.0.0.2"), "all are trusted: only the nearest hop is sure"),
            (&["10.0.0.2"], Some("10.0.0.2"), "a request of the proxy itself"),
            (&["192.0.2.1, unknown, 10.0.0.2"], Some("10.0.0.2"), "hops before an unreadable one do not count"),
            (&["192.0.2.1, unknown"], None, "the nearest hop is unreadable"),
            (&["198.51.100.9", "é, 192.0.2.1"], Some("192.0.2.1"), "a header that is not ASCII is not passed over"),
            (&["198.51.100.9", "é"], None, "the nearest header is unreadable"),
            (&[""], None, "an empty header"),
            (&[], None, "no header"),
        ] {
            let name = axum::http::HeaderName::from_static("x-forwarded-for");
            let map =
                headers.iter().map(|value| (name.clone(), value.as_bytes().try_into().unwrap())).collect::<HeaderMap>();
            assert_eq!(proxy.client_of(&map), expected.map(|ip| ip.parse().unwrap()), "{why}");
        }
    }

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
