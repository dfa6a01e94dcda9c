//! Peers are dialled by us, and then given to gossip. Gossip dials too, but a peer that it did not reach once, or whose
//! connection ended before it was a neighbour, it never dials again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use iroh::endpoint::Connection;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    net::Net,
    peer::PeerId,
    rejoining::Backoff,
    watchdog::{Wedged, patiently},
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Peers that are dialled at a time.
const AT_ONCE: usize = 8;

/// Who is being dialled, and when whom next.
#[derive(Default)]
pub(crate) struct Dialling {
    going_on: JoinSet<(PeerId, Option<Connection>)>,
    dialled: BTreeSet<PeerId>,
    tries: BTreeMap<PeerId, Tries>,
}

/// How often a peer was tried that has not stayed yet.
struct Tries {
    dial: Backoff,
    hurry: Backoff,
}

impl Default for Tries {
    fn default() -> Self {
        Self { dial: Backoff::at_once(), hurry: Backoff::at_once() }
    }
}

impl Dialling {
    /// Whoever has stayed, or is needed no more, begins anew next time. Those who have come lately may still turn us away,
    /// as they did before.
    pub(crate) fn forget_all_but(&mut self, wanted: &BTreeSet<PeerId>, lately: &BTreeSet<PeerId>) {
        self.tries.retain(|peer, _| wanted.contains(peer) || lately.contains(peer));
    }

    /// Whether there is a hurry now that a peer has come: not each time that it comes and goes.
    pub(crate) fn is_hurried_by(&mut self, peer: PeerId) -> bool {
        self.tries.entry(peer).or_default().hurry.is_due(Instant::now())
    }

    /// Dials those of the wanted whose turn it is.
    pub(crate) fn dial(&mut self, net: &Net, wanted: &BTreeSet<PeerId>) {
        for peer in wanted {
            if self.dialled.len() >= AT_ONCE {
                return;
            }
            if self.dialled.contains(peer) || !self.tries.entry(*peer).or_default().dial.is_due(Instant::now()) {
                continue;
            }
            self.dialled.insert(*peer);
            let (endpoint, peer) = (net.endpoint.clone(), *peer);
            self.going_on.spawn(async move {
                let connected = timeout(PATIENCE, endpoint.connect(peer, iroh_gossip::ALPN)).await;
                (peer, connected.ok().and_then(Result::ok))
            });
        }
    }

    /// Gives gossip those that were reached.
    pub(crate) async fn hand_over(&mut self, net: &Net) -> Result<(), Wedged> {
        while let Some(done) = self.going_on.try_join_next() {
            let Ok((peer, connection)) = done else { continue };
            self.dialled.remove(&peer);
            if let Some(connection) = connection {
                patiently("no answer to a connection", net.gossip.handle_connection(connection)).await?.ok();
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
    fn who_comes_is_worth_a_hurry_at_once_but_not_each_time_until_it_has_stayed() {
        let peer = SecretKey::from_bytes(&[1; 32]).public();
        let (nobody, it) = (BTreeSet::new(), BTreeSet::from([peer]));
        let mut dialling = Dialling::default();
        assert!(dialling.is_hurried_by(peer));
        // It is there, and then it is not.
        for (wanted, lately) in [(&nobody, &it), (&it, &nobody), (&nobody, &it)] {
            dialling.forget_all_but(wanted, lately);
            assert!(!dialling.is_hurried_by(peer));
        }
        dialling.forget_all_but(&nobody, &nobody);
        assert!(dialling.is_hurried_by(peer), "it had stayed");
    }
}
