//! The bridge as a whole: starts beside an engine, reports its status, and stops.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use iroh::{
    Endpoint, EndpointAddr, SecretKey, TransportAddr,
    endpoint::{Connection, TransportAddrUsage},
};
use kukuri_domain::TopicId;
use kukuri_engine::Engine;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::join,
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    broadcast::broadcast_published,
    catch_up::{RefusedIds, start_due_sessions},
    endpoint::GossipEndpoint,
    error::GossipError,
    inbox::{Inbox, process_queue},
    large_events::LargeEvents,
    metrics::{Direction, GossipMetrics},
    peer::{PeerAddress, PeerId},
    peer_store::{PeerStore, SeenPeer},
    protocol::{PeerStream, RequestProtocol},
    settings::{GossipSettings, PeerPolicy},
    supervisor::supervise,
    topics::{JoinedTopic, JoinedTopics},
    watchdog::ReplaceReason,
};

/// Gauges are set, and new peers written, this often.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// The times at which peers were seen are written this often.
const SAVE_PEERS_INTERVAL: Duration = Duration::from_secs(10);
/// A peer that comes up in many topics at once is recorded once in this time.
const RECORD_INTERVAL: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A running bridge.
pub struct Bridge {
    ctx: Arc<BridgeContext>,
    supervisor: tokio::sync::Mutex<JoinSet<()>>,
}

/// A known peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The public key of the peer.
    pub id: PeerId,
    /// `None`: no address is known.
    pub address: Option<PeerAddress>,
    /// Whether the operator has configured the peer.
    pub is_configured: bool,
    /// The number of topics in which the peer is a neighbour.
    pub topics: usize,
    /// When the peer last became a neighbour, in Unix seconds; 0: never.
    pub seen: u64,
}

/// A joined topic.
#[derive(Clone, Debug)]
pub struct TopicStatus {
    /// The topic.
    pub topic: TopicId,
    /// Peers directly connected in this topic.
    pub neighbours: Vec<PeerId>,
    /// Messages received since the topic was joined.
    pub received: u64,
}

/// The parts of the bridge, shared by its tasks.
pub(crate) struct BridgeContext {
    /// The secret key of the endpoint.
    pub(crate) key: SecretKey,
    pub(crate) engine: Arc<Engine>,
    pub(crate) settings: GossipSettings,
    pub(crate) metrics: GossipMetrics,
    pub(crate) peers: PeerStore,
    pub(crate) topics: JoinedTopics,
    pub(crate) inbox: Inbox,
    pub(crate) large_events: LargeEvents,
    /// Events that this node refuses as it is configured and its store does not record: catch-up does not ask for them
    /// again.
    pub(crate) refused_ids: RefusedIds,
    /// `None` while it is being replaced.
    pub(crate) endpoint: Mutex<Option<Endpoint>>,
    /// Endpoints that were replaced after a fault.
    pub(crate) rebuilds: AtomicU64,
    /// Tells the supervisor to stop.
    pub(crate) stopping: Notify,
    replacements: mpsc::Sender<ReplaceReason>,
    /// When peers that became neighbours were recorded.
    recorded: Mutex<HashMap<PeerId, Instant>>,
    has_seen_peer: AtomicBool,
    /// Fetches and catch-up sessions, aborted when the bridge stops.
    background: Mutex<JoinSet<()>>,
}

impl fmt::Debug for BridgeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BridgeContext")
    }
}

impl Bridge {
    /// Starts a bridge for an engine. `key` is the secret key of its endpoint.
    pub async fn start(engine: Arc<Engine>, settings: GossipSettings, key: [u8; 32]) -> Result<Self, GossipError> {
        let key = SecretKey::from_bytes(&key);
        let (inbox, queued) = Inbox::new(&settings.limits);
        let (replacements, replacements_asked) = mpsc::channel(1);
        let ctx = Arc::new(BridgeContext {
            metrics: engine.with_recorder(GossipMetrics::register),
            peers: PeerStore::open(key.public(), settings.peers, &settings.known, &settings.directory),
            topics: JoinedTopics::default(),
            inbox,
            large_events: LargeEvents::default(),
            refused_ids: RefusedIds::new(&engine.config()),
            endpoint: Mutex::default(),
            rebuilds: AtomicU64::default(),
            stopping: Notify::new(),
            replacements,
            recorded: Mutex::default(),
            has_seen_peer: AtomicBool::new(false),
            background: Mutex::default(),
            key,
            engine,
            settings,
        });
        let endpoint = GossipEndpoint::bind(&ctx, ctx.settings.listen).await?;
        let published = ctx.engine.take_broadcast_receiver().ok_or(GossipError::AlreadyBridged)?;
        *ctx.endpoint.lock() = Some(endpoint.endpoint.clone());
        // The engine holds the closure, and the context the engine.
        let reported = Arc::downgrade(&ctx);
        ctx.engine.report("gossip", move || reported.upgrade().map_or(Value::Null, |ctx| ctx.health()));
        let mut tasks = JoinSet::new();
        tasks.spawn(process_queue(Arc::clone(&ctx), queued));
        tasks.spawn(broadcast_published(Arc::clone(&ctx), published));
        tasks.spawn(start_due_sessions(Arc::clone(&ctx)));
        tasks.spawn(set_gauges_and_save_peers(Arc::clone(&ctx)));
        let supervised = supervise(Arc::clone(&ctx), endpoint, replacements_asked);
        let mut supervisor = JoinSet::new();
        supervisor.spawn(async move {
            supervised.await;
            tasks.shutdown().await;
        });
        Ok(Self { ctx, supervisor: supervisor.into() })
    }

    /// The id and addresses of this node.
    pub fn address(&self) -> Result<PeerAddress, GossipError> {
        let endpoint = self.ctx.endpoint.lock().clone().ok_or(GossipError::NoEndpoint)?;
        Ok(PeerAddress(endpoint.addr()))
    }

    /// All known peers.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let mut topics: HashMap<PeerId, usize> = HashMap::new();
        for joined in self.ctx.topics.all() {
            joined.state.lock().neighbours.iter().for_each(|peer| *topics.entry(*peer).or_default() += 1);
        }
        let mut peers = self.ctx.peers.all();
        for id in topics.keys() {
            peers.entry(*id).or_default();
        }
        let status = |(id, peer): (PeerId, SeenPeer)| {
            let address = peer.addresses.iter().fold(EndpointAddr::new(id), |address, one| address.with_ip_addr(*one));
            PeerStatus {
                id,
                address: (!address.is_empty()).then_some(PeerAddress(address)),
                is_configured: self.ctx.peers.is_configured(&id),
                topics: topics.get(&id).copied().unwrap_or_default(),
                seen: peer.seen,
            }
        };
        peers.into_iter().map(status).collect()
    }

    /// All joined topics.
    pub fn topics(&self) -> Vec<TopicStatus> {
        let status = |joined: Arc<JoinedTopic>| {
            let state = joined.state.lock();
            let neighbours = state.neighbours.iter().copied().collect();
            TopicStatus { topic: joined.topic.clone(), neighbours, received: state.received }
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
        self.ctx.stopping.notify_one();
        while self.supervisor.lock().await.join_next().await.is_some() {}
        let mut background = std::mem::take(&mut *self.ctx.background.lock());
        background.shutdown().await;
        self.ctx.peers.save();
    }
}

async fn set_gauges_and_save_peers(ctx: Arc<BridgeContext>) {
    let mut saved = Instant::now();
    loop {
        let (counts, metrics) = (ctx.topics.counts(), &ctx.metrics);
        metrics.topics.set(counts.topics as f64);
        metrics.topics_without_neighbours.set(counts.without_neighbours as f64);
        metrics.peers.set(counts.peers as f64);
        metrics.neighbours.set(counts.neighbours as f64);
        metrics.queue.of(Direction::In).set(ctx.inbox.queue_len() as f64);
        metrics.state.set(f64::from(u8::from(ctx.is_replacing())));
        if ctx.peers.has_new_address() || saved.elapsed() >= SAVE_PEERS_INTERVAL {
            saved = Instant::now();
            let ctx = Arc::clone(&ctx);
            let _ = tokio::task::spawn_blocking(move || ctx.peers.save()).await;
        }
        sleep(TICK_INTERVAL).await;
    }
}

impl BridgeContext {
    fn is_replacing(&self) -> bool {
        self.endpoint.lock().is_none()
    }

    /// The `gossip` part of `/healthz`.
    fn health(&self) -> Value {
        let counts = self.topics.counts();
        json!({
            "state": if self.is_replacing() { "replacing" } else { "running" },
            "topics": counts.topics,
            "topics_without_neighbours": counts.without_neighbours,
            "peers": counts.peers,
            "queue": self.inbox.queue_len(),
            "rebuilds": self.rebuilds.load(Ordering::Relaxed),
        })
    }

    /// Whether no peer is known and none was seen since the start.
    pub(crate) fn knows_no_peer(&self) -> bool {
        !self.has_seen_peer.load(Ordering::Relaxed) && self.peers.is_empty()
    }

    /// Asks the supervisor for another endpoint. One request is kept at a time: any of them has the same effect.
    pub(crate) fn replace_endpoint(&self, reason: ReplaceReason) {
        let _ = self.replacements.try_send(reason);
    }

    /// Records a peer that became a neighbour, with its addresses.
    pub(crate) fn record_neighbour(self: &Arc<Self>, peer: PeerId) {
        self.has_seen_peer.store(true, Ordering::Relaxed);
        let mut recorded = self.recorded.lock();
        recorded.retain(|_, at| at.elapsed() < RECORD_INTERVAL);
        let endpoint = self.endpoint.lock().clone();
        let Some(endpoint) = endpoint.filter(|_| recorded.insert(peer, Instant::now()).is_none()) else { return };
        let ctx = Arc::clone(self);
        self.spawn(async move {
            let info = endpoint.remote_info(peer).await;
            let addresses = info.into_iter().flat_map(|info| info.into_addrs()).filter_map(|info| match info.addr() {
                TransportAddr::Ip(address) if matches!(info.usage(), TransportAddrUsage::Active) => Some(*address),
                _ => None,
            });
            ctx.peers.record_seen(peer, addresses);
        });
    }

    /// Spawns a task that is aborted when the bridge stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock();
        while background.try_join_next().is_some() {}
        background.spawn(task);
    }

    /// Opens a stream to a peer for a request protocol.
    pub(crate) async fn open_stream(
        &self,
        peer: PeerId,
        protocol: RequestProtocol,
    ) -> Result<(PeerStream, Connection), GossipError> {
        let endpoint = self.endpoint.lock().clone().ok_or(GossipError::NoEndpoint)?;
        let unreachable = |reason: String| GossipError::Unreachable { peer, reason };
        let opening = async {
            let connection = endpoint.connect(peer, protocol.alpn()).await;
            let connection = connection.map_err(|error| unreachable(format!("{error:#}")))?;
            let (send, receive) = connection.open_bi().await.map_err(|error| unreachable(error.to_string()))?;
            Ok((join(receive, send), connection))
        };
        timeout(CONNECT_TIMEOUT, opening).await.map_err(|_| unreachable("timed out".to_owned()))?
    }
}
