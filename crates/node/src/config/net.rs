//! Addresses of networks and of this node: CIDRs, URLs, the name of a header.

use std::net::IpAddr;

use axum::http::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::Url;

use super::value::Spelled;

/// Addresses that begin alike; one address is a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network(IpNet);

impl Network {
    /// Its addresses. Compare with them what is canonical: IPv4 as IPv4.
    pub(crate) fn net(&self) -> IpNet {
        self.0
    }
}

impl From<IpNet> for Network {
    fn from(network: IpNet) -> Self {
        Self(network)
    }
}

impl Spelled for Network {
    const ALLOWED: &'static str = "an IP address, or a network such as 192.0.2.0/24 or 2001:db8::/32";

    fn parse(text: &str) -> Option<Self> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()?;
        // IPv4 as IPv6 writes it: addresses are compared as IPv4.
        let mapped = |network: Ipv6Net| Ipv4Net::new(network.addr().to_ipv4_mapped()?, network.prefix_len() - 96).ok();
        match network {
            IpNet::V6(v6) if v6.prefix_len() >= 96 => Some(Self(mapped(v6).map_or(network, IpNet::V4))),
            _ => Some(Self(network)),
        }
    }

    fn spell(&self) -> toml::Value {
        self.0.to_string().into()
    }
}

/// By which URL clients know the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl(String);

impl PublicUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Spelled for PublicUrl {
    const ALLOWED: &'static str = "a URL that starts with ws:// or wss://";

    fn parse(text: &str) -> Option<Self> {
        is_url(text, &["ws", "wss"]).then(|| Self(text.to_owned()))
    }

    fn spell(&self) -> toml::Value {
        self.as_str().into()
    }
}

/// Where a page or a picture is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebUrl(String);

impl WebUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Spelled for WebUrl {
    const ALLOWED: &'static str = "a URL that starts with http:// or https://";

    fn parse(text: &str) -> Option<Self> {
        is_url(text, &["http", "https"]).then(|| Self(text.to_owned()))
    }

    fn spell(&self) -> toml::Value {
        self.as_str().into()
    }
}

/// `Url` mends much that is written wrong; we want it written right.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    let has_scheme = schemes.iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")));
    let has_space = text.chars().any(|character| character.is_whitespace() || character.is_control());
    has_scheme && !has_space && Url::parse(text).is_ok_and(|url| url.has_host())
}

impl Spelled for HeaderName {
    const ALLOWED: &'static str = "the name of an HTTP header, such as x-forwarded-for";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn spell(&self) -> toml::Value {
        self.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_addresses_in_either_spelling() {
        let network = Network::parse("192.0.2.0/24").unwrap();
        for (address, inside) in
            [("192.0.2.255", true), ("::ffff:192.0.2.1", true), ("192.0.3.0", false), ("::1", false)]
        {
            assert_eq!(network.net().contains(&address.parse::<IpAddr>().unwrap().to_canonical()), inside, "{address}");
        }
        for (text, shown) in [
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(Network::parse(text).unwrap().spell(), shown.into());
        }
        assert_eq!(Network::parse("192.0.2.0/33"), None);
    }

    #[test]
    fn a_public_url_has_its_scheme_and_a_host() {
        assert!(PublicUrl::parse("wss://relay.example.com/nostr").is_some());
        for text in
            ["", "wss://", "https://relay.example.com", "relay.example.com", "wss:relay", " wss://a", "wss://a b"]
        {
            assert_eq!(PublicUrl::parse(text), None, "{text}");
        }
    }
}
