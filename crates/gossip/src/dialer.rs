//! Dials peers and hands their connections to iroh-gossip. iroh-gossip dials as well, but never again a peer that it could
//! not reach, or whose connection ended before the peer was a neighbour.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use iroh::endpoint::Connection;
use kukuri_pacing::Backoff;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    endpoint::GossipEndpoint,
    peer::PeerId,
    topics::{FIRST_RETRY_DELAY, MAX_RETRY_DELAY},
    watchdog::{ReplaceReason, call_timeout},
};

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONCURRENT_DIALS: usize = 8;

#[derive(Default)]
pub(crate) struct Dialer {
    dials: JoinSet<(PeerId, Option<Connection>)>,
    dialling: BTreeSet<PeerId>,
    backoffs: BTreeMap<PeerId, PeerBackoff>,
}

/// Backoff of a peer that has not stayed connected yet.
struct PeerBackoff {
    dial: Backoff,
    rejoin: Backoff,
}

impl Default for PeerBackoff {
    fn default() -> Self {
        let backoff = Backoff::due_now(FIRST_RETRY_DELAY, MAX_RETRY_DELAY, Instant::now());
        Self { dial: backoff, rejoin: backoff }
    }
}

impl Dialer {
    /// Resets the backoff of peers that stayed connected or are not wanted. Keeps the backoff of recently connected peers:
    /// they may still reject us.
    pub(crate) fn retain_backoff(&mut self, wanted: &BTreeSet<PeerId>, recent: &BTreeSet<PeerId>) {
        self.backoffs.retain(|peer, _| wanted.contains(peer) || recent.contains(peer));
    }

    /// Whether topics are rejoined at once now that this peer has connected: not for a peer that connects again and again.
    pub(crate) fn should_rejoin_now(&mut self, peer: PeerId) -> bool {
        self.backoffs.entry(peer).or_default().rejoin.take_if_due(Instant::now())
    }

    /// Dials the wanted peers whose backoff is over.
    pub(crate) fn dial(&mut self, endpoint: &GossipEndpoint, wanted: &BTreeSet<PeerId>) {
        for peer in wanted {
            if self.dialling.len() >= MAX_CONCURRENT_DIALS {
                return;
            }
            let is_dialling = self.dialling.contains(peer);
            if is_dialling || !self.backoffs.entry(*peer).or_default().dial.take_if_due(Instant::now()) {
                continue;
            }
            self.dialling.insert(*peer);
            let (endpoint, peer) = (endpoint.endpoint.clone(), *peer);
            self.dials.spawn(async move {
                let connected = timeout(DIAL_TIMEOUT, endpoint.connect(peer, iroh_gossip::ALPN)).await;
                (peer, connected.ok().and_then(Result::ok))
            });
        }
    }

    /// Hands new connections to iroh-gossip.
    pub(crate) async fn hand_over(&mut self, endpoint: &GossipEndpoint) -> Result<(), ReplaceReason> {
        while let Some(done) = self.dials.try_join_next() {
            let Ok((peer, connection)) = done else { continue };
            self.dialling.remove(&peer);
            if let Some(connection) = connection {
                call_timeout("handle_connection", endpoint.gossip.handle_connection(connection)).await?.ok();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;

    use super::*;

    #[test]
    fn arrival_triggers_rejoin_once_until_the_peer_has_stayed() {
        let peer = SecretKey::from_bytes(&[1; 32]).public();
        let (none, only_peer) = (BTreeSet::new(), BTreeSet::from([peer]));
        let mut dialer = Dialer::default();
        assert!(dialer.should_rejoin_now(peer));
        // Connects and disconnects.
        for (wanted, recent) in [(&none, &only_peer), (&only_peer, &none), (&none, &only_peer)] {
            dialer.retain_backoff(wanted, recent);
            assert!(!dialer.should_rejoin_now(peer));
        }
        dialer.retain_backoff(&none, &none);
        assert!(dialer.should_rejoin_now(peer), "the peer had stayed");
    }
}
