//! An event as a store returns it.

use bytes::Bytes;
use kukuri_domain::{Event, EventId, Millis, Timestamp, TopicId};

use crate::error::{Result, StoreError};

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
