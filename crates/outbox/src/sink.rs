//! What a consumer feeds.

use async_trait::async_trait;
use kukuri_domain::{EventId, Reason};
use kukuri_store::{BoundEvent, Seq};

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is effective.
    Upsert(BoundEvent),
    /// It was effective and is no more.
    Delete(EventId, Reason),
}

/// Changes that belong together. Each event is in it once, as its last row leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order of the events' last rows.
    pub changes: Vec<Change>,
    /// The row after which it begins.
    pub after: Seq,
    /// The row up to which all is done with it. `None`: it is a part of a snapshot.
    pub last: Option<Seq>,
}

/// Which of two copies is meant while everything is built anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one in use.
    Current,
    /// The one that will take its place.
    Next,
}

/// How far a sink has come by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It does not know: the store's offset counts.
    NotKept,
    /// It has nothing yet.
    Nothing,
    /// Everything up to this row is in it.
    Row(Seq),
}

/// Why a sink could not take something.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// It may go well another time.
    #[error("{0}")]
    Passing(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It will never go well: something in the batch is at fault.
    #[error("{0}")]
    Poison(String),
}

impl SinkError {
    /// A failure that may pass.
    pub fn passing(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Passing(error.into())
    }
}

/// Something that follows what is effective: an index, a judgement, a count.
///
/// A batch may come again after a crash (O-7): the effect of a change made twice is that of once.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// How far it has come. One that keeps this with its effects, in one transaction, repeats nothing.
    async fn reached(&self) -> Result<Reached, SinkError>;

    /// Makes changes, durably, all of them or none, and notes how far they reach if it keeps that.
    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError>;

    /// Begins an empty copy beside the one in use. One that was begun before is thrown away.
    async fn begin(&self) -> Result<(), SinkError>;

    /// Puts that copy in the place of the one in use.
    async fn switch(&self) -> Result<(), SinkError>;
}
