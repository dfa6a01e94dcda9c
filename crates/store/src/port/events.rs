//! Events in and out: ingest and queries.

use async_trait::async_trait;
use kukuri_domain::{Admitted, EventId, Millis, Sketch, State, Timestamp};

use crate::{
    error::Result,
    event::BoundEvent,
    ingest::Ingested,
    query::{Answer, Count, Query},
};

/// Ingest and queries of events.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Ingests events, in order, in one durable transaction. An event whose decision or write fails is refused alone.
    /// An error means that nothing of the batch was stored.
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested>;

    /// The states of these ids, in their order. A known id is counted as seen again (P-1), so that the caller can
    /// answer a copy of an event without verifying it.
    async fn recall(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>>;

    /// Writes the repeats counted so far (P-1). A crash before that loses counts, never ids.
    async fn flush(&self) -> Result<()>;

    /// The events that answer a query.
    async fn query(&self, query: &Query) -> Result<Answer>;

    /// `created_at` and id of the events that answer a query: lowest first, each once. `None`: there are more than
    /// `most`. The store holds no more than about `most` of them in memory (NIP-77).
    async fn ids(&self, query: &Query, most: usize) -> Result<Option<Vec<(Timestamp, EventId)>>>;

    /// The number of distinct events that match, ignoring limits. Adds their authors to the sketch, if one is given.
    async fn count(&self, query: &Query, sketch: Option<Sketch>) -> Result<Count>;

    /// The effective events with these ids, in the order of `ids`.
    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>>;
}
