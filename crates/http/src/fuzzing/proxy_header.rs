//! Any headers that a client sends through a trusted proxy, which adds the client's address: a byte for the proxy, then a
//! header per line.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::client_address::Proxy;

const HEADER: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The client's address, as proxies write it.
const CLIENTS: [(&str, &str); 4] = [
    ("192.0.2.1", "192.0.2.1"),
    ("192.0.2.1:4711", "192.0.2.1"),
    ("2001:db8::1", "2001:db8::1"),
    ("[2001:db8::1]:4711", "2001:db8::1"),
];

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Some((kind, lines)) = bytes.split_first() else { return };
    let trusted = ["127.0.0.0/8", "10.0.0.0/8"].map(|network| network.parse().expect("a network")).to_vec();
    let proxy = Proxy { header: HEADER.as_str().to_owned(), trusted };
    let claimed: Vec<Vec<u8>> = lines.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (written, client) = CLIENTS[usize::from(kind % 4)];
    let client: IpAddr = client.parse().expect("an address");
    for chain in [written.to_owned(), format!("{written}, 10.0.0.2"), format!("{written},127.0.0.1 , 10.0.0.2")] {
        for added in [own_line(&claimed, &chain), in_last_line(&claimed, &chain), in_one_line(&claimed, &chain)] {
            if let Some(headers) = headers(&added) {
                // No claim of the client takes the place of what the proxies say.
                assert_eq!(proxy.client_of(&headers), Some(client), "{added:?}");
            }
        }
    }
    // A client that reaches the node through nothing but itself.
    if let Some(headers) = headers(&claimed) {
        let _ = proxy.client_of(&headers);
    }
}

/// The proxy adds a header of its own.
fn own_line(claimed: &[Vec<u8>], chain: &str) -> Vec<Vec<u8>> {
    claimed.iter().cloned().chain([chain.as_bytes().to_vec()]).collect()
}

/// The proxy adds to the last header.
fn in_last_line(claimed: &[Vec<u8>], chain: &str) -> Vec<Vec<u8>> {
    let mut lines = claimed.to_vec();
    if let Some(last) = lines.last_mut() {
        last.extend_from_slice(format!(", {chain}").as_bytes());
    }
    lines
}

/// The proxy makes one header of all.
fn in_one_line(claimed: &[Vec<u8>], chain: &str) -> Vec<Vec<u8>> {
    vec![[claimed.join(&b", "[..]), format!(", {chain}").into_bytes()].concat()]
}

/// `None`: HTTP has no such header.
fn headers(lines: &[Vec<u8>]) -> Option<HeaderMap> {
    lines.iter().map(|line| Some((HEADER, HeaderValue::from_bytes(line).ok()?))).collect()
}
