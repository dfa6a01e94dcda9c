//! The outbox as its readers see it: rows, sequences, snapshots, offsets (O-1 to O-8).

use std::fmt;

use kukuri_domain::{Address, EventId, Kind, Millis, Reason, Timestamp, TopicId};

use crate::{
    error::{Result, StoreError},
    event::BoundEvent,
};

/// A place in the outbox. Rows count from 1; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The next one.
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

/// What happened to an event in a topic (O-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// It became effective.
    Upsert,
    /// It was effective and is no more.
    Delete(Reason),
}

/// One row of the outbox (O-1). It refers to the event; whoever needs it looks it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its place.
    pub seq: Seq,
    /// What happened.
    pub op: Op,
    /// To which event.
    pub event_id: EventId,
    /// In which topic.
    pub topic: TopicId,
    /// Its kind.
    pub kind: Kind,
    /// When its author says it was made.
    pub created_at: Timestamp,
    /// When this node took it in.
    pub ingested_at: Millis,
    /// The key it is a version of.
    pub effective_key: Option<Address>,
    /// When this row was written; retention goes by it (O-10).
    pub written_at: Millis,
}

/// Where a snapshot goes on. Opaque to its reader; it holds no resource of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCursor {
    /// The sequence of the first page, once there is one.
    pub seq: Option<Seq>,
    /// Rows at or before this place of the store's own order have been read.
    pub after: u64,
}

/// A part of the effective set (O-8).
///
/// All pages of one snapshot carry the sequence at which the first was read. Later pages are read later: they may
/// already lack what was taken away since, and hold what came since. Applying the rows after `seq` to all pages
/// together gives exactly the effective set, because an event that leaves it never returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPage {
    /// Follow the outbox from here.
    pub seq: Seq,
    /// Events of this page.
    pub events: Vec<BoundEvent>,
    /// The next page, if there is one.
    pub next: Option<SnapshotCursor>,
}

/// How far a named consumer has come (O-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOffset {
    /// Its name, such as `index-v1`.
    pub consumer: String,
    /// The last row whose effect is in place.
    pub last_seq: Seq,
    /// When it came there.
    pub updated_at: Millis,
}

/// Whether this can be a consumer's name.
pub fn check_consumer(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 200 { Err(StoreError::ConsumerName) } else { Ok(()) }
}
