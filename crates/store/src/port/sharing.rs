//! Reads and updates the shared set of a topic, for catch-up between nodes (G-7).

use async_trait::async_trait;
use kukuri_domain::{EventId, Millis, TopicId, sharing::FloorHint};

use crate::{
    error::Result,
    sharing::{Raised, Shared, SharedPage, SharedSet, Span},
};

/// The shared set that nodes reconcile per topic (G-7).
#[async_trait]
pub trait Sharing: Send + Sync + 'static {
    /// The first items of a span of the shared set, at most `most` (G-7). Read from indexes, newest first, so that a
    /// set of any size can be read span by span.
    async fn shared(&self, set: &SharedSet, span: Span, most: usize) -> Result<SharedPage>;

    /// The events or hints of these items, in the order of `ids`. An id outside the set gets `None`.
    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>>;

    /// Applies another node's floor hints for versions in a topic that were deleted by id, in one durable transaction:
    /// raises floors, removes effective versions below them (D-9), and adds accepted hints to this node's shared set
    /// (G-7).
    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised>;
}
