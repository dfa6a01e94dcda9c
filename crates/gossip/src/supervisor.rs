//! Runs the gossip endpoint, and replaces it when iroh-gossip is stuck or the peers were reconfigured.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use iroh::{TransportAddr, endpoint::TransportAddrUsage};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::{
    bridge::{BridgeContext, stopped},
    endpoint::{EndpointFactory, GossipEndpoint},
    membership::keep_membership,
    peer::PeerId,
    rejoin::keep_neighbours,
    watchdog::{ReplaceReason, watch_gossip},
};

/// A peer that comes up in many topics at once is recorded once in this time.
const RECORD_INTERVAL: Duration = Duration::from_secs(5);
/// The replaced endpoint may hold the port for a moment.
const BIND_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// After this many attempts another port is taken, unless the operator has set one.
const MAX_SAME_PORT_ATTEMPTS: u32 = 20;

pub(crate) struct Supervisor {
    pub(crate) ctx: Arc<BridgeContext>,
    pub(crate) factory: EndpointFactory,
    pub(crate) replacements: mpsc::Receiver<ReplaceReason>,
    pub(crate) seen_peers: mpsc::Receiver<PeerId>,
}

impl Supervisor {
    /// Runs until the bridge stops.
    pub(crate) async fn run(mut self, first: GossipEndpoint, mut stopping: watch::Receiver<bool>) {
        let mut endpoint = first;
        loop {
            let address = endpoint.bound_address();
            let reason = tokio::select! {
                () = stopped(&mut stopping) => {
                    self.ctx.topics.leave_all();
                    self.ctx.endpoint.lock().take();
                    return endpoint.close().await;
                }
                reason = self.run_endpoint(&endpoint) => reason,
            };
            if reason.is_fault() {
                tracing::warn!(%reason, "replacing the gossip endpoint");
                self.ctx.metrics.rebuilds.increment(1);
                self.ctx.health.rebuilds.fetch_add(1, Ordering::Relaxed);
            } else {
                tracing::info!(%reason, "replacing the gossip endpoint");
            }
            self.ctx.health.is_replacing.store(true, Ordering::Relaxed);
            self.ctx.endpoint.lock().take();
            self.ctx.topics.leave_all();
            endpoint.abandon().await;
            endpoint = tokio::select! {
                () = stopped(&mut stopping) => return,
                endpoint = self.bind_again(address) => endpoint,
            };
            while self.replacements.try_recv().is_ok() {}
            *self.ctx.endpoint.lock() = Some(endpoint.endpoint.clone());
            self.ctx.health.is_replacing.store(false, Ordering::Relaxed);
            tracing::info!("the gossip endpoint was replaced; rejoining topics");
        }
    }

    async fn run_endpoint(&mut self, endpoint: &GossipEndpoint) -> ReplaceReason {
        let Self { ctx, replacements, seen_peers, .. } = self;
        tokio::select! {
            reason = keep_membership(ctx, endpoint) => reason,
            reason = keep_neighbours(ctx, endpoint) => reason,
            reason = watch_gossip(&endpoint.gossip) => reason,
            Some(reason) = replacements.recv() => reason,
            never = record_seen_peers(ctx, endpoint, seen_peers) => match never {},
        }
    }

    /// Binds with the same key and port, so that peers reach the new endpoint under the address they know.
    async fn bind_again(&self, previous: Option<SocketAddr>) -> GossipEndpoint {
        let configured = self.ctx.settings.listen;
        let mut attempts = 0;
        loop {
            let keeps_port = configured.port() != 0 || attempts < MAX_SAME_PORT_ATTEMPTS;
            let address = previous.filter(|_| keeps_port).unwrap_or(configured);
            match self.factory.bind(address).await {
                Ok(endpoint) => return endpoint,
                Err(error) => tracing::warn!(%error, "can't bind the gossip endpoint, retrying"),
            }
            attempts += 1;
            sleep(BIND_RETRY_INTERVAL).await;
        }
    }
}

/// Records peers that became neighbours, with their addresses, until it is cancelled.
async fn record_seen_peers(
    ctx: &BridgeContext,
    endpoint: &GossipEndpoint,
    seen_peers: &mut mpsc::Receiver<PeerId>,
) -> Infallible {
    let mut recorded: HashMap<PeerId, Instant> = HashMap::new();
    loop {
        let Some(peer) = seen_peers.recv().await else { return std::future::pending().await };
        recorded.retain(|_, at| at.elapsed() < RECORD_INTERVAL);
        if recorded.insert(peer, Instant::now()).is_some() {
            continue;
        }
        let info = endpoint.endpoint.remote_info(peer).await;
        let addresses = info.into_iter().flat_map(|info| info.into_addrs()).filter_map(|info| match info.addr() {
            TransportAddr::Ip(address) if matches!(info.usage(), TransportAddrUsage::Active) => Some(*address),
            _ => None,
        });
        ctx.peers.record_seen(peer, addresses);
    }
}
