//! The bridge as a whole: started beside a relay, asked how it is, and stopped.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use iroh::{Endpoint, EndpointAddr, SecretKey};
use kukuri_relay::Relay;
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    book::Book,
    catching_up::{self, CatchingUp},
    error::GossipError,
    fetching::{Fetching, Giving, Large},
    figures::Figures,
    inbox,
    inbox::Inbox,
    net::Setup,
    peer::{PeerAddress, PeerId},
    protocol::{PeerStream, Protocol},
    sending,
    settings::{GossipSettings, PeerPolicy},
    status::{PeerStatus, State, TopicStatus},
    supervising::Supervisor,
    swarm::Swarm,
    watchdog::Wedged,
};

/// Figures are looked at, and who is new among the peers is written, this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When peers were last seen is written this often.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Peers that wait to be noted.
const MOST_MEETINGS: usize = 256;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A running bridge.
pub struct Bridge {
    shared: Arc<Shared>,
    stopping: watch::Sender<bool>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

/// What all parts of it share.
pub(crate) struct Shared {
    pub(crate) relay: Arc<Relay>,
    pub(crate) settings: GossipSettings,
    pub(crate) figures: Arc<Figures>,
    pub(crate) book: Arc<Book>,
    pub(crate) swarm: Arc<Swarm>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) large: Arc<Large>,
    pub(crate) fetching: Fetching,
    pub(crate) catching_up: Arc<CatchingUp>,
    pub(crate) health: Arc<Health>,
    endpoint: Mutex<Option<Endpoint>>,
    troubles: mpsc::Sender<Wedged>,
    meetings: mpsc::Sender<PeerId>,
    has_met: AtomicBool,
    /// Work that ends with the bridge.
    errands: Mutex<JoinSet<()>>,
}

/// What is told to whoever asks how the node is.
#[derive(Default)]
pub(crate) struct Health {
    pub(crate) is_replacing: AtomicBool,
    pub(crate) rebuilds: AtomicU64,
}

impl Bridge {
    /// Starts a bridge for a relay, with a key of its own.
    pub async fn start(relay: Arc<Relay>, settings: GossipSettings, key: [u8; 32]) -> Result<Self, GossipError> {
        let key = SecretKey::from_bytes(&key);
        let figures = Arc::new(Figures::new(&relay));
        let book = Arc::new(Book::open(key.public(), settings.policy, &settings.known, &settings.directory));
        let (inbox, arrived) = Inbox::new(&settings.limits, Arc::clone(&figures));
        let (inbox, swarm, large) = (Arc::new(inbox), Arc::<Swarm>::default(), Arc::<Large>::default());
        let giving = Giving {
            relay: Arc::clone(&relay),
            large: Arc::clone(&large),
            swarm: Arc::clone(&swarm),
            inbox: Arc::clone(&inbox),
            figures: Arc::clone(&figures),
        };
        let catching_up =
            Arc::new(CatchingUp::new(Arc::clone(&relay), Arc::clone(&swarm), Arc::clone(&figures), &settings.catch_up));
        let setup = Setup {
            key,
            settings: settings.clone(),
            book: Arc::clone(&book),
            swarm: Arc::clone(&swarm),
            figures: Arc::clone(&figures),
            protocols: [Arc::new(giving) as Arc<dyn Protocol>, Arc::clone(&catching_up) as _],
        };
        let net = setup.bind(settings.listen).await?;
        let published = relay.published().ok_or(GossipError::Taken)?;
        let (troubles, trouble) = mpsc::channel(1);
        let (meetings, met) = mpsc::channel(MOST_MEETINGS);
        let health = Arc::<Health>::default();
        report(&relay, &health, &swarm, &inbox);
        let shared = Arc::new(Shared {
            relay,
            settings,
            figures,
            book,
            swarm,
            inbox,
            large,
            fetching: Fetching::default(),
            catching_up,
            health,
            endpoint: Mutex::new(Some(net.endpoint.clone())),
            troubles,
            meetings,
            has_met: AtomicBool::new(false),
            errands: Mutex::default(),
        });
        let (stopping, is_stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let supervisor = Supervisor { shared: Arc::clone(&shared), setup, trouble, met };
        tasks.spawn(supervisor.run(net, is_stopping.clone()));
        tasks.spawn(until(is_stopping.clone(), inbox::take(Arc::clone(&shared), arrived)));
        tasks.spawn(until(is_stopping.clone(), sending::send(Arc::clone(&shared), published)));
        tasks.spawn(until(is_stopping.clone(), catching_up::catch_up(Arc::clone(&shared))));
        tasks.spawn(until(is_stopping, look(Arc::clone(&shared))));
        Ok(Self { shared, stopping, tasks: tasks.into() })
    }

    /// How others reach this node.
    pub fn address(&self) -> Result<PeerAddress, GossipError> {
        let endpoint = self.shared.endpoint().clone().ok_or(GossipError::Down)?;
        Ok(endpoint.addr().into())
    }

    /// Everybody who is known.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let mut topics: HashMap<PeerId, usize> = HashMap::new();
        for joined in self.shared.swarm.all() {
            joined.around.neighbours().into_iter().for_each(|peer| *topics.entry(peer).or_default() += 1);
        }
        let mut everybody = self.shared.book.everybody();
        for id in topics.keys() {
            everybody.entry(*id).or_default();
        }
        let status = |(id, met): (PeerId, crate::book::Met)| {
            let address = met.addresses.iter().fold(EndpointAddr::new(id), |address, one| address.with_ip_addr(*one));
            PeerStatus {
                id,
                address: (!address.is_empty()).then(|| address.into()),
                is_named: self.shared.book.is_named(&id),
                topics: topics.get(&id).copied().unwrap_or_default(),
                seen: met.seen,
            }
        };
        everybody.into_iter().map(status).collect()
    }

    /// Every topic that is joined.
    pub fn topics(&self) -> Vec<TopicStatus> {
        let status = |joined: Arc<crate::swarm::Joined>| TopicStatus {
            topic: joined.topic.clone(),
            neighbours: joined.around.neighbours().into_iter().collect(),
            received: joined.around.received(),
        };
        self.shared.swarm.all().into_iter().map(status).collect()
    }

    /// From now on others are talked to. Whoever is welcome no more is disconnected: the endpoint is replaced.
    pub fn talk_to(&self, policy: PeerPolicy, known: &[PeerAddress]) {
        if self.shared.book.change(policy, known) {
            self.shared.trouble(Wedged("who is talked to has changed"));
        }
    }

    /// Takes leave of all peers.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut tasks = self.tasks.lock().await;
        while tasks.join_next().await.is_some() {}
        self.shared.swarm.clear();
        let mut errands = std::mem::take(&mut *self.shared.errands());
        errands.shutdown().await;
        self.shared.book.write();
    }
}

/// Says in `/healthz` how the bridge is. It holds nothing that holds the relay.
fn report(relay: &Relay, health: &Arc<Health>, swarm: &Arc<Swarm>, inbox: &Arc<Inbox>) {
    let (health, swarm, inbox) = (Arc::clone(health), Arc::clone(swarm), Arc::clone(inbox));
    relay.report("gossip", move || {
        let summary = swarm.summary();
        json!({
            "state": health.state().word(),
            "topics": summary.topics,
            "topics_alone": summary.alone,
            "peers": summary.peers,
            "queue": inbox.waiting(),
            "rebuilds": health.rebuilds.load(Ordering::Relaxed),
        })
    });
}

/// Ends when the bridge is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the bridge is gone.
    let _ = stopping.wait_for(|stopping| *stopping).await.map(drop);
}

/// Works until the bridge is to stop.
async fn until(mut stopping: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stopped(&mut stopping) => {}
        () = work => {}
    }
}

/// Looks at what is measured, and writes down who was met.
async fn look(shared: Arc<Shared>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut written = Instant::now();
    loop {
        ticks.tick().await;
        let (summary, figures) = (shared.swarm.summary(), &shared.figures);
        figures.topics.set(summary.topics as f64);
        figures.lonely_topics.set(summary.alone as f64);
        figures.peers.set(summary.peers as f64);
        figures.neighbours.set(summary.neighbours as f64);
        figures.incoming.set(shared.inbox.waiting() as f64);
        figures.state.set(f64::from(u8::from(shared.health.state() == State::Replacing)));
        if shared.book.has_news() || written.elapsed() >= WRITE_EVERY {
            written = Instant::now();
            let book = Arc::clone(&shared.book);
            let _ = tokio::task::spawn_blocking(move || book.write()).await;
        }
    }
}

impl Health {
    fn state(&self) -> State {
        if self.is_replacing.load(Ordering::Relaxed) { State::Replacing } else { State::Running }
    }
}

impl Shared {
    /// Whether there is nobody who could hear us.
    pub(crate) fn is_alone(&self) -> bool {
        !self.has_met.load(Ordering::Relaxed) && self.book.is_empty()
    }

    /// Gossip does not move, as far as somebody can tell.
    pub(crate) fn trouble(&self, wedged: Wedged) {
        let _ = self.troubles.try_send(wedged);
    }

    /// A peer is there.
    pub(crate) fn meet(&self, peer: PeerId) {
        self.has_met.store(true, Ordering::Relaxed);
        let _ = self.meetings.try_send(peer);
    }

    /// Does something beside, until it is done or the bridge stops.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut errands = self.errands();
        while errands.try_join_next().is_some() {}
        errands.spawn(work);
    }

    /// Opens a stream to a peer, for a protocol of ours.
    pub(crate) async fn open(&self, peer: PeerId, alpn: &[u8]) -> Result<PeerStream, GossipError> {
        let endpoint = self.endpoint().clone().ok_or(GossipError::Down)?;
        let unreachable = |reason: String| GossipError::Unreachable { peer: peer.to_string(), reason };
        let opening = async {
            let connection = endpoint.connect(peer, alpn).await.map_err(|error| unreachable(format!("{error:#}")))?;
            let streams = connection.open_bi().await.map_err(|error| unreachable(error.to_string()))?;
            Ok(PeerStream::new(connection, streams))
        };
        timeout(CONNECT_PATIENCE, opening).await.map_err(|_| unreachable("no answer".to_owned()))?
    }

    pub(crate) fn endpoint(&self) -> MutexGuard<'_, Option<Endpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn errands(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
