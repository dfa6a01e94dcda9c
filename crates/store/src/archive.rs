//! Everything a store holds, piece by piece, so that a node can move to another store and nothing is forgotten: hidden
//! rows, tombstones, floors, vanish marks, traces of requests, ids, the outbox with its sequence, offsets,
//! subscriptions, the clock.

use async_trait::async_trait;
use kukuri_domain::{
    AddressDigest, EventId, Millis, Rank, TopicId, capacity::Stage, clock::Clock, deletion::Tombstone, sharing::Trace,
    subscription::NodeSubscription, vanish::VanishMark,
};

use crate::{
    error::Result,
    outbox::{ConsumerOffset, OutboxRow, Seq},
    port::Store,
    report::{IdRecord, RowRecord},
};

/// A piece of what a store holds. They come, and are loaded, in the order in which they are listed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A topic this node takes in, or took in.
    Subscription(NodeSubscription),
    /// A topic that was ever bound to an event.
    Topic {
        /// The topic.
        topic: TopicId,
        /// How short of room it is.
        stage: Stage,
        /// When an event of it was last taken in.
        last_event_at: Millis,
    },
    /// The floor of a key, and when it was last raised (D-9).
    Floor {
        /// The key.
        key: AddressDigest,
        /// Its floor.
        floor: Rank,
        /// When it was raised.
        raised_at: Millis,
    },
    /// A deletion, and when it was last written (D-6).
    Tombstone(Tombstone, Millis),
    /// A vanish mark, and when it was last written (D-12).
    Vanish(VanishMark, Millis),
    /// What a request left in a topic, for other nodes to hear of (G-7).
    Trace(TopicId, Trace),
    /// An event with its row, effective or hidden; in the order in which they came.
    Event(EventId, IdRecord, RowRecord),
    /// An id whose event is not kept (P-2).
    Id(EventId, IdRecord),
    /// A row of the outbox; in order.
    Outbox(OutboxRow),
    /// How far a consumer has come.
    Offset(ConsumerOffset),
    /// Where the store stands. The last piece: with it a store is whole.
    Standing {
        /// The highest sequence.
        head: Seq,
        /// Outbox rows up to here were dropped.
        dropped: Seq,
        /// The clock.
        clock: Clock,
        /// Events refused because deciding on or storing them failed.
        failed: u64,
        /// How short of room the node is.
        stage: Stage,
    },
}

/// Where a dump goes on. Opaque to its reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpCursor {
    /// Which kind of piece.
    pub section: u8,
    /// The last one that was read, in the store's own terms.
    pub after: Vec<u8>,
}

/// Some pieces, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpPage {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// The next page, if there is one.
    pub next: Option<DumpCursor>,
}

/// A store that can be moved.
#[async_trait]
pub trait Archive: Store {
    /// A page of everything. Nobody may write meanwhile.
    async fn dump(&self, cursor: DumpCursor, limit: usize) -> Result<DumpPage>;

    /// Takes in the next pieces of another store's dump. The store must have been empty, and is of no use before the
    /// last piece is in: until then it refuses to be opened, so that half a copy is never taken for a whole one.
    async fn load(&self, pieces: Vec<Piece>) -> Result<()>;
}
