//! The node, as a session sees it.

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_domain::{Event, EventId, Millis, Timestamp, TopicId, sharing::FloorHint};
use kukuri_store::{HintOutcome, Outcome, Store, StoreError};

/// Another node, by its public key.
pub type Peer = [u8; 32];

/// The node, as a session sees it. Sessions only read the store: events are written through [`Node::submit`].
#[async_trait]
pub trait Node: Send + Sync {
    /// The time.
    fn now(&self) -> Millis;

    /// Read for the sets of topics, their items and known ids.
    fn store(&self) -> &dyn Store;

    /// Since when this node keeps regular events of the topic. `None`: the topic is not shared with this peer.
    async fn shares(&self, peer: &Peer, topic: &TopicId) -> Option<Timestamp>;

    /// Whether the event belongs to the topic, by the node's rules (G-4, T-7).
    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool;

    /// Whether the event may be sent to a peer. One that may not stays in the set (M-5).
    fn may_send(&self, json: &Bytes, topic: &TopicId) -> bool;

    /// Whether an event that the store does not know should be asked for.
    fn wants(&self, _id: &EventId) -> bool {
        true
    }

    /// Submits events of a peer, to be verified and decided like any others. Their ids are checked, their signatures are not.
    /// One outcome per event, in order. `None`: the node accepts no history at the moment, because outbox consumers are behind
    /// (O-9).
    async fn submit(&self, peer: &Peer, events: Vec<Bytes>) -> Option<Vec<Outcome>>;

    /// Applies floor hints of a topic. One outcome per hint, in order.
    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError>;
}
