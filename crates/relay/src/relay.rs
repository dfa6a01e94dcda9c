//! The state that all connections of the relay share.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use kukuri_engine::Engine;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;

use crate::{metrics::RelayMetrics, negentropy::NegBudget, nip11::Info, session};

/// A running relay.
pub struct Relay {
    pub(crate) engine: Arc<Engine>,
    info: ArcSwap<Info>,
    pub(crate) neg_budget: NegBudget,
    pub(crate) metrics: RelayMetrics,
    pub(crate) connections: AtomicUsize,
}

impl Relay {
    /// A relay on an engine.
    pub fn new(engine: Arc<Engine>, info: Info) -> Self {
        let metrics = engine.with_recorder(RelayMetrics::register);
        let info = ArcSwap::from_pointee(info);
        Self { engine, info, neg_budget: NegBudget::default(), metrics, connections: AtomicUsize::new(0) }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// How the relay presents itself (NIP-11).
    pub fn info(&self) -> Arc<Info> {
        self.info.load_full()
    }

    /// Changes how the relay presents itself.
    pub fn set_info(&self, info: Info) {
        self.info.store(Arc::new(info));
    }

    /// Serves a WebSocket until the client leaves or the relay closes it. `permit` is held as long.
    pub async fn serve<P: Send>(self: Arc<Self>, socket: WebSocketStream<TcpStream>, ip: IpAddr, permit: P) {
        session::serve(self, socket, ip).await;
        drop(permit);
    }

    /// The number of WebSocket connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits until all connections have ended, but no longer than `timeout`.
    pub async fn wait_until_empty(&self, timeout: Duration) {
        let deadline = tokio::time::Instant::now() + timeout;
        while self.connections() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
