//! The changes of a topic: the outbox seen from outside (W-8), a bounded part at a time.

use std::sync::Arc;

use kukuri_domain::{EventId, Millis, TopicId};
use kukuri_store::{BoundEvent, Op, OutboxRow, Seq, Store, StoreError, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    answer::raw,
    error::Problem,
    tail::{Rows, Tail},
};

/// Rows that are read at a time.
const ROWS: usize = 1_000;
/// Rows that are read for one part, of all topics.
const MOST_ROWS: usize = 4_000;
/// Events that are looked up at a time.
const EVENTS: usize = 50;
/// Bytes of events in one part, the first aside.
const MOST_BYTES: usize = 1 << 20;

/// Where rows are read.
pub(crate) enum Source<'t> {
    /// In the store.
    Store,
    /// In what streams share, up to the highest sequence that is heard of.
    Shared(&'t Tail, Seq),
}

impl Source<'_> {
    async fn read(&self, store: &dyn Store, after: Seq) -> Result<Rows, StoreError> {
        match self {
            Self::Store => Rows::read(store, after, ROWS).await,
            Self::Shared(tail, head) => tail.read(store, after, ROWS, *head).await,
        }
    }
}

/// What happened to an event in the topic.
pub(crate) struct Change {
    row: Arc<OutboxRow>,
    /// Of an upsert.
    stored: Option<StoredEvent>,
}

/// As it is sent.
#[derive(Serialize)]
pub(crate) struct ChangeBody<'c> {
    seq: u64,
    op: &'static str,
    event_id: EventId,
    kind: u16,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'c RawValue>,
}

impl Change {
    pub(crate) fn seq(&self) -> Seq {
        self.row.seq
    }

    pub(crate) fn body(&self) -> Result<ChangeBody<'_>, Problem> {
        let (op, reason) = match self.row.op {
            Op::Upsert => ("upsert", None),
            Op::Delete(reason) => ("delete", Some(reason.as_str())),
        };
        Ok(ChangeBody {
            seq: self.row.seq.0,
            op,
            event_id: self.row.event_id,
            kind: self.row.kind.0,
            created_at: self.row.created_at.0,
            reason,
            event: self.stored.as_ref().map(raw).transpose()?,
        })
    }
}

/// A part of the changes of a topic.
pub(crate) struct Part {
    /// In the order of the outbox.
    pub(crate) changes: Vec<Change>,
    /// Everything up to here was looked at: rows of other topics too.
    pub(crate) next: Seq,
    /// Whether that was the end of the outbox.
    pub(crate) is_end: bool,
}

/// Reads the changes of a topic after a sequence, no more than `limit`.
///
/// An upsert whose event is effective no more is left out: its delete follows (O-1). Private kinds are not shown: who
/// asks over HTTP is a party to none (E-10).
pub(crate) async fn read(
    store: &dyn Store,
    source: Source<'_>,
    topic: &TopicId,
    after: Seq,
    limit: usize,
    now: Millis,
) -> Result<Part, Problem> {
    let mut part = Part { changes: Vec::new(), next: after, is_end: false };
    let (mut looked_at, mut bytes) = (0, 0);
    while looked_at < MOST_ROWS && part.changes.len() < limit {
        let Rows { rows, is_end } = source.read(store, part.next).await?;
        looked_at += rows.len();
        let end = rows.last().map_or(part.next, |row| row.seq);
        let own: Vec<Arc<OutboxRow>> =
            rows.into_iter().filter(|row| row.topic == *topic && !row.kind.is_private()).collect();
        // What does not fit is read again for the next part.
        let fitting = own.len().min(limit - part.changes.len());
        for rows in own[..fitting].chunks(EVENTS) {
            let events = look_up(store, rows, now).await?;
            for (row, stored) in rows.iter().zip(events) {
                let size = stored.as_ref().map_or(0, |stored| stored.json.len());
                if bytes > 0 && bytes + size > MOST_BYTES {
                    return Ok(part);
                }
                bytes += size;
                part.next = row.seq;
                if stored.is_some() || row.op != Op::Upsert {
                    part.changes.push(Change { row: Arc::clone(row), stored });
                }
            }
        }
        if fitting == own.len() {
            part.next = end;
            part.is_end = is_end;
        }
        if part.is_end {
            break;
        }
    }
    Ok(part)
}

/// The events of rows, as far as they are effective; `None` for a delete.
async fn look_up(store: &dyn Store, rows: &[Arc<OutboxRow>], now: Millis) -> Result<Vec<Option<StoredEvent>>, Problem> {
    let upserts: Vec<EventId> = rows.iter().filter(|row| row.op == Op::Upsert).map(|row| row.event_id).collect();
    let mut found = if upserts.is_empty() { Vec::new() } else { store.get(&upserts, now).await? }.into_iter();
    let event = |bound: Option<BoundEvent>| bound.map(|bound| bound.event);
    Ok(rows.iter().map(|row| if row.op == Op::Upsert { event(found.next().flatten()) } else { None }).collect())
}

/// Whether a place is one of this store's: who comes with a higher one would miss what is written until then.
pub(crate) async fn check_place(store: &dyn Store, after: Seq) -> Result<(), Problem> {
    // The number that is at hand may be behind what another process wrote.
    if after <= *store.watch_outbox().borrow() {
        return Ok(());
    }
    let head = store.stats().await?.head;
    if after <= head { Ok(()) } else { Err(Problem::Ahead { after, head }) }
}
