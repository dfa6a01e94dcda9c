//! A peer that speaks iroh-gossip and the protocols of nodes by hand, so that it can send messages that no node sends.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use iroh::{
    Endpoint, EndpointAddr, EndpointId, RelayMode, SecretKey,
    address_lookup::memory::MemoryLookup,
    endpoint::{Connection, PortmapperConfig, RecvStream, SendStream, presets},
    protocol::{AcceptError, ProtocolHandler, Router},
};
use iroh_gossip::{
    Gossip, TopicId,
    api::{Event, GossipReceiver, GossipSender},
};

use kukuri_testing::TIMEOUT;

/// The maximum message size of nodes, in bytes.
pub(crate) const NODES_TAKE: usize = 64 * 1024;

/// ALPN of the protocol that fetches events.
const EVENT: &[u8] = b"kukuri/event/1";
/// ALPN of catch-up.
const CATCH_UP: &[u8] = b"kukuri/catchup/1";

pub(crate) struct RawPeer {
    router: Router,
    gossip: Gossip,
    node: EndpointId,
    /// The bytes that the peer sends for any event that a node fetches.
    pub(crate) gives: Gives,
    pub(crate) draws_out: DrawsOut,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Gives(Arc<Mutex<Vec<u8>>>);

/// Accepts catch-up sessions and never finishes them, once `begin` is called.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrawsOut {
    does: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

/// A stream of one of the nodes' protocols.
pub(crate) struct RawStream {
    connection: Connection,
    sending: SendStream,
    receiving: RecvStream,
}

pub(crate) struct RawTopic {
    pub(crate) sender: GossipSender,
    receiver: GossipReceiver,
}

impl RawPeer {
    /// A peer that knows the address of a node, and accepts messages up to `max_message_size` bytes.
    pub(crate) async fn new(node: &str, max_message_size: usize) -> Self {
        let (id, address) = node.split_once('@').unwrap();
        let node = EndpointAddr::new(id.parse().unwrap()).with_ip_addr(address.parse::<SocketAddr>().unwrap());
        let book = MemoryLookup::new();
        book.add_endpoint_info(node.clone());
        let endpoint = Endpoint::builder(presets::Minimal)
            .relay_mode(RelayMode::Disabled)
            .address_lookup(book)
            .portmapper_config(PortmapperConfig::Disabled)
            .clear_ip_transports()
            .bind_addr("127.0.0.1:0")
            .unwrap()
            .secret_key(SecretKey::generate())
            .bind()
            .await
            .unwrap();
        let gossip = Gossip::builder().max_message_size(max_message_size).spawn(endpoint.clone());
        let (gives, draws_out) = (Gives::default(), DrawsOut::default());
        let router = Router::builder(endpoint).accept(iroh_gossip::ALPN, gossip.clone());
        let router = router.accept(EVENT, gives.clone()).accept(CATCH_UP, draws_out.clone()).spawn();
        Self { router, gossip, node: node.id, gives, draws_out }
    }

    /// Joins a topic and waits until the node is a neighbour.
    pub(crate) async fn join(&self, topic: &str) -> RawTopic {
        let joining = self.gossip.subscribe_and_join(gossip_id(topic), vec![self.node]);
        let joined = tokio::time::timeout(TIMEOUT, joining).await.expect("the node is a neighbour").unwrap();
        let (sender, receiver) = joined.split();
        RawTopic { sender, receiver }
    }

    /// Joins a topic. Returns whether the node becomes a neighbour within `a_while`.
    pub(crate) async fn is_let_in(&self, topic: &str, a_while: Duration) -> bool {
        let joining = self.gossip.subscribe_and_join(gossip_id(topic), vec![self.node]);
        tokio::time::timeout(a_while, joining).await.is_ok()
    }

    /// Fetches an event from the node. Empty: the node does not have it.
    pub(crate) async fn fetch(&self, id: &[u8; 32]) -> Vec<u8> {
        let mut stream = self.ask(EVENT).await;
        stream.sending.write_all(id).await.unwrap();
        stream.sending.finish().unwrap();
        stream.receiving.read_to_end(1 << 20).await.unwrap_or_default()
    }

    /// Opens many requests for events on a few connections, and leaves them unfinished.
    pub(crate) async fn begin_fetching(&self, count: usize) -> Vec<RawStream> {
        let mut begun: Vec<RawStream> = Vec::new();
        for number in 0..count {
            let mut stream = match begun.last().filter(|_| number % 16 > 0) {
                Some(last) => RawStream::on(last.connection.clone()).await,
                None => self.ask(EVENT).await,
            };
            stream.sending.write_all(&[0]).await.unwrap();
            begun.push(stream);
        }
        begun
    }

    /// Opens a catch-up session with the node that covers all times.
    pub(crate) async fn catch_up(&self, topic: &str) -> RawStream {
        let mut stream = self.ask(CATCH_UP).await;
        stream.say(1, &[b"kukuri-catchup", &[1], &0u64.to_be_bytes(), topic.as_bytes()]).await;
        assert_eq!(stream.hear().await.expect("a welcome").0, 2);
        stream
    }

    async fn ask(&self, alpn: &[u8]) -> RawStream {
        RawStream::on(self.router.endpoint().connect(self.node, alpn).await.unwrap()).await
    }

    pub(crate) async fn leave(self) {
        let _ = tokio::time::timeout(Duration::from_secs(5), self.router.shutdown()).await;
    }
}

impl RawTopic {
    pub(crate) async fn say(&self, message: impl Into<Bytes>) {
        self.sender.broadcast(message.into()).await.unwrap();
    }

    /// Waits until the node has left the topic.
    pub(crate) async fn is_left(&mut self) {
        let is_left = async { while !matches!(self.receiver.next().await, Some(Ok(Event::NeighborDown(_)))) {} };
        tokio::time::timeout(TIMEOUT, is_left).await.expect("the node leaves");
    }

    /// Receives the next message.
    pub(crate) async fn hear(&mut self) -> Bytes {
        loop {
            let next = tokio::time::timeout(TIMEOUT, self.receiver.next());
            if let Event::Received(message) = next.await.expect("a message").unwrap().unwrap() {
                return message.content;
            }
        }
    }
}

impl RawStream {
    async fn on(connection: Connection) -> Self {
        let (sending, receiving) = connection.open_bi().await.unwrap();
        Self { connection, sending, receiving }
    }

    /// Sends a catch-up frame.
    async fn say(&mut self, kind: u8, fields: &[&[u8]]) {
        let body = fields.concat();
        let frame = [&(body.len() as u32 + 1).to_be_bytes(), &[kind][..], &body].concat();
        // The node may have closed the stream.
        let _ = self.sending.write_all(&frame).await;
    }

    /// Receives the next frame: its kind and its fields; `None` at the end.
    async fn hear(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut length = [0; 4];
        self.receiving.read_exact(&mut length).await.ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.receiving.read_exact(&mut frame).await.ok()?;
        Some((frame[0], frame[1..].to_vec()))
    }

    /// Offers an event. Returns whether the node wants it.
    pub(crate) async fn offer(&mut self, id: &[u8; 32]) -> bool {
        self.say(6, &[id]).await;
        let (kind, wanted) = self.hear().await.expect("an answer");
        assert_eq!(kind, 7);
        wanted[1..] == id[..]
    }

    /// Sends this text as the wanted event. Returns whether the node continues the session.
    pub(crate) async fn give(mut self, id: &[u8; 32], json: &str) -> bool {
        self.say(8, &[&[0], id, &(json.len() as u32).to_be_bytes(), json.as_bytes()]).await;
        self.say(9, &[]).await;
        // The node answers an empty offer.
        self.say(6, &[]).await;
        self.hear().await.is_some_and(|(kind, _)| kind == 7)
    }
}

impl Gives {
    pub(crate) fn set(&self, json: impl Into<Vec<u8>>) {
        *self.0.lock().unwrap() = json.into();
    }
}

impl ProtocolHandler for Gives {
    async fn accept(&self, connection: Connection) -> Result<(), AcceptError> {
        while let Ok((mut sending, _receiving)) = connection.accept_bi().await {
            let json = self.0.lock().unwrap().clone();
            let _ = sending.write_all(&json).await;
            let _ = sending.finish();
        }
        Ok(())
    }
}

impl DrawsOut {
    /// Accepts sessions from now on.
    pub(crate) fn begin(&self) {
        self.does.store(true, Relaxed);
    }

    /// The number of accepted sessions.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Relaxed)
    }
}

impl ProtocolHandler for DrawsOut {
    async fn accept(&self, connection: Connection) -> Result<(), AcceptError> {
        if !self.does.load(Relaxed) {
            return Ok(());
        }
        let (sending, receiving) = connection.accept_bi().await?;
        let mut stream = RawStream { connection, sending, receiving };
        stream.hear().await;
        stream.say(2, &[&[1], &0u64.to_be_bytes()]).await;
        self.begun.fetch_add(1, Relaxed);
        while stream.hear().await.is_some() {
            // Shorter than the node's `io_timeout` (30 s), so that the session does not time out.
            tokio::time::sleep(Duration::from_secs(20)).await;
            // Claims a difference, so that the session continues.
            stream.say(5, &[&[0x61, 0, 0, 1], &[7; 16]]).await;
        }
        Ok(())
    }
}

fn gossip_id(topic: &str) -> TopicId {
    topic.strip_prefix("kukuri:").unwrap().parse().unwrap()
}
