//! The state that all requests share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use kukuri_engine::{
    ConnectRefused, Engine, metric_table,
    metrics::{Counter, Gauge, Labelled},
};
use kukuri_relay::Relay;

use crate::{client_address::Proxy, connections::ConnectionCounter, exporter::Exporter};

metric_table! {
    /// Metrics of the HTTP front.
    pub struct HttpMetrics {
        connections: Gauge = "kukuri_connections", "Open WebSocket connections";
        refused: Labelled<Counter, ConnectRefused> = "kukuri_connections_refused_total", "Connections refused, by reason";
    }
}

/// Configuration of the HTTP front.
#[derive(Clone, Debug, Default)]
pub struct HttpConfig {
    /// A reverse proxy that names the client's address.
    pub proxy: Option<Proxy>,
}

/// The HTTP front of a node.
pub struct HttpFront {
    pub(crate) relay: Arc<Relay>,
    config: ArcSwap<HttpConfig>,
    pub(crate) connections: Arc<ConnectionCounter>,
    pub(crate) metrics: HttpMetrics,
    pub(crate) exporter: Exporter,
}

impl HttpFront {
    /// The front of a relay. `exporter` is that of the engine's recorder.
    pub fn new(relay: Arc<Relay>, exporter: Exporter, config: HttpConfig) -> Self {
        let metrics = relay.engine().with_recorder(HttpMetrics::register);
        Self { relay, config: ArcSwap::from_pointee(config), connections: Arc::default(), metrics, exporter }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        self.relay.engine()
    }

    /// The configuration now.
    pub fn config(&self) -> Arc<HttpConfig> {
        self.config.load_full()
    }

    /// Swaps the configuration.
    pub fn reconfigure(&self, config: HttpConfig) {
        self.config.store(Arc::new(config));
    }
}
