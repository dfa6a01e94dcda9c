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
    backoffs: BTreeMap<PeerId, Backoff>,
}

impl Dialling {
    /// Dials those of the wanted whose turn it is.
    pub(crate) fn dial(&mut self, net: &Net, wanted: &BTreeSet<PeerId>) {
        let now = Instant::now();
        // Who is connected, or needed no more, begins anew next time.
        self.backoffs.retain(|peer, _| wanted.contains(peer));
        for peer in wanted {
            if self.dialled.len() >= AT_ONCE {
                return;
            }
            let backoff = self.backoffs.entry(*peer).or_insert_with(Backoff::at_once);
            if self.dialled.contains(peer) || !backoff.is_due(now) {
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
