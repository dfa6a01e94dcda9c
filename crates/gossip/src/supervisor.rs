//! Runs the gossip endpoint, and replaces it when iroh-gossip is stuck or the peers were reconfigured.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use crate::{
    bridge::BridgeContext,
    endpoint::GossipEndpoint,
    membership::keep_membership,
    rejoin::keep_neighbours,
    watchdog::{ReplaceReason, watch_gossip},
};

/// The replaced endpoint may hold the port for a moment.
const BIND_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// After this many attempts another port is taken, unless the operator has set one.
const MAX_SAME_PORT_ATTEMPTS: u32 = 20;

/// Runs the endpoint, and those that replace it, until the bridge stops.
pub(crate) async fn supervise(
    ctx: Arc<BridgeContext>,
    mut endpoint: GossipEndpoint,
    mut replacements: mpsc::Receiver<ReplaceReason>,
) {
    loop {
        let address = endpoint.endpoint.bound_sockets().first().copied();
        let reason = tokio::select! {
            () = ctx.stopping.notified() => {
                ctx.endpoint.lock().take();
                endpoint.close().await;
                return ctx.topics.leave_all();
            }
            Err(reason) = keep_membership(&ctx, &endpoint) => reason,
            Err(reason) = keep_neighbours(&ctx, &endpoint) => reason,
            Err(reason) = watch_gossip(&endpoint.gossip) => reason,
            Some(reason) = replacements.recv() => reason,
        };
        if reason == ReplaceReason::Reconfigured {
            tracing::info!(%reason, "replacing the gossip endpoint");
        } else {
            tracing::warn!(%reason, "replacing the gossip endpoint");
            ctx.metrics.rebuilds.increment(1);
            ctx.rebuilds.fetch_add(1, Ordering::Relaxed);
        }
        ctx.endpoint.lock().take();
        endpoint.close().await;
        ctx.topics.leave_all();
        endpoint = tokio::select! {
            () = ctx.stopping.notified() => return,
            endpoint = bind_again(&ctx, address) => endpoint,
        };
        while replacements.try_recv().is_ok() {}
        *ctx.endpoint.lock() = Some(endpoint.endpoint.clone());
        tracing::info!("the gossip endpoint was replaced; rejoining topics");
    }
}

/// Binds with the same key and port, so that peers reach the new endpoint under the address they know.
async fn bind_again(ctx: &Arc<BridgeContext>, previous: Option<SocketAddr>) -> GossipEndpoint {
    let configured = ctx.settings.listen;
    let mut attempts = 0;
    loop {
        let keeps_port = configured.port() != 0 || attempts < MAX_SAME_PORT_ATTEMPTS;
        let address = previous.filter(|_| keeps_port).unwrap_or(configured);
        match GossipEndpoint::bind(ctx, address).await {
            Ok(endpoint) => return endpoint,
            Err(error) => tracing::warn!(%error, "can't bind the gossip endpoint, retrying"),
        }
        attempts += 1;
        sleep(BIND_RETRY_INTERVAL).await;
    }
}
