//! Access control and bookkeeping of connections: decides before dialling, and after the handshake of an accepted one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use iroh::{
    EndpointAddr,
    endpoint::{
        AfterHandshakeOutcome, BeforeConnectOutcome, Connection, ConnectionError, EndpointHooks, VarInt,
        WeakConnectionHandle,
    },
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};

use crate::{bridge::BridgeContext, peer::PeerId};

/// Connections of one peer: one for gossip, the others for requests.
const MAX_CONNECTIONS_PER_PEER: usize = 32;
/// Close codes and reasons, for the peer's logs.
const REJECTED: VarInt = VarInt::from_u32(1);
const NOT_ALLOWED: &[u8] = b"not allowed";
const TOO_MANY: &[u8] = b"too many connections";
/// For a peer that reconnected before its old connection timed out.
const RECONNECT: (VarInt, &[u8]) = (VarInt::from_u32(2), b"reconnect");

/// A reconnecting peer is held for at most this many intervals, until iroh-gossip has dropped its old connection.
const MAX_HOLD_CHECKS: u32 = 100;
const HOLD_CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Connections {
    ctx: Arc<BridgeContext>,
    open: Mutex<HashMap<PeerId, Vec<OpenConnection>>>,
    /// Peers with a new gossip connection that `arrivals` has not reported yet.
    arrived: Mutex<BTreeSet<PeerId>>,
    arrival: Notify,
}

#[derive(Debug)]
struct OpenConnection {
    connection: WeakConnectionHandle,
    is_gossip: bool,
    since: Instant,
}

/// The hooks that iroh calls. Weak: the context holds the endpoint, and the endpoint these.
#[derive(Debug)]
pub(crate) struct Hooks(pub(crate) Weak<Connections>);

impl Connections {
    pub(crate) fn new(ctx: Arc<BridgeContext>) -> Self {
        Self { ctx, open: Mutex::default(), arrived: Mutex::default(), arrival: Notify::new() }
    }

    /// Peers with a gossip connection, and since when. The other side may still reject a recent one.
    pub(crate) fn connected_since(&self) -> BTreeMap<PeerId, Instant> {
        let since = |connections: &[OpenConnection]| {
            connections.iter().filter(|one| one.is_gossip && one.is_open()).map(|one| one.since).min()
        };
        self.open.lock().iter().filter_map(|(peer, connections)| Some((*peer, since(connections)?))).collect()
    }

    /// Waits for peers with a new gossip connection. Each connection is reported once.
    pub(crate) async fn arrivals(&self) -> BTreeSet<PeerId> {
        self.arrival.notified().await;
        std::mem::take(&mut *self.arrived.lock())
    }

    /// Registers a connection, or returns why it is rejected.
    fn admit(self: &Arc<Self>, connection: &Connection) -> Result<(), &'static [u8]> {
        let peer = connection.remote_id();
        if !self.ctx.peers.is_allowed(&peer) {
            return Err(NOT_ALLOWED);
        }
        let mut open = self.open.lock();
        for connections in open.values_mut() {
            connections.retain(OpenConnection::is_open);
        }
        open.retain(|_, connections| !connections.is_empty());
        let is_full = open.len() >= self.ctx.settings.limits.max_peers && !self.ctx.peers.is_configured(&peer);
        if is_full && !open.contains_key(&peer) {
            return Err(TOO_MANY);
        }
        let connections = open.entry(peer).or_default();
        if connections.len() >= MAX_CONNECTIONS_PER_PEER {
            return Err(TOO_MANY);
        }
        let is_gossip = connection.alpn() == iroh_gossip::ALPN;
        let (connection, since) = (connection.weak_handle(), Instant::now());
        connections.push(OpenConnection { connection: connection.clone(), is_gossip, since });
        if is_gossip {
            self.arrived.lock().insert(peer);
            self.arrival.notify_one();
            self.ctx.spawn(Arc::clone(self).close_with_old(peer, connection));
        }
        Ok(())
    }

    /// Holds a reconnecting peer until iroh-gossip has dropped its old connection: with two connections iroh-gossip takes the
    /// peer for the old one, and does not answer a join that it has answered before.
    async fn hold_reconnecting(&self, connection: &Connection) {
        let peer = connection.remote_id();
        for _ in 0..MAX_HOLD_CHECKS {
            if connection.alpn() != iroh_gossip::ALPN
                || self.connected_since().contains_key(&peer)
                || !self.ctx.topics.has_neighbour(&peer)
            {
                return;
            }
            sleep(HOLD_CHECK_INTERVAL).await;
        }
    }

    /// Closes the other gossip connections of a peer when one ends by the peer's doing: the peer has restarted, and was held
    /// in vain. With all connections closed iroh-gossip forgets the peer, and both sides can join again.
    async fn close_with_old(self: Arc<Self>, peer: PeerId, connection: WeakConnectionHandle) {
        let closed = connection.closed().await;
        if closed.is_some_and(|closed| is_by_peer(&closed.reason)) {
            let open = self.open.lock();
            let of_gossip = open.get(&peer).into_iter().flatten().filter(|one| one.is_gossip);
            for other in of_gossip.filter_map(|one| one.connection.upgrade()) {
                other.close(RECONNECT.0, RECONNECT.1);
            }
        }
    }
}

/// Whether the peer ended the connection, by a timeout or an orderly close: neither this node nor a rejection by the peer.
fn is_by_peer(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::TimedOut | ConnectionError::Reset => true,
        ConnectionError::ApplicationClosed(close) => close.error_code == VarInt::from_u32(0),
        _ => false,
    }
}

impl OpenConnection {
    fn is_open(&self) -> bool {
        self.connection.upgrade().is_some_and(|connection| connection.close_reason().is_none())
    }
}

impl EndpointHooks for Hooks {
    async fn before_connect<'a>(&'a self, to: &'a EndpointAddr, _: &'a [u8]) -> BeforeConnectOutcome {
        let is_allowed = self.0.upgrade().is_some_and(|connections| connections.ctx.peers.is_allowed(&to.id));
        if is_allowed { BeforeConnectOutcome::Accept } else { BeforeConnectOutcome::Reject }
    }

    async fn after_handshake<'a>(&'a self, connection: &'a Connection) -> AfterHandshakeOutcome {
        let mut admitted = Err(NOT_ALLOWED);
        if let Some(connections) = self.0.upgrade() {
            connections.hold_reconnecting(connection).await;
            let refused = &connections.ctx.metrics.refused_connections;
            admitted = connections.admit(connection).inspect_err(|_| refused.increment(1));
        }
        match admitted {
            Ok(()) => AfterHandshakeOutcome::Accept,
            Err(reason) => AfterHandshakeOutcome::Reject { error_code: REJECTED, reason: reason.to_vec() },
        }
    }
}
