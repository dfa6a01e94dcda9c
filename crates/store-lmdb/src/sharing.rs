//! Exchange with other nodes: the shared set of a topic, and hints from other nodes (G-7).

use std::ops::Bound;

use heed::RoTxn;
use kukuri_domain::{
    EventId, Kind, Millis, TopicId,
    sharing::{FloorHint, Trace},
};
use kukuri_store::{Item, Raised, Shared, SharedPage, SharedSet, Span, ingest::apply_hints};

use crate::{
    batch::{Batch, Committed},
    error::{Result, engine},
    key::{self, EventNo, Order, TopicNo},
    lookup::row_of,
    record::{Cover, Row, TopicRecord},
    tables::{Table, Tables},
    traces,
    writer::Writer,
};

/// Index rows that one read transaction scans.
const STEP: usize = 4_096;

/// A page in progress. Between steps it holds a position, not a transaction.
pub(crate) struct SharedScan<'s> {
    set: &'s SharedSet,
    span: Span,
    most: usize,
    /// Key of the last index row that was scanned.
    after: Option<Vec<u8>>,
    last: Option<Order>,
    items: Vec<Item>,
}

impl<'s> SharedScan<'s> {
    pub(crate) fn new(set: &'s SharedSet, span: Span, most: usize) -> Self {
        Self { set, span, most, after: None, last: None, items: Vec::new() }
    }

    /// One bounded step over the topic's events. Returns whether more may be left.
    pub(crate) fn step(&mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<bool> {
        let Some(topic) = topic_no(tables, txn, &self.set.topic)? else { return Ok(false) };
        let prefix = key::prefix::topic(topic);
        let start = match &self.after {
            Some(after) => Bound::Excluded(after.clone()),
            None => Bound::Included(self.first_key(&prefix)),
        };
        let bounds = (start.as_ref().map(Vec::as_slice), Bound::Unbounded);
        let mut seen = 0;
        for entry in tables.of(Table::ByTopic).range(txn, &bounds).map_err(engine)? {
            let (key, cover) = entry.map_err(engine)?;
            let Some(order) = Order::of_key(key).filter(|_| key.starts_with(&prefix)) else { return Ok(false) };
            if self.is_past(&order) {
                return Ok(false);
            }
            self.look_at(order, &Cover::unpack(cover)?, tables, txn)?;
            seen += 1;
            if seen == STEP {
                self.after = Some(key.to_vec());
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn first_key(&self, prefix: &[u8]) -> Vec<u8> {
        let mut key = prefix.to_vec();
        if let Some(from) = self.span.from {
            key.extend_from_slice(Order::new(from.created_at, &from.id, EventNo(0)).as_bytes());
        }
        key
    }

    /// Whether nothing from here on belongs to the page. Ids with a common prefix are read together and separated
    /// later.
    fn is_past(&self, order: &Order) -> bool {
        let is_full = self.items.len() > self.most && self.last.is_some_and(|last| !last.ties_with(order));
        is_full || self.span.before.is_some_and(|before| order.created_at() < before.created_at)
    }

    fn look_at(&mut self, order: Order, cover: &Cover, tables: &Tables, txn: &RoTxn<'_>) -> Result<()> {
        if !self.set.window.reaches(cover.kind, order.created_at()) {
            return Ok(());
        }
        let Some(record) = tables.get(txn, Table::Events, &order.no().key())? else { return Ok(()) };
        let row = Row::unpack(record)?;
        let item = Item { created_at: order.created_at(), id: row.id()? };
        if !self.span.contains(&item) {
            return Ok(());
        }
        let is_plain = cover.traits.is_plain() && cover.kind != Kind::VANISH && !may_be_protected(&row);
        if is_plain || self.set.window.shows(&row.event()?) {
            self.items.push(item);
            self.last = Some(order);
        }
        Ok(())
    }

    /// The page, after all events were scanned.
    pub(crate) fn finish(mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<SharedPage> {
        let prefix = traces::prefix(&self.set.topic);
        let first = match self.span.from {
            Some(from) => traces::key(&self.set.topic, from),
            None => prefix.to_vec(),
        };
        let bounds = (Bound::Included(first.as_slice()), Bound::Unbounded);
        let wanted = self.most.saturating_add(1);
        for entry in tables.of(Table::Traces).range(txn, &bounds).map_err(engine)?.take(wanted) {
            let (key, record) = entry.map_err(engine)?;
            let item = Item::new(traces::TraceRecord::unpack(record)?.trace.item());
            if !key.starts_with(&prefix) || !self.span.contains(&item) {
                break;
            }
            self.items.push(item);
        }
        Ok(SharedPage::first(self.most, self.items))
    }
}

/// A protected event has a tag that begins with these bytes, and nothing else in our JSON can. So most events need no
/// parsing.
fn may_be_protected(row: &Row<'_>) -> bool {
    row.json.windows(4).any(|bytes| bytes == br#"["-""#)
}

fn topic_no(tables: &Tables, txn: &RoTxn<'_>, topic: &TopicId) -> Result<Option<TopicNo>> {
    let record = tables.get(txn, Table::Topics, topic.as_str().as_bytes())?;
    Ok(record.map(TopicRecord::unpack).transpose()?.map(|record| record.no))
}

/// The event or trace that an item of a set stands for.
pub(crate) fn share(tables: &Tables, txn: &RoTxn<'_>, set: &SharedSet, id: &EventId) -> Result<Option<Shared>> {
    let row = row_of(tables, txn, id)?.filter(Row::is_effective);
    if let (Some(row), Some(topic)) = (&row, topic_no(tables, txn, &set.topic)?)
        && row.topics.contains(&topic)
        && set.window.shows(&row.event()?)
    {
        return Ok(Some(Shared::Event(row.json())));
    }
    Ok(match traces::find(tables, txn, &set.topic, id)? {
        Some(Trace::Request { .. }) => row.map(|row| Shared::Event(row.json())),
        Some(Trace::Hint(hint)) => Some(Shared::Hint(hint)),
        None => None,
    })
}

impl Writer {
    pub(crate) fn raise_floors(&mut self, topic: &TopicId, hints: &[FloorHint], now: Millis) -> Result<Raised> {
        let mut batch = Batch::begin(self.context(), now)?;
        let outcomes = apply_hints(&mut batch, topic, hints)?;
        let Committed { stages, head, clock } = batch.commit()?;
        self.note_clock(clock);
        Ok(Raised { outcomes, head, stages })
    }
}
