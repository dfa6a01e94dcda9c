//! What all connections share, and what they ask of it.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use kukuri_domain::{Filter, TopicId, sharing::FloorHint, subscription::SubscriptionChange};
use kukuri_outbox::Status;
use kukuri_search::Finder;
use kukuri_store::{OutboxRow, PurgeCursor, Purged, Raised, Store, StoreError};
use tokio::sync::{Notify, watch};

use crate::{
    bridging::Published,
    clock,
    config::RelayConfig,
    consumers::{Consumers, Lag},
    disk::{self, DiskLevel},
    door::Door,
    hub::Hub,
    metrics::{Metrics, Now},
    parts::Parts,
    pipeline::Pipeline,
    rates::{Act, Counted, ONE, RateLimits, TooFast},
    recent::Recent,
    sync::SyncRoom,
    topics::Topics,
};

/// A backlog that has not shrunk for so long is not worth waiting for.
const STANDING_STILL: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A running relay.
pub struct Relay {
    config: ArcSwap<RelayConfig>,
    rates: ArcSwapOption<RateLimits>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) finder: Option<Finder>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) pipeline: Pipeline,
    pub(crate) published: Arc<Published>,
    pub(crate) parts: Parts,
    pub(crate) topics: Topics,
    pub(crate) ephemeral: Arc<Recent>,
    pub(crate) door: Arc<Door>,
    pub(crate) sync_room: Arc<SyncRoom>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) connections: AtomicUsize,
    pub(crate) signals: watch::Sender<Signal>,
    /// Room has become short: a purge should not wait for its turn.
    pub(crate) purge_wanted: Arc<Notify>,
    disk_level: AtomicU8,
    pub(crate) consumers: Consumers,
    lag: AtomicU8,
    pub(crate) started: std::time::Instant,
}

/// What the relay says to all its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signal {
    /// It is to stop.
    pub(crate) stopping: bool,
    /// Counts how often it was configured anew.
    pub(crate) configuration: u64,
}

impl Relay {
    /// Starts a relay on a store, with search if there is a finder (NIP-50). The returned handle ends when all accepted
    /// work is committed.
    pub async fn start(
        store: Arc<dyn Store>,
        finder: Option<Finder>,
        config: RelayConfig,
    ) -> Result<(Arc<Self>, tokio::task::JoinHandle<()>), StoreError> {
        let hub = Arc::new(Hub::new(finder.clone()));
        let ephemeral = Arc::new(Recent::default());
        let metrics = Arc::new(Metrics::new());
        if let Some(finder) = &finder {
            let seconds = metrics.search_seconds.clone();
            finder.on_found(move |took| seconds.record(took));
        }
        let purge_wanted = Arc::new(Notify::new());
        let published = Arc::new(Published::new(metrics.published_lost.clone()));
        let (pipeline, writer) = Pipeline::start(
            Arc::clone(&store),
            Arc::clone(&hub),
            Arc::clone(&ephemeral),
            Arc::clone(&metrics),
            Arc::clone(&purge_wanted),
            Arc::clone(&published),
        );
        let relay = Arc::new(Self {
            rates: ArcSwapOption::new(limits_of(&config)),
            config: ArcSwap::from_pointee(config),
            store,
            finder,
            hub,
            pipeline,
            published,
            parts: Parts::default(),
            topics: Topics::default(),
            ephemeral,
            door: Arc::default(),
            sync_room: Arc::default(),
            metrics,
            connections: AtomicUsize::new(0),
            signals: watch::Sender::default(),
            purge_wanted,
            disk_level: AtomicU8::new(0),
            consumers: Consumers::default(),
            lag: AtomicU8::new(0),
            started: std::time::Instant::now(),
        });
        relay.enable_global().await?;
        relay.read_topics().await?;
        relay.look_at_disk();
        Ok((relay, writer))
    }

    /// Asks every connection to end.
    pub fn stop(&self) {
        self.signals.send_modify(|signal| signal.stopping = true);
    }

    /// How many WebSocket connections there are.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits until all connections have ended, but no longer than this.
    pub async fn emptied(&self, patience: Duration) {
        let deadline = tokio::time::Instant::now() + patience;
        while self.connections() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The store below.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// What is set now.
    pub fn config(&self) -> Arc<RelayConfig> {
        self.config.load_full()
    }

    /// From now on other things are set. Connections stay; counts of rates start anew only if rates changed.
    pub fn reconfigure(&self, config: RelayConfig) {
        let before = self.config();
        let per_hour = |config: &RelayConfig| match config.topics {
            crate::config::TopicIntake::Open { per_hour, .. } => Some(per_hour),
            crate::config::TopicIntake::Closed => None,
        };
        if before.rates != config.rates || per_hour(&before) != per_hour(&config) {
            self.rates.store(limits_of(&config));
        }
        self.config.store(Arc::new(config));
        self.look_at_disk();
        self.look_at_consumers();
        self.signals.send_modify(|signal| signal.configuration += 1);
    }

    /// A new node takes in `kukuri:global` (T-8).
    async fn enable_global(&self) -> Result<(), StoreError> {
        if self.store.subscriptions().await?.is_empty() {
            self.store.change_subscription(&TopicId::global(), SubscriptionChange::enable(), clock::now()).await?;
        }
        Ok(())
    }

    /// Takes up at once what was changed of topics; upkeep would do so a little later.
    pub async fn read_topics(&self) -> Result<(), StoreError> {
        self.topics.read(&*self.store).await
    }

    /// Counts an act of a client, or says how long it has to wait.
    pub(crate) fn check_rate(&self, act: Act, who: Counted<'_>) -> Result<(), TooFast> {
        self.check_weighed(act, ONE, who)
    }

    /// The same for an act that counts as several.
    pub(crate) fn check_weighed(&self, act: Act, weight: NonZeroU32, who: Counted<'_>) -> Result<(), TooFast> {
        self.rates.load().as_ref().map_or(Ok(()), |rates| rates.check(act, weight, who))
    }

    pub(crate) fn forget_slow_clients(&self) {
        if let Some(rates) = self.rates.load().as_ref() {
            rates.forget_slow();
        }
    }

    /// Watches one who follows the outbox: how far it is behind is measured, told, and heeded (O-9). What is returned is to
    /// be called with rows whose effect is there.
    pub fn watch_consumer(
        &self,
        name: &'static str,
        status: watch::Receiver<Status>,
    ) -> impl Fn(&[OutboxRow]) + Send + Sync + use<> {
        self.consumers.watch(name, status, self.metrics.of_consumer(name))
    }

    /// How far behind consumers were when they were last looked at.
    pub(crate) fn lag(&self) -> Lag {
        Lag::from_number(self.lag.load(Ordering::Relaxed))
    }

    /// Looks at the consumers. What they say counts until the next look. Returns the longest backlog.
    pub(crate) fn look_at_consumers(&self) -> u64 {
        let rows = self.consumers.backlog(*self.store.watch_outbox().borrow());
        let before = self.lag();
        let lag = Lag::of(&self.config().backlog, rows, before);
        self.lag.store(lag as u8, Ordering::Relaxed);
        if lag > before {
            tracing::warn!(rows, ?before, now = ?lag, "consumers of the outbox are behind");
        } else if lag < before {
            tracing::info!(rows, ?before, now = ?lag, "consumers of the outbox come nearer");
        }
        rows
    }

    /// Waits while consumers are behind and come nearer: whoever brings much of the past has the time.
    pub(crate) async fn wait_for_consumers(&self) {
        let (mut fewest, mut since) = (u64::MAX, Instant::now());
        while self.lag() >= Lag::LiveOnly && since.elapsed() < STANDING_STILL {
            tokio::time::sleep(LOOK_EVERY).await;
            let rows = self.look_at_consumers();
            if rows < fewest {
                (fewest, since) = (rows, Instant::now());
            }
        }
    }

    /// How short of free space the disk was when it was last looked at.
    pub(crate) fn disk_level(&self) -> DiskLevel {
        DiskLevel::from_number(self.disk_level.load(Ordering::Relaxed))
    }

    /// Looks at the disk. What it says counts until the next look.
    pub(crate) fn look_at_disk(&self) {
        let config = self.config();
        let level = match &config.disk {
            None => DiskLevel::Open,
            Some(disk) => match disk::free_bytes(disk) {
                Ok(free) => DiskLevel::of(disk, free),
                Err(error) => {
                    tracing::warn!(%error, "the free space on the disk could not be read");
                    return;
                }
            },
        };
        let before = DiskLevel::from_number(self.disk_level.swap(level as u8, Ordering::Relaxed));
        if level > before {
            tracing::warn!(?before, now = ?level, "free space on the disk is short");
        } else if level < before {
            tracing::info!(?before, now = ?level, "there is more free space on the disk");
        }
    }

    /// Throws away what has stayed long enough or has to make room (P-5, P-6). In steps: events are taken in meanwhile,
    /// and a relay that is to stop does not wait for the end of it.
    pub async fn purge(&self) -> Result<Purged, StoreError> {
        let mut cursor = PurgeCursor::default();
        let purged = loop {
            let step = self.pipeline.purge_some(self.config().retention, cursor).await?;
            match step.next {
                Some(next) if !self.is_stopping() => cursor = next,
                _ => break step.purged,
            }
        };
        self.metrics.purged(&purged);
        Ok(purged)
    }

    /// Takes what another node knows of versions in a topic that were deleted by id (G-7). It may take down what is
    /// visible, so it goes the way of all that commits (W-3).
    pub async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Raised, StoreError> {
        self.pipeline.raise_floors(topic.clone(), hints).await
    }

    /// Turns off what has expired, in steps too. Returns how many events that were.
    pub(crate) async fn expire(&self) -> Result<u64, StoreError> {
        let mut expired = 0;
        loop {
            let (swept, more) = self.pipeline.expire_some().await?;
            expired += swept.expired;
            if !more || self.is_stopping() {
                self.metrics.expired(expired);
                return Ok(expired);
            }
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.signals.borrow().stopping
    }

    /// Closes topics that were opened by use and have rested for long enough (T-8).
    pub async fn close_idle_topics(&self) {
        match self.topics.close_idle(&self.config().topics, &*self.store, clock::now()).await {
            Ok(0) => {}
            Ok(closed) => {
                (0..closed).for_each(|_| self.metrics.topic_closed());
                tracing::info!(closed, "idle topics closed");
            }
            Err(error) => tracing::error!(%error, "idle topics could not be closed"),
        }
    }

    /// Everything that is measured, in Prometheus' text format.
    pub(crate) async fn measures(&self) -> Result<String, StoreError> {
        let stats = self.store.stats().await?;
        self.consumers.look(stats.head);
        let free_bytes = self.config().disk.as_ref().and_then(|disk| disk::free_bytes(disk).ok());
        Ok(self.metrics.render(&Now {
            connections: self.connections(),
            subscriptions: self.hub.len(),
            topics: self.topics.enabled(),
            disk_level: self.disk_level() as u8,
            lag: self.lag() as u8,
            free_bytes,
            stats: &stats,
        }))
    }

    /// Whether these filters may be asked (T-6, W-4).
    pub(crate) fn check_filters(&self, filters: Vec<Filter>) -> Result<Vec<Filter>, String> {
        let config = self.config();
        let limits = &config.requests;
        if filters.len() > limits.filters {
            return Err(format!("invalid: more filters than {}", limits.filters));
        }
        for filter in &filters {
            if filter.value_count() > limits.filter_values {
                return Err(format!("invalid: a filter has more values than {}", limits.filter_values));
            }
            config.admission.topics.check(filter).map_err(|error| error.to_string())?;
        }
        Ok(filters)
    }

    /// Filters with their limits brought into range: a limit is never refused (W-1).
    pub(crate) fn clamp(&self, filters: Vec<Filter>) -> Vec<Filter> {
        let most = self.config().requests.limit;
        let clamp = |filter: Filter| {
            let limit = filter.limit().unwrap_or(most).min(most);
            filter.with_limit(limit)
        };
        filters.into_iter().map(clamp).collect()
    }
}

fn limits_of(config: &RelayConfig) -> Option<Arc<RateLimits>> {
    config.rates.as_ref().map(|rates| Arc::new(RateLimits::new(rates, &config.topics)))
}
