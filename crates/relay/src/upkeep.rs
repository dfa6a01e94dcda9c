//! What runs by itself: expiry when it is due, purges, topics that rest, counts that wait, a look at the disk.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::Notify,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until},
};

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
    let mut may_purge_at = Instant::now();
    let second = sleep(until_next_second());
    tokio::pin!(second);
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return,
            () = &mut second => {
                relay.metrics.sample();
                relay.look_at_consumers();
                sweep_once(&relay).await;
                second.as_mut().reset(Instant::now() + until_next_second());
            }
            () = purge_is_due(&mut purge, &relay.purge_wanted, may_purge_at) => {
                purge_once(&relay).await;
                purge.reset();
                may_purge_at = Instant::now() + PURGE_REST;
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

/// Ends when it is time for a purge, or when room calls for one and may have it.
async fn purge_is_due(ticks: &mut Interval, wanted: &Notify, may_purge_at: Instant) {
    let called = async {
        sleep_until(may_purge_at).await;
        wanted.notified().await;
    };
    tokio::select! {
        _ = ticks.tick() => {}
        () = called => {}
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use kukuri_domain::Timestamp;
    use kukuri_store::{
        StoreRules,
        conformance::build::{admitted, note},
        model::ModelStore,
    };

    use super::*;
    use crate::config::RelayConfig;

    #[tokio::test]
    async fn events_expire_while_room_calls_for_one_purge_after_the_other() {
        //
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let (relay, _) = Relay::start(Arc::clone(&store) as _, None, RelayConfig::default()).await.unwrap();
        let Timestamp(now) = clock::now().seconds();
        let soon = (now + 3).to_string();
        let brief = admitted(&note("brief").tag(["expiration", &soon]).build());
        relay.pipeline.submit_batch(vec![brief]).await;
        assert_eq!(relay.store.stats().await.unwrap().effective, 1);
        let calling = async {
            loop {
                relay.purge_wanted.notify_one();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let expired = async {
            while relay.store.stats().await.unwrap().effective > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = keep_in_order(Arc::clone(&relay)) => panic!("it keeps on"),
            () = calling => {}
            done = tokio::time::timeout(Duration::from_secs(30), expired) => done.unwrap(),
        }
    }
}
