//! IP networks (CIDR) and URLs.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::Url;

use crate::{TextSetting, TomlValue};

/// A single address is a network of its own. Compare canonical addresses with it: IPv4 as IPv4, not mapped into IPv6.
impl TextSetting for IpNet {
    const ALLOWED: &'static str = "an IP address, or a network such as 192.0.2.0/24 or 2001:db8::/32";

    fn parse(text: &str) -> Option<Self> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(Self::from)).ok()?;
        // IPv4 mapped into IPv6 becomes IPv4, because addresses are compared as IPv4.
        let mapped = |network: Ipv6Net| Ipv4Net::new(network.addr().to_ipv4_mapped()?, network.prefix_len() - 96).ok();
        match network {
            Self::V6(v6) if v6.prefix_len() >= 96 => Some(mapped(v6).map_or(network, Self::V4)),
            _ => Some(network),
        }
    }

    fn to_value(&self) -> TomlValue {
        self.to_string().into()
    }
}

crate::checked_text! {
    /// A `ws://` or `wss://` URL.
    pub WebSocketUrl: "a URL that starts with ws:// or wss://", |text| is_url(text, &["ws", "wss"])
}

crate::checked_text! {
    /// An `http://` or `https://` URL.
    pub HttpUrl: "a URL that starts with http:// or https://", |text| is_url(text, &["http", "https"])
}

/// `Url` corrects much malformed text; here it is refused.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    let has_scheme = schemes.iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")));
    let has_space = text.chars().any(|character| character.is_whitespace() || character.is_control());
    has_scheme && !has_space && Url::parse(text).is_ok_and(|url| url.has_host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_ipv4_addresses_mapped_into_ipv6() {
        let network = IpNet::parse("192.0.2.0/24").unwrap();
        for (address, inside) in
            [("192.0.2.255", true), ("::ffff:192.0.2.1", true), ("192.0.3.0", false), ("::1", false)]
        {
            assert_eq!(network.contains(&address.parse::<IpAddr>().unwrap().to_canonical()), inside, "{address}");
        }
        for (text, shown) in [
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(IpNet::parse(text).unwrap().to_value(), shown.into());
        }
        assert_eq!(IpNet::parse("192.0.2.0/33"), None);
    }

    #[test]
    fn a_web_socket_url_needs_its_scheme_and_a_host() {
        assert!(WebSocketUrl::parse("wss://relay.example.com/nostr").is_some());
        for text in
            ["", "wss://", "https://relay.example.com", "relay.example.com", "wss:relay", " wss://a", "wss://a b"]
        {
            assert_eq!(WebSocketUrl::parse(text), None, "{text}");
        }
    }
}
