//! Answering filters: what an index row already shows, and when the event must be looked at.

use heed::RoTxn;
use kukuri_domain::Filter;
use kukuri_store::{Query, Rest, StoredEvent};

use crate::{
    error::Result,
    key::{EventNo, Order},
    plan::{Plan, Way},
    reading::Names,
    record::{Cover, Row},
    scan::Candidate,
    tables::{Table, Tables},
};

/// How many rows are looked at before the transaction is given back.
const STEP: usize = 4_096;

/// One filter being answered.
pub(crate) struct FilterScan<'q> {
    filter: &'q Filter,
    query: &'q Query,
    plan: Plan,
    /// Found rows, best first; those at the end may still have to be sorted by their full ids.
    found: Vec<Found>,
    limit: usize,
    cut: Option<Cut>,
}

/// The limit has ended the answer to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before this row, which matches.
    Before(Order),
    /// Whether it left anything out would take more reading to tell.
    Somewhere,
}

/// The answer to one filter.
pub(crate) struct Finished {
    pub(crate) events: Vec<(Order, StoredEvent)>,
    pub(crate) cut: Option<Cut>,
}

/// What the answers to all filters of a query leave out together: what one had to cut off, another may have sent.
pub(crate) fn rest(cuts: &[Cut], sent: &[(Order, StoredEvent)]) -> Rest {
    let is_left_out = |cut: &Cut| matches!(cut, Cut::Before(row) if sent.iter().all(|(order, _)| order != row));
    match cuts {
        [] => Rest::None,
        cuts if cuts.iter().any(is_left_out) => Rest::More,
        _ => Rest::Unknown,
    }
}

/// A row that answers, with its event if that was needed to tell.
pub(crate) struct Found {
    pub(crate) candidate: Order,
    pub(crate) event: Option<StoredEvent>,
}

impl<'q> FilterScan<'q> {
    pub(crate) fn new(
        filter: &'q Filter,
        query: &'q Query,
        newest: EventNo,
        limit: usize,
        tables: &Tables,
        txn: &RoTxn<'_>,
    ) -> Result<Self> {
        let (plan, cut) = match limit {
            _ if filter.is_empty() => (Plan::nothing(), None),
            0 => (Plan::nothing(), Some(Cut::Somewhere)),
            _ => (Plan::choose(filter, newest, tables, txn)?, None),
        };
        Ok(Self { filter, query, plan, found: Vec::new(), limit, cut })
    }

    /// Goes on for a while. Returns whether it has come to its end.
    pub(crate) fn step(&mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<bool> {
        if let Way::Rows(rows) = &mut self.plan.way {
            let rows = std::mem::take(rows);
            self.look_at_rows(&rows, tables, txn)?;
            return Ok(true);
        }
        for _ in 0..STEP {
            let Way::Scan(scan) = &mut self.plan.way else { return Ok(true) };
            let Some(candidate) = scan.next(tables, txn)? else { return Ok(true) };
            // Past the limit only events that tie with the last one can still come before it.
            if self.found.len() >= self.limit
                && self.found.last().is_none_or(|last| !last.candidate.ties_with(&candidate.order))
            {
                let is_sure = self.may_match(&candidate.cover) == Some(false);
                self.cut = Some(if is_sure { Cut::Before(candidate.order) } else { Cut::Somewhere });
                return Ok(true);
            }
            self.look_at(&candidate, tables, txn)?;
        }
        Ok(false)
    }

    fn look_at(&mut self, candidate: &Candidate, tables: &Tables, txn: &RoTxn<'_>) -> Result<()> {
        let Some(needs_event) = self.may_match(&candidate.cover) else { return Ok(()) };
        let event = if needs_event {
            let Some(event) = self.matching_event(candidate.order.no(), tables, txn)? else { return Ok(()) };
            Some(event)
        } else {
            None
        };
        self.found.push(Found { candidate: candidate.order, event });
        Ok(())
    }

    /// What an index row shows: `None`, it does not match; else whether the event must be looked at to be sure.
    fn may_match(&self, cover: &Cover) -> Option<bool> {
        let kinds = self.filter.kinds();
        let kind_fits = kinds.is_none_or(|kinds| kinds.binary_search(&cover.kind).is_ok());
        let is_hidden = cover.kind.is_private() && self.query.viewer.is_stranger();
        if !kind_fits || is_hidden {
            return None;
        }
        let needs_event = self.plan.may_match(cover)?;
        Some(needs_event || !cover.traits.is_plain())
    }

    /// The event of a row, if it is there, matches, and may be shown.
    fn matching_event(&self, no: EventNo, tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<StoredEvent>> {
        let Some(record) = tables.get(txn, Table::Events, &no.key())? else { return Ok(None) };
        let row = Row::unpack(record)?;
        if !row.is_effective() {
            return Ok(None);
        }
        if row.traits.is_plain() && self.filter.is_ids_only() {
            return stored(&row).map(Some);
        }
        let event = row.event()?;
        let names = Names::new(tables, txn);
        let topics = row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<Vec<_>>>()?;
        let shows = self.filter.matches(&event, &topics)
            && self.query.viewer.may_see(&event)
            && !event.is_expired(self.query.now);
        Ok(shows.then(|| StoredEvent { id: event.id, created_at: event.created_at, json: row.json() }))
    }

    fn look_at_rows(&mut self, rows: &[EventNo], tables: &Tables, txn: &RoTxn<'_>) -> Result<()> {
        for no in rows {
            if let Some(event) = self.matching_event(*no, tables, txn)? {
                let candidate = Order::new(event.created_at, &event.id, *no);
                self.found.push(Found { candidate, event: Some(event) });
            }
        }
        self.found.sort_unstable_by_key(|found| found.candidate);
        Ok(())
    }

    /// The rows that answer, in order, no more than the limit; and what that limit has cut off.
    pub(crate) fn finish(mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<Finished> {
        let mut events = Vec::with_capacity(self.found.len());
        for found in self.found.drain(..) {
            let event = match found.event {
                Some(event) => Some(event),
                None => plain_event(found.candidate.no(), tables, txn)?,
            };
            events.extend(event.map(|event| (found.candidate, event)));
        }
        sort_ties(&mut events);
        let first_over = events.get(self.limit).map(|(order, _)| Cut::Before(*order));
        events.truncate(self.limit);
        Ok(Finished { events, cut: first_over.or(self.cut) })
    }

    /// How many rows answer.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// The row numbers that answer.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = EventNo> + '_ {
        self.found.iter().map(|found| found.candidate.no())
    }

    /// Forgets what was found, to count on without growing.
    pub(crate) fn clear(&mut self) {
        self.found.clear();
    }
}

/// Puts events of one second whose ids agree in their first bytes into the order of their full ids.
fn sort_ties(events: &mut [(Order, StoredEvent)]) {
    let runs = events.chunk_by_mut(|left, right| left.0.ties_with(&right.0));
    runs.filter(|run| run.len() > 1).for_each(|run| run.sort_unstable_by_key(|(_, event)| event.id));
}

/// An effective event whose index row has shown that it answers.
fn plain_event(no: EventNo, tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<StoredEvent>> {
    // It may have left between two steps.
    let Some(record) = tables.get(txn, Table::Events, &no.key())? else { return Ok(None) };
    let row = Row::unpack(record)?;
    if !row.is_effective() {
        return Ok(None);
    }
    stored(&row).map(Some)
}

pub(crate) fn stored(row: &Row<'_>) -> Result<StoredEvent> {
    let event = StoredEvent { id: row.id()?, created_at: row.created_at()?, json: row.json() };
    Ok(event)
}
