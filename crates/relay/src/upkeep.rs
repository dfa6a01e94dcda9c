//! What runs by itself: expiry when it is due, purges, topics that rest, counts that wait, a look at the disk.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::{MissedTickBehavior, interval};

use crate::{clock, rates::FORGET_EVERY, relay::Relay, session::stopped};

const PURGE_EVERY: Duration = Duration::from_secs(60);
const FLUSH_EVERY: Duration = Duration::from_secs(10);
const DISK_EVERY: Duration = Duration::from_secs(5);
const IDLE_EVERY: Duration = Duration::from_secs(60);
/// A purge that room called for does not follow the last one at once.
const PURGE_REST: Duration = Duration::from_secs(1);

/// Keeps a relay in order until it stops.
pub async fn keep_in_order(relay: Arc<Relay>) {
    let mut stopping = relay.signals.subscribe();
    let every = |period| {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut purge, mut flush, mut disk) = (every(PURGE_EVERY), every(FLUSH_EVERY), every(DISK_EVERY));
    let (mut idle, mut forget) = (every(IDLE_EVERY), every(FORGET_EVERY));
    let mut topics = relay.store.watch_subscriptions();
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return,
            () = tokio::time::sleep(until_next_second()) => {
                relay.metrics.sample();
                relay.look_at_consumers();
                sweep_once(&relay).await;
            }
            _ = purge.tick() => purge_once(&relay).await,
            () = relay.purge_wanted.notified() => {
                purge_once(&relay).await;
                purge.reset();
                tokio::time::sleep(PURGE_REST).await;
            }
            _ = flush.tick() => {
                if let Err(error) = relay.store.flush().await {
                    tracing::warn!(%error, "repeats could not be written");
                }
                relay.metrics.tidy();
            }
            _ = disk.tick() => relay.look_at_disk(),
            _ = idle.tick() => relay.close_idle_topics().await,
            _ = forget.tick() => relay.forget_slow_clients(),
            Ok(()) = topics.changed() => {
                if let Err(error) = relay.read_topics().await {
                    tracing::error!(%error, "topics could not be read");
                }
            }
        }
    }
}

/// Events expire with the second they name.
fn until_next_second() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(1) - Duration::from_nanos(u64::from(now.subsec_nanos()))
}

async fn sweep_once(relay: &Relay) {
    match relay.expire().await {
        Ok(0) => {}
        Ok(expired) => tracing::info!(expired, "events expired"),
        Err(error) => tracing::error!(%error, "expired events could not be swept"),
    }
}

async fn purge_once(relay: &Relay) {
    let started = clock::now();
    match relay.purge().await {
        Ok(purged) if purged.held => tracing::warn!("nothing is purged until the clock is confirmed"),
        Ok(purged) if purged.by_retention + purged.by_capacity > 0 => {
            let millis = clock::now().0.saturating_sub(started.0);
            tracing::info!(purged.by_retention, purged.by_capacity, millis, "events purged");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "old events could not be purged"),
    }
}
