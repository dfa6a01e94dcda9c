//! Request protocols beside gossip, on the same endpoint. Each request is a stream of its own.

use std::{sync::Arc, time::Duration};

use iroh::{
    endpoint::{Connection, RecvStream, SendStream},
    protocol::{AcceptError, ProtocolHandler},
};
use tokio::{
    io::{Join, join},
    task::JoinSet,
    time::timeout,
};

use crate::{bridge::BridgeContext, catch_up, large_events, peer_semaphore::PeerSemaphore};

/// A connection without a request for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests of all peers that are served at a time: for events, and for catch-up sessions.
const MAX_EVENT_REQUESTS: usize = 64;
const MAX_ANSWERED_SESSIONS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestProtocol {
    LargeEvents,
    CatchUp,
}

impl RequestProtocol {
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::LargeEvents => b"kukuri/event/1",
            Self::CatchUp => b"kukuri/catchup/1",
        }
    }
}

/// A stream from or to a peer. The peer reads its end after `shutdown`. The connection closes with its last handle, so it is
/// held as long.
pub(crate) type PeerStream = Join<RecvStream, SendStream>;

/// Serves a protocol on the connections that an endpoint accepts.
#[derive(Debug)]
pub(crate) struct ProtocolServer {
    protocol: RequestProtocol,
    ctx: Arc<BridgeContext>,
    permits: PeerSemaphore,
}

impl ProtocolServer {
    pub(crate) fn new(protocol: RequestProtocol, ctx: Arc<BridgeContext>) -> Self {
        let max_requests = match protocol {
            RequestProtocol::LargeEvents => MAX_EVENT_REQUESTS,
            RequestProtocol::CatchUp => MAX_ANSWERED_SESSIONS,
        };
        Self { protocol, ctx, permits: PeerSemaphore::new(max_requests) }
    }
}

impl ProtocolHandler for ProtocolServer {
    async fn accept(&self, connection: Connection) -> Result<(), AcceptError> {
        let peer = connection.remote_id();
        // Requests end with the endpoint.
        let mut requests = JoinSet::new();
        while let Ok(Ok((send, receive))) = timeout(IDLE_TIMEOUT, connection.accept_bi()).await {
            while requests.try_join_next().is_some() {}
            // A request over the peer's share gets no answer (G-6).
            let Some(permit) = self.permits.try_acquire(peer) else { continue };
            let (protocol, ctx, connection) = (self.protocol, Arc::clone(&self.ctx), connection.clone());
            requests.spawn(async move {
                let stream = join(receive, send);
                match protocol {
                    RequestProtocol::LargeEvents => large_events::serve(&ctx, peer, stream).await,
                    RequestProtocol::CatchUp => catch_up::serve(&ctx, peer, stream).await,
                }
                drop((permit, connection));
            });
        }
        while requests.join_next().await.is_some() {}
        Ok(())
    }
}
