//! Request protocols beside gossip, on the same endpoint. Each request is a stream of its own.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use iroh::{
    endpoint::{Connection, RecvStream, SendStream},
    protocol::{AcceptError, ProtocolHandler},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinSet,
    time::timeout,
};

use crate::{peer::PeerId, peer_semaphore::PeerSemaphore};

/// A connection without a request for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests of all peers that are served at a time.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// A request protocol that this node serves.
#[async_trait]
pub(crate) trait Protocol: fmt::Debug + Send + Sync + 'static {
    fn alpn(&self) -> &'static [u8];

    /// Serves one request. The peer is authenticated and allowed to connect.
    async fn serve(&self, peer: PeerId, stream: PeerStream) -> io::Result<()>;
}

/// A stream from or to a peer. The peer reads its end after `shutdown`.
#[derive(Debug)]
pub(crate) struct PeerStream {
    receive: RecvStream,
    send: SendStream,
    /// Held open: the connection closes with its last handle.
    _connection: Connection,
}

impl PeerStream {
    pub(crate) fn new(connection: Connection, (send, receive): (SendStream, RecvStream)) -> Self {
        Self { receive, send, _connection: connection }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.receive), context, buf)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.send), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.send), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.send), context)
    }
}

/// Serves a protocol on the connections that an endpoint accepts.
#[derive(Debug)]
pub(crate) struct ProtocolServer {
    protocol: Arc<dyn Protocol>,
    permits: Arc<PeerSemaphore>,
}

impl ProtocolServer {
    pub(crate) fn new(protocol: Arc<dyn Protocol>) -> Self {
        Self { protocol, permits: PeerSemaphore::new(MAX_CONCURRENT_REQUESTS) }
    }
}

impl ProtocolHandler for ProtocolServer {
    async fn accept(&self, connection: Connection) -> Result<(), AcceptError> {
        let peer = connection.remote_id();
        // Requests end with the endpoint.
        let mut requests = JoinSet::new();
        while let Ok(Ok(streams)) = timeout(IDLE_TIMEOUT, connection.accept_bi()).await {
            while requests.try_join_next().is_some() {}
            // A request over the peer's share gets no answer (G-6).
            let Some(permit) = self.permits.try_acquire(peer) else { continue };
            let (protocol, stream) = (Arc::clone(&self.protocol), PeerStream::new(connection.clone(), streams));
            requests.spawn(async move {
                if let Err(error) = protocol.serve(peer, stream).await {
                    tracing::debug!(%error, "serving a request of a peer failed");
                }
                drop(permit);
            });
        }
        while requests.join_next().await.is_some() {}
        Ok(())
    }
}
