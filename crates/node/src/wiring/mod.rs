//! Makes the node's parts from its configuration: the engine's configuration and gossip here, the store in [`stores`],
//! what the node tells of itself in [`bootstrap`], the control database in [`control`], its jobs in [`jobs`], the search index in
//! [`search_index`], outbox services in [`services`], the HTTP API in [`http_api`].

pub(crate) mod bootstrap;
pub(crate) mod control;
pub(crate) mod http_api;
pub(crate) mod jobs;
pub(crate) mod search_index;
pub(crate) mod services;
pub(crate) mod stores;

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use kukuri_domain::{Admission, RelayUrls};
pub(crate) use kukuri_engine::clock::now;
use kukuri_engine::{Engine, EngineConfig};
use kukuri_gossip::Bridge;
use kukuri_store::Store;

use crate::{
    config::{Settings, Switch},
    key,
};

/// The engine's configuration. `public_url` may contain the port, which is known only when the node listens.
pub(crate) fn engine_config(settings: &Settings, public_url: &str) -> anyhow::Result<EngineConfig> {
    Ok(EngineConfig {
        admission: Admission {
            limits: settings.limits.of_events(),
            topics: settings.topic_rules()?,
            relay_urls: RelayUrls::new(&[public_url]),
        },
        requests: settings.limits.of_requests(),
        topics: settings.topics.intake(),
        retention: settings.retention(),
        capacity: settings.max_usage(),
        permanent: settings.permanent_share(),
        auth: settings.auth.rules(now()),
        rates: (settings.rate_limits == Switch::On).then(|| settings.rates.limits()),
        deny: settings.deny.lists(),
        disk: settings.watched_disk(),
        backlog: settings.backlog.limits(),
    })
}

/// The URL that clients connect to: `public_url` if it is set, else `ws://` and the listening address.
pub(crate) fn public_url(settings: &Settings, listening: SocketAddr) -> String {
    settings.public_url.as_ref().map_or_else(|| format!("ws://{listening}"), |url| url.as_ref().to_owned())
}

/// Refuses a retention, including those of topics, that would let purged events come back (P-2, P-5).
pub(crate) async fn check_retention(settings: &Settings, store: &dyn Store) -> anyhow::Result<()> {
    let subscriptions = store.subscriptions().await?;
    let topics = subscriptions.iter().map(|subscription| &subscription.policy.retention);
    settings.retention().validate(topics).context("a topic keeps events longer than the configuration allows")
}

/// Starts the gossip bridge. `None`: gossip is off.
pub(crate) async fn start_gossip(settings: &Settings, engine: &Arc<Engine>) -> anyhow::Result<Option<Arc<Bridge>>> {
    if settings.gossip.enabled == Switch::Off {
        return Ok(None);
    }
    let key = key::for_gossip(&settings.data)?;
    let bridge = Bridge::start(Arc::clone(engine), settings.gossip_settings(), key).await;
    let bridge = bridge.context("gossip can't start; gossip.enabled = \"off\" runs the node without peers")?;
    Ok(Some(Arc::new(bridge)))
}
