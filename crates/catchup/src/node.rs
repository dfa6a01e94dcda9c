//! What a session needs of the node it runs on.

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_domain::{Event, EventId, Millis, Timestamp, TopicId, sharing::FloorHint};
use kukuri_store::{HintOutcome, Outcome, Store, StoreError};

/// Another node, by its public key.
pub type Peer = [u8; 32];

/// The node takes in no history now: room is short, or those behind it are (P-6, O-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHistory;

/// A node, as a session sees it. What comes in goes the way of all events: the store is only read here.
#[async_trait]
pub trait Node: Send + Sync {
    /// The time.
    fn now(&self) -> Millis;

    /// What is asked of it: the sets of topics, their items, which ids are known.
    fn store(&self) -> &dyn Store;

    /// If a topic is shared with this peer: from when on regular events of it are kept.
    async fn shares(&self, peer: &Peer, topic: &TopicId) -> Option<Timestamp>;

    /// Whether an event is one of this topic, by the node's rules (G-4, T-7).
    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool;

    /// Whether an event that the store does not know is worth asking for.
    fn wants(&self, _id: &EventId) -> bool {
        true
    }

    /// Takes events of a peer in, with its origin, verified like any others. Each is true to its id; whether it is signed is
    /// not known yet. One outcome per event, in order.
    async fn take(&self, peer: &Peer, events: Vec<Bytes>) -> Result<Vec<Outcome>, NoHistory>;

    /// Takes floor hints in a topic. One outcome per hint, in order.
    async fn raise(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError>;
}
