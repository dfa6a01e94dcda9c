//! Dump and load of a whole store, piece by piece, so that a node can move to another store without loss: hidden rows,
//! tombstones, floors, vanish marks, traces of requests, remains, ids, the outbox with its sequence, offsets, subscriptions, the
//! clock.

use async_trait::async_trait;
use kukuri_domain::{
    AddressDigest, EventId, Millis, Rank, TopicId, capacity::Stage, clock::Clock, deletion::Tombstone,
    remains::Remains, sharing::Trace, subscription::NodeSubscription, vanish::VanishMark,
};

use crate::{
    error::Result,
    outbox::{ConsumerOffset, OutboxRow, Seq},
    port::Store,
    report::{IdRecord, RowRecord},
};

/// One record of a dump. Pieces are dumped and loaded in the order of these variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A node-level subscription, enabled or disabled.
    Subscription(NodeSubscription),
    /// A topic that has a record (T-10).
    Topic {
        /// The topic.
        topic: TopicId,
        /// The capacity stage of the topic.
        stage: Stage,
        /// When the store last ingested an event of the topic.
        last_event_at: Millis,
    },
    /// The floor of a key, and when it was last raised (D-9).
    Floor {
        /// The digest of the address.
        key: AddressDigest,
        /// Its floor.
        floor: Rank,
        /// When it was raised.
        raised_at: Millis,
    },
    /// A tombstone, and when it was last written (D-6).
    Tombstone(Tombstone, Millis),
    /// A vanish mark, and when it was last written (D-12).
    Vanish(VanishMark, Millis),
    /// The trace of a request in a topic, shared with other nodes (G-7).
    Trace(TopicId, Trace),
    /// The remains of events without a row, and when they were last written (G-7).
    Remains(Remains, Millis),
    /// An event with its row, effective or hidden; in order of arrival.
    Event(EventId, IdRecord, RowRecord),
    /// An id whose event is not stored (P-2).
    Id(EventId, IdRecord),
    /// An outbox row; in order of sequence.
    Outbox(OutboxRow),
    /// The offset of a consumer.
    Offset(ConsumerOffset),
    /// The state of the store as a whole. Always the last piece: a load is complete with it.
    Standing {
        /// The highest outbox sequence.
        head: Seq,
        /// The last outbox sequence that was dropped.
        dropped: Seq,
        /// The store's clock guard.
        clock: Clock,
        /// Number of events refused because the decision or the write failed.
        failed: u64,
        /// The capacity stage of the node.
        stage: Stage,
    },
}

/// The position at which a dump continues. Opaque to callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpCursor {
    /// The kind of piece.
    pub section: u8,
    /// The last piece that was read, in the store's own encoding.
    pub after: Vec<u8>,
}

/// One page of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpPage {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// The cursor of the next page. `None`: this is the last one.
    pub next: Option<DumpCursor>,
}

/// A store that can be dumped and loaded.
#[async_trait]
pub trait Archive: Store {
    /// Reads one page of the dump, from [`DumpCursor::default`] on. The caller ensures that nothing writes to the store
    /// until the last page.
    async fn dump(&self, cursor: DumpCursor, limit: usize) -> Result<DumpPage>;

    /// Loads the next pieces of another store's dump. The store must be empty before the first piece. Until the last
    /// piece is loaded, the store refuses to be opened, so that a partial copy is never taken for a complete one.
    async fn load(&self, pieces: Vec<Piece>) -> Result<()>;
}
