//! Topic membership: joins and leaves gossip topics as node-level subscriptions change (G-1) and as topics are shed (P-6),
//! and receives the messages of each joined topic.

use std::{cmp::Reverse, collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use futures_util::StreamExt;
use iroh_gossip::{
    TopicId as GossipTopicId,
    api::{Event, GossipReceiver},
};
use kukuri_domain::{TopicId, subscription::NodeSubscription};
use parking_lot::Mutex;

use crate::{
    bridge::BridgeContext,
    endpoint::GossipEndpoint,
    peer_store::MAX_CANDIDATES,
    topics::{JoinedTopic, TopicState},
    watchdog::{ReplaceReason, call_timeout},
};

/// Stages of P-6 change without a change of subscriptions.
const UPDATE_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps the joined topics equal to the carried ones. Returns when the endpoint has to be replaced.
pub(crate) async fn keep_membership(
    ctx: &Arc<BridgeContext>,
    endpoint: &GossipEndpoint,
) -> Result<Infallible, ReplaceReason> {
    let mut changes = ctx.engine.store().watch_subscriptions();
    loop {
        changes.mark_unchanged();
        match ctx.engine.carried_topics().await {
            Ok(carried) => update_topics(ctx, endpoint, carried).await?,
            Err(error) => tracing::error!(%error, "can't read the carried topics; gossip keeps the joined ones"),
        }
        tokio::select! {
            Ok(()) = changes.changed() => {}
            () = tokio::time::sleep(UPDATE_INTERVAL) => {}
        }
    }
}

async fn update_topics(
    ctx: &Arc<BridgeContext>,
    endpoint: &GossipEndpoint,
    mut carried: Vec<NodeSubscription>,
) -> Result<(), ReplaceReason> {
    let max_topics = ctx.settings.limits.max_topics;
    ctx.metrics.topics_over_limit.set(carried.len().saturating_sub(max_topics) as f64);
    if carried.len() > max_topics {
        // Topics of the highest priority first: they would be shed last.
        carried.sort_by_cached_key(|carried| (Reverse(carried.policy.priority), carried.topic.clone()));
        carried.truncate(max_topics);
    }
    let wanted: BTreeSet<TopicId> = carried.into_iter().map(|subscription| subscription.topic).collect();
    let left = ctx.topics.retain(&wanted);
    let mut joined = 0;
    for topic in wanted {
        let current = ctx.topics.get(&topic);
        joined += usize::from(current.is_none());
        // Changes of neighbours may be among the lost events. A new subscription begins with all neighbours.
        if current.is_none_or(|current| current.state.lock().has_lagged) {
            subscribe(ctx, endpoint, topic).await?;
        }
    }
    if joined + left > 0 {
        tracing::info!(joined, left, "joined and left gossip topics");
    }
    Ok(())
}

async fn subscribe(ctx: &Arc<BridgeContext>, endpoint: &GossipEndpoint, topic: TopicId) -> Result<(), ReplaceReason> {
    // `rejoin` dials the other peers.
    let bootstrap = endpoint.connections.connected_since().into_keys().take(MAX_CANDIDATES).collect();
    let id = GossipTopicId::from_bytes(topic.gossip_id());
    let subscribed = call_timeout("subscribe", endpoint.gossip.subscribe(id, bootstrap)).await?;
    let (sender, receiver) = subscribed.map_err(|_| ReplaceReason::Ended)?.split();
    let state = Arc::<Mutex<TopicState>>::default();
    let receiving = receive_messages(Arc::clone(ctx), topic.clone(), Arc::clone(&state), receiver);
    let receive_task = tokio::spawn(receiving).abort_handle();
    ctx.topics.insert(JoinedTopic { topic, sender, state, receive_task });
    Ok(())
}

/// Receives the events of a topic. Does nothing slow: iroh-gossip drops events that are not read in time.
async fn receive_messages(
    ctx: Arc<BridgeContext>,
    topic: TopicId,
    state: Arc<Mutex<TopicState>>,
    mut receiver: GossipReceiver,
) {
    while let Some(Ok(event)) = receiver.next().await {
        match event {
            Event::Received(message) => {
                state.lock().received += 1;
                ctx.metrics.received.increment(1);
                if let Err(reason) = ctx.inbox.enqueue(&topic, message.delivered_from, message.content) {
                    ctx.metrics.count_dropped(reason);
                }
            }
            Event::NeighborUp(peer) => {
                state.lock().neighbour_up(peer);
                ctx.record_neighbour(peer);
            }
            Event::NeighborDown(peer) => state.lock().neighbour_down(peer),
            Event::Lagged => {
                ctx.metrics.lagged.increment(1);
                let mut state = state.lock();
                state.has_lagged = true;
                state.catch_up.run_soon();
            }
        }
    }
    // This task is aborted when the topic is left, so the end of the stream is the end of iroh-gossip.
    ctx.replace_endpoint(ReplaceReason::Ended);
}
