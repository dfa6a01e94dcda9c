//! The engine: its parts, put together, started, reconfigured and stopped.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use kukuri_domain::{
    Event, Origin, PublicKey, Timestamp, TopicId, Visibility,
    capacity::Stage,
    clock::Clock,
    retention::RetentionClass,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_outbox::Status;
use kukuri_search::Finder;
use kukuri_store::{
    Budget, DryRun, OutboxRow, Outcome, PurgeCursor, Purged, Raised, Stats, Store, StoreError, TopicStats,
    maintenance::MAX_DRY_RUN_ROWS,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};

use crate::{
    answers::AnswerMemory,
    backlog::{Backlog, BacklogLevel, ConsumerHealth},
    broadcast_queue::BroadcastQueue,
    cached::{Cached, StoreUnavailable},
    clock,
    config::EngineConfig,
    disk::{self, DiskLevel, DiskWatch},
    intake::Intake,
    live::{ClientQueue, LiveIndex, QueueReceiver, WordsOf},
    metrics::{EngineMetrics, EventRate, PurgeReason, SharedRecorder},
    networks::Shares,
    permanent::{PermanentLevel, PermanentWatch},
    permits::{ClientGate, ReadPermits},
    policies::{
        Client, Context, Policies, Policy, ReadKind,
        rates::{Act, RatePolicy},
    },
    reads::Reads,
    recent::RecentIds,
    refused::{ClientRefused, ConnectRefused, PublishRefused, TooFast},
    topics::Topics,
    writer::WriterHandle,
};

/// Ids of ephemeral events that are remembered at least.
const EPHEMERAL_IDS: usize = 16_384;
/// Enabled topics that [`Engine::busiest_topics`] compares.
pub const MAX_COMPARED_TOPICS: usize = 1_000;

/// The visibility that every path asks, swapped when moderation changes it (M-5).
pub type SharedVisibility = Arc<ArcSwap<Visibility>>;

/// A running engine.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    intake: Intake,
    reads: Reads,
    pub(crate) writer: WriterHandle,
    recorder: SharedRecorder,
    reports: Mutex<Vec<(&'static str, Report)>>,
    stats: Cached<Stats>,
    busiest_topics: Cached<Vec<TopicStats>>,
    signals: watch::Sender<Signal>,
    started: Instant,
}

/// The parts that intake, reads, writer and engine share.
pub(crate) struct Shared {
    pub(crate) config: ArcSwap<EngineConfig>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) finder: Option<Finder>,
    pub(crate) live: Arc<LiveIndex>,
    /// Live filters, by address.
    pub(crate) live_shares: Arc<Shares>,
    /// Permits for costly reads (Y-1).
    pub(crate) read_permits: ReadPermits,
    pub(crate) answers: AnswerMemory,
    pub(crate) policies: Policies,
    pub(crate) rates: Arc<RatePolicy>,
    pub(crate) visibility: SharedVisibility,
    pub(crate) topics: Arc<Topics>,
    /// Ephemeral events, which are not stored.
    pub(crate) ephemeral: RecentIds,
    pub(crate) broadcast: BroadcastQueue,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) disk: Arc<DiskWatch>,
    pub(crate) permanent: PermanentWatch,
    pub(crate) metrics: Arc<EngineMetrics>,
    pub(crate) event_rate: EventRate,
    pub(crate) purge_wanted: Notify,
    /// Whether the clock was held when it was last read (P-5).
    pub(crate) is_clock_held: AtomicBool,
}

type Report = Box<dyn Fn() -> Value + Send + Sync>;

impl Shared {
    /// What policies are asked with, now.
    pub(crate) fn context<'c>(&'c self, config: &'c EngineConfig) -> Context<'c> {
        Context { config, now: clock::now(), topics: &self.topics }
    }

    pub(crate) fn read_budget(self: &Arc<Self>, ip: IpAddr) -> Budget {
        let config = self.config.load();
        Budget {
            rows: config.requests.query_rows,
            deadline: Instant::now().checked_add(config.requests.query_time),
            gate: Some(Arc::new(ClientGate { shared: Arc::clone(self), ip })),
        }
    }
}

/// A signal to all connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signal {
    /// The node stops.
    pub stopping: bool,
    /// How often the configuration, or what policies decide from, has changed.
    pub configuration: u64,
}

/// The parts that an engine is started with.
pub struct EngineParts {
    /// The event store.
    pub store: Arc<dyn Store>,
    /// Search, if there is an index (NIP-50).
    pub finder: Option<Finder>,
    /// The configuration.
    pub config: EngineConfig,
    /// Policies of other crates, asked after the engine's own, in this order.
    pub policies: Vec<Box<dyn Policy>>,
    /// The recorder of metrics.
    pub recorder: SharedRecorder,
}

/// The state of the engine, for `/healthz` and the status page.
pub struct Health {
    /// The store's statistics, at most [`crate::cached::STATS_TTL`] old.
    pub stats: Arc<Stats>,
    /// Bytes of answers that wait to be read.
    pub answer_bytes: usize,
    /// Live subscriptions.
    pub subscriptions: usize,
    /// Their filters, as `limits.live_filters` counts them.
    pub live_filters: usize,
    /// Enabled topics.
    pub topics: usize,
    /// Free disk space.
    pub disk: DiskLevel,
    /// How far events that are never purged fill their share.
    pub permanent: PermanentLevel,
    /// Backlog of the outbox consumers.
    pub backlog: BacklogLevel,
    /// The outbox consumers.
    pub consumers: Vec<ConsumerHealth>,
    /// Stored events a second.
    pub events_per_second: f64,
    /// Time since the start.
    pub uptime: Duration,
    /// Reports of other parts of the node, by name.
    pub reports: Vec<(&'static str, Value)>,
}

fn words_of(finder: Finder) -> WordsOf {
    Box::new(move |event| finder.words_of(event))
}

impl Engine {
    /// Starts an engine. The returned task ends when all accepted work is committed.
    pub async fn start(parts: EngineParts) -> Result<(Arc<Self>, JoinHandle<()>), StoreError> {
        let EngineParts { store, finder, config, policies, recorder } = parts;
        let metrics = Arc::new(metrics::with_local_recorder(&*recorder, EngineMetrics::register));
        if let Some(finder) = &finder {
            let seconds = metrics.search_seconds.clone();
            finder.on_found(move |took| seconds.record(took));
        }
        let visibility = SharedVisibility::default();
        let (topics, backlog, disk) =
            (Arc::<Topics>::default(), Arc::<Backlog>::default(), Arc::<DiskWatch>::default());
        let rates = Arc::new(RatePolicy::new(&config, Arc::clone(&backlog)));
        let shared = Arc::new(Shared {
            config: ArcSwap::from_pointee(config),
            store,
            live: Arc::new(LiveIndex::new(finder.clone().map(words_of), visibility.clone())),
            live_shares: Arc::default(),
            read_permits: ReadPermits::default(),
            answers: AnswerMemory::default(),
            finder,
            policies: Policies::new(&rates, &topics, &disk, &backlog, policies),
            rates,
            topics,
            ephemeral: RecentIds::new(EPHEMERAL_IDS),
            broadcast: BroadcastQueue::new(visibility.clone(), metrics.queue_overflow.clone()),
            visibility,
            backlog,
            disk,
            permanent: PermanentWatch::default(),
            metrics,
            event_rate: EventRate::default(),
            purge_wanted: Notify::new(),
            is_clock_held: AtomicBool::new(false),
        });
        let (writer, writer_task) = WriterHandle::start(Arc::clone(&shared));
        let engine = Arc::new(Self {
            intake: Intake { shared: Arc::clone(&shared), writer: writer.clone() },
            reads: Reads { shared: Arc::clone(&shared) },
            shared,
            writer,
            recorder,
            reports: Mutex::default(),
            stats: Cached::default(),
            busiest_topics: Cached::default(),
            signals: watch::Sender::default(),
            started: Instant::now(),
        });
        // A new node takes in `kukuri:global` (T-8).
        if engine.store().subscriptions().await?.is_empty() {
            engine.store().change_subscription(&TopicId::global(), SubscriptionChange::enable(), clock::now()).await?;
        }
        engine.reload_topics().await?;
        engine.measure_disk();
        Ok((engine, writer_task))
    }

    /// Tells every connection and task to end.
    pub fn stop(&self) {
        self.signals.send_modify(|signal| signal.stopping = true);
    }

    /// Signals to all connections, from now on.
    pub fn signals(&self) -> watch::Receiver<Signal> {
        self.signals.subscribe()
    }

    /// Returns once the engine stops.
    pub async fn stopped(&self) {
        // An error means that the engine is gone.
        let _ = self.signals().wait_for(|signal| signal.stopping).await.map(drop);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.signals.borrow().stopping
    }

    /// Events in.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Events out.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// What one request of a client may cost to read, from now on (Y-2).
    pub fn read_budget(&self, ip: IpAddr) -> Budget {
        self.shared.read_budget(ip)
    }

    /// The send queue of a client, and its receiving end.
    pub fn client_queue(&self, ip: IpAddr) -> (Arc<ClientQueue>, QueueReceiver) {
        let shared = Arc::clone(&self.shared);
        let memory = move |bytes| shared.answers.reserve(&shared.config.load(), ip, bytes..=bytes).ok();
        ClientQueue::new(Some(Box::new(memory)))
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.shared.store
    }

    /// The configuration now.
    pub fn config(&self) -> Arc<EngineConfig> {
        self.shared.config.load_full()
    }

    /// Swaps the configuration. Connections stay; rate counters start again only if the rates changed.
    pub fn reconfigure(&self, config: EngineConfig) {
        self.shared.rates.set_rates(&config);
        self.shared.config.store(Arc::new(config));
        self.measure_disk();
        self.measure_backlog();
        self.signals.send_modify(|signal| signal.configuration += 1);
    }

    /// Makes metrics at the recorder of this engine.
    pub fn with_recorder<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, make)
    }

    /// Adds the state of another part of the node to [`Health`], under its name. The report must not block.
    pub fn report(&self, name: &'static str, report: impl Fn() -> Value + Send + Sync + 'static) {
        self.reports.lock().push((name, Box::new(report)));
    }

    /// The visibility that every path asks (M-5).
    pub fn visibility(&self) -> &SharedVisibility {
        &self.shared.visibility
    }

    /// Withholds events by another overlay from now on.
    pub fn set_visibility(&self, visibility: Visibility) {
        self.shared.visibility.store(Arc::new(visibility));
    }

    /// Whether the policies accept a connection from this address.
    pub fn check_connection(&self, ip: IpAddr) -> Result<(), ConnectRefused> {
        let config = self.config();
        let context = self.shared.context(&config);
        self.shared.policies.ask(|policy| policy.check_connect(&context, ip))
    }

    /// Whether the policies still serve a connected client. To be asked when the configuration has changed.
    pub fn check_client(&self, client: &Client) -> Result<(), ClientRefused> {
        let config = self.config();
        let context = self.shared.context(&config);
        self.shared.policies.ask(|policy| policy.check_client(&context, client))
    }

    /// Counts an attempt to authenticate, before its text of this many bytes is parsed: it costs a signature, as an event
    /// does.
    pub fn count_authentication(&self, client: &Client, bytes: usize) -> Result<(), PublishRefused> {
        Ok(self.shared.rates.check_text(Act::Publish, bytes, client.ip, &client.keys)?)
    }

    /// Counts a request, before its text of this many bytes is parsed: also one that can't be read, and one that everybody
    /// may make (W-4). A request for history is counted again by [`Reads::check`].
    pub fn count_request(&self, client: &Client, bytes: usize) -> Result<(), TooFast> {
        self.shared.rates.check_text(Act::Request, bytes, client.ip, &client.keys)
    }

    /// Counts a page over HTTP, as a request for history.
    pub fn count_page(&self, client: &Client) -> Result<(), TooFast> {
        self.shared.rates.check(Act::Backfill, client.ip, &client.keys)
    }

    /// Counts a request by the key that made it, which is known only after its address was counted (U-3).
    pub fn count_key(&self, key: &PublicKey, kind: ReadKind) -> Result<(), TooFast> {
        let act = match kind {
            ReadKind::Recent => Act::Request,
            ReadKind::History => Act::Backfill,
        };
        self.shared.rates.check_key(act, key)
    }

    /// Counts a request for the status page, health or metrics (Y-4).
    pub fn count_status_request(&self, ip: IpAddr) -> Result<(), TooFast> {
        self.shared.rates.check(Act::Status, ip, &[])
    }

    /// Counts an attempt to sign in over HTTP (U-3).
    pub fn count_sign_in(&self, client: &Client) -> Result<(), TooFast> {
        self.shared.rates.check(Act::SignIn, client.ip, &[])
    }

    /// Whether clients that come now are served only if they authenticate (W-7).
    pub fn requires_authentication(&self) -> bool {
        let now = clock::now();
        self.config().auth.is_demanded(now, now)
    }

    /// Whether everybody has this topic (S-6), or, without one, every topic of this node.
    pub fn is_for_everybody(&self, topic: Option<&TopicId>) -> bool {
        let config = self.config();
        let context = self.shared.context(&config);
        topic.map_or_else(|| context.are_all_topics_for_everybody(), |topic| context.is_for_everybody(topic))
    }

    /// Whether the policies let clients authenticate as this key.
    pub fn check_key(&self, key: &PublicKey) -> Result<(), PublishRefused> {
        let config = self.config();
        let context = self.shared.context(&config);
        self.shared.policies.ask(|policy| policy.check_auth(&context, key))
    }

    /// Has every connection ask the policies again whether its client and its subscriptions are served: what policies decide
    /// from has changed.
    pub fn recheck_clients(&self) {
        self.signals.send_modify(|signal| signal.configuration += 1);
    }

    /// Takes in the topics that members subscribe to, and stops those that members kept and nobody subscribes to any more (S-7).
    /// Returns how many topics changed.
    pub async fn follow_members(
        &self,
        members: &BTreeMap<TopicId, u64>,
        stop_unused: bool,
    ) -> Result<usize, StoreError> {
        self.shared.topics.follow_members(members, stop_unused, &*self.shared.store).await
    }

    /// The enabled topics, as they were last read, ordered by id.
    pub fn enabled_topics(&self) -> Vec<TopicId> {
        self.shared.topics.all_enabled().into_iter().map(|subscription| subscription.topic).collect()
    }

    /// Whether a topic is enabled.
    pub fn is_topic_enabled(&self, topic: &TopicId) -> bool {
        self.shared.topics.is_enabled(topic)
    }

    /// Reads the node-level subscriptions now; upkeep would do so a little later.
    pub async fn reload_topics(&self) -> Result<(), StoreError> {
        self.shared.topics.reload(&*self.shared.store).await
    }

    /// Watches an outbox consumer: its backlog is measured, shown and heeded (O-9). The caller passes processed rows to the
    /// returned function.
    pub fn watch_consumer(
        &self,
        name: &'static str,
        status: watch::Receiver<Status>,
    ) -> impl Fn(&[OutboxRow]) + Send + Sync + use<> {
        self.with_recorder(|| self.shared.backlog.watch(name, status, &self.shared.metrics))
    }

    /// Measures the backlog of the outbox consumers. Returns the longest, in rows.
    pub(crate) fn measure_backlog(&self) -> u64 {
        self.shared.backlog.measure(&self.shared.config.load().backlog, *self.shared.store.watch_outbox().borrow())
    }

    pub(crate) fn measure_disk(&self) {
        self.shared.disk.measure(self.shared.config.load().disk.as_ref());
    }

    /// Measures how far events that are never purged fill their share, if that may have changed (P-6).
    pub(crate) async fn measure_permanent(&self) {
        let Shared { permanent, store, config, topics, .. } = &*self.shared;
        if !permanent.is_due() {
            return;
        }
        let with_capacity = topics.capacities();
        let asked: Vec<TopicId> = with_capacity.keys().cloned().collect();
        match tokio::try_join!(store.stats(), store.topic_stats(&asked)) {
            Ok((stats, of_topics)) => {
                let of_topics = of_topics.into_iter().flatten();
                let of_topics: Vec<_> = of_topics
                    .filter_map(|stats| with_capacity.get(&stats.topic).copied().map(|capacity| (stats, capacity)))
                    .collect();
                permanent.measure(&stats, &of_topics, &config.load());
            }
            Err(error) => tracing::warn!(%error, "can't measure how far permanent events fill their share"),
        }
    }

    /// Takes in events of an operator's file, in order. Returns when all are durable. Waits for the outbox consumers as
    /// long as they catch up (O-9).
    pub async fn import(&self, texts: Vec<Vec<u8>>) -> Vec<Result<Outcome, PublishRefused>> {
        self.measure_backlog();
        self.shared.backlog.wait_until_near(|| self.measure_backlog()).await;
        self.intake.submit_batch(texts.into_iter().map(|text| (text, Origin::Import)).collect()).await
    }

    /// Purges what is past its retention or over capacity (P-5, P-6), in steps: events are written meanwhile, and a node
    /// that stops does not wait for the end.
    pub async fn purge(&self, start: PurgeCursor) -> Result<Purged, StoreError> {
        let mut cursor = start;
        let purged = loop {
            let retention = self.config().retention;
            let step = self.writer.change(async move |shared: Arc<Shared>| {
                let step = shared.store.purge_some(&retention, clock::now(), cursor).await?;
                if step.next.is_none() {
                    shared.report_stages(&step.purged.stages);
                }
                Ok(step)
            });
            let step = step.await?;
            match step.next {
                Some(next) if !self.is_stopping() => cursor = next,
                _ => break step.purged,
            }
        };
        self.shared.metrics.purged.of(PurgeReason::Retention).increment(purged.by_retention);
        self.shared.metrics.purged.of(PurgeReason::Capacity).increment(purged.by_capacity);
        Ok(purged)
    }

    /// Counts what [`Self::purge`] would remove now, up to a bound. Nothing changes.
    pub async fn dry_run_purge(&self) -> Result<DryRun, StoreError> {
        self.shared.store.dry_run_purge(&self.config().retention, clock::now(), MAX_DRY_RUN_ROWS).await
    }

    /// Sweeps expired events, in steps. Returns how many.
    pub(crate) async fn expire(&self) -> Result<u64, StoreError> {
        let mut expired = 0;
        loop {
            let step = self.writer.change(async |shared| shared.store.expire_some(clock::now()).await);
            let (swept, more) = step.await?;
            expired += swept.expired;
            self.note_clock(swept.held).await?;
            if !more || self.is_stopping() {
                self.shared.metrics.expired.increment(expired);
                return Ok(expired);
            }
        }
    }

    /// Reads the clock, and reports a hold that begins or ends (P-5).
    pub async fn observe_clock(&self) -> Result<Clock, StoreError> {
        let clock = self.shared.store.observe_clock(clock::now()).await?;
        let was_held = self.shared.is_clock_held.swap(clock.is_held(), Relaxed);
        if clock.is_held() && !was_held {
            let ahead = Duration::from_millis(clock.last.0.saturating_sub(clock.latest.0));
            tracing::warn!(
                ?ahead,
                "the system clock is further ahead of the last recorded time than clock.max_jump: nothing is purged or \
                 swept because of its age until the clock returns or has run steadily for clock.confirm_after. If it is \
                 right, run `kukuri-node clock confirm`"
            );
        } else if was_held && !clock.is_held() {
            tracing::info!("the system clock is trusted again: purges and sweeps continue");
        }
        Ok(clock)
    }

    /// Trusts the system clock, by an operator's decision (P-5).
    pub async fn confirm_clock(&self) -> Result<Clock, StoreError> {
        self.shared.store.confirm_clock(clock::now()).await?;
        self.observe_clock().await
    }

    /// Whether the clock may be wrong, so that nothing is removed by age (P-5).
    pub fn is_clock_held(&self) -> bool {
        self.shared.is_clock_held.load(Relaxed)
    }

    async fn note_clock(&self, is_held: bool) -> Result<(), StoreError> {
        if self.shared.is_clock_held.load(Relaxed) != is_held {
            self.observe_clock().await?;
        }
        Ok(())
    }

    /// Closes topics that were opened by use and are idle (T-8). By a held clock no topic is idle.
    pub async fn close_idle_topics(&self) {
        if self.shared.is_clock_held.load(Relaxed) {
            return;
        }
        match self.shared.topics.close_idle(&self.config().topics, &*self.shared.store, clock::now()).await {
            Ok(0) => {}
            Ok(closed) => {
                self.shared.metrics.topics_closed.increment(closed as u64);
                tracing::info!(closed, "idle topics closed");
            }
            Err(error) => tracing::error!(%error, "can't close idle topics; the next try is in a minute"),
        }
    }

    /// Applies what another node knows of versions in a topic that were deleted by id (G-7). It may take down visible
    /// versions, so the writer does it (W-3).
    pub async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Raised, StoreError> {
        let topic = topic.clone();
        let change = async move |shared: Arc<Shared>| {
            let raised = shared.store.raise_floors(&topic, hints, clock::now()).await?;
            shared.report_stages(&raised.stages);
            Ok(raised)
        };
        self.writer.change(change).await
    }

    /// Removes the events of an author up to a time and keeps them out, without a request (N-2). It may take down visible
    /// events, so the writer does it (W-3).
    pub async fn leave_vanish_mark(&self, author: &PublicKey, until: Timestamp) -> Result<(), StoreError> {
        let author = *author;
        let change = async move |shared: Arc<Shared>| {
            let stages = shared.store.leave_vanish_mark(&author, until, clock::now()).await?;
            shared.report_stages(&stages);
            Ok(())
        };
        self.writer.change(change).await
    }

    /// New events of clients of this process and of the node itself, from now on, for broadcast (G-2). `None`: the
    /// receiver has been taken.
    pub fn take_broadcast_receiver(&self) -> Option<mpsc::Receiver<kukuri_domain::Admitted>> {
        self.shared.broadcast.take_receiver()
    }

    /// The topics that are carried between nodes: enabled, and not shed (G-1, P-6). Read from the store, so that an event
    /// that arrives over one of them finds it enabled.
    pub async fn carried_topics(&self) -> Result<Vec<NodeSubscription>, StoreError> {
        self.reload_topics().await?;
        let Shared { store, topics, disk, backlog, .. } = &*self.shared;
        let stage = store.stats().await?.stage.max(disk.level().stage()).max(backlog.level().stage());
        let mut carried = topics.all_enabled();
        if stage >= Stage::Shedding {
            carried.retain(|one| !topics.load(&one.topic).is_shed_first);
        }
        Ok(carried)
    }

    /// From when on regular events of a topic are kept here, if its past is exchanged with other nodes (G-7, S-1).
    pub fn shares_since(&self, topic: &TopicId) -> Option<Timestamp> {
        let policy = self.shared.topics.policy(topic).filter(|policy| policy.backfill)?;
        let keep = self.config().retention.in_topic(RetentionClass::Regular, &policy.retention);
        Some(keep.cutoff(clock::now()).map_or(Timestamp(0), |cutoff| cutoff.seconds()))
    }

    /// Whether another node may tell of an event in a topic (G-4). What `kukuri:global` holds depends on the other node's
    /// mode; an event that is not taken in here is refused later.
    pub fn is_carried_by(&self, event: &Event, topic: &TopicId) -> bool {
        let is_bound =
            || self.shared.config.load().admission.topics.bind(event).is_ok_and(|topics| topics.contains(topic));
        *topic == TopicId::global() || is_bound()
    }

    /// The enabled topics that have events, those with the most first, at most [`crate::cached::STATS_TTL`] old. Looks at no more than
    /// [`MAX_COMPARED_TOPICS`] (T-10).
    pub async fn busiest_topics(&self) -> Result<Arc<Vec<TopicStats>>, StoreUnavailable> {
        let read = async {
            let enabled = self.shared.topics.all_enabled().into_iter().take(MAX_COMPARED_TOPICS);
            let enabled: Vec<TopicId> = enabled.map(|subscription| subscription.topic).collect();
            let topics = self.shared.store.topic_stats(&enabled).await?;
            let mut topics: Vec<TopicStats> =
                topics.into_iter().flatten().filter(|topic| topic.effective > 0).collect();
            topics.sort_by(|left, right| right.effective.cmp(&left.effective).then(left.topic.cmp(&right.topic)));
            Ok(topics)
        };
        self.busiest_topics.get(read).await
    }

    /// The engine's state. Sets its gauges as well.
    pub async fn health(&self) -> Result<Health, StoreUnavailable> {
        let stats = self.stats.get(self.shared.store.stats()).await?;
        let permanent = PermanentLevel::of(&stats, &self.shared.config.load());
        let health = Health {
            permanent,
            subscriptions: self.shared.live.len(),
            live_filters: self.shared.live_shares.total(),
            answer_bytes: self.shared.answers.total(),
            topics: self.shared.topics.enabled_count(),
            disk: self.shared.disk.level(),
            backlog: self.shared.backlog.level(),
            consumers: self.shared.backlog.consumers(stats.head.max(*self.shared.store.watch_outbox().borrow())),
            events_per_second: self.shared.event_rate.per_second(),
            uptime: self.started.elapsed(),
            reports: self.reports.lock().iter().map(|(name, report)| (*name, report())).collect(),
            stats,
        };
        let disk_free_bytes = self.config().disk.as_ref().and_then(|disk| disk::free_bytes(disk).ok());
        self.shared.metrics.set_gauges(&health, disk_free_bytes);
        Ok(health)
    }
}
