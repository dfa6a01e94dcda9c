//! Runs the gossip endpoint, and replaces it when iroh-gossip is stuck or the peers were reconfigured.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::{
    bridge::{BridgeContext, stopped},
    endpoint::{EndpointFactory, GossipEndpoint},
    membership::keep_membership,
    rejoin::keep_neighbours,
    watchdog::{ReplaceReason, watch_gossip},
};

/// The replaced endpoint may hold the port for a moment.
const BIND_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// After this many attempts another port is taken, unless the operator has set one.
const MAX_SAME_PORT_ATTEMPTS: u32 = 20;

pub(crate) struct Supervisor {
    pub(crate) ctx: Arc<BridgeContext>,
    pub(crate) factory: EndpointFactory,
    pub(crate) replacements: mpsc::Receiver<ReplaceReason>,
}

impl Supervisor {
    /// Runs until the bridge stops.
    pub(crate) async fn run(mut self, first: GossipEndpoint, mut stopping: watch::Receiver<bool>) {
        let mut endpoint = first;
        loop {
            let address = endpoint.endpoint.bound_sockets().first().copied();
            let reason = tokio::select! {
                () = stopped(&mut stopping) => {
                    self.ctx.topics.leave_all();
                    self.ctx.endpoint.lock().take();
                    return endpoint.close().await;
                }
                reason = self.run_endpoint(&endpoint) => reason,
            };
            if reason == ReplaceReason::Reconfigured {
                tracing::info!(%reason, "replacing the gossip endpoint");
            } else {
                tracing::warn!(%reason, "replacing the gossip endpoint");
                self.ctx.metrics.rebuilds.increment(1);
                self.ctx.rebuilds.fetch_add(1, Ordering::Relaxed);
            }
            self.ctx.endpoint.lock().take();
            self.ctx.topics.leave_all();
            endpoint.abandon().await;
            endpoint = tokio::select! {
                () = stopped(&mut stopping) => return,
                endpoint = self.bind_again(address) => endpoint,
            };
            while self.replacements.try_recv().is_ok() {}
            *self.ctx.endpoint.lock() = Some(endpoint.endpoint.clone());
            tracing::info!("the gossip endpoint was replaced; rejoining topics");
        }
    }

    async fn run_endpoint(&mut self, endpoint: &GossipEndpoint) -> ReplaceReason {
        let Self { ctx, replacements, .. } = self;
        tokio::select! {
            reason = keep_membership(ctx, endpoint) => reason,
            reason = keep_neighbours(ctx, endpoint) => reason,
            reason = watch_gossip(&endpoint.gossip) => reason,
            Some(reason) = replacements.recv() => reason,
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
