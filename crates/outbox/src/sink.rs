//! The effect of a consumer: an index, a judgement, a count.

use async_trait::async_trait;
use kukuri_domain::{EventId, Reason};
use kukuri_store::{BoundEvent, Seq};

/// A change of the effective set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The event is effective.
    Upsert(BoundEvent),
    /// The event was effective and is no longer.
    Delete(EventId, Reason),
}

/// Changes to apply together. Each event occurs once, as its last row leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order of the events' last rows.
    pub changes: Vec<Change>,
    /// The row before the batch.
    pub after: Seq,
    /// The last row of the batch. `None`: the batch is part of a snapshot.
    pub last: Option<Seq>,
}

/// The copy that a batch is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The copy in use.
    Current,
    /// The copy that a rebuild fills.
    Next,
}

/// How far a sink has come, by its own records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The sink keeps no position: the store's offset counts.
    NotKept,
    /// The sink is empty.
    Nothing,
    /// All rows up to this one are applied.
    Row(Seq),
}

/// A failure of a sink.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A retry may succeed.
    #[error("{0}")]
    Transient(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No retry can succeed: a change in the batch is at fault.
    #[error("{0}")]
    Poison(String),
}

impl SinkError {
    /// A failure that a retry may cure.
    pub fn transient(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Transient(error.into())
    }
}

/// Applies batches of changes.
///
/// A batch may come again after a failure or a crash (O-7): applying a change twice has the effect of once.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// How far the sink has come. A sink that records this in the transaction of its effects repeats nothing.
    async fn reached(&self) -> Result<Reached, SinkError>;

    /// Applies changes durably and then records `batch.last`, if the sink keeps a position. A failed call may leave some of
    /// the changes applied, never a position ahead of them.
    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError>;

    /// Begins an empty copy beside the one in use, and discards a copy begun earlier.
    async fn begin(&self) -> Result<(), SinkError>;

    /// Replaces the copy in use by the one that was begun.
    async fn switch(&self) -> Result<(), SinkError>;
}
