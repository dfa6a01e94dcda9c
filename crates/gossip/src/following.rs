//! Joined is what the node takes in: topics are joined and left as node-level subscriptions change (G-1), and left while
//! they are shed (P-6).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt;
use iroh_gossip::{
    TopicId as GossipTopicId,
    api::{Event, GossipReceiver},
};
use kukuri_domain::{TopicId, subscription::NodeSubscription};

use crate::{
    bridge::Shared,
    net::Net,
    rejoining::MOST_CANDIDATES,
    swarm::{Around, Joined},
    watchdog::{Wedged, patiently},
};

/// Stages of P-6 come and go without a change of subscriptions.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Follows for as long as gossip moves.
pub(crate) async fn follow(shared: &Arc<Shared>, net: &Net) -> Wedged {
    let mut changes = shared.relay.store().watch_subscriptions();
    loop {
        changes.mark_unchanged();
        match shared.relay.carried_topics().await {
            Ok(carried) => {
                if let Err(wedged) = adjust(shared, net, carried).await {
                    return wedged;
                }
            }
            Err(error) => tracing::error!(%error, "topics could not be read; gossip goes on with those it has"),
        }
        tokio::select! {
            Ok(()) = changes.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn adjust(shared: &Arc<Shared>, net: &Net, mut carried: Vec<NodeSubscription>) -> Result<(), Wedged> {
    let most = shared.settings.limits.topics;
    shared.figures.left_out.set(carried.len().saturating_sub(most) as f64);
    if carried.len() > most {
        // Those that would be shed last come first.
        carried
            .sort_by(|left, right| right.policy.priority.cmp(&left.policy.priority).then(left.topic.cmp(&right.topic)));
        carried.truncate(most);
    }
    let wanted: BTreeSet<TopicId> = carried.into_iter().map(|one| one.topic).collect();
    let left = shared.swarm.retain(&wanted);
    let mut joined = 0;
    for topic in wanted {
        match shared.swarm.get(&topic) {
            Some(joined) if !joined.around.has_lagged() => {}
            // Who came or went meanwhile is not known. Whoever subscribes again is told who is there.
            Some(_) => join(shared, net, topic).await?,
            None => {
                join(shared, net, topic).await?;
                joined += 1;
            }
        }
    }
    if joined + left > 0 {
        tracing::info!(joined, left, "topics carried to and from peers have changed");
    }
    Ok(())
}

async fn join(shared: &Arc<Shared>, net: &Net, topic: TopicId) -> Result<(), Wedged> {
    // Who is not connected yet is dialled by us: see `dialling`.
    let bootstrap = net.door.connected().into_keys().take(MOST_CANDIDATES).collect();
    let id = GossipTopicId::from_bytes(topic.gossip_id());
    let joined = patiently("no answer to subscribe", net.gossip.subscribe(id, bootstrap)).await?;
    let (sender, receiver) = joined.map_err(|_| Wedged("it ended"))?.split();
    let around = Arc::new(Around::default());
    let reading = read(Arc::clone(shared), topic.clone(), Arc::clone(&around), receiver);
    let reader = tokio::spawn(reading).abort_handle();
    shared.swarm.insert(Joined { topic, sender, around, reader });
    Ok(())
}

/// Hands on what comes in. Nothing is done here that takes time: whoever does not read fast enough loses messages.
async fn read(shared: Arc<Shared>, topic: TopicId, around: Arc<Around>, mut receiver: GossipReceiver) {
    while let Some(Ok(event)) = receiver.next().await {
        match event {
            Event::Received(message) => {
                around.count();
                shared.inbox.offer(&topic, message.delivered_from, message.content);
            }
            Event::NeighborUp(peer) => {
                around.came(peer);
                shared.meet(peer);
            }
            Event::NeighborDown(peer) => around.went(peer),
            Event::Lagged => {
                shared.figures.lagged.increment(1);
                around.lag();
            }
        }
    }
    // A topic that is left is not read to its end.
    shared.trouble(Wedged("it ended"));
}
