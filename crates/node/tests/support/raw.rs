//! A peer that speaks bare iroh-gossip: it says what no node would.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use iroh::{
    Endpoint, EndpointAddr, EndpointId, RelayMode, SecretKey,
    address_lookup::memory::MemoryLookup,
    endpoint::{PortmapperConfig, presets},
    protocol::Router,
};
use iroh_gossip::{
    Gossip, TopicId,
    api::{Event, GossipReceiver, GossipSender},
};

use super::PATIENCE;

/// What all nodes take.
pub(crate) const NODES_TAKE: usize = 64 * 1024;

pub(crate) struct RawPeer {
    router: Router,
    gossip: Gossip,
    node: EndpointId,
}

pub(crate) struct RawTopic {
    pub(crate) sender: GossipSender,
    receiver: GossipReceiver,
}

impl RawPeer {
    /// A stranger that knows a node, and takes messages of up to so many bytes.
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
        let router = Router::builder(endpoint).accept(iroh_gossip::ALPN, gossip.clone()).spawn();
        Self { router, gossip, node: node.id }
    }

    /// Subscribes, and waits until the node is a neighbour.
    pub(crate) async fn join(&self, topic: &str) -> RawTopic {
        let joining = self.gossip.subscribe_and_join(gossip_id(topic), vec![self.node]);
        let joined = tokio::time::timeout(PATIENCE, joining).await.expect("the node is a neighbour").unwrap();
        let (sender, receiver) = joined.split();
        RawTopic { sender, receiver }
    }

    /// Subscribes, and tells whether the node becomes a neighbour within a while.
    pub(crate) async fn is_let_in(&self, topic: &str, a_while: Duration) -> bool {
        let joining = self.gossip.subscribe_and_join(gossip_id(topic), vec![self.node]);
        tokio::time::timeout(a_while, joining).await.is_ok()
    }

    pub(crate) async fn leave(self) {
        let _ = tokio::time::timeout(Duration::from_secs(5), self.router.shutdown()).await;
    }
}

impl RawTopic {
    pub(crate) async fn say(&self, message: impl Into<Bytes>) {
        self.sender.broadcast(message.into()).await.unwrap();
    }

    /// The next message.
    pub(crate) async fn hear(&mut self) -> Bytes {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.receiver.next());
            if let Event::Received(message) = next.await.expect("a message").unwrap().unwrap() {
                return message.content;
            }
        }
    }
}

fn gossip_id(topic: &str) -> TopicId {
    topic.strip_prefix("kukuri:").unwrap().parse().unwrap()
}
