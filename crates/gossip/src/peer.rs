//! Peer addresses and their text forms: a ticket, or `id@address`.

use std::{fmt, net::SocketAddr, str::FromStr};

use iroh::EndpointAddr;
pub use iroh::EndpointId as PeerId;
use iroh_tickets::endpoint::EndpointTicket;

/// The id of a peer and the addresses at which it can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub(crate) EndpointAddr);

/// The text is no peer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a peer is a ticket, or its id and an address, as in <64 hex>@192.0.2.1:7778")]
pub struct InvalidPeerAddress;

impl PeerAddress {
    /// The public key of the peer.
    pub fn id(&self) -> PeerId {
        self.0.id
    }

    /// The ticket: one word with the id, the addresses and the relay servers.
    pub fn ticket(&self) -> String {
        EndpointTicket::new(self.0.clone()).to_string()
    }
}

impl FromStr for PeerAddress {
    type Err = InvalidPeerAddress;

    fn from_str(text: &str) -> Result<Self, InvalidPeerAddress> {
        let Some((id, addresses)) = text.split_once('@') else {
            let ticket: EndpointTicket = text.parse().map_err(|_| InvalidPeerAddress)?;
            return Ok(Self(ticket.endpoint_addr().clone()));
        };
        let mut address = EndpointAddr::new(id.parse().map_err(|_| InvalidPeerAddress)?);
        for one in addresses.split(',') {
            address = address.with_ip_addr(one.parse::<SocketAddr>().map_err(|_| InvalidPeerAddress)?);
        }
        Ok(Self(address))
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only a ticket can name a relay server.
        if self.0.ip_addrs().next().is_none() || self.0.relay_urls().next().is_some() {
            return self.ticket().fmt(f);
        }
        let addresses: Vec<String> = self.0.ip_addrs().map(ToString::to_string).collect();
        write!(f, "{}@{}", self.0.id, addresses.join(","))
    }
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;

    use super::*;

    #[test]
    fn a_peer_address_is_parsed_from_both_of_its_text_forms() {
        let id = SecretKey::from_bytes(&[7; 32]).public();
        let by_hand: PeerAddress = format!("{id}@127.0.0.1:7778,[::1]:7778").parse().unwrap();
        assert_eq!(by_hand.id(), id);
        assert_eq!(by_hand.to_string().parse(), Ok(by_hand.clone()));
        assert_eq!(by_hand.ticket().parse(), Ok(by_hand));
    }

    #[test]
    fn a_text_that_is_no_peer_address_is_an_error() {
        let id = SecretKey::from_bytes(&[7; 32]).public();
        for text in ["", "nonsense", &id.to_string(), &format!("{id}@"), &format!("{id}@localhost:1"), "1@127.0.0.1:1"]
        {
            assert_eq!(text.parse::<PeerAddress>(), Err(InvalidPeerAddress), "{text}");
        }
    }
}
