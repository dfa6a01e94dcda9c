//! The iroh endpoint with its gossip and its other protocols: bound, closed and replaced as a whole.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use iroh::{
    Endpoint, RelayMode, RelayUrl,
    endpoint::{IdleTimeout, NetReportConfig, PortmapperConfig, QuicTransportConfig, VarInt, presets},
    protocol::Router,
};
use iroh_gossip::{Gossip, proto::PlumtreeConfig};

use crate::{
    bridge::BridgeContext,
    connections::{Connections, Hooks},
    error::GossipError,
    protocol::{ProtocolServer, RequestProtocol},
    wire::MAX_MESSAGE_LEN,
};

/// Unidirectional streams one peer may open: one for each shared topic. iroh-gossip stops for good with more shared topics
/// than this, so `gossip.max_topics` is below it.
const MAX_TOPIC_STREAMS: u32 = 16_384;
/// Requests of one peer at a time, on one connection.
const MAX_REQUEST_STREAMS: u32 = 32;
/// Bytes a peer may have sent before they are read.
const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 1 << 20;
/// A silent peer is disconnected after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// iroh-gossip caches all messages this long for neighbours that lack them: bounds its memory.
const MESSAGE_CACHE_TTL: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct GossipEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) gossip: Gossip,
    pub(crate) connections: Arc<Connections>,
    router: Router,
}

impl GossipEndpoint {
    /// The endpoint contacts no third party: no discovery, no port mapping, and only configured relay servers.
    pub(crate) async fn bind(ctx: &Arc<BridgeContext>, address: SocketAddr) -> Result<Self, GossipError> {
        let failed = |reason: String| GossipError::Bind { address, reason };
        let BridgeContext { settings, peers, .. } = &**ctx;
        let relays: Result<Vec<RelayUrl>, _> = settings.relays.iter().map(|url| url.parse()).collect();
        let relays = relays.map_err(|error| failed(format!("invalid URL of a relay server: {error}")))?;
        let connections = Arc::new(Connections::new(Arc::clone(ctx)));
        let mut builder = Endpoint::builder(presets::Minimal)
            .clear_address_lookup()
            .address_lookup(peers.lookup())
            .portmapper_config(PortmapperConfig::Disabled)
            .hooks(Hooks(Arc::downgrade(&connections)))
            .transport_config(transport())
            .clear_ip_transports()
            .bind_addr(address)
            .map_err(|error| failed(error.to_string()))?
            .secret_key(ctx.key.clone());
        builder = match relays.is_empty() {
            true => builder.relay_mode(RelayMode::Disabled).net_report_config(NetReportConfig::minimal()),
            false => builder.relay_mode(RelayMode::custom(relays)),
        };
        for address in &settings.addresses {
            builder = builder.external_addr(*address);
        }
        let endpoint = builder.bind().await.map_err(|error| failed(format!("{error:#}")))?;
        let broadcasts = PlumtreeConfig { message_cache_retention: MESSAGE_CACHE_TTL, ..PlumtreeConfig::default() };
        let gossip =
            Gossip::builder().max_message_size(MAX_MESSAGE_LEN).broadcast_config(broadcasts).spawn(endpoint.clone());
        if let (false, Ok(lookups)) = (peers.trusts_addresses_of_peers(), endpoint.address_lookup()) {
            // iroh-gossip has added a lookup with addresses that peers tell of each other.
            lookups.clear();
            lookups.add(peers.lookup());
        }
        let mut router = Router::builder(endpoint.clone()).accept(iroh_gossip::ALPN, gossip.clone());
        for protocol in [RequestProtocol::LargeEvents, RequestProtocol::CatchUp] {
            router = router.accept(protocol.alpn(), ProtocolServer::new(protocol, Arc::clone(ctx)));
        }
        Ok(Self { endpoint, gossip, connections, router: router.spawn() })
    }

    /// Closes the endpoint with all connections and protocols, before any topic is left: a peer that hears that one topic was
    /// left takes no notice of the closed connection in the others. Calls nothing of iroh-gossip, which may be stuck.
    pub(crate) async fn close(self) {
        let Self { endpoint, gossip, router, .. } = self;
        // The actor of iroh-gossip ends with its last handle.
        drop((router, gossip));
        if tokio::time::timeout(CLOSE_TIMEOUT, endpoint.close()).await.is_err() {
            tracing::warn!("closing the endpoint timed out; dropping it");
        }
    }
}

fn transport() -> QuicTransportConfig {
    QuicTransportConfig::builder()
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_TOPIC_STREAMS))
        .max_concurrent_bidi_streams(VarInt::from_u32(MAX_REQUEST_STREAMS))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .default_path_max_idle_timeout(IDLE_TIMEOUT)
        .keep_alive_interval(IDLE_TIMEOUT / 4)
        .default_path_keep_alive_interval(IDLE_TIMEOUT / 4)
        .build()
}
