//! What nodes tell each other of a topic when they catch up (G-7): the set they compare, part by part, and what becomes of
//! floor hints.

use std::cmp::Ordering;

use bytes::Bytes;
use kukuri_domain::{
    EventId, Timestamp, TopicId,
    sharing::{FloorHint, Window},
};

use crate::{ingest::StageChange, outbox::Seq};

/// The set of a topic that is compared: effective events, requests that took one away or kept one out, floor hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSet {
    /// The topic.
    pub topic: TopicId,
    /// How far back it goes.
    pub window: Window,
}

/// An item of such a set. The newest comes first, of one second the lowest id: the order of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// When it was made, as its author says.
    pub created_at: Timestamp,
    /// The id of the event, or of the version that a hint is about.
    pub id: EventId,
}

impl Item {
    /// An item as the domain names it.
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

/// A part of a set: from an item on, and before another, whether or not they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// `None`: from the beginning, which is the newest.
    pub from: Option<Item>,
    /// `None`: to the end.
    pub before: Option<Item>,
}

impl Span {
    /// Whether an item lies in it.
    pub fn contains(&self, item: &Item) -> bool {
        self.from.is_none_or(|from| *item >= from) && self.before.is_none_or(|before| *item < before)
    }
}

/// The first items of a span, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedPage {
    /// The items, each once.
    pub items: Vec<Item>,
    /// The first one that is left out, if any is.
    pub next: Option<Item>,
}

impl SharedPage {
    /// A page of no more than `most`, from lists that each have the first `most + 1` of their kind.
    pub fn first(most: usize, mut items: Vec<Item>) -> Self {
        items.sort_unstable();
        items.dedup();
        let next = items.get(most).copied();
        items.truncate(most);
        Self { items, next }
    }
}

/// What an item stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shared {
    /// An event: its JSON.
    Event(Bytes),
    /// A version that may not be shown any more.
    Hint(FloorHint),
}

/// What became of a floor hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintOutcome {
    /// It told something new.
    Taken,
    /// Everything it tells is known.
    Known,
    /// No request that is here backs it.
    Refused,
}

/// What floor hints did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// One outcome per hint, in order.
    pub outcomes: Vec<HintOutcome>,
    /// The highest outbox sequence after them.
    pub head: Seq,
    /// Capacity stages that were entered or left.
    pub stages: Vec<StageChange>,
}
