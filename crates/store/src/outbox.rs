//! The outbox as its readers see it: rows, sequences, snapshots, offsets (O-1 to O-8).

use std::fmt;

use kukuri_domain::{Address, EventId, Kind, Millis, Reason, Timestamp, TopicId};

use crate::{
    error::{Result, StoreError},
    query::BoundEvent,
};

/// The sequence number of an outbox row. The first row is 1; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The next sequence number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The history that sequence numbers belong to (Y-5): random, and another one once a store went back to an older state, by a
/// restored backup or a fail-over that lost commits. A sequence seen outside of the store means nothing without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a new or restored store.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        match filled {
            Ok(length) if length == bytes.len() => Ok(Self(u64::from_be_bytes(bytes))),
            Ok(_) => Err(StoreError::Backend("the system gives too few random bytes".into())),
            Err(error) => Err(StoreError::Backend(error.into())),
        }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The change that an outbox row announces: an event in a topic became effective, or is no longer (O-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The event became effective.
    Upsert,
    /// The event left the effective set.
    Delete(Reason),
}

/// One row of the outbox (O-1). The row holds only the event's id; a consumer looks the event up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// The row's sequence number.
    pub seq: Seq,
    /// The change.
    pub op: Op,
    /// The event that changed.
    pub event_id: EventId,
    /// The topic in which the event changed.
    pub topic: TopicId,
    /// The event's kind.
    pub kind: Kind,
    /// The event's `created_at`, as claimed by its author.
    pub created_at: Timestamp,
    /// When this node ingested the event.
    pub ingested_at: Millis,
    /// The key of which the event is a version.
    pub effective_key: Option<Address>,
    /// When this row was written; the age for outbox retention (O-10).
    pub written_at: Millis,
}

/// The position at which a snapshot continues. Opaque to callers; holds no resource of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCursor {
    /// The outbox sequence of the first page. `None` before the first page.
    pub seq: Option<Seq>,
    /// Position of the last row read, in the store's own order.
    pub after: u64,
}

/// JSON bytes of one snapshot page: the page ends before an event that would pass it, unless it is the first (U-4).
pub const MAX_SNAPSHOT_PAGE_BYTES: usize = 512 * 1024;

/// One page of the effective set (O-8). It may hold fewer events than were asked for, even none: `next` tells whether more
/// follow.
///
/// All pages of one snapshot carry the outbox sequence at which the first page was read. A later page may already lack
/// events removed since then, and contain events added since then. Applying the outbox rows after `seq` to all pages
/// together gives exactly the effective set, because an event that leaves the set never returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPage {
    /// Consumers follow the outbox from this sequence.
    pub seq: Seq,
    /// Events of this page.
    pub events: Vec<BoundEvent>,
    /// The cursor of the next page. `None`: this is the last one.
    pub next: Option<SnapshotCursor>,
}

/// The offset of a named consumer (O-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOffset {
    /// The consumer's name, such as `index-v1`.
    pub consumer: String,
    /// The last row whose effect is in place.
    pub last_seq: Seq,
    /// When the offset was last written.
    pub updated_at: Millis,
}

/// Refuses a consumer name that does not fit a key of every store.
pub fn check_consumer(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 200 { Err(StoreError::ConsumerName) } else { Ok(()) }
}
