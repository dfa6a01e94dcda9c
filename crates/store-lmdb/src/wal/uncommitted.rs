//! The pending records of the WAL as readers see them: LMDB shows nothing of them before the commit (W-9).

use std::collections::HashSet;

use kukuri_domain::{Admitted, EventId, TopicId};
use kukuri_store::{Op, OutboxRow, Query, Seq};
use parking_lot::Mutex;

/// With more pending events than this, a query has them committed without comparing each one.
const MAX_COMPARED_EVENTS: usize = 128;

/// In-memory view of the pending records. The writer adds to it; readers consult it.
#[derive(Default)]
pub(crate) struct Uncommitted(Mutex<Changes>);

#[derive(Default)]
struct Changes {
    events: Vec<Admitted>,
    rows: Vec<OutboxRow>,
    /// Ids of stored and of retired events.
    ids: HashSet<EventId>,
    retires: bool,
}

impl Uncommitted {
    pub(crate) fn add(&self, events: &[Admitted], rows: Vec<OutboxRow>) {
        let mut changes = self.0.lock();
        changes.retires |= rows.iter().any(|row| row.op != Op::Upsert);
        changes.ids.extend(rows.iter().map(|row| row.event_id));
        changes.ids.extend(events.iter().map(|event| event.event().id));
        changes.events.extend_from_slice(events);
        changes.rows.extend(rows);
    }

    /// Call it when all records are committed.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Changes::default();
    }

    /// Whether any record is pending.
    pub(crate) fn is_some(&self) -> bool {
        !self.0.lock().events.is_empty()
    }

    /// If no pending record changes the answer to a query: the outbox row up to which the answer holds.
    pub(crate) fn unaffected_until(&self, query: &Query) -> Option<Seq> {
        let changes = self.0.lock();
        let matches = |event: &Admitted| {
            // A request that names no known topic is bound to `kukuri:global` (T-9).
            let global = event.event().kind.is_request().then(TopicId::global);
            query.filters.iter().any(|filter| {
                filter.matches(event.event(), event.topics()) || filter.matches(event.event(), global.as_slice())
            })
        };
        let is_affected =
            changes.retires || changes.events.len() > MAX_COMPARED_EVENTS || changes.events.iter().any(matches);
        (!is_affected).then(|| changes.rows.last().map_or(Seq::default(), |row| row.seq))
    }

    /// Whether a pending record changes what one of these topics holds.
    pub(crate) fn affects_topics(&self, topics: &[TopicId]) -> bool {
        let changes = self.0.lock();
        changes.rows.iter().any(|row| topics.contains(&row.topic))
    }

    /// Whether a pending record changes the state of one of these ids.
    pub(crate) fn affects_ids(&self, ids: &[EventId]) -> bool {
        let changes = self.0.lock();
        !changes.ids.is_empty() && ids.iter().any(|id| changes.ids.contains(id))
    }

    /// Pending outbox rows after this one, no more than `limit`; and whether LMDB has none to add.
    pub(crate) fn rows_after(&self, after: Seq, limit: usize) -> (Vec<OutboxRow>, bool) {
        let changes = self.0.lock();
        let first = changes.rows.partition_point(|row| row.seq <= after);
        let is_all = changes.rows.first().is_some_and(|row| row.seq <= after.next());
        (changes.rows[first..].iter().take(limit).cloned().collect(), is_all)
    }
}
