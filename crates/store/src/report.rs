//! Reports for operators: statistics, explanations, and the result of a consistency check.

use bytes::Bytes;
use kukuri_domain::{
    EventId, Millis, Reason, Source, State, TopicId,
    capacity::{Permanent, Stage, Usage},
    decision::KeyState,
    deletion::Tombstone,
    retention::RetentionClass,
    vanish::VanishMark,
};

use crate::outbox::Seq;

/// Statistics of the whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of effective events.
    pub effective: u64,
    /// Stored rows by retention class, in the order of [`RetentionClass::ALL`].
    pub by_class: [Usage; 4],
    /// The capacity stage of the node.
    pub stage: Stage,
    /// The highest outbox sequence.
    pub head: Seq,
    /// The first outbox row that is still kept.
    pub outbox_first: Seq,
    /// Number of id records.
    pub ids: u64,
    /// Number of events refused because the decision or the write failed.
    pub failed: u64,
    /// Bytes in use on disk, if the store has its own files.
    pub disk_bytes: Option<u64>,
    /// The clock is held: nothing is removed because of its age (P-5).
    pub clock_held: bool,
}

/// Statistics of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicStats {
    /// The topic.
    pub topic: TopicId,
    /// Number of effective events.
    pub effective: u64,
    /// Stored rows by retention class, in the order of [`RetentionClass::ALL`].
    pub by_class: [Usage; 4],
    /// The capacity stage of the topic.
    pub stage: Stage,
    /// When the store last ingested an event of the topic that is a sign of its use (T-8). `None`: there was none.
    pub last_event_at: Option<Millis>,
}

/// The sum over all classes.
pub fn total(by_class: &[Usage; 4]) -> Usage {
    by_class
        .iter()
        .fold(Usage::default(), |sum, part| Usage { events: sum.events + part.events, bytes: sum.bytes + part.bytes })
}

/// The classes that are never purged to make room (P-6).
pub fn permanent(by_class: &[Usage; 4]) -> Permanent {
    Permanent {
        requests: by_class[RetentionClass::Request as usize],
        current: by_class[RetentionClass::Current as usize],
    }
}

/// The record of a known id (P-1), with the standing of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRecord {
    /// The source of the first copy.
    pub source: Source,
    /// When the first copy arrived.
    pub first_seen_at: Millis,
    /// When the last copy arrived. Written in batches.
    pub last_seen_at: Millis,
    /// Number of copies that arrived. Written in batches.
    pub seen_count: u64,
    /// Whether the event is effective, and if not, why.
    pub standing: Standing,
}

/// Whether an event is effective, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The event is effective.
    Effective,
    /// The event is not effective: it was removed or kept out.
    Gone {
        /// The reason.
        reason: Reason,
        /// The event that removed it or kept it out.
        cause: Option<EventId>,
        /// When the event was removed or kept out.
        since: Millis,
    },
}

impl Standing {
    /// The state from which the answer to a copy of the event follows.
    pub fn state(self) -> State {
        match self {
            Self::Effective => State::Effective,
            Self::Gone { reason, .. } => reason.state(),
        }
    }
}

/// A stored row, effective or hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRecord {
    /// The event's JSON.
    pub json: Bytes,
    /// The topics that the event is bound to.
    pub topics: Vec<TopicId>,
    /// When this node ingested the event.
    pub ingested_at: Millis,
}

/// Why an event is, or is not, visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The record of its id. `None`: this node never decided on the event, or the record was purged.
    pub record: Option<IdRecord>,
    /// Its row, if it is still stored.
    pub row: Option<RowRecord>,
    /// Tombstones that name its id, and those that name its address if the row is stored.
    pub tombstones: Vec<Tombstone>,
    /// Vanish marks of its owners, if the row is stored.
    pub vanish_marks: Vec<VanishMark>,
    /// The state of its key, if it has one and the row is stored.
    pub key: Option<KeyState>,
}

/// The floor, tombstone and vanish mark of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressExplanation {
    /// Its floor and its effective version.
    pub key: Option<KeyState>,
    /// The tombstone that names its address.
    pub tombstone: Option<Tombstone>,
    /// The vanish mark of its author.
    pub vanish_mark: Option<VanishMark>,
}

/// Result of a consistency check between indexes, counters, outbox and events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of rows checked.
    pub rows: u64,
    /// Descriptions of inconsistencies. Empty: the store is consistent.
    pub problems: Vec<String>,
}
