//! From what an operator sets to what the parts take: the relay's configuration; [`stores`], opened;
//! [`searching`], started; [`reading`], over HTTP; [`gossiping`], with peers.

pub(crate) mod gossiping;
pub(crate) mod reading;
pub(crate) mod searching;
pub(crate) mod stores;

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use kukuri_domain::{Admission, Millis, PublicKey, vanish::RelayUrls};
use kukuri_relay::{
    RelayConfig,
    config::{Auth, Backlog, Deny, Disk, Info, Proxy, Rate, Rates, RequestLimits, TopicIntake},
};
use kukuri_store::Store;

use crate::config::{AuthMode, Settings, StorePlace, Switch};

/// The time, where the node needs it itself.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The relay's configuration. `public_url` is known when the node listens, `own_key` when it has its key.
pub(crate) fn relay_config(
    settings: &Settings,
    public_url: &str,
    own_key: Option<PublicKey>,
) -> anyhow::Result<RelayConfig> {
    Ok(RelayConfig {
        admission: Admission {
            limits: settings.limits(),
            topics: settings.topic_rules()?,
            relay_urls: RelayUrls::new(&[public_url]),
        },
        info: info(settings, own_key),
        requests: requests(settings),
        topics: topics(settings),
        retention: settings.retention(),
        auth: auth(settings),
        rates: (settings.rate_limits == Switch::On).then(|| rates(settings)),
        deny: deny(settings),
        proxy: proxy(settings),
        disk: disk(settings),
        backlog: backlog(settings),
    })
}

/// By which URL clients know the node: the one that is set, or the address it listens on.
pub(crate) fn public_url(settings: &Settings, listening: SocketAddr) -> String {
    settings.public_url.as_ref().map_or_else(|| format!("ws://{listening}"), |url| url.as_str().to_owned())
}

/// A retention that would bring back what is gone, with the topics' own counted in, is refused (P-2, P-5).
pub(crate) async fn check_retention(settings: &Settings, store: &dyn Store) -> anyhow::Result<()> {
    let subscriptions = store.subscriptions().await?;
    let topics = subscriptions.iter().map(|subscription| &subscription.policy.retention);
    settings.retention().validate(topics).context("a topic keeps events longer than the configuration allows")
}

fn info(settings: &Settings, own_key: Option<PublicKey>) -> Info {
    let relay = &settings.relay;
    Info {
        name: relay.name.clone(),
        description: relay.description.clone(),
        contact: relay.contact.clone(),
        pubkey: relay.pubkey,
        own_key,
        icon: relay.icon.as_ref().map(|url| url.as_str().to_owned()),
        language_tags: relay.language_tags.clone(),
        posting_policy: relay.posting_policy.as_ref().map(|url| url.as_str().to_owned()),
    }
}

fn requests(settings: &Settings) -> RequestLimits {
    let limits = &settings.limits;
    RequestLimits {
        connections: limits.connections,
        message_bytes: limits.message_bytes.as_usize(),
        filters: limits.filters,
        filter_values: limits.filter_values,
        subscriptions: limits.subscriptions,
        limit: limits.limit,
        answer_bytes: limits.answer_bytes.as_usize(),
        in_flight: limits.in_flight,
        silence: limits.idle.duration(),
        sync_sessions: limits.sync_sessions,
        sync_events: limits.sync_events,
    }
}

fn topics(settings: &Settings) -> TopicIntake {
    let topics = &settings.topics;
    match NonZeroU32::new(topics.opened_per_hour) {
        Some(per_hour) if topics.open => TopicIntake::Open { most: topics.max, idle: topics.idle.duration(), per_hour },
        _ => TopicIntake::Closed,
    }
}

fn auth(settings: &Settings) -> Auth {
    let auth = &settings.auth;
    match auth.mode {
        AuthMode::Off => Auth::Off,
        AuthMode::Required => Auth::Required {
            // Not set, it holds from the moment it is read.
            enforce_at: auth.enforce_at.map_or_else(now, |moment| Millis::from_secs(moment.seconds())),
            grace: Duration::from_secs(auth.grace_seconds),
            timeout: Duration::from_secs(auth.ws_auth_timeout_seconds),
        },
    }
}

fn rates(settings: &Settings) -> Rates {
    let rates = &settings.rates;
    Rates {
        connections_per_ip: rates.connections_per_ip as usize,
        new_connections: Rate::new(rates.new_connections_per_minute, rates.new_connections_per_minute),
        events: Rate::new(rates.events_per_minute, rates.events_burst),
        requests: Rate::new(rates.requests_per_minute, rates.requests_burst),
        backfill: Rate::new(rates.backfill_per_minute, rates.backfill_burst),
    }
}

fn deny(settings: &Settings) -> Deny {
    let deny = &settings.deny;
    Deny {
        pubkeys: deny.pubkeys.iter().copied().collect(),
        kinds: deny.kinds.iter().map(|kinds| kinds.range()).collect(),
        ips: deny.ips.iter().map(|network| network.net()).collect(),
    }
}

fn proxy(settings: &Settings) -> Option<Proxy> {
    let header = settings.proxy.header.as_ref()?.as_str().to_owned();
    Some(Proxy { header, trusted: settings.proxy.trusted.iter().map(|network| network.net()).collect() })
}

fn backlog(settings: &Settings) -> Backlog {
    let backlog = &settings.backlog;
    Backlog { live_only: backlog.live_only, shedding: backlog.shedding, cutting: backlog.cutting }
}

/// The disk that is watched: the embedded store's. A database's is its server's, and often on another machine; what the
/// node itself writes then is a key.
fn disk(settings: &Settings) -> Option<Disk> {
    let StorePlace::Lmdb(path) = settings.store_place() else { return None };
    let disk = &settings.disk;
    Some(Disk { path, live_only: disk.live_only.get(), shedding: disk.shedding.get(), full: disk.full.get() })
}
