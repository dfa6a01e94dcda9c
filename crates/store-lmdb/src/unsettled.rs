//! What is acknowledged and not committed yet, for those who read: a transaction shows nothing of it (W-9).

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
};

use kukuri_domain::{Admitted, EventId};
use kukuri_store::{Op, OutboxRow, Query, Seq};

use crate::writer::locked;

/// More events than this are not compared with a query one by one.
const FEW: usize = 128;

/// Shared by the writer, who adds to it, and everybody who reads.
#[derive(Default)]
pub(crate) struct Unsettled(Mutex<Changes>);

#[derive(Default)]
struct Changes {
    events: Vec<Admitted>,
    rows: Vec<OutboxRow>,
    /// Of what came in and of what it took away.
    ids: HashSet<EventId>,
    takes_away: bool,
}

impl Unsettled {
    pub(crate) fn add(&self, events: &[Admitted], rows: Vec<OutboxRow>) {
        let mut changes = self.changes();
        changes.takes_away |= rows.iter().any(|row| row.op != Op::Upsert);
        changes.ids.extend(rows.iter().map(|row| row.event_id));
        changes.ids.extend(events.iter().map(|event| event.event().id));
        changes.events.extend_from_slice(events);
        changes.rows.extend(rows);
    }

    /// All of it is committed.
    pub(crate) fn clear(&self) {
        *self.changes() = Changes::default();
    }

    /// Whether there is anything.
    pub(crate) fn is_some(&self) -> bool {
        !self.changes().events.is_empty()
    }

    /// If no answer to a query depends on it: the row up to which that holds.
    pub(crate) fn passed_over(&self, query: &Query) -> Option<Seq> {
        let changes = self.changes();
        let matches =
            |event: &Admitted| query.filters.iter().any(|filter| filter.matches(event.event(), event.topics()));
        let concerned = changes.takes_away || changes.events.len() > FEW || changes.events.iter().any(matches);
        (!concerned).then(|| changes.rows.last().map_or(Seq::default(), |row| row.seq))
    }

    /// Whether it changes what one of these is.
    pub(crate) fn concerns_ids(&self, ids: &[EventId]) -> bool {
        let changes = self.changes();
        !changes.ids.is_empty() && ids.iter().any(|id| changes.ids.contains(id))
    }

    /// Its rows of the outbox after this one, no more than `limit`; and whether they are all there is after it.
    pub(crate) fn rows_after(&self, after: Seq, limit: usize) -> (Vec<OutboxRow>, bool) {
        let changes = self.changes();
        let first = changes.rows.partition_point(|row| row.seq <= after);
        let is_all = changes.rows.first().is_some_and(|row| row.seq <= after.next());
        (changes.rows[first..].iter().take(limit).cloned().collect(), is_all)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        locked(&self.0)
    }
}
