//! What other nodes are told of a topic, and what they tell (G-7).

use std::ops::Bound;

use heed::RoTxn;
use kukuri_domain::{
    EventId, Kind, Millis, Reason, TopicId,
    deletion::DeletionTargetKind,
    sharing::{self, FloorHint, Held, HintVerdict, Trace},
};
use kukuri_store::{HintOutcome, Item, Raised, Shared, SharedPage, SharedSet, Span};

use crate::{
    batch::{Batch, Committed},
    error::{Result, engine},
    key::{self, EventNo, Order, TopicNo},
    reading::row_of,
    record::{Cover, Row, TombstoneRecord, TopicRecord},
    tables::{Table, Tables},
    traces,
    writer::Writer,
};

/// Index rows that one read transaction looks at.
const STEP: usize = 4_096;

/// A page that is being read. Between steps it holds a place, not a transaction.
pub(crate) struct Reading<'s> {
    set: &'s SharedSet,
    span: Span,
    most: usize,
    /// The last index row that was looked at.
    after: Option<Vec<u8>>,
    last: Option<Order>,
    items: Vec<Item>,
}

impl<'s> Reading<'s> {
    pub(crate) fn new(set: &'s SharedSet, span: Span, most: usize) -> Self {
        Self { set, span, most, after: None, last: None, items: Vec::new() }
    }

    /// Looks at some of the topic's events. Returns whether there may be more to look at.
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

    /// Whether nothing from here on belongs to the page. Ids that begin alike are read together and told apart later.
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

    /// The page, once all events were looked at.
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

/// A protected event has a tag that begins so; in our JSON nothing else can. Most events need not be read for it.
fn may_be_protected(row: &Row<'_>) -> bool {
    row.json.windows(4).any(|bytes| bytes == br#"["-""#)
}

fn topic_no(tables: &Tables, txn: &RoTxn<'_>, topic: &TopicId) -> Result<Option<TopicNo>> {
    let record = tables.get(txn, Table::Topics, topic.as_str().as_bytes())?;
    Ok(record.map(TopicRecord::unpack).transpose()?.map(|record| record.no))
}

/// What an item of a set stands for.
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
        let mut batch = Batch::begin(self.around(), now)?;
        let mut outcomes = Vec::with_capacity(hints.len());
        for hint in hints {
            outcomes.push(batch.take_hint(topic, hint)?);
            batch.update_stages()?;
        }
        let Committed { stages, head, clock } = batch.commit()?;
        self.saw(clock);
        Ok(Raised { outcomes, head, stages })
    }
}

impl Batch<'_> {
    fn take_hint(&mut self, topic: &TopicId, hint: &FloorHint) -> Result<HintOutcome> {
        let request = row_of(&self.around.tables, &self.txn, &hint.request)?.filter(Row::is_effective);
        let request = request.map(|row| row.event()).transpose()?;
        let stone = key::tombstone(&DeletionTargetKind::EventId(hint.floor.id), &hint.key.pubkey());
        let stone = self.get(Table::Tombstones, &stone)?.map(TombstoneRecord::unpack).transpose()?;
        let key = self.key(&hint.key)?;
        let held = Held {
            is_known: self.known_id(&hint.floor.id)?.is_some(),
            request: request.as_ref(),
            tombstone: stone.as_ref().map(|record| &record.tombstone),
            key: key.map(|key| key.state()),
        };
        let (raises, is_passed_on) = match sharing::weigh(hint, &held) {
            HintVerdict::Known => return Ok(HintOutcome::Known),
            HintVerdict::Refused => return Ok(HintOutcome::Refused),
            HintVerdict::Taken { raises, is_passed_on, .. } => (raises, is_passed_on),
        };
        if raises {
            // What is effective of the key stands below the hint.
            if let Some(below) = key.and_then(|key| key.current) {
                let row = self.row(below)?;
                row.map_or(Ok(()), |row| self.take_away(row, Reason::Replaced, Some(hint.floor.id)))?;
            }
            self.raise_floor(&hint.key, hint.floor)?;
        }
        let mut is_new = raises;
        if let Some(request) = request.filter(|_| is_passed_on) {
            let traces = [Trace::of(&request), Trace::Hint(hint.clone())];
            is_new |= self.leave_traces(&traces.map(|trace| (topic.clone(), trace)))?;
        }
        Ok(if is_new { HintOutcome::Taken } else { HintOutcome::Known })
    }
}
