//! The scan of one filter: conditions are checked on the index row where possible, else on the event.

use std::collections::{HashSet, VecDeque};

use kukuri_domain::{EventId, Filter, PublicKey, Sketch};
use kukuri_store::{Completeness, Query, StoredEvent};

use crate::{
    error::Result,
    grant::Grant,
    key::{AuthorNo, EventNo, Order},
    plan::{self, AccessPath, AuthorScan, Plan},
    record::{Cover, Row},
    scan::{Candidate, Next},
    tables::View,
};

/// The part of a matching event that a query reads.
pub(crate) trait Part: Sized {
    fn from_row(row: &Row<'_>) -> Result<Self>;

    /// Bytes of JSON that it holds.
    fn bytes(&self) -> usize {
        0
    }
}

impl Part for StoredEvent {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self { id: row.id()?, created_at: row.created_at()?, json: row.json() })
    }

    fn bytes(&self) -> usize {
        self.json.len()
    }
}

impl Part for EventId {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.id()
    }
}

impl Part for PublicKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.pubkey()
    }
}

/// The scan of one filter in progress.
pub(crate) struct FilterScan<'q, P> {
    filter: &'q Filter,
    query: &'q Query,
    /// Rows above this one are skipped.
    newest: EventNo,
    plan: Plan,
    /// Matching rows, best first; the last ones may still have to be sorted by their full ids.
    found: VecDeque<Found<P>>,
    /// Whether all matching rows are found.
    is_scanned: bool,
    /// Matching rows that were read, in order.
    read: Vec<(Order, P)>,
    limit: usize,
    /// Bytes of JSON: the share of the answer that this filter may use, found so far, read so far.
    share: usize,
    found_bytes: usize,
    read_bytes: usize,
    cut: Option<Cut>,
}

/// A matching row.
struct Found<P> {
    order: Order,
    data: RowData<P>,
}

/// The data at hand after a row was checked.
enum RowData<P> {
    /// The index row was enough. It names the author, by number.
    Index(AuthorNo),
    /// The event was read.
    Event(P),
    /// The event was read, but the bytes are used up: it is read again if it is needed.
    Large,
}

/// Where a limit ended the answer to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before this matching row.
    Before(Order),
    /// Unknown without more reading whether anything was left out.
    Somewhere,
}

/// Whether all answers of a query together leave anything out: an event cut off from one may be in another.
pub(crate) fn rest<P>(cuts: &[Cut], sent: &[(Order, P)]) -> Completeness {
    let is_left_out = |cut: &Cut| matches!(cut, Cut::Before(row) if sent.iter().all(|(order, _)| order != row));
    match cuts {
        [] => Completeness::Complete,
        cuts if cuts.iter().any(is_left_out) => Completeness::Truncated,
        _ => Completeness::Unknown,
    }
}

impl<'q, P: Part> FilterScan<'q, P> {
    /// Plans the scan of a filter. `None`: the filter names more than the grant can look up.
    pub(crate) fn plan(
        filter: &'q Filter,
        query: &'q Query,
        newest: EventNo,
        limit: usize,
        grant: &mut Grant,
        view: View<'_>,
    ) -> Result<Option<Self>> {
        let (plan, cut) = match limit {
            _ if filter.is_empty() => (Plan::nothing(), None),
            0 => (Plan::nothing(), Some(Cut::Somewhere)),
            _ if plan::lookups(filter) > grant.left() => return Ok(None),
            _ => (Plan::choose(filter, newest, AuthorScan::Allowed, grant, view)?, None),
        };
        let share = query.share();
        Ok(Some(Self {
            filter,
            query,
            newest,
            plan,
            found: VecDeque::new(),
            is_scanned: false,
            read: Vec::new(),
            limit,
            share,
            found_bytes: 0,
            read_bytes: 0,
            cut,
        }))
    }

    /// Scans for matching rows, within the grant. Returns whether all are found.
    pub(crate) fn step(&mut self, grant: &mut Grant, view: View<'_>) -> Result<bool> {
        while !self.is_scanned {
            if grant.is_used_up() {
                return Ok(false);
            }
            match &mut self.plan.access_path {
                AccessPath::Rows(listed) => match listed.pop() {
                    Some(no) => self.check_row(no, grant, view)?,
                    None => {
                        self.found.make_contiguous().sort_unstable_by_key(|found| found.order);
                        self.is_scanned = true;
                    }
                },
                AccessPath::Scan(scan) => match scan.next(grant, view)? {
                    Next::Row(candidate) if !self.is_past_limit(&candidate) => {
                        self.check_candidate(&candidate, grant, view)?;
                    }
                    Next::Row(_) | Next::End => self.is_scanned = true,
                    Next::Paused if self.plan.has_too_many_ranges() => {
                        self.plan = Plan::choose(self.filter, self.newest, AuthorScan::TooManyRanges, grant, view)?;
                    }
                    Next::Paused => return Ok(false),
                },
            }
        }
        Ok(true)
    }

    /// Number of ranges known so far.
    #[cfg(test)]
    pub(crate) fn ranges(&self) -> usize {
        match &self.plan.access_path {
            AccessPath::Scan(scan) => scan.len(),
            AccessPath::Rows(_) => 0,
        }
    }

    /// Whether all matching rows are found.
    pub(crate) fn is_scanned(&self) -> bool {
        self.is_scanned
    }

    /// Ends the scan early. Returns the place up to which all matching rows are found.
    pub(crate) fn end_scan(&mut self) -> Order {
        self.is_scanned = true;
        match &self.plan.access_path {
            AccessPath::Scan(scan) => scan.reached(),
            AccessPath::Rows(_) => Order::FIRST,
        }
    }

    /// Past the limit, only events that tie with the last one can still come before it.
    fn is_past_limit(&mut self, candidate: &Candidate) -> bool {
        if self.found.len() < self.limit || self.found.back().is_some_and(|last| last.order.ties_with(&candidate.order))
        {
            return false;
        }
        let is_sure = self.may_match(&candidate.cover) == Some(false);
        self.cut = Some(if is_sure { Cut::Before(candidate.order) } else { Cut::Somewhere });
        true
    }

    fn check_candidate(&mut self, candidate: &Candidate, grant: &mut Grant, view: View<'_>) -> Result<()> {
        let Some(needs_event) = self.may_match(&candidate.cover) else { return Ok(()) };
        let order = candidate.order;
        if !needs_event {
            self.found.push_back(Found { order, data: RowData::Index(candidate.cover.author) });
            return Ok(());
        }
        let Some(row) = view.effective_row(order.no())? else { return Ok(()) };
        grant.take_event(row.json);
        if self.matches(&row, view)? {
            self.push_match(order, &row)?;
        }
        Ok(())
    }

    /// Adds a matching row whose event was read.
    fn push_match(&mut self, order: Order, row: &Row<'_>) -> Result<()> {
        let data = if self.found_bytes <= self.share {
            let part = P::from_row(row)?;
            self.found_bytes += part.bytes();
            RowData::Event(part)
        } else {
            RowData::Large
        };
        self.found.push_back(Found { order, data });
        Ok(())
    }

    /// Checks an index row. `None`: no match; else whether the event must be read to decide.
    fn may_match(&self, cover: &Cover) -> Option<bool> {
        let kinds = self.filter.kinds();
        let kind_fits = kinds.is_none_or(|kinds| kinds.binary_search(&cover.kind).is_ok());
        let is_hidden = cover.kind.is_private() && self.query.viewer.is_unauthenticated();
        if !kind_fits || is_hidden {
            return None;
        }
        let needs_event = self.plan.may_match(cover)?;
        Some(needs_event || !cover.traits.is_plain() || self.query.visibility.has_overlay())
    }

    /// Whether the event of a row matches the filter and is visible to the viewer.
    fn matches(&self, row: &Row<'_>, view: View<'_>) -> Result<bool> {
        if row.traits.is_plain()
            && !self.query.visibility.has_overlay()
            && let Some(topics_fit) = self.plan.topics_fit(&row.topics)
            // A request may name topics that it is not bound to (T-9).
            && (topics_fit || !row.time_and_kind()?.1.is_request())
        {
            return Ok(topics_fit && self.head_matches(row)?);
        }
        let event = row.event()?;
        let topics = view.topic_ids(&row.topics)?;
        Ok(self.filter.matches(&event, &topics)
            && self.query.shows(&event, &topics, self.filter)
            && !event.is_expired(self.query.now))
    }

    /// Whether the head of an event matches the filter. Ignores tags.
    fn head_matches(&self, row: &Row<'_>) -> Result<bool> {
        fn listed<T: Ord>(list: Option<&[T]>, value: &T) -> bool {
            list.is_none_or(|list| list.binary_search(value).is_ok())
        }
        let (created_at, kind) = row.time_and_kind()?;
        Ok(self.filter.window().contains(&created_at)
            && listed(self.filter.kinds(), &kind)
            && listed(self.filter.ids(), &row.id()?)
            && listed(self.filter.authors(), &row.pubkey()?))
    }

    fn check_row(&mut self, no: EventNo, grant: &mut Grant, view: View<'_>) -> Result<()> {
        let Some(row) = view.effective_row(no)? else { return Ok(()) };
        grant.take_event(row.json);
        if self.matches(&row, view)? {
            let order = Order::new(row.created_at()?, &row.id()?, no);
            self.push_match(order, &row)?;
        }
        Ok(())
    }

    /// Matching rows so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len().min(self.limit)
    }

    /// Row numbers of the matching rows.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = EventNo> + '_ {
        self.found.iter().map(|found| found.order.no())
    }

    /// Drops the matching rows, so that counting takes constant memory.
    pub(crate) fn clear(&mut self) {
        self.found.clear();
    }

    /// Reads matching rows, within the grant. Returns whether nothing is left. Their size costs nothing: they are not parsed,
    /// and the bytes of the answer bound it.
    pub(crate) fn read_found(&mut self, grant: &mut Grant, view: View<'_>) -> Result<bool> {
        self.read.reserve(self.count());
        while !grant.is_used_up() {
            let Some(Found { order, data }) = self.found.pop_front() else { return Ok(true) };
            grant.take(1);
            let part = match data {
                RowData::Event(part) => Some(part),
                // The event may have been retired since it was found, by an earlier transaction.
                RowData::Index(_) | RowData::Large => {
                    view.effective_row(order.no())?.map(|row| P::from_row(&row)).transpose()?
                }
            };
            let Some(part) = part else { continue };
            self.read_bytes += part.bytes();
            if self.read_bytes > self.share && !self.read.is_empty() {
                self.cut = Some(Cut::Before(order));
                self.found.clear();
                return Ok(true);
            }
            self.read.push((order, part));
        }
        Ok(self.found.is_empty())
    }

    /// The matching events, in order and within the limit, and whether that leaves anything out.
    pub(crate) fn finish(&mut self, id: impl Fn(&P) -> EventId) -> (Vec<(Order, P)>, Option<Cut>) {
        let mut read = std::mem::take(&mut self.read);
        sort_ties(&mut read, id);
        let first_over = read.get(self.limit).map(|(order, _)| Cut::Before(*order));
        read.truncate(self.limit);
        (read, first_over.or(self.cut))
    }
}

impl FilterScan<'_, PublicKey> {
    /// Collects the authors of the matching rows. Reads each author's key once, however many events match.
    pub(crate) fn note_authors(
        &self,
        noted: &mut HashSet<AuthorNo>,
        sketch: &mut Sketch,
        view: View<'_>,
    ) -> Result<()> {
        for found in &self.found {
            match &found.data {
                RowData::Event(author) => sketch.add(author),
                // Public keys hold no JSON, so the byte bound never applies.
                RowData::Large => {}
                RowData::Index(no) if noted.contains(no) => {}
                RowData::Index(no) => {
                    let Some(row) = view.effective_row(found.order.no())? else { continue };
                    sketch.add(&row.pubkey()?);
                    noted.insert(*no);
                }
            }
        }
        Ok(())
    }
}

/// Sorts events of one second whose ids share their first bytes by their full ids.
fn sort_ties<P>(parts: &mut [(Order, P)], id: impl Fn(&P) -> EventId) {
    let runs = parts.chunk_by_mut(|left, right| left.0.ties_with(&right.0));
    runs.filter(|run| run.len() > 1).for_each(|run| run.sort_unstable_by_key(|(_, part)| id(part)));
}
