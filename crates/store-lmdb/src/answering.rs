//! Answers to queries within their budget (Y-2).
//!
//! A first attempt looks at a few rows, in one transaction on the caller's thread: most queries are answered by it. A query
//! that needs more waits for a permit and is read again from the start, on a thread that may block: a costly query holds no
//! thread that events are published on (Y-4). Planning a filter and opening its ranges count like rows: see `grant`.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use kukuri_domain::{EventId, Filter, PublicKey, Sketch, Timestamp};
use kukuri_store::{Answer, Completeness, Count, Query, Seq, StoreError, StoredEvent};

use crate::{
    error::Result,
    grant::Grant,
    key::{EventNo, Order},
    query::{self, FilterScan, Part},
    tables::{Tables, View},
};

/// Rows that the first attempt looks at: enough to find and read the newest 500 events of a hundred authors.
const QUICK_ROWS: usize = 1_280;
/// Ranges of one filter that the first attempt opens.
const MAX_QUICK_RANGES: usize = 256;
/// Rows that one read transaction looks at, for all filters of a query together.
const TRANSACTION_ROWS: usize = 4_096;

/// How much an attempt to answer a query does.
#[derive(Clone, Copy)]
pub(crate) enum Effort<'c> {
    /// [`QUICK_ROWS`] in one transaction, and no filter of more than [`MAX_QUICK_RANGES`].
    Quick,
    /// As much as the budget allows, unless the flag is set.
    Full(&'c AtomicBool),
}

/// What happens to a scan whose budget is spent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenSpent {
    /// The query fails.
    Fail,
    /// The rows found so far are kept.
    Keep,
}

/// The end of the scans of a query.
struct Scanned {
    /// The head of the outbox at the first transaction.
    head: Seq,
    /// If the budget was spent: of the places where scans ended early, the newest.
    frontier: Option<Order>,
}

/// The part of the budget that one filter has: an equal share of what is left.
struct Allowance {
    rows: usize,
    until: Option<Instant>,
    has_begun: bool,
    is_spent: bool,
}

impl Allowance {
    fn of(query: &Query, rows_left: usize, filters_left: usize) -> Self {
        let until = query.budget.deadline.map(|deadline| {
            let now = Instant::now();
            now + deadline.saturating_duration_since(now) / u32::try_from(filters_left).unwrap_or(u32::MAX).max(1)
        });
        Self { rows: (rows_left / filters_left.max(1)).max(1), until, has_begun: false, is_spent: false }
    }

    /// A filter gets one step, however late it is.
    fn is_used_up(&self) -> bool {
        self.rows == 0 || (self.has_begun && self.until.is_some_and(|until| Instant::now() >= until))
    }
}

/// The events that answer a query. `None`: the effort was too little.
pub(crate) fn query(tables: &Tables, query: &Query, effort: Effort<'_>) -> Result<Option<Answer>> {
    let (mut events, mut cuts) = (Vec::new(), Vec::new());
    let advance = |scan: &mut FilterScan<'_, StoredEvent>, grant: &mut Grant, view: View<'_>| {
        let is_done = scan.step(grant, view)? && scan.read_found(grant, view)?;
        if is_done {
            let (found, cut) = scan.finish(|event| event.id);
            events.extend(found);
            cuts.extend(cut);
        }
        Ok(is_done)
    };
    let Some(scanned) = scan(tables, query, Filter::limit, effort, WhenSpent::Keep, advance)? else { return Ok(None) };
    let mut rest = query::rest(&cuts, &events);
    if let Some(frontier) = scanned.frontier {
        // Behind the frontier another filter may have found only some of the matches (W-1).
        events.retain(|(order, _): &(Order, _)| *order < frontier && !order.ties_with(&frontier));
        if events.is_empty() {
            return Err(StoreError::TooCostly.into());
        }
        rest = Completeness::BudgetSpent;
    }
    let mut events: Vec<StoredEvent> = events.into_iter().map(|(_, event)| event).collect();
    if query.filters.len() > 1 {
        events.sort_by(|left, right| right.created_at.cmp(&left.created_at).then(left.id.cmp(&right.id)));
        events.dedup_by_key(|event| event.id);
    }
    Ok(Some(Answer { seq: scanned.head, events, rest }))
}

/// Time and id of events, lowest first. `None`: more than were asked for.
type Ids = Option<Vec<(Timestamp, EventId)>>;

/// Time and id of the events that answer a query, at most `max`. `None`: the effort was too little.
pub(crate) fn ids(tables: &Tables, query: &Query, max: usize, effort: Effort<'_>) -> Result<Option<Ids>> {
    let (mut all, mut is_over) = (Vec::new(), false);
    let advance = |scan: &mut FilterScan<'_, EventId>, grant: &mut Grant, view: View<'_>| {
        if is_over {
            return Ok(true);
        }
        let is_scanned = scan.step(grant, view)?;
        is_over = scan.count() > max;
        if is_over || !(is_scanned && scan.read_found(grant, view)?) {
            return Ok(is_over);
        }
        let (found, _) = scan.finish(|id| *id);
        all.extend(found.into_iter().map(|(order, id)| (order.created_at(), id)));
        all.sort_unstable();
        all.dedup();
        is_over = all.len() > max;
        Ok(true)
    };
    let scanned = scan(tables, query, Filter::limit, effort, WhenSpent::Fail, advance)?;
    Ok(scanned.map(|_| (!is_over).then_some(all)))
}

/// The number of events that match, ignoring limits. `None`: the effort was too little.
pub(crate) fn count(
    tables: &Tables,
    query: &Query,
    mut sketch: Option<Sketch>,
    effort: Effort<'_>,
) -> Result<Option<Count>> {
    let is_single = query.filters.len() == 1;
    let (mut count, mut numbers, mut noted) = (0, Vec::new(), HashSet::new());
    let advance = |scan: &mut FilterScan<'_, PublicKey>, grant: &mut Grant, view: View<'_>| {
        let is_done = scan.step(grant, view)?;
        count += scan.count() as u64;
        if let Some(sketch) = &mut sketch {
            scan.note_authors(&mut noted, sketch, view)?;
        }
        if !is_single {
            numbers.extend(scan.numbers());
        }
        scan.clear();
        if is_done {
            // An event that several filters match counts once, and is held once.
            numbers.sort_unstable();
            numbers.dedup();
        }
        Ok(is_done)
    };
    let scanned = scan(tables, query, |_| None, effort, WhenSpent::Fail, advance)?;
    let events = if is_single { count } else { numbers.len() as u64 };
    Ok(scanned.map(|_| Count { events, sketch }))
}

/// Scans the filters of a query one after the other. `advance` continues a filter's scan within a grant, and returns whether
/// the filter is done. `None`: the effort was too little.
fn scan<'q, P: Part>(
    tables: &Tables,
    query: &'q Query,
    limit: fn(&Filter) -> Option<usize>,
    effort: Effort<'_>,
    when_spent: WhenSpent,
    advance: impl FnMut(&mut FilterScan<'q, P>, &mut Grant, View<'_>) -> Result<bool>,
) -> Result<Option<Scanned>> {
    let plan = |filter: &'q Filter, newest: EventNo, grant: &mut Grant, view: View<'_>| {
        // A filter without a limit gets everything (W-1).
        FilterScan::plan(filter, query, newest, limit(filter).unwrap_or(usize::MAX), grant, view)
    };
    match effort {
        Effort::Quick => scan_once(tables, query, plan, advance),
        Effort::Full(is_cancelled) => scan_in_steps(tables, query, is_cancelled, when_spent, plan, advance),
    }
}

/// Scans within one transaction.
fn scan_once<'q, P: Part>(
    tables: &Tables,
    query: &'q Query,
    plan: impl Fn(&'q Filter, EventNo, &mut Grant, View<'_>) -> Result<Option<FilterScan<'q, P>>>,
    mut advance: impl FnMut(&mut FilterScan<'q, P>, &mut Grant, View<'_>) -> Result<bool>,
) -> Result<Option<Scanned>> {
    tables.read(|view| {
        let node = view.node()?;
        let mut grant = Grant::rows(QUICK_ROWS.min(query.budget.rows)).with_max_ranges(MAX_QUICK_RANGES);
        for filter in &query.filters {
            let Some(mut scan) = plan(filter, node.last_event, &mut grant, view)? else { return Ok(None) };
            if !advance(&mut scan, &mut grant, view)? {
                return Ok(None);
            }
        }
        Ok(Some(Scanned { head: node.head, frontier: None }))
    })
}

/// Scans in read transactions of bounded length, as far as the budget allows. A query that one transaction answers sees one
/// snapshot; a longer one may lack events retired meanwhile. Events newer than the first transaction are left out.
fn scan_in_steps<'q, P: Part>(
    tables: &Tables,
    query: &'q Query,
    is_cancelled: &AtomicBool,
    when_spent: WhenSpent,
    plan: impl Fn(&'q Filter, EventNo, &mut Grant, View<'_>) -> Result<Option<FilterScan<'q, P>>>,
    mut advance: impl FnMut(&mut FilterScan<'q, P>, &mut Grant, View<'_>) -> Result<bool>,
) -> Result<Option<Scanned>> {
    let (mut begun, mut current, mut planned, mut frontier) = (None, 0, None, None);
    let (mut rows_left, mut allowance) = (query.budget.rows, None);
    while !is_cancelled.load(Relaxed) {
        let (head, is_done) = tables.read(|view| {
            let (head, newest) = match begun {
                Some(begun) => begun,
                None => {
                    let node = view.node()?;
                    *begun.insert((node.head, node.last_event))
                }
            };
            let mut transaction = Grant::rows(TRANSACTION_ROWS);
            while let Some(filter) = query.filters.get(current) {
                if transaction.is_used_up() {
                    return Ok((head, false));
                }
                let filters_left = query.filters.len() - current;
                let share = allowance.get_or_insert_with(|| Allowance::of(query, rows_left, filters_left));
                let Some(scan) = &mut planned else {
                    // A filter is planned when its turn comes, so that the plans of one query are not all held at once.
                    let mut grant = Grant::rows(share.rows);
                    planned = plan(filter, newest, &mut grant, view)?;
                    if planned.is_none() {
                        return Err(StoreError::TooCostly.into());
                    }
                    let used = share.rows - grant.left();
                    transaction.take(used);
                    rows_left = rows_left.saturating_sub(used);
                    share.rows -= used;
                    continue;
                };
                if !share.is_spent && share.is_used_up() {
                    share.is_spent = true;
                    if !scan.is_scanned() && when_spent == WhenSpent::Fail {
                        return Err(StoreError::TooCostly.into());
                    }
                    if !scan.is_scanned() {
                        let ended = scan.end_scan();
                        frontier = Some(frontier.map_or(ended, |newest: Order| newest.min(ended)));
                    }
                }
                // What was found is read in any case: the limits of the query bound it.
                let granted = if share.is_spent { transaction.left() } else { transaction.left().min(share.rows) };
                let mut grant = Grant::rows(granted);
                let is_done = advance(scan, &mut grant, view)?;
                let used = granted - grant.left();
                transaction.take(used);
                if !share.is_spent {
                    rows_left = rows_left.saturating_sub(used);
                    share.rows = share.rows.saturating_sub(used);
                }
                share.has_begun = true;
                if is_done {
                    current += 1;
                    (planned, allowance) = (None, None);
                }
            }
            Ok((head, true))
        })?;
        if is_done {
            return Ok(Some(Scanned { head, frontier }));
        }
    }
    Ok(None)
}
