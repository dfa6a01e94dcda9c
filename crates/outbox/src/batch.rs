//! Rows as what became of events.

use std::collections::HashMap;

use kukuri_domain::{EventId, Millis};
use kukuri_store::{BoundEvent, Op, OutboxRow, Result, Seq, Store};

use crate::sink::{Batch, Change};

/// What rows say, each event once, looked up. An event that is effective no more is left out: its `delete` follows (O-1).
pub(crate) async fn look_up(store: &dyn Store, after: Seq, rows: &[OutboxRow], now: Millis) -> Result<Batch> {
    let last_rows: HashMap<EventId, Seq> = rows.iter().map(|row| (row.event_id, row.seq)).collect();
    let last = |row: &&OutboxRow| last_rows.get(&row.event_id) == Some(&row.seq);
    let is_upsert = |row: &&OutboxRow| row.op == Op::Upsert;
    let ids: Vec<EventId> = rows.iter().filter(last).filter(is_upsert).map(|row| row.event_id).collect();
    let mut found = if ids.is_empty() { Vec::new() } else { store.get(&ids, now).await? }.into_iter();
    let changes = rows.iter().filter(last).filter_map(|row| match row.op {
        Op::Upsert => found.next().flatten().map(Change::Upsert),
        Op::Delete(reason) => Some(Change::Delete(row.event_id, reason)),
    });
    Ok(Batch { changes: changes.collect(), after, last: rows.last().map(|row| row.seq) })
}

/// A page of a snapshot.
pub(crate) fn of_snapshot(events: Vec<BoundEvent>) -> Batch {
    Batch { changes: events.into_iter().map(Change::Upsert).collect(), ..Batch::default() }
}
