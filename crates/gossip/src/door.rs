//! Who may connect: asked before we dial, and before anything is heard from whoever dialled us.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use iroh::{
    EndpointAddr,
    endpoint::{
        AfterHandshakeOutcome, BeforeConnectOutcome, Connection, ConnectionError, EndpointHooks, VarInt,
        WeakConnectionHandle,
    },
};
use tokio::{sync::Notify, time::sleep};

use crate::{book::Book, figures::Figures, peer::PeerId, swarm::Swarm};

/// Connections of one peer: gossip, and a few that ask for something.
const MOST_CONNECTIONS: usize = 32;
/// What whoever is turned away reads.
const NOT_WELCOME: &[u8] = b"not welcome";
const TOO_MANY: &[u8] = b"too many connections";
/// What somebody reads whose former self is missed only now.
const COME_ANEW: &[u8] = b"come anew";

/// Gossip is given this long to see that a connection has ended.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The door of an endpoint.
pub(crate) struct Door {
    book: Arc<Book>,
    swarm: Arc<Swarm>,
    most_peers: usize,
    figures: Arc<Figures>,
    inside: Mutex<HashMap<PeerId, Vec<Inside>>>,
    arrivals: Notify,
}

/// A connection that was let in.
#[derive(Debug)]
struct Inside {
    connection: WeakConnectionHandle,
    is_gossip: bool,
    since: Instant,
    /// Whether somebody heard that it came.
    is_told: bool,
}

/// The same door as an endpoint knows it.
pub(crate) struct Hooks(pub(crate) Arc<Door>);

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

impl Door {
    pub(crate) fn new(book: Arc<Book>, swarm: Arc<Swarm>, most_peers: usize, figures: Arc<Figures>) -> Self {
        Self { book, swarm, most_peers, figures, inside: Mutex::default(), arrivals: Notify::new() }
    }

    /// Who is connected for gossip, and since when. The other side may not have let us in yet.
    pub(crate) fn connected(&self) -> BTreeMap<PeerId, Instant> {
        let of_gossip = |one: &&Inside| one.is_gossip && one.is_open();
        let since = |connections: &[Inside]| connections.iter().filter(of_gossip).map(|one| one.since).min();
        self.inside().iter().filter_map(|(peer, connections)| Some((*peer, since(connections)?))).collect()
    }

    /// Ends when somebody has come in for gossip, and tells who.
    pub(crate) async fn arrivals(&self) -> BTreeSet<PeerId> {
        self.arrivals.notified().await;
        let mut new = BTreeSet::new();
        for (peer, connections) in self.inside().iter_mut() {
            for one in connections.iter_mut().filter(|one| one.is_gossip && !one.is_told) {
                one.is_told = true;
                new.insert(*peer);
            }
        }
        new
    }

    /// Lets a connection in, or says why not.
    fn enter(self: &Arc<Self>, connection: &Connection) -> Result<(), &'static [u8]> {
        let peer = connection.remote_id();
        if !self.book.is_welcome(&peer) {
            return Err(NOT_WELCOME);
        }
        let mut inside = self.inside();
        for connections in inside.values_mut() {
            connections.retain(Inside::is_open);
        }
        inside.retain(|_, connections| !connections.is_empty());
        let is_full = inside.len() >= self.most_peers && !self.book.is_named(&peer);
        if is_full && !inside.contains_key(&peer) {
            return Err(TOO_MANY);
        }
        let connections = inside.entry(peer).or_default();
        if connections.len() >= MOST_CONNECTIONS {
            return Err(TOO_MANY);
        }
        let is_gossip = connection.alpn() == iroh_gossip::ALPN;
        let (connection, since) = (connection.weak_handle(), Instant::now());
        connections.push(Inside { connection: connection.clone(), is_gossip, since, is_told: false });
        if is_gossip {
            self.arrivals.notify_one();
            tokio::spawn(Arc::clone(self).see_off(peer, connection));
        }
        Ok(())
    }

    /// Gossip takes a peer with a second connection for the one it knows by the first, and does not answer what it thinks
    /// it has answered. So whoever left and came back waits until gossip has seen that it left.
    async fn wait_for_gossip(&self, connection: &Connection) {
        let peer = connection.remote_id();
        for _ in 0..LOOKS {
            if connection.alpn() != iroh_gossip::ALPN || self.is_connected(&peer) || !self.swarm.has_neighbour(&peer) {
                return;
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// If the first connection ends while there is a second, that is of somebody who started anew and has waited in vain.
    /// With all of them closed gossip forgets the peer, and both of us may ask again.
    async fn see_off(self: Arc<Self>, peer: PeerId, connection: WeakConnectionHandle) {
        let closed = connection.closed().await;
        if closed.is_some_and(|closed| is_of_the_peer(&closed.reason)) {
            let inside = self.inside();
            let of_gossip = inside.get(&peer).into_iter().flatten().filter(|one| one.is_gossip);
            for other in of_gossip.filter_map(|one| one.connection.upgrade()) {
                other.close(VarInt::from_u32(2), COME_ANEW);
            }
        }
    }

    fn is_connected(&self, peer: &PeerId) -> bool {
        self.inside().get(peer).is_some_and(|connections| connections.iter().any(|one| one.is_gossip && one.is_open()))
    }

    fn inside(&self) -> MutexGuard<'_, HashMap<PeerId, Vec<Inside>>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection ended because the peer did, in silence or with leave taken: not by our doing or by its refusal.
fn is_of_the_peer(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::TimedOut | ConnectionError::Reset => true,
        ConnectionError::ApplicationClosed(close) => close.error_code == VarInt::from_u32(0),
        _ => false,
    }
}

impl Inside {
    fn is_open(&self) -> bool {
        self.connection.upgrade().is_some_and(|connection| connection.close_reason().is_none())
    }
}

impl EndpointHooks for Hooks {
    async fn before_connect<'a>(&'a self, to: &'a EndpointAddr, _: &'a [u8]) -> BeforeConnectOutcome {
        if self.0.book.is_welcome(&to.id) { BeforeConnectOutcome::Accept } else { BeforeConnectOutcome::Reject }
    }

    async fn after_handshake<'a>(&'a self, connection: &'a Connection) -> AfterHandshakeOutcome {
        self.0.wait_for_gossip(connection).await;
        match self.0.enter(connection) {
            Ok(()) => AfterHandshakeOutcome::Accept,
            Err(why) => {
                self.0.figures.refused_connections.increment(1);
                AfterHandshakeOutcome::Reject { error_code: VarInt::from_u32(1), reason: why.to_vec() }
            }
        }
    }
}
