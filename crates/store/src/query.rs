//! Queries for events, and events as a store returns them.

use bytes::Bytes;
use kukuri_domain::{Event, EventId, Filter, Millis, Sketch, Timestamp, TopicId, Viewer, Visibility};

use crate::{
    budget::Budget,
    error::{Result, StoreError},
    outbox::Seq,
};

/// A query for the events that match any of the filters and are visible to the viewer now.
#[derive(Clone, Debug)]
pub struct Query {
    /// An event matches if any filter matches. A filter's limit applies to that filter alone; a filter without a limit
    /// gets every match (W-1).
    pub filters: Vec<Filter>,
    /// The reader, who sees private kinds only as a party to them (E-10).
    pub viewer: Viewer,
    /// Which events are withheld from the viewer (M-5).
    pub visibility: Visibility,
    /// Events that have expired by this time are not returned.
    pub now: Millis,
    /// Maximum bytes of JSON in the answer, so that large events do not make it larger than a reader can hold. Each
    /// filter gets an equal share, and at least one event; matches beyond that are left out as by a limit.
    pub bytes: usize,
    /// What reading may cost. When it is spent, a query gets the newest part of its answer, and a count fails (Y-2).
    pub budget: Budget,
}

impl Query {
    /// Maximum bytes of JSON in the answer to one filter.
    pub fn share(&self) -> usize {
        self.bytes / self.filters.len().max(1)
    }

    /// Whether an event that matches `filter` is shown to the viewer.
    pub fn shows(&self, event: &Event, topics: &[TopicId], filter: &Filter) -> bool {
        self.visibility.shows(event, topics, &self.viewer, Some(filter))
    }

    /// A query for everything that one filter matches, without an overlay or bounds.
    pub fn of(filter: Filter, viewer: Viewer, now: Millis) -> Self {
        let (visibility, budget) = (Visibility::default(), Budget::default());
        Self { filters: vec![filter], viewer, visibility, now, bytes: usize::MAX, budget }
    }
}

/// The answer to a query: newest first, ties by the lower id, each event once (W-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outbox sequence at which the answer was read. Later events are not in it; they are delivered live (W-2).
    pub seq: Seq,
    /// The events.
    pub events: Vec<StoredEvent>,
    /// Whether limits left out matches (NIP-67).
    pub rest: Completeness,
}

/// Whether an answer leaves out stored events that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Every match is in the answer.
    Complete,
    /// At least one match is left out.
    Truncated,
    /// The budget was spent: every match up to the last event is in the answer, later ones are not (Y-2).
    BudgetSpent,
    /// A filter reached its limit; finding out whether a match is left out would need more reads.
    Unknown,
}

/// The number of events that match a query, ignoring limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Number of distinct events.
    pub events: u64,
    /// The given sketch, with the authors of these events added (NIP-45).
    pub sketch: Option<Sketch>,
}

/// An effective event: its JSON, ready to be served, and the two fields by which answers are ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The event's id.
    pub id: EventId,
    /// `created_at`, as claimed by the author.
    pub created_at: Timestamp,
    /// The event's JSON.
    pub json: Bytes,
}

/// An effective event with the topics it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundEvent {
    /// The event.
    pub event: StoredEvent,
    /// The topics that the event is bound to.
    pub topics: Vec<TopicId>,
    /// When this node ingested the event.
    pub ingested_at: Millis,
}

impl StoredEvent {
    /// Parses the stored JSON.
    pub fn event(&self) -> Result<Event> {
        Event::from_json(&self.json).map_err(|error| StoreError::Damaged(format!("event {}: {error}", self.id)))
    }
}
