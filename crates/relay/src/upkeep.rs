//! What runs by itself: expiry when it is due, purges, counts that wait.

use std::{sync::Arc, time::Duration};

use crate::{clock, relay::Relay, session::stopped};

const PURGE_EVERY: Duration = Duration::from_secs(60);
const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// Something may expire sooner than was known when the last sweep ended.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Keeps a relay in order until it stops.
pub async fn keep_in_order(relay: Arc<Relay>) {
    let mut stopping = relay.stopping.subscribe();
    let mut purge = tokio::time::interval(PURGE_EVERY);
    let mut flush = tokio::time::interval(FLUSH_EVERY);
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    let mut topics = relay.store.watch_subscriptions();
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return,
            _ = purge.tick() => purge_once(&relay).await,
            _ = flush.tick() => {
                if let Err(error) = relay.store.flush().await {
                    tracing::warn!(%error, "repeats could not be written");
                }
            }
            _ = sweep.tick() => sweep_once(&relay).await,
            Ok(()) = topics.changed() => {
                if let Err(error) = relay.read_topics().await {
                    tracing::error!(%error, "topics could not be read");
                }
            }
        }
    }
}

async fn sweep_once(relay: &Relay) {
    match relay.pipeline.expire().await {
        Ok(swept) if swept.expired > 0 => tracing::info!(swept.expired, "events expired"),
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "expired events could not be swept"),
    }
}

async fn purge_once(relay: &Relay) {
    let started = clock::now();
    match relay.pipeline.purge(relay.config.retention).await {
        Ok(purged) if purged.held => tracing::warn!("nothing is purged until the clock is confirmed"),
        Ok(purged) if purged.by_retention + purged.by_capacity > 0 => {
            let millis = clock::now().0.saturating_sub(started.0);
            tracing::info!(purged.by_retention, purged.by_capacity, millis, "events purged");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "old events could not be purged"),
    }
}
