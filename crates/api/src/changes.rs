//! The changes of a topic: the outbox seen from outside (W-8), read in bounded batches.

use std::sync::Arc;

use kukuri_domain::{EventId, Millis, Reason, TopicId, Viewer, Visibility};
use kukuri_store::{BoundEvent, Op, OutboxRow, Seq, Store, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    ApiState,
    answer::{Event, stored_json},
    error::Error,
    tail::Rows,
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
    pub(crate) seq: u64,
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
    fn new(row: &OutboxRow, stored: Option<&StoredEvent>) -> Result<Self, Error> {
        let (op, reason) = match row.op {
            Op::Upsert => (ChangeOp::Upsert, None),
            Op::Delete(reason) => (ChangeOp::Delete, Some(reason.into())),
        };
        Ok(Self {
            seq: row.seq.0,
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
    pub(crate) next: Seq,
    /// Whether that row was the last of the outbox.
    pub(crate) is_end: bool,
}

/// Reads the changes of a topic after a sequence, at most `limit`. A stream passes the `head` that it knows, and shares
/// the rows up to it with the other streams.
///
/// An upsert whose event is effective no more is skipped: its delete follows (O-1). Private kinds are skipped for
/// every caller (E-10): a delete row does not name its parties.
pub(crate) async fn read(
    api: &ApiState,
    topic: &TopicId,
    after: Seq,
    limit: usize,
    head: Option<Seq>,
) -> Result<ChangeBatch, Error> {
    let (store, visibility, now) = (&*api.store, (api.visibility)(), (api.clock)());
    let mut batch = ChangeBatch { changes: Vec::new(), next: after, is_end: false };
    let (mut rows_seen, mut bytes) = (0, 0);
    while rows_seen < MAX_ROWS_PER_BATCH && batch.changes.len() < limit {
        let Rows { rows, is_end } = match head {
            Some(head) => api.tail.read(store, batch.next, head).await?,
            None => Rows::read(store, batch.next).await?,
        };
        rows_seen += rows.len();
        let end = rows.last().map_or(batch.next, |row| row.seq);
        let own: Vec<Arc<OutboxRow>> =
            rows.into_iter().filter(|row| row.topic == *topic && !row.kind.is_private()).collect();
        // The next batch reads the rows after these again.
        let fitting = own.len().min(limit - batch.changes.len());
        for rows in own[..fitting].chunks(EVENTS_PER_LOOKUP) {
            let events = look_up(store, rows, &visibility, now).await?;
            for (row, stored) in rows.iter().zip(events) {
                let size = stored.as_ref().map_or(0, |stored| stored.json.len());
                if bytes > 0 && bytes + size > MAX_ANSWER_BYTES {
                    return Ok(batch);
                }
                bytes += size;
                batch.next = row.seq;
                if stored.is_some() || row.op != Op::Upsert {
                    batch.changes.push(Change::new(row, stored.as_ref())?);
                }
            }
        }
        if fitting == own.len() {
            batch.next = end;
            batch.is_end = is_end;
        }
        if batch.is_end {
            break;
        }
    }
    Ok(batch)
}

/// The effective events of rows; `None` for a delete, and for an event that is effective no more or withheld (M-5).
async fn look_up(
    store: &dyn Store,
    rows: &[Arc<OutboxRow>],
    visibility: &Visibility,
    now: Millis,
) -> Result<Vec<Option<StoredEvent>>, Error> {
    let upserts: Vec<EventId> = rows.iter().filter(|row| row.op == Op::Upsert).map(|row| row.event_id).collect();
    let mut found = if upserts.is_empty() { Vec::new() } else { store.get(&upserts, now).await? }.into_iter();
    let is_shown = |bound: &BoundEvent| {
        // Private kinds were left out before, so that the viewer does not matter.
        !visibility.has_overlay()
            || bound
                .event
                .event()
                .is_ok_and(|event| visibility.shows(&event, &bound.topics, &Viewer::unauthenticated(), None))
    };
    let event = |bound: Option<BoundEvent>| bound.filter(is_shown).map(|bound| bound.event);
    Ok(rows.iter().map(|row| if row.op == Op::Upsert { event(found.next().flatten()) } else { None }).collect())
}

/// Refuses a sequence that this store has not reached: its caller would miss the rows written until then.
pub(crate) async fn check_sequence(store: &dyn Store, after: Seq) -> Result<(), Error> {
    // The watched number may be behind rows that another process wrote.
    if after <= *store.watch_outbox().borrow() {
        return Ok(());
    }
    let head = store.stats().await?.head;
    if after <= head { Ok(()) } else { Err(Error::AheadOfOutbox { after, head }) }
}
