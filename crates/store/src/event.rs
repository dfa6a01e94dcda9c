//! An event as it comes out of a store.

use bytes::Bytes;
use kukuri_domain::{Event, EventId, Millis, Timestamp, TopicId};

use crate::error::{Result, StoreError};

/// An effective event: its JSON, ready to be served, and what orders it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id.
    pub id: EventId,
    /// When its author says it was made.
    pub created_at: Timestamp,
    /// Its JSON.
    pub json: Bytes,
}

/// An effective event with the topics it is effective in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundEvent {
    /// The event.
    pub event: StoredEvent,
    /// Its topics.
    pub topics: Vec<TopicId>,
    /// When this node took it in.
    pub ingested_at: Millis,
}

impl StoredEvent {
    /// The event itself, for whoever needs more than its bytes.
    pub fn event(&self) -> Result<Event> {
        Event::from_json(&self.json).map_err(|error| StoreError::Damaged(format!("event {}: {error}", self.id)))
    }
}
