//! The effect of a consumer: an index, a judgement, a count.

use std::collections::HashMap;

use async_trait::async_trait;
use kukuri_domain::{EventId, Millis, Reason};
use kukuri_store::{BoundEvent, Op, OutboxRow, Seq, Store, StoreError};

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

/// A batch ends where the JSON of its events exceeds this.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Rows whose events are read at a time.
const ROWS_AT_A_TIME: usize = 256;

impl Batch {
    /// Reads the events of these rows, as many as a batch holds, from the store. Returns how many rows it took. An upsert whose
    /// event is no longer effective is left out: its delete follows (O-1).
    pub(crate) async fn of_rows(
        store: &dyn Store,
        after: Seq,
        rows: &[OutboxRow],
        now: Millis,
    ) -> Result<(Self, usize), StoreError> {
        let last_rows: HashMap<EventId, Seq> = rows.iter().map(|row| (row.event_id, row.seq)).collect();
        let (mut changes, mut bytes, mut taken) = (Vec::with_capacity(last_rows.len()), 0, 0);
        for some in rows.chunks(ROWS_AT_A_TIME) {
            if bytes > MAX_BATCH_BYTES {
                break;
            }
            taken += some.len();
            let last: Vec<&OutboxRow> =
                some.iter().filter(|row| last_rows.get(&row.event_id) == Some(&row.seq)).collect();
            let ids: Vec<EventId> = last.iter().filter(|row| row.op == Op::Upsert).map(|row| row.event_id).collect();
            let mut events = if ids.is_empty() { Vec::new() } else { store.get(&ids, now).await? }.into_iter();
            for row in last {
                match row.op {
                    Op::Upsert => {
                        let Some(event) = events.next().flatten() else { continue };
                        bytes += event.event.json.len();
                        changes.push(Change::Upsert(event));
                    }
                    Op::Delete(reason) => changes.push(Change::Delete(row.event_id, reason)),
                }
            }
        }
        let last = rows.get(..taken).and_then(<[_]>::last).map(|row| row.seq);
        Ok((Self { changes, after, last }, taken))
    }
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
