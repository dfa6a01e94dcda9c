//! The bridge to other nodes, from what an operator sets.

use std::sync::Arc;

use anyhow::Context;
use kukuri_gossip::{Bridge, CatchUp, GossipLimits, GossipSettings, PeerPolicy, Rate};
use kukuri_relay::Relay;

use crate::{
    config::{AuthMode, Settings, Switch},
    key,
};

/// Starts the bridge of a node. `None`: it talks to nobody.
pub(crate) async fn start(settings: &Settings, relay: &Arc<Relay>) -> anyhow::Result<Option<Arc<Bridge>>> {
    if settings.gossip.enabled == Switch::Off {
        return Ok(None);
    }
    let key = key::for_gossip(&settings.data)?;
    let bridge = Bridge::start(Arc::clone(relay), gossip_settings(settings), key).await;
    let bridge = bridge.context("no peers can be talked to (gossip.enabled = \"off\" does without)")?;
    Ok(Some(Arc::new(bridge)))
}

/// Takes up what can change while the node runs.
pub(crate) fn reload(settings: &Settings, bridge: &Bridge) {
    bridge.talk_to(policy(settings), &settings.gossip.known);
}

/// Where clients must say who they are, peers that nobody named are strangers.
fn policy(settings: &Settings) -> PeerPolicy {
    match settings.auth.mode {
        AuthMode::Required => PeerPolicy::Known,
        AuthMode::Off => settings.gossip.peers,
    }
}

fn gossip_settings(settings: &Settings) -> GossipSettings {
    let gossip = &settings.gossip;
    let rate = |messages, bytes: crate::config::Size| Rate { messages, bytes: bytes.get() };
    GossipSettings {
        listen: gossip.listen,
        addresses: gossip.addresses.clone(),
        policy: policy(settings),
        known: gossip.known.clone(),
        relays: gossip.relays.iter().map(|url| url.as_str().to_owned()).collect(),
        directory: settings.data.clone(),
        limits: GossipLimits {
            topics: gossip.max_topics,
            peers: gossip.max_peers,
            from_peer: rate(gossip.peer_messages_per_second, gossip.peer_bytes_per_second),
            from_all: rate(gossip.received_messages_per_second, gossip.received_bytes_per_second),
            to_topic: rate(gossip.topic_messages_per_second, gossip.topic_bytes_per_second),
            to_all: rate(gossip.sent_messages_per_second, gossip.sent_bytes_per_second),
        },
        catch_up: CatchUp {
            every: gossip.catch_up_every.duration(),
            events_per_second: gossip.catch_up_events_per_second,
            bytes_per_second: gossip.catch_up_bytes_per_second.get(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_bridge_and_nobody_else_is_reached() {
        let set = gossip_settings(&Settings::default());
        assert!(set.listen.ip().is_loopback() && set.known.is_empty() && set.relays.is_empty());
        let (ours, theirs) = (set.limits, GossipLimits::default());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(set.catch_up, CatchUp::default());
    }

    #[test]
    fn where_clients_must_authenticate_only_known_peers_are_talked_to() {
        let mut settings = Settings::default();
        assert_eq!(policy(&settings), PeerPolicy::Open);
        settings.auth.mode = AuthMode::Required;
        assert_eq!(policy(&settings), PeerPolicy::Known);
    }
}
