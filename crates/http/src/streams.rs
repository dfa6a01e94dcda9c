//! Streams of changes: how many there may be, over all and by address, and turns by network of those that are far behind (Y-1).

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
};

use kukuri_engine::networks::{AddressLimit, Network, Share, ShareLimits, ShareRefused, Shares, networks_of};
use parking_lot::Mutex;

/// Streams of all clients together.
const MAX_STREAMS: usize = 256;
/// An address may have the free streams divided by this.
const STREAM_PARTS: usize = 4;

/// Locked by one stream of a network while it waits among the streams of other networks.
pub type StreamTurn = tokio::sync::Mutex<()>;

/// A stream that may be open. Dropped, another may be opened.
pub struct AdmittedStream {
    /// One of the streams of its address.
    pub share: Share,
    /// A lock that all streams of its network share.
    pub turn: Arc<StreamTurn>,
}

/// The open streams.
#[derive(Default)]
pub(crate) struct Streams {
    shares: Arc<Shares>,
    turns: Mutex<HashMap<Network, Weak<StreamTurn>>>,
}

impl Streams {
    pub(crate) fn open(&self, ip: IpAddr, has_rates: bool) -> Result<AdmittedStream, ShareRefused> {
        let address = if has_rates { AddressLimit::PartOfFree(STREAM_PARTS) } else { AddressLimit::Unlimited };
        let share = self.shares.acquire(ip, 1..=1, ShareLimits { address, total: MAX_STREAMS })?;
        Ok(AdmittedStream { share, turn: self.turn_of(ip) })
    }

    /// How many streams are open.
    pub(crate) fn open_count(&self) -> usize {
        self.shares.total()
    }

    fn turn_of(&self, ip: IpAddr) -> Arc<StreamTurn> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        // All addresses of a wide network have one turn together.
        let Some(network) = networks_of(ip).last() else { return Arc::default() };
        if let Some(turn) = turns.get(&network).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(network, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_a_part_of_the_streams_and_the_next_one_finds_some() {
        // Y-1
        let streams = Streams::default();
        let mut open = Vec::new();
        for number in 1..=8 {
            let before = open.len();
            while let Ok(stream) = streams.open(IpAddr::from([192, 0, 2, number]), true) {
                open.push(stream);
            }
            let count = open.len() - before;
            assert!((1..=64).contains(&count), "address {number}: {count}");
        }
        assert_eq!(streams.open_count(), open.len());
        open.clear();
        assert_eq!(streams.open_count(), 0);
        let unlimited = std::iter::from_fn(|| streams.open(ip("192.0.2.1"), false).ok());
        assert_eq!(unlimited.collect::<Vec<_>>().len(), MAX_STREAMS, "without rates only the node's bound counts");
    }

    #[test]
    fn streams_of_a_network_share_a_turn_while_they_are_open() {
        // Y-1
        let streams = Streams::default();
        let open = |address| streams.open(ip(address), true).unwrap();
        let first = open("2001:db8:1:1::1");
        assert!(Arc::ptr_eq(&first.turn, &open("2001:db8:1:2::1").turn), "a /48");
        assert!(!Arc::ptr_eq(&first.turn, &open("2001:db8:2:1::1").turn));
        assert!(!Arc::ptr_eq(&open("192.0.2.1").turn, &open("192.0.2.2").turn));
        drop(first);
        let last = open("192.0.2.3");
        assert_eq!(streams.turns.lock().len(), 1, "ended streams leave nothing");
        drop(last);
    }
}
