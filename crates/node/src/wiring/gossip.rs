//! Starts the gossip bridge from the configuration.

use std::sync::Arc;

use anyhow::Context;
use kukuri_engine::Engine;
use kukuri_gossip::Bridge;

use crate::{
    config::{Settings, Switch},
    key,
};

/// Starts the bridge. `None`: gossip is off.
pub(crate) async fn start(settings: &Settings, engine: &Arc<Engine>) -> anyhow::Result<Option<Arc<Bridge>>> {
    if settings.gossip.enabled == Switch::Off {
        return Ok(None);
    }
    let key = key::for_gossip(&settings.data)?;
    let bridge = Bridge::start(Arc::clone(engine), settings.gossip_settings(), key).await;
    let bridge = bridge.context("gossip can't start; gossip.enabled = \"off\" runs the node without peers")?;
    Ok(Some(Arc::new(bridge)))
}

/// Applies the keys that can change while the node runs.
pub(crate) fn reload(settings: &Settings, bridge: &Bridge) {
    bridge.set_peers(settings.peer_policy(), &settings.known_peers());
}
