//! What a store can say about itself: statistics, explanations, and whether its parts agree.

use bytes::Bytes;
use kukuri_domain::{
    EventId, Millis, Reason, Source, State, TopicId,
    capacity::{Stage, Usage},
    decision::KeyState,
    deletion::Tombstone,
    retention::RetentionClass,
    vanish::VanishMark,
};

use crate::outbox::Seq;

/// Figures of the whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Effective events.
    pub effective: u64,
    /// Rows by what they are to retention, in the order of [`RetentionClass::ALL`].
    pub by_class: [Usage; 4],
    /// How short of room the node is.
    pub stage: Stage,
    /// Every topic that was ever bound to an event, by id.
    pub topics: Vec<TopicStats>,
    /// The highest outbox sequence.
    pub head: Seq,
    /// The first outbox row that is kept.
    pub outbox_first: Seq,
    /// Ids remembered.
    pub ids: u64,
    /// Events refused because deciding on or storing them failed.
    pub failed: u64,
    /// Bytes in use on disk, if the store has its own files.
    pub disk_bytes: Option<u64>,
    /// Purges wait until the clock is confirmed (P-5).
    pub clock_held: bool,
}

/// Figures of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicStats {
    /// The topic.
    pub topic: TopicId,
    /// Effective events.
    pub effective: u64,
    /// Rows by what they are to retention, in the order of [`RetentionClass::ALL`].
    pub by_class: [Usage; 4],
    /// How short of room it is.
    pub stage: Stage,
    /// When an event of it was last taken in.
    pub last_event_at: Option<Millis>,
}

/// All classes together.
pub fn total(by_class: &[Usage; 4]) -> Usage {
    sum(by_class, |_| true)
}

/// The classes that never give way (P-6).
pub fn lasting(by_class: &[Usage; 4]) -> Usage {
    sum(by_class, |class| !class.gives_way())
}

fn sum(by_class: &[Usage; 4], counts: impl Fn(RetentionClass) -> bool) -> Usage {
    let parts = RetentionClass::ALL.into_iter().zip(by_class).filter(|(class, _)| counts(*class));
    parts.fold(Usage::default(), |sum, (_, part)| Usage {
        events: sum.events + part.events,
        bytes: sum.bytes + part.bytes,
    })
}

/// What is remembered of an id (P-1), and where the event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRecord {
    /// Where it came from first.
    pub source: Source,
    /// When it first came.
    pub first_seen_at: Millis,
    /// When it last came. Written in batches.
    pub last_seen_at: Millis,
    /// How often it came. Written in batches.
    pub seen_count: u64,
    /// What became of it.
    pub standing: Standing,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is effective.
    Effective,
    /// It is not, for this reason.
    Gone {
        /// Why.
        reason: Reason,
        /// The event that took it away or kept it out.
        cause: Option<EventId>,
        /// Since when.
        since: Millis,
    },
}

impl Standing {
    /// What a copy of the event is answered by.
    pub fn state(self) -> State {
        match self {
            Self::Effective => State::Effective,
            Self::Gone { reason, .. } => reason.state(),
        }
    }
}

/// A stored row, hidden or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRecord {
    /// Its JSON.
    pub json: Bytes,
    /// Its topics.
    pub topics: Vec<TopicId>,
    /// When this node took it in.
    pub ingested_at: Millis,
}

/// Why an event is, or is not, visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What is remembered of its id. `None`: it was never decided on, or that is forgotten.
    pub record: Option<IdRecord>,
    /// Its row, if it is still here.
    pub row: Option<RowRecord>,
    /// Deletions that name its id, and its address if the row is here.
    pub tombstones: Vec<Tombstone>,
    /// Vanish requests of its owners, if the row is here.
    pub vanish_marks: Vec<VanishMark>,
    /// Its key, if it has one and the row is here.
    pub key: Option<KeyState>,
}

/// What is known about a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressExplanation {
    /// Its floor and its effective version.
    pub key: Option<KeyState>,
    /// The deletion that names it.
    pub tombstone: Option<Tombstone>,
    /// Its author's vanish request.
    pub vanish_mark: Option<VanishMark>,
}

/// Whether a store's parts agree with each other: indexes, counters, outbox and events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Rows looked at.
    pub rows: u64,
    /// What does not fit, in words. Empty is good.
    pub problems: Vec<String>,
}
