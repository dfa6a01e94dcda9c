//! A person's own data (N-1, N-2): what the node has of it, and its deletion. Both are jobs, and both are possible without consent, and for an
//! account that is disabled or banned.
//!
//! - [`export`]: asking for an archive, downloading it once. [`archive`](mod@archive): what is in it.
//! - [`deletion`]: what goes at once, and what the job does. [`deletion_list`]: what a restored backup must not bring back.

mod archive;
pub mod deletion;
pub mod deletion_list;
pub mod export;

use async_trait::async_trait;
use kukuri_domain::{EventId, PublicKey, Timestamp};

use crate::job::JobError;

/// The events of people, in the event store of the node.
#[async_trait]
pub trait PersonEvents: Send + Sync + 'static {
    /// Some of the visible events of an author, of all topics and kinds, as JSON, and where the next ones begin. `None`: there are no more.
    async fn page(&self, author: &PublicKey, from: EventCursor) -> Result<EventPage, JobError>;

    /// Removes the events of an author up to a time, and keeps them out (D-12). Done again, it changes nothing.
    async fn vanish(&self, author: &PublicKey, until: Timestamp) -> Result<(), JobError>;
}

/// Where the next page of events begins: the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// Events up to this time.
    pub until: Timestamp,
    /// Events of that time that were on a page already.
    pub seen: Vec<EventId>,
}

impl Default for EventCursor {
    fn default() -> Self {
        Self { until: Timestamp::MAX_IN_EVENT, seen: Vec::new() }
    }
}

/// A page of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// The JSON of each event.
    pub events: Vec<Vec<u8>>,
    /// Where the next page begins.
    pub next: Option<EventCursor>,
}
