//! Keeps enough neighbours in every topic: dials known peers, joins topics with too few neighbours again, and finds neighbours
//! that are gone. iroh-gossip does none of this by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, Instant},
};

use iroh::endpoint::Connection;
use kukuri_pacing::Backoff;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    bridge::BridgeContext,
    endpoint::GossipEndpoint,
    peer::PeerId,
    topics::{FIRST_RETRY_DELAY, MAX_RETRY_DELAY, TopicState},
    watchdog::{ReplaceReason, call_timeout},
};

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONCURRENT_DIALS: usize = 8;
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// A peer that was connected for this long has accepted us. A peer that rejects us closes a connection that seemed open.
const STABLE_AFTER: Duration = Duration::from_secs(3);
/// A neighbour without a connection for this long is lost. iroh-gossip reports it within milliseconds, if at all.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// Topics that are rejoined per tick: a returning peer with thousands of topics comes back in steps.
const MAX_REJOINS_PER_TICK: usize = 512;
/// With at most this many known peers, all of them should be neighbours: no other peer brings them back.
const SMALL_SWARM_PEERS: usize = 4;
/// Enough neighbours in a larger swarm. iroh-gossip keeps five, and exchanges them by itself.
const MIN_NEIGHBOURS: usize = 3;

/// Rejoins topics and dials peers. Returns when the endpoint has to be replaced.
pub(crate) async fn keep_neighbours(
    ctx: &BridgeContext,
    endpoint: &GossipEndpoint,
) -> Result<Infallible, ReplaceReason> {
    let (mut dialer, mut arrived) = (Dialer::default(), BTreeSet::new());
    let mut unconnected_since: BTreeMap<PeerId, Instant> = BTreeMap::new();
    loop {
        dialer.hand_over(endpoint).await?;
        let known = ctx.peers.candidates();
        let connected = endpoint.connections.connected_since();
        let rejoins_now = |peer: &PeerId| arrived.contains(peer) && dialer.should_rejoin_now(*peer);
        let rejoin_now: BTreeSet<PeerId> = known.iter().copied().filter(rejoins_now).collect();
        let is_recent = |peer: &PeerId| connected.get(peer).is_some_and(|since| since.elapsed() < STABLE_AFTER);
        let mut recent: BTreeSet<PeerId> = known.iter().copied().filter(is_recent).collect();
        let is_lost = |peer: &&PeerId| unconnected_since.get(*peer).is_some_and(|since| since.elapsed() >= LOST_AFTER);
        let (mut rejoined, mut wanted, mut unconnected) = (0, BTreeSet::new(), BTreeSet::new());
        for joined in ctx.topics.all() {
            let reachable = {
                let TopicState { neighbours, rejoin_backoff, .. } = &mut *joined.state.lock();
                recent.retain(|peer| !neighbours.contains(peer));
                let (mut reachable, unreachable): (Vec<PeerId>, Vec<PeerId>) =
                    missing_neighbours(&known, neighbours).into_iter().partition(|peer| connected.contains_key(peer));
                wanted.extend(unreachable);
                unconnected.extend(neighbours.iter().filter(|peer| !connected.contains_key(*peer)));
                // iroh-gossip dials a lost neighbour, and either joins it again or finds that it is gone.
                reachable.extend(neighbours.iter().filter(&is_lost));
                let now = Instant::now();
                if reachable.iter().any(|peer| rejoin_now.contains(peer)) {
                    rejoin_backoff.reset_to_now(now);
                }
                if reachable.is_empty() || rejoined >= MAX_REJOINS_PER_TICK || !rejoin_backoff.take_if_due(now) {
                    continue;
                }
                reachable
            };
            rejoined += 1;
            ctx.metrics.rejoins.increment(1);
            // An error of the call means that the topic is being left or the endpoint replaced.
            call_timeout("join_peers", joined.sender.join_peers(reachable)).await?.ok();
        }
        unconnected_since.retain(|peer, _| unconnected.contains(peer));
        for peer in unconnected {
            unconnected_since.entry(peer).or_insert_with(Instant::now);
        }
        dialer.retain_backoff(&wanted, &recent);
        dialer.dial(endpoint, &wanted);
        arrived = tokio::select! {
            arrived = endpoint.connections.arrivals() => arrived,
            () = sleep(TICK_INTERVAL) => BTreeSet::new(),
        };
    }
}

/// The known peers that a topic with these neighbours should be joined with.
fn missing_neighbours(known: &[PeerId], neighbours: &BTreeSet<PeerId>) -> Vec<PeerId> {
    let others: Vec<PeerId> = known.iter().filter(|peer| !neighbours.contains(*peer)).copied().collect();
    let is_small = others.len() + neighbours.len() <= SMALL_SWARM_PEERS;
    if is_small || neighbours.len() < MIN_NEIGHBOURS { others } else { Vec::new() }
}

/// Dials peers and hands their connections to iroh-gossip. iroh-gossip dials as well, but never again a peer that it could
/// not reach, or whose connection ended before the peer was a neighbour.
#[derive(Default)]
struct Dialer {
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
    fn retain_backoff(&mut self, wanted: &BTreeSet<PeerId>, recent: &BTreeSet<PeerId>) {
        self.backoffs.retain(|peer, _| wanted.contains(peer) || recent.contains(peer));
    }

    /// Whether topics are rejoined at once now that this peer has connected: not for a peer that connects again and again.
    fn should_rejoin_now(&mut self, peer: PeerId) -> bool {
        self.backoffs.entry(peer).or_default().rejoin.take_if_due(Instant::now())
    }

    /// Dials the wanted peers whose backoff is over.
    fn dial(&mut self, endpoint: &GossipEndpoint, wanted: &BTreeSet<PeerId>) {
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

    async fn hand_over(&mut self, endpoint: &GossipEndpoint) -> Result<(), ReplaceReason> {
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

    fn id(number: u8) -> PeerId {
        SecretKey::from_bytes(&[number; 32]).public()
    }

    #[test]
    fn a_small_swarm_needs_every_peer_and_a_large_one_three() {
        for (known, neighbours, missing, why) in [
            (0, 0, 0, "no peer is known"),
            (2, 0, 2, "all known peers"),
            (2, 1, 1, "the missing peer"),
            (4, 3, 1, "a swarm of five needs every peer"),
            (4, 4, 0, "every peer is a neighbour"),
            (9, 3, 0, "enough of many"),
            (9, 2, 7, "too few of many"),
        ] {
            let known: Vec<PeerId> = (1..=known).map(id).collect();
            let neighbours = (1..=neighbours).map(id).collect();
            assert_eq!(missing_neighbours(&known, &neighbours).len(), missing, "{why}");
        }
    }

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
