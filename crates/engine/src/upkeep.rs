//! Periodic tasks: the expiry sweep, purges, idle topics, flushing of counts, measuring disk and backlog.

use std::{sync::Arc, time::Duration};

use kukuri_store::PurgeCursor;
use tokio::{
    sync::Notify,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until},
};

use crate::{clock, engine::Engine};

const PURGE_INTERVAL: Duration = Duration::from_secs(60);
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);
const DISK_INTERVAL: Duration = Duration::from_secs(5);
/// For idle topics, and for rate limiters of clients that are gone.
const TIDY_INTERVAL: Duration = Duration::from_secs(60);
/// After a start nothing is purged because of its age for this long: the system clock may still be corrected (P-5).
const AGE_PURGE_DELAY: Duration = Duration::from_secs(300);
/// Least time between two purges that the capacity stage asked for.
const MIN_PURGE_PAUSE: Duration = Duration::from_secs(1);

/// Runs until the engine stops.
pub async fn run(engine: Arc<Engine>) {
    let stopped = engine.stopped();
    tokio::pin!(stopped);
    let every = |period| {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut purge, mut flush) = (every(PURGE_INTERVAL), every(FLUSH_INTERVAL));
    let (mut disk, mut tidy) = (every(DISK_INTERVAL), every(TIDY_INTERVAL));
    let mut topics = engine.shared.store.watch_subscriptions();
    let mut may_purge_at = Instant::now();
    let purges_by_age_from = Instant::now() + AGE_PURGE_DELAY;
    let second = sleep(until_next_second());
    tokio::pin!(second);
    loop {
        tokio::select! {
            () = &mut stopped => return,
            () = &mut second => {
                engine.shared.event_rate.sample();
                engine.measure_backlog();
                sweep_expired(&engine).await;
                second.as_mut().reset(Instant::now() + until_next_second());
            }
            () = purge_is_due(&mut purge, &engine.shared.purge_wanted, may_purge_at) => {
                let is_by_age = Instant::now() >= purges_by_age_from;
                let start = if is_by_age { PurgeCursor::default() } else { PurgeCursor::for_capacity_only() };
                purge_once(&engine, start).await;
                purge.reset();
                may_purge_at = Instant::now() + MIN_PURGE_PAUSE;
            }
            _ = flush.tick() => {
                if let Err(error) = engine.shared.store.write_duplicate_counts().await {
                    tracing::warn!(%error, "can't write the counts of duplicate events; retrying in 10 s");
                }
            }
            _ = disk.tick() => {
                engine.measure_disk();
                engine.measure_permanent().await;
            }
            _ = tidy.tick() => {
                engine.shared.rates.forget_idle();
                engine.close_idle_topics().await;
            }
            Ok(()) = topics.changed() => {
                if let Err(error) = engine.reload_topics().await {
                    tracing::error!(%error, "can't read the node's topics; keeping the previous ones");
                }
            }
        }
    }
}

/// Returns when the interval is over, or when a capacity stage asks for a purge and the pause is over.
async fn purge_is_due(ticks: &mut Interval, wanted: &Notify, may_purge_at: Instant) {
    let asked_for = async {
        sleep_until(may_purge_at).await;
        wanted.notified().await;
    };
    tokio::select! {
        _ = ticks.tick() => {}
        () = asked_for => {}
    }
}

/// Events expire with the second they name, so the sweep runs at the beginning of each second.
fn until_next_second() -> Duration {
    Duration::from_millis(1_000 - clock::now().0 % 1_000)
}

async fn sweep_expired(engine: &Engine) {
    match engine.expire().await {
        Ok(0) => {}
        Ok(expired) => tracing::info!(expired, "events expired"),
        Err(error) => tracing::error!(%error, "can't sweep expired events; retrying in a second"),
    }
}

async fn purge_once(engine: &Engine, start: PurgeCursor) {
    let started = clock::now();
    match engine.purge(start).await {
        Ok(purged) if purged.by_retention + purged.by_capacity > 0 => {
            let millis = clock::now().0.saturating_sub(started.0);
            tracing::info!(purged.by_retention, purged.by_capacity, millis, "events purged");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "can't purge events; retrying in a minute"),
    }
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{
        Timestamp,
        retention::{Keep, Retention},
        subscription::SubscriptionChange,
    };
    use kukuri_store::{
        StoreRules,
        conformance::build::{admitted, note, topic},
        model::ModelStore,
        port::*,
    };

    use super::*;
    use crate::{config::EngineConfig, engine::EngineParts};

    async fn start(store: &Arc<ModelStore>, config: EngineConfig) -> Arc<Engine> {
        let parts = EngineParts {
            store: Arc::clone(store) as _,
            finder: None,
            config,
            policies: Vec::new(),
            recorder: Arc::new(metrics::NoopRecorder),
        };
        Engine::start(parts).await.unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_purged_because_of_its_age_in_the_first_minutes() {
        // P-5
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let hour = Duration::from_secs(3_600);
        store.ingest(vec![admitted(&note("old").build())], clock::now().before(2 * hour)).await.unwrap();
        let retention = Retention { regular: Keep::For(hour), ..Retention::default() };
        let engine = start(&store, EngineConfig { retention, ..EngineConfig::default() }).await;
        let count_after = async |pause| {
            sleep(pause).await;
            store.stats().await.unwrap().effective
        };
        let counts = async {
            assert_eq!(count_after(AGE_PURGE_DELAY - PURGE_INTERVAL / 2).await, 1);
            assert_eq!(count_after(2 * PURGE_INTERVAL).await, 0);
        };
        tokio::select! {
            () = run(Arc::clone(&engine)) => panic!("upkeep ended before the engine stopped"),
            () = counts => {}
        }
    }

    #[tokio::test]
    async fn a_jump_of_the_clock_is_noted_and_keeps_idle_topics_open() {
        // P-5, T-8
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let long_ago = clock::now().before(Duration::from_secs(60 * 24 * 3_600));
        store.ingest(vec![admitted(&note("before the jump").build())], long_ago).await.unwrap();
        store.change_subscription(&topic(), SubscriptionChange::open(), long_ago).await.unwrap();
        let engine = start(&store, EngineConfig::default()).await;
        assert_eq!(engine.expire().await.unwrap(), 0);
        engine.close_idle_topics().await;
        assert!(engine.is_topic_enabled(&topic()));
        assert!(!engine.confirm_clock().await.unwrap().is_held());
        engine.close_idle_topics().await;
        assert!(!engine.is_topic_enabled(&topic()));
    }

    #[tokio::test]
    async fn events_expire_while_one_purge_follows_another() {
        //
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let engine = start(&store, EngineConfig::default()).await;
        let Timestamp(now) = clock::now().seconds();
        let soon = (now + 3).to_string();
        let brief = admitted(&note("brief").tag(["expiration", &soon]).build());
        engine.writer.write_all(vec![brief]).await;
        assert_eq!(store.stats().await.unwrap().effective, 1);
        let asking_for_purges = async {
            loop {
                engine.shared.purge_wanted.notify_one();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let expired = async {
            while store.stats().await.unwrap().effective > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = run(Arc::clone(&engine)) => panic!("upkeep ended before the engine stopped"),
            () = asking_for_purges => {}
            done = tokio::time::timeout(Duration::from_secs(30), expired) => done.unwrap(),
        }
    }
}
