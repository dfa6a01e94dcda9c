//! One endpoint with its gossip: made, left, and made anew as a whole.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use iroh::{
    Endpoint, RelayMode, RelayUrl, SecretKey,
    endpoint::{IdleTimeout, NetReportConfig, PortmapperConfig, QuicTransportConfig, VarInt, presets},
    protocol::Router,
};
use iroh_gossip::{Gossip, proto::PlumtreeConfig};

use crate::{
    book::Book,
    door::{Door, Hooks},
    error::GossipError,
    figures::Figures,
    protocol::{Protocol, Serving},
    settings::GossipSettings,
    swarm::Swarm,
    wire::MAX_MESSAGE,
};

/// The streams one peer may open: one for each topic that is shared. With more topics than this gossip stops for good, so
/// there are never as many.
pub(crate) const MOST_STREAMS: u32 = 16_384;
/// Requests of one peer at a time, on one connection.
const MOST_REQUESTS: u32 = 32;
/// What a peer may have sent before it is read.
const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 1 << 20;
/// Who says nothing for this long is gone.
const IDLE: Duration = Duration::from_secs(5);
/// Messages are kept this long for neighbours that lack them: all of them, so that this bounds memory.
const KEPT: Duration = Duration::from_secs(10);
/// Taking leave may not take longer.
const LEAVE: Duration = Duration::from_secs(3);

/// What every endpoint of a bridge is made of.
pub(crate) struct Setup {
    pub(crate) key: SecretKey,
    pub(crate) settings: GossipSettings,
    pub(crate) book: Arc<Book>,
    pub(crate) swarm: Arc<Swarm>,
    pub(crate) figures: Arc<Figures>,
    /// Beside gossip.
    pub(crate) protocols: [Arc<dyn Protocol>; 2],
}

/// An endpoint and its gossip.
pub(crate) struct Net {
    pub(crate) endpoint: Endpoint,
    pub(crate) gossip: Gossip,
    pub(crate) door: Arc<Door>,
    router: Router,
}

impl Setup {
    /// Nothing here looks for anybody: no discovery, no port mapping, and no relay server that is not set.
    pub(crate) async fn bind(&self, address: SocketAddr) -> Result<Net, GossipError> {
        let failed = |reason: String| GossipError::Bind { address, reason };
        let relays: Result<Vec<RelayUrl>, _> = self.settings.relays.iter().map(|url| url.parse()).collect();
        let relays = relays.map_err(|error| failed(format!("a relay server: {error}")))?;
        let (book, swarm, figures) = (Arc::clone(&self.book), Arc::clone(&self.swarm), Arc::clone(&self.figures));
        let door = Arc::new(Door::new(book, swarm, self.settings.limits.peers, figures));
        let mut builder = Endpoint::builder(presets::Minimal)
            .clear_address_lookup()
            .address_lookup(self.book.lookup())
            .portmapper_config(PortmapperConfig::Disabled)
            .hooks(Hooks(Arc::clone(&door)))
            .transport_config(transport())
            .clear_ip_transports()
            .bind_addr(address)
            .map_err(|error| failed(error.to_string()))?
            .secret_key(self.key.clone());
        builder = match relays.is_empty() {
            true => builder.relay_mode(RelayMode::Disabled).net_report_config(NetReportConfig::minimal()),
            false => builder.relay_mode(RelayMode::custom(relays)),
        };
        for address in &self.settings.addresses {
            builder = builder.external_addr(*address);
        }
        let endpoint = builder.bind().await.map_err(|error| failed(format!("{error:#}")))?;
        let broadcasts = PlumtreeConfig { message_cache_retention: KEPT, ..PlumtreeConfig::default() };
        let gossip =
            Gossip::builder().max_message_size(MAX_MESSAGE).broadcast_config(broadcasts).spawn(endpoint.clone());
        if let (false, Ok(lookups)) = (self.book.believes_others(), endpoint.address_lookup()) {
            // Gossip has added what peers tell of each other.
            lookups.clear();
            lookups.add(self.book.lookup());
        }
        let mut router = Router::builder(endpoint.clone()).accept(iroh_gossip::ALPN, gossip.clone());
        for protocol in &self.protocols {
            router = router.accept(protocol.alpn(), Serving::new(Arc::clone(protocol)));
        }
        Ok(Net { endpoint, gossip, door, router: router.spawn() })
    }
}

fn transport() -> QuicTransportConfig {
    QuicTransportConfig::builder()
        .max_concurrent_uni_streams(VarInt::from_u32(MOST_STREAMS))
        .max_concurrent_bidi_streams(VarInt::from_u32(MOST_REQUESTS))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .default_path_max_idle_timeout(IDLE)
        .keep_alive_interval(IDLE / 4)
        .default_path_keep_alive_interval(IDLE / 4)
        .build()
}

impl Net {
    /// Where it listens.
    pub(crate) fn listening(&self) -> Option<SocketAddr> {
        self.endpoint.bound_sockets().first().copied()
    }

    /// Takes leave of everybody.
    pub(crate) async fn close(self) {
        if tokio::time::timeout(LEAVE, self.router.shutdown()).await.is_err() {
            tracing::warn!("gossip does not take its leave; it is left behind");
            self.abandon().await;
        }
    }

    /// Leaves a gossip that does not move: it is not asked for anything.
    pub(crate) async fn abandon(self) {
        let Self { endpoint, gossip, router, .. } = self;
        // Its actor ends with the last handle.
        drop((router, gossip));
        if tokio::time::timeout(LEAVE, endpoint.close()).await.is_err() {
            tracing::warn!("an endpoint does not close");
        }
    }
}
