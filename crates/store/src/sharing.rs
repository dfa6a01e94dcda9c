//! The shared set of a topic, which nodes compare span by span when they catch up (G-7), and the outcomes of floor
//! hints.

use std::cmp::Ordering;

use bytes::Bytes;
use kukuri_domain::{
    EventId, Timestamp, TopicId,
    sharing::{FloorHint, Window},
};

use crate::{ingest::StageChange, outbox::Seq};

/// The shared set of a topic: effective events, requests that removed an event or kept one out, and floor hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSet {
    /// The topic.
    pub topic: TopicId,
    /// The time window of the set.
    pub window: Window,
}

/// An item of a shared set. Ordered like query answers: newest first, within one second the lowest id first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// `created_at` of the event, as claimed by its author.
    pub created_at: Timestamp,
    /// The id of the event, or of the version that a hint is about.
    pub id: EventId,
}

impl Item {
    /// Converts the domain's pair of time and id.
    pub fn new((created_at, id): (Timestamp, EventId)) -> Self {
        Self { created_at, id }
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        other.created_at.cmp(&self.created_at).then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A half-open range of a set. Its bounds need not be items of the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Inclusive. `None`: from the beginning, which is the newest item.
    pub from: Option<Item>,
    /// Exclusive. `None`: to the end.
    pub before: Option<Item>,
}

impl Span {
    /// Whether the span contains an item.
    pub fn contains(&self, item: &Item) -> bool {
        self.from.is_none_or(|from| *item >= from) && self.before.is_none_or(|before| *item < before)
    }
}

/// The first items of a span, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedPage {
    /// The items, each once.
    pub items: Vec<Item>,
    /// The first item beyond this page. `None`: the page ends the span.
    pub next: Option<Item>,
}

impl SharedPage {
    /// Builds a page of at most `limit` items from concatenated lists. Each list must hold at least its first
    /// `limit + 1` items.
    pub fn first(limit: usize, mut items: Vec<Item>) -> Self {
        items.sort_unstable();
        items.dedup();
        let next = items.get(limit).copied();
        items.truncate(limit);
        Self { items, next }
    }
}

/// The content of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The JSON of an event.
    Event(Bytes),
    /// The floor hint of a version that may no longer be shown.
    Hint(FloorHint),
}

/// The outcome of one floor hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintOutcome {
    /// The hint was accepted and is new to this node.
    Taken,
    /// The hint contains nothing new.
    Known,
    /// No stored request or tombstone justifies the hint.
    Refused,
}

/// Report of a batch of floor hints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// One outcome per hint, in order.
    pub outcomes: Vec<HintOutcome>,
    /// The highest outbox sequence after the batch.
    pub head: Seq,
    /// Changes of capacity stages.
    pub stages: Vec<StageChange>,
}
