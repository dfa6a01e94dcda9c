//! Outbox rows and snapshot pages as batches of changes.

use std::collections::HashMap;

use kukuri_domain::{EventId, Millis};
use kukuri_store::{BoundEvent, Op, OutboxRow, Result, Seq, Store};

use crate::sink::{Batch, Change};

/// The rows as changes, each event once, read from the store. An upsert whose event is no longer effective is left out: its
/// delete follows (O-1).
pub(crate) async fn of_rows(store: &dyn Store, after: Seq, rows: &[OutboxRow], now: Millis) -> Result<Batch> {
    let last_rows: HashMap<EventId, Seq> = rows.iter().map(|row| (row.event_id, row.seq)).collect();
    let is_last = |row: &&OutboxRow| last_rows.get(&row.event_id) == Some(&row.seq);
    let is_upsert = |row: &&OutboxRow| row.op == Op::Upsert;
    let ids: Vec<EventId> = rows.iter().filter(is_last).filter(is_upsert).map(|row| row.event_id).collect();
    let mut events = if ids.is_empty() { Vec::new() } else { store.get(&ids, now).await? }.into_iter();
    let changes = rows.iter().filter(is_last).filter_map(|row| match row.op {
        Op::Upsert => events.next().flatten().map(Change::Upsert),
        Op::Delete(reason) => Some(Change::Delete(row.event_id, reason)),
    });
    Ok(Batch { changes: changes.collect(), after, last: rows.last().map(|row| row.seq) })
}

/// A page of a snapshot.
pub(crate) fn of_snapshot(events: Vec<BoundEvent>) -> Batch {
    Batch { changes: events.into_iter().map(Change::Upsert).collect(), ..Batch::default() }
}
