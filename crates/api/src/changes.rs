//! The changes of a topic: the outbox seen from outside (W-8), read in bounded batches.

use std::sync::Arc;

use kukuri_domain::{EventId, Millis, Reason, TopicId, Viewer, Visibility};
use kukuri_store::{BoundEvent, Epoch, Op, OutboxRow, Seq, Store, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    ApiState,
    answer::{Event, stored_json},
    error::Error,
    gate::StreamTurn,
    position::Position,
    tail::{ROWS_PER_READ, Rows},
};

/// Outbox rows of all topics that one batch looks at.
const MAX_ROWS_PER_BATCH: usize = 4_000;
/// Events in one lookup in the store.
const EVENTS_PER_LOOKUP: usize = 50;
/// Bytes of events in one answer. The first event is sent whatever its size.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 20;

/// One event that became visible in the topic, or is visible no more.
#[derive(Serialize, ToSchema)]
pub(crate) struct Change {
    #[schema(value_type = String)]
    pub(crate) seq: Position,
    op: ChangeOp,
    #[schema(value_type = String)]
    event_id: EventId,
    kind: u16,
    created_at: u64,
    /// Of a delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<DeleteReason>,
    /// Of an upsert.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Event, required = false)]
    event: Option<Box<RawValue>>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ChangeOp {
    Upsert,
    Delete,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DeleteReason {
    Nip09,
    Expiration,
    Replaced,
    Vanish,
    Retention,
    Capacity,
}

impl From<Reason> for DeleteReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Nip09 => Self::Nip09,
            Reason::Expiration => Self::Expiration,
            Reason::Replaced => Self::Replaced,
            Reason::Vanish => Self::Vanish,
            Reason::Retention => Self::Retention,
            Reason::Capacity => Self::Capacity,
        }
    }
}

impl Change {
    /// `stored` is the event of an upsert.
    fn new(epoch: Epoch, row: &OutboxRow, stored: Option<&StoredEvent>) -> Result<Self, Error> {
        let (op, reason) = match row.op {
            Op::Upsert => (ChangeOp::Upsert, None),
            Op::Delete(reason) => (ChangeOp::Delete, Some(reason.into())),
        };
        Ok(Self {
            seq: Position { epoch, seq: row.seq },
            op,
            event_id: row.event_id,
            kind: row.kind.0,
            created_at: row.created_at.0,
            reason,
            event: stored.map(stored_json).transpose()?,
        })
    }
}

/// Changes of a topic, in the order of the outbox.
pub(crate) struct ChangeBatch {
    pub(crate) changes: Vec<Change>,
    /// The last row that was looked at, of any topic.
    pub(crate) next: Position,
    /// Whether that row was the last of the outbox.
    pub(crate) is_end: bool,
}

/// The state of a stream that a read of changes needs.
pub(crate) struct StreamRead<'s> {
    /// The head that the stream knows: rows up to it are shared with the other streams.
    pub(crate) head: Seq,
    pub(crate) turn: &'s StreamTurn,
}

/// Reads the changes of a topic after a sequence, at most `limit`, for a page or for a stream.
///
/// An upsert whose event is effective no more is skipped: its delete follows (O-1). A private event is shown to its parties only (E-10).
/// Its delete is shown to nobody: the row does not name the parties, and the event is gone.
pub(crate) async fn read(
    api: &ApiState,
    topic: &TopicId,
    viewer: &Viewer,
    after: Position,
    limit: usize,
    stream: Option<StreamRead<'_>>,
) -> Result<ChangeBatch, Error> {
    let (store, visibility, now) = (&*api.store, (api.visibility)(), (api.clock)());
    let mut batch = ChangeBatch { changes: Vec::new(), next: after, is_end: false };
    let (mut rows_seen, mut bytes) = (0, 0);
    // A stream reads on at once, and shows in between that it is alive.
    let max_rows = if stream.is_some() { ROWS_PER_READ } else { MAX_ROWS_PER_BATCH };
    while rows_seen < max_rows && batch.changes.len() < limit {
        let Rows { rows, is_end } = match &stream {
            Some(StreamRead { head, turn }) => api.tail.read(store, batch.next, *head, turn).await?,
            None => Rows::read(store, batch.next.seq).await?,
        };
        rows_seen += rows.len();
        let end = rows.last().map_or(batch.next.seq, |row| row.seq);
        let may_show =
            |row: &Arc<OutboxRow>| !row.kind.is_private() || (row.op == Op::Upsert && !viewer.is_unauthenticated());
        let own: Vec<Arc<OutboxRow>> = rows.into_iter().filter(|row| row.topic == *topic && may_show(row)).collect();
        // The next batch reads the rows after these again.
        let fitting = own.len().min(limit - batch.changes.len());
        for rows in own[..fitting].chunks(EVENTS_PER_LOOKUP) {
            let events = look_up(store, rows, viewer, &visibility, now).await?;
            for (row, stored) in rows.iter().zip(events) {
                let size = stored.as_ref().map_or(0, |stored| stored.json.len());
                if bytes > 0 && bytes + size > MAX_ANSWER_BYTES {
                    return Ok(batch);
                }
                bytes += size;
                batch.next.seq = row.seq;
                if stored.is_some() || row.op != Op::Upsert {
                    batch.changes.push(Change::new(after.epoch, row, stored.as_ref())?);
                }
            }
        }
        if fitting == own.len() {
            batch.next.seq = end;
            batch.is_end = is_end;
        }
        if batch.is_end {
            break;
        }
    }
    Ok(batch)
}

/// The effective events of rows; `None` for a delete, and for an event that is effective no more, or not shown to the viewer (E-10, M-5).
async fn look_up(
    store: &dyn Store,
    rows: &[Arc<OutboxRow>],
    viewer: &Viewer,
    visibility: &Visibility,
    now: Millis,
) -> Result<Vec<Option<StoredEvent>>, Error> {
    let upserts: Vec<EventId> = rows.iter().filter(|row| row.op == Op::Upsert).map(|row| row.event_id).collect();
    let mut found = if upserts.is_empty() { Vec::new() } else { store.get(&upserts, now).await? }.into_iter();
    let is_shown = |row: &OutboxRow, bound: &BoundEvent| {
        // Most events are public, and need not be parsed.
        (!visibility.has_overlay() && !row.kind.is_private())
            || bound.event.event().is_ok_and(|event| visibility.shows(&event, &bound.topics, viewer, None))
    };
    let mut event = |row: &OutboxRow| {
        let bound = found.next().flatten().filter(|bound| is_shown(row, bound));
        bound.map(|bound| bound.event)
    };
    Ok(rows.iter().map(|row| if row.op == Op::Upsert { event(row) } else { None }).collect())
}

/// Refuses a sequence that this store has not reached: its caller would miss the rows written until then.
pub(crate) async fn check_sequence(store: &dyn Store, after: Seq) -> Result<(), Error> {
    let head = *store.watch_outbox().borrow();
    if after <= head {
        return Ok(());
    }
    // The watched number may be behind rows that another process wrote.
    let is_there = !store.outbox(Seq(after.0 - 1), 1).await?.is_empty();
    if is_there { Ok(()) } else { Err(Error::AheadOfOutbox { after, head }) }
}
