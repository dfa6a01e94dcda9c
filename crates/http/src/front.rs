//! The state that all requests share.

use std::{net::IpAddr, sync::Arc};

use arc_swap::ArcSwapOption;
use kukuri_engine::{
    ConnectRefused, Engine, metric_table,
    metrics::{Counter, Gauge, Labelled},
};
use kukuri_relay::Relay;

use crate::{client_address::Proxy, connections::ConnectionCounter, exporter::Exporter, streams::Streams};

metric_table! {
    /// Metrics of the HTTP front.
    pub struct HttpMetrics {
        connections: Gauge = "kukuri_connections", "Open WebSocket connections";
        streams: Gauge = "kukuri_streams", "Open streams of changes";
        refused: Labelled<Counter, ConnectRefused> = "kukuri_connections_refused_total", "Connections refused, by reason";
    }
}

/// The HTTP front of a node.
pub struct HttpFront {
    pub(crate) relay: Arc<Relay>,
    /// A reverse proxy that names the client's address.
    proxy: ArcSwapOption<Proxy>,
    pub(crate) connections: Arc<ConnectionCounter>,
    pub(crate) streams: Streams,
    pub(crate) metrics: HttpMetrics,
    pub(crate) exporter: Exporter,
}

impl HttpFront {
    /// The front of a relay. `exporter` is that of the engine's recorder.
    pub fn new(relay: Arc<Relay>, exporter: Exporter, proxy: Option<Proxy>) -> Self {
        let metrics = relay.engine().with_recorder(HttpMetrics::register);
        Self {
            relay,
            proxy: ArcSwapOption::from_pointee(proxy),
            connections: Arc::default(),
            streams: Streams::default(),
            metrics,
            exporter,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        self.relay.engine()
    }

    /// The trusted proxy now.
    pub fn proxy(&self) -> Option<Arc<Proxy>> {
        self.proxy.load_full()
    }

    /// Changes the trusted proxy.
    pub fn set_proxy(&self, proxy: Option<Proxy>) {
        self.proxy.store(proxy.map(Arc::new));
    }

    /// The proxy, if a connection from this address comes through it.
    pub(crate) fn proxy_at(&self, peer: IpAddr) -> Option<Arc<Proxy>> {
        self.proxy().filter(|proxy| proxy.is_at(peer))
    }
}
