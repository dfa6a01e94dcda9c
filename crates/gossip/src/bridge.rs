//! The bridge as a whole: starts beside an engine, reports its status, and stops.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use iroh::{Endpoint, EndpointAddr, SecretKey};
use kukuri_engine::Engine;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    broadcast::broadcast_published,
    catch_up::{CatchUpProtocol, start_due_sessions},
    endpoint::EndpointFactory,
    error::GossipError,
    inbox::{Inbox, process_queue},
    large_events::{Fetches, LargeEventCache, LargeEventProtocol},
    metrics::{Direction, GossipMetrics},
    peer::{PeerAddress, PeerId},
    peer_store::{PeerStore, SeenPeer},
    protocol::{PeerStream, Protocol},
    settings::{GossipSettings, PeerPolicy},
    status::{EndpointState, PeerStatus, TopicStatus},
    supervisor::Supervisor,
    topics::{JoinedTopic, JoinedTopics},
    watchdog::ReplaceReason,
};

/// Gauges are set, and new peers written, this often.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// The times at which peers were seen are written this often.
const SAVE_PEERS_INTERVAL: Duration = Duration::from_secs(10);
const MAX_QUEUED_SEEN_PEERS: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A running bridge.
pub struct Bridge {
    ctx: Arc<BridgeContext>,
    stopping: watch::Sender<bool>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

/// The parts of the bridge, shared by its tasks.
pub(crate) struct BridgeContext {
    pub(crate) engine: Arc<Engine>,
    pub(crate) settings: GossipSettings,
    pub(crate) metrics: Arc<GossipMetrics>,
    pub(crate) peers: Arc<PeerStore>,
    pub(crate) topics: Arc<JoinedTopics>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) large_events: Arc<LargeEventCache>,
    pub(crate) fetches: Fetches,
    pub(crate) catch_up: Arc<CatchUpProtocol>,
    pub(crate) health: Arc<Health>,
    /// `None` while it is being replaced.
    pub(crate) endpoint: Mutex<Option<Endpoint>>,
    replacements: mpsc::Sender<ReplaceReason>,
    seen_peers: mpsc::Sender<PeerId>,
    has_seen_peer: AtomicBool,
    /// Fetches and catch-up sessions, aborted when the bridge stops.
    background: Mutex<JoinSet<()>>,
}

#[derive(Default)]
pub(crate) struct Health {
    pub(crate) is_replacing: AtomicBool,
    pub(crate) rebuilds: AtomicU64,
}

impl Bridge {
    /// Starts a bridge for an engine. `key` is the secret key of its endpoint.
    pub async fn start(engine: Arc<Engine>, settings: GossipSettings, key: [u8; 32]) -> Result<Self, GossipError> {
        let key = SecretKey::from_bytes(&key);
        let metrics = Arc::new(engine.with_recorder(GossipMetrics::register));
        let peers = Arc::new(PeerStore::open(key.public(), settings.peers, &settings.known, &settings.directory));
        let (inbox, queued) = Inbox::new(&settings.limits, Arc::clone(&metrics));
        let (inbox, topics) = (Arc::new(inbox), Arc::<JoinedTopics>::default());
        let large_events = Arc::<LargeEventCache>::default();
        let large_event_protocol = LargeEventProtocol {
            engine: Arc::clone(&engine),
            cache: Arc::clone(&large_events),
            topics: Arc::clone(&topics),
            inbox: Arc::clone(&inbox),
            metrics: Arc::clone(&metrics),
        };
        let (for_catch_up, joined) = (Arc::clone(&engine), Arc::clone(&topics));
        let catch_up = Arc::new(CatchUpProtocol::new(for_catch_up, joined, Arc::clone(&metrics), &settings.catch_up));
        let factory = EndpointFactory {
            key,
            settings: settings.clone(),
            peers: Arc::clone(&peers),
            topics: Arc::clone(&topics),
            metrics: Arc::clone(&metrics),
            protocols: [Arc::new(large_event_protocol) as Arc<dyn Protocol>, Arc::clone(&catch_up) as _],
        };
        let endpoint = factory.bind(settings.listen).await?;
        let published = engine.published().ok_or(GossipError::AlreadyBridged)?;
        let (replacements, replacements_asked) = mpsc::channel(1);
        let (seen_peers, seen_peers_queue) = mpsc::channel(MAX_QUEUED_SEEN_PEERS);
        let health = Arc::<Health>::default();
        report_health(&engine, &health, &topics, &inbox);
        let ctx = Arc::new(BridgeContext {
            engine,
            settings,
            metrics,
            peers,
            topics,
            inbox,
            large_events,
            fetches: Fetches::default(),
            catch_up,
            health,
            endpoint: Mutex::new(Some(endpoint.endpoint.clone())),
            replacements,
            seen_peers,
            has_seen_peer: AtomicBool::new(false),
            background: Mutex::default(),
        });
        let (stopping, is_stopping) = watch::channel(false);
        let supervisor = Supervisor {
            ctx: Arc::clone(&ctx),
            factory,
            replacements: replacements_asked,
            seen_peers: seen_peers_queue,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(supervisor.run(endpoint, is_stopping.clone()));
        tasks.spawn(until_stopped(is_stopping.clone(), process_queue(Arc::clone(&ctx), queued)));
        tasks.spawn(until_stopped(is_stopping.clone(), broadcast_published(Arc::clone(&ctx), published)));
        tasks.spawn(until_stopped(is_stopping.clone(), start_due_sessions(Arc::clone(&ctx))));
        tasks.spawn(until_stopped(is_stopping, set_gauges_and_save_peers(Arc::clone(&ctx))));
        Ok(Self { ctx, stopping, tasks: tasks.into() })
    }

    /// The id and addresses of this node.
    pub fn address(&self) -> Result<PeerAddress, GossipError> {
        let endpoint = self.ctx.endpoint.lock().clone().ok_or(GossipError::NoEndpoint)?;
        Ok(endpoint.addr().into())
    }

    /// All known peers.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let mut topics: HashMap<PeerId, usize> = HashMap::new();
        for joined in self.ctx.topics.all() {
            joined.state.neighbours().into_iter().for_each(|peer| *topics.entry(peer).or_default() += 1);
        }
        let mut peers = self.ctx.peers.all();
        for id in topics.keys() {
            peers.entry(*id).or_default();
        }
        let status = |(id, peer): (PeerId, SeenPeer)| {
            let address = peer.addresses.iter().fold(EndpointAddr::new(id), |address, one| address.with_ip_addr(*one));
            PeerStatus {
                id,
                address: (!address.is_empty()).then(|| address.into()),
                is_configured: self.ctx.peers.is_configured(&id),
                topics: topics.get(&id).copied().unwrap_or_default(),
                seen: peer.seen,
            }
        };
        peers.into_iter().map(status).collect()
    }

    /// All joined topics.
    pub fn topics(&self) -> Vec<TopicStatus> {
        let status = |joined: Arc<JoinedTopic>| TopicStatus {
            topic: joined.topic.clone(),
            neighbours: joined.state.neighbours().into_iter().collect(),
            received: joined.state.received(),
        };
        self.ctx.topics.all().into_iter().map(status).collect()
    }

    /// Applies new peer settings. If they differ, replaces the endpoint: peers that are no longer allowed are disconnected.
    pub fn set_peers(&self, policy: PeerPolicy, known: &[PeerAddress]) {
        if self.ctx.peers.configure(policy, known) {
            self.ctx.replace_endpoint(ReplaceReason::Reconfigured);
        }
    }

    /// Leaves all topics, closes the endpoint and saves the seen peers.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut tasks = self.tasks.lock().await;
        while tasks.join_next().await.is_some() {}
        self.ctx.topics.leave_all();
        let mut background = std::mem::take(&mut *self.ctx.background.lock());
        background.shutdown().await;
        self.ctx.peers.save();
    }
}

/// Registers the `gossip` part of `/healthz`. The closure must not hold the engine: the engine holds the closure.
fn report_health(engine: &Engine, health: &Arc<Health>, topics: &Arc<JoinedTopics>, inbox: &Arc<Inbox>) {
    let (health, topics, inbox) = (Arc::clone(health), Arc::clone(topics), Arc::clone(inbox));
    engine.report("gossip", move || {
        let counts = topics.counts();
        json!({
            "state": health.state().as_str(),
            "topics": counts.topics,
            "topics_without_neighbours": counts.without_neighbours,
            "peers": counts.peers,
            "queue": inbox.queue_len(),
            "rebuilds": health.rebuilds.load(Ordering::Relaxed),
        })
    });
}

/// Returns when the bridge is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the `Bridge` was dropped.
    let _ = stopping.wait_for(|stopping| *stopping).await.map(drop);
}

async fn until_stopped(mut stopping: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stopped(&mut stopping) => {}
        () = work => {}
    }
}

async fn set_gauges_and_save_peers(ctx: Arc<BridgeContext>) {
    let mut ticks = interval(TICK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut saved = Instant::now();
    loop {
        ticks.tick().await;
        let (counts, metrics) = (ctx.topics.counts(), &ctx.metrics);
        metrics.topics.set(counts.topics as f64);
        metrics.topics_without_neighbours.set(counts.without_neighbours as f64);
        metrics.peers.set(counts.peers as f64);
        metrics.neighbours.set(counts.neighbours as f64);
        metrics.queue.of(Direction::In).set(ctx.inbox.queue_len() as f64);
        metrics.state.set(f64::from(u8::from(ctx.health.state() == EndpointState::Replacing)));
        if ctx.peers.has_new_address() || saved.elapsed() >= SAVE_PEERS_INTERVAL {
            saved = Instant::now();
            let peers = Arc::clone(&ctx.peers);
            let _ = tokio::task::spawn_blocking(move || peers.save()).await;
        }
    }
}

impl Health {
    fn state(&self) -> EndpointState {
        if self.is_replacing.load(Ordering::Relaxed) { EndpointState::Replacing } else { EndpointState::Running }
    }
}

impl BridgeContext {
    /// Whether no peer is known and none was seen since the start.
    pub(crate) fn knows_no_peer(&self) -> bool {
        !self.has_seen_peer.load(Ordering::Relaxed) && self.peers.is_empty()
    }

    /// Asks the supervisor for another endpoint. One request is kept at a time: any of them has the same effect.
    pub(crate) fn replace_endpoint(&self, reason: ReplaceReason) {
        let _ = self.replacements.try_send(reason);
    }

    /// Notes that a peer became a neighbour.
    pub(crate) fn note_seen(&self, peer: PeerId) {
        self.has_seen_peer.store(true, Ordering::Relaxed);
        let _ = self.seen_peers.try_send(peer);
    }

    /// Spawns a task that is aborted when the bridge stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock();
        while background.try_join_next().is_some() {}
        background.spawn(task);
    }

    /// Opens a stream to a peer for a request protocol.
    pub(crate) async fn open_stream(&self, peer: PeerId, alpn: &[u8]) -> Result<PeerStream, GossipError> {
        let endpoint = self.endpoint.lock().clone().ok_or(GossipError::NoEndpoint)?;
        let unreachable = |reason: String| GossipError::Unreachable { peer: peer.to_string(), reason };
        let opening = async {
            let connection = endpoint.connect(peer, alpn).await.map_err(|error| unreachable(format!("{error:#}")))?;
            let streams = connection.open_bi().await.map_err(|error| unreachable(error.to_string()))?;
            Ok(PeerStream::new(connection, streams))
        };
        timeout(CONNECT_TIMEOUT, opening).await.map_err(|_| unreachable("timed out".to_owned()))?
    }
}
