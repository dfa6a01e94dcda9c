//! Protocols of ours beside gossip, over the same endpoint: each request is a stream of its own.

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

use crate::{peer::PeerId, places::Places};

/// A connection on which nothing is asked for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Requests of all peers that are answered at a time.
const MOST_AT_ONCE: usize = 64;

/// A protocol that peers may speak with this node.
#[async_trait]
pub(crate) trait Protocol: fmt::Debug + Send + Sync + 'static {
    /// What it is called between endpoints.
    fn alpn(&self) -> &'static [u8];

    /// Answers one request. The peer is who it says it is, and one we talk to.
    async fn serve(&self, peer: PeerId, stream: PeerStream) -> io::Result<()>;
}

/// A stream from or to a peer. The other side hears that it ends when it is shut down.
#[derive(Debug)]
pub(crate) struct PeerStream {
    reading: RecvStream,
    writing: SendStream,
    /// It ends with its last stream.
    _connection: Connection,
}

impl PeerStream {
    pub(crate) fn new(connection: Connection, (writing, reading): (SendStream, RecvStream)) -> Self {
        Self { reading, writing, _connection: connection }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.reading), context, buf)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.writing), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.writing), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.writing), context)
    }
}

/// Serves a protocol on the connections that an endpoint accepts.
#[derive(Debug)]
pub(crate) struct Serving {
    protocol: Arc<dyn Protocol>,
    places: Arc<Places>,
}

impl Serving {
    pub(crate) fn new(protocol: Arc<dyn Protocol>) -> Self {
        Self { protocol, places: Places::new(MOST_AT_ONCE) }
    }
}

impl ProtocolHandler for Serving {
    async fn accept(&self, connection: Connection) -> Result<(), AcceptError> {
        let peer = connection.remote_id();
        // What is being answered ends with the endpoint.
        let mut answering = JoinSet::new();
        while let Ok(Ok(streams)) = timeout(IDLE, connection.accept_bi()).await {
            while answering.try_join_next().is_some() {}
            // Who asks for too much at once is not answered (G-6).
            let Some(place) = self.places.take(peer) else { continue };
            let (protocol, stream) = (Arc::clone(&self.protocol), PeerStream::new(connection.clone(), streams));
            answering.spawn(async move {
                if let Err(error) = protocol.serve(peer, stream).await {
                    tracing::debug!(%error, "a peer's request broke off");
                }
                drop(place);
            });
        }
        while answering.join_next().await.is_some() {}
        Ok(())
    }
}
