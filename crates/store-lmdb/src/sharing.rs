//! Exchange with other nodes: the shared set of a topic, and hints from other nodes (G-7).

use std::ops::Bound;

use kukuri_domain::{
    Event, EventId, Letter, Millis, Timestamp, TopicId,
    sharing::{FloorHint, Trace, tells_of},
};
use kukuri_store::{Item, Raised, Shared, SharedPage, SharedSet, Span, ingest::apply_hints};

use crate::{
    batch::{Batch, Committed},
    error::Result,
    grant::Grant,
    key::{self, EventNo, Order, TopicNo},
    pack::Record as _,
    record::{Cover, Row, TopicRecord},
    scan::{Candidate, Next, Scan},
    tables::{Table, View},
    traces::{self, TraceRecord},
    writer::Writer,
};

/// Rows that one read transaction looks at; large events count as several.
const STEP: usize = 4_096;

/// A page in progress. Between steps it holds a position, not a transaction.
pub(crate) struct SharedScan<'s> {
    set: &'s SharedSet,
    span: Span,
    limit: usize,
    scan: Scan,
    last: Option<Order>,
    items: Vec<Item>,
}

impl<'s> SharedScan<'s> {
    pub(crate) fn new(set: &'s SharedSet, span: Span, limit: usize, view: View<'_>) -> Result<Self> {
        let mut scan = Scan::new(EventNo(u64::MAX));
        let newest = Timestamp::MAX_IN_EVENT;
        let first =
            span.from.map_or(Order::at(newest), |from| Order::new(from.created_at.min(newest), &from.id, EventNo(0)));
        let last = Order::end_of(span.before.map_or(Timestamp(0), |before| before.created_at.min(newest)));
        if let Some(topic) = topic_no(view, &set.topic)? {
            scan.add_between(Table::ByTopic, key::prefix::topic(topic), first, last);
        }
        // Requests that name the topic and are not bound to it (T-9).
        scan.add_between(Table::ByTag, key::prefix::tag(Letter::T, set.topic.as_str()), first, last);
        Ok(Self { set, span, limit, scan, last: None, items: Vec::new() })
    }

    /// One bounded step over the topic's events. Returns whether more may be left.
    pub(crate) fn step(&mut self, view: View<'_>) -> Result<bool> {
        let mut grant = Grant::rows(STEP);
        loop {
            let Candidate { order, cover } = match self.scan.next(&mut grant, view)? {
                Next::Row(candidate) => candidate,
                Next::End => return Ok(false),
                Next::Paused => return Ok(true),
            };
            // Ids with a common prefix are read together and separated later.
            if self.items.len() > self.limit && self.last.is_some_and(|last| !last.ties_with(&order)) {
                return Ok(false);
            }
            self.look_at(order, &cover, &mut grant, view)?;
        }
    }

    fn look_at(&mut self, order: Order, cover: &Cover, grant: &mut Grant, view: View<'_>) -> Result<()> {
        if !self.set.window.reaches(cover.kind, order.created_at()) {
            return Ok(());
        }
        let Some(row) = view.row(order.no())? else { return Ok(()) };
        grant.take_event(row.json);
        let item = Item { created_at: order.created_at(), id: row.id()? };
        if !self.span.contains(&item) {
            return Ok(());
        }
        let is_plain = cover.traits.is_plain() && !cover.kind.is_request() && !may_be_protected(&row);
        if is_plain || is_shown(self.set, &row.event()?, true) {
            self.items.push(item);
            self.last = Some(order);
        }
        Ok(())
    }

    /// The page, after all events were scanned.
    pub(crate) fn finish(mut self, view: View<'_>) -> Result<SharedPage> {
        let prefix = traces::prefix(&self.set.topic);
        let first = match self.span.from {
            Some(from) => traces::key(&self.set.topic, from),
            None => prefix.to_vec(),
        };
        let entries = view.range(Table::Traces, Bound::Included(&first), Bound::Unbounded)?;
        for entry in entries.take(self.limit.saturating_add(1)) {
            let (key, record) = entry?;
            let item = Item::new(TraceRecord::unpack(record)?.trace.item());
            if !key.starts_with(&prefix) || !self.span.contains(&item) {
                break;
            }
            self.items.push(item);
        }
        Ok(SharedPage::first(self.limit, self.items))
    }
}

/// Whether an event is in a set, by what it is and, for a request, by the topics that it names.
fn is_shown(set: &SharedSet, event: &Event, is_bound: bool) -> bool {
    let is_told = if event.kind.is_request() { tells_of(event, &set.topic) } else { is_bound };
    is_told && set.window.shows(event)
}

/// A protected event has a tag that begins with these bytes, and nothing else in our JSON can. So most events need no
/// parsing.
fn may_be_protected(row: &Row<'_>) -> bool {
    row.json.windows(4).any(|bytes| bytes == br#"["-""#)
}

fn topic_no(view: View<'_>, topic: &TopicId) -> Result<Option<TopicNo>> {
    Ok(view.find::<TopicRecord>(topic.as_str().as_bytes())?.map(|record| record.no))
}

/// The event or trace that an item of a set stands for.
pub(crate) fn share(view: View<'_>, set: &SharedSet, id: &EventId) -> Result<Option<Shared>> {
    let row = view.effective_row_of(id)?;
    if let Some(row) = &row {
        let is_bound = topic_no(view, &set.topic)?.is_some_and(|topic| row.topics.contains(&topic));
        if is_shown(set, &row.event()?, is_bound) {
            return Ok(Some(Shared::Event(row.json())));
        }
    }
    Ok(match traces::find(view, &set.topic, id)? {
        Some(Trace::Request { .. }) => row.map(|row| Shared::Event(row.json())),
        Some(Trace::Hint(hint)) => Some(Shared::Hint(hint)),
        None => None,
    })
}

impl Writer {
    pub(crate) fn raise_floors(&mut self, topic: &TopicId, hints: &[FloorHint], now: Millis) -> Result<Raised> {
        let mut batch = Batch::begin(self.context(), now)?;
        let outcomes = apply_hints(&mut batch, topic, hints)?;
        let Committed { stages, head, .. } = self.commit(batch)?;
        Ok(Raised { outcomes, head, stages })
    }
}
