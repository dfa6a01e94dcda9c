//! Traces that requests leave in topics, for other nodes (G-7): by topic, newest first, and by id.
//!
//! Keys name topics by a hash: a trace may be for a topic that is new to this store, and does not create it.

use heed::{RoTxn, RwTxn};
use kukuri_domain::{
    Event, EventId, Kind, Rank, State, Timestamp, TopicId,
    deletion::{DeletionTarget, DeletionTargetKind},
    sharing::{self, FloorHint, Trace},
};
use kukuri_store::{Item, Standing, counters::Tally as _};

use crate::{
    batch::{Batch, StoredRow},
    error::{Result, engine},
    key::{EventNo, Order},
    lookup::{Names, row_of},
    pack::{Pack, Unpack},
    record::{KnownId, Row},
    tables::{Table, Tables},
};

/// Rows that a step of the migration reads.
const STEP: usize = 1_000;

/// Key prefix of a topic's traces.
pub(crate) fn prefix(topic: &TopicId) -> [u8; 16] {
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&blake3::hash(topic.as_str().as_bytes()).as_bytes()[..16]);
    prefix
}

/// Key of a trace: by topic, newest first.
pub(crate) fn key(topic: &TopicId, item: Item) -> Vec<u8> {
    let order = Order::at(item.created_at);
    Pack::with_capacity(55).bytes(&prefix(topic)).bytes(order.time()).bytes(item.id.as_bytes()).done()
}

fn key_by_id(topic: &TopicId, id: &EventId) -> Vec<u8> {
    Pack::with_capacity(48).bytes(id.as_bytes()).bytes(&prefix(topic)).done()
}

/// A trace and its topic. The record is complete; the key only gives the order.
pub(crate) struct TraceRecord {
    pub(crate) topic: TopicId,
    pub(crate) trace: Trace,
}

impl TraceRecord {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let (created_at, id) = self.trace.item();
        let topic = self.topic.as_str().as_bytes();
        let pack = Pack::default().timestamp(created_at).bytes(id.as_bytes()).u16(topic.len() as u16).bytes(topic);
        match &self.trace {
            Trace::Request { .. } => pack.done(),
            Trace::Hint(hint) => pack.bytes(hint.request.as_bytes()).bytes(hint.key.to_string().as_bytes()).done(),
        }
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("traces", record);
        let (created_at, id) = (record.timestamp()?, record.id()?);
        let length = record.u16()?;
        let damaged = record.damaged();
        let topic = std::str::from_utf8(record.bytes(length.into())?).map(TopicId::trusted).map_err(|_| damaged)?;
        if record.is_empty() {
            return Ok(Self { topic, trace: Trace::Request { created_at, id } });
        }
        let request = record.id()?;
        let damaged = record.damaged();
        let key = record.text()?.parse().map_err(|_| damaged)?;
        Ok(Self { topic, trace: Trace::Hint(FloorHint { key, floor: Rank { created_at, id }, request }) })
    }

    fn keys(&self) -> (Vec<u8>, Vec<u8>) {
        let item = Item::new(self.trace.item());
        (key(&self.topic, item), key_by_id(&self.topic, &item.id))
    }
}

pub(crate) fn find(tables: &Tables, txn: &RoTxn<'_>, topic: &TopicId, id: &EventId) -> Result<Option<Trace>> {
    let Some(time) = tables.get(txn, Table::TracesById, &key_by_id(topic, id))? else { return Ok(None) };
    let created_at = Unpack::new("traces-by-id", time).timestamp()?;
    let record = tables.get(txn, Table::Traces, &key(topic, Item { created_at, id: *id }))?;
    record.map(|record| Ok(TraceRecord::unpack(record)?.trace)).transpose()
}

/// Writes a trace, unless the topic has one with the same id. Returns whether it is new.
pub(crate) fn put(tables: &Tables, txn: &mut RwTxn<'_>, topic: &TopicId, trace: &Trace) -> Result<bool> {
    let record = TraceRecord { topic: topic.clone(), trace: trace.clone() };
    let (key, by_id) = record.keys();
    if tables.get(txn, Table::TracesById, &by_id)?.is_some() {
        return Ok(false);
    }
    tables.put(txn, Table::Traces, &key, &record.pack())?;
    let (Timestamp(created_at), _) = trace.item();
    tables.put(txn, Table::TracesById, &by_id, &created_at.to_be_bytes())?;
    Ok(true)
}

/// The traces of this id, in all topics.
fn of_id(tables: &Tables, txn: &RoTxn<'_>, id: &EventId) -> Result<Vec<TraceRecord>> {
    let mut traces = Vec::new();
    for entry in tables.of(Table::TracesById).prefix_iter(txn, id.as_bytes()).map_err(engine)? {
        let (by_id, time) = entry.map_err(engine)?;
        let order = Order::at(Unpack::new("traces-by-id", time).timestamp()?);
        let key = Pack::with_capacity(55).bytes(&by_id[32..]).bytes(order.time()).bytes(id.as_bytes()).done();
        if let Some(record) = tables.get(txn, Table::Traces, &key)? {
            traces.push(TraceRecord::unpack(record)?);
        }
    }
    Ok(traces)
}

/// The request of this id, if it is stored and may be shared with other nodes.
pub(crate) fn passed_on(tables: &Tables, txn: &RoTxn<'_>, request: &EventId) -> Result<Option<Event>> {
    let Some(row) = row_of(tables, txn, request)?.filter(Row::is_effective) else { return Ok(None) };
    Ok(Some(row.event()?).filter(sharing::may_pass_on))
}

impl Batch<'_> {
    /// Writes the traces whose requests are stored and shared. Returns whether any is new.
    pub(crate) fn leave_traces(&mut self, traces: &[(TopicId, Trace)]) -> Result<bool> {
        let mut is_new = false;
        // Cached, because many traces belong to one request, which may be long.
        let mut last: Option<(EventId, bool)> = None;
        for (topic, trace) in traces {
            let request = trace.request();
            let passes = match last {
                Some((id, passes)) if id == request => passes,
                _ => passed_on(&self.ctx.tables, &self.txn, &request)?.is_some(),
            };
            last = Some((request, passes));
            if passes {
                self.mark_written();
                is_new |= put(&self.ctx.tables, &mut self.txn, topic, trace)?;
            }
        }
        Ok(is_new)
    }

    /// The topics whose shared sets contain a row: its own, and those where it left a trace.
    pub(crate) fn topics_reached(&mut self, row: &StoredRow) -> Result<Vec<TopicId>> {
        let mut topics = row.topics.iter().map(|topic| self.topic_id(*topic)).collect::<Result<Vec<_>>>()?;
        if row.event.kind.is_request() {
            let traces = of_id(&self.ctx.tables, &self.txn, &row.event.id)?;
            topics.extend(traces.into_iter().map(|record| record.topic));
        }
        Ok(topics)
    }

    /// Deletes the traces of a removed request.
    pub(crate) fn drop_traces(&mut self, request: &Event) -> Result<()> {
        let mut ids = vec![request.id];
        if request.kind == Kind::DELETION {
            let targets = DeletionTarget::parse_from_event(request).into_iter();
            ids.extend(targets.filter_map(|target| match target.target {
                DeletionTargetKind::EventId(id) => Some(id),
                DeletionTargetKind::Address(_) => None,
            }));
        }
        for id in ids {
            for record in of_id(&self.ctx.tables, &self.txn, &id)? {
                if record.trace.request() == request.id {
                    let (key, by_id) = record.keys();
                    self.delete(Table::Traces, &key)?;
                    self.delete(Table::TracesById, &by_id)?;
                }
            }
        }
        Ok(())
    }
}

/// The traces that a deleted row implies: of the request that deleted it, in the row's topics.
pub(crate) fn of_hidden(tables: &Tables, txn: &RoTxn<'_>, row: &StoredRow) -> Result<Vec<(TopicId, Trace)>> {
    let known = tables.get(txn, Table::Ids, row.event.id.as_bytes())?.map(KnownId::unpack).transpose()?;
    let Some(Standing::Gone { cause: Some(cause), .. }) = known.map(|known| known.record.standing) else {
        return Ok(Vec::new());
    };
    let Some(request) = passed_on(tables, txn, &cause)? else { return Ok(Vec::new()) };
    let names = Names::new(tables, txn);
    let topics = row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<Vec<_>>>()?;
    let traces = Trace::of_request(&request, &row.event);
    Ok(topics.iter().flat_map(|topic| traces.iter().map(|trace| (topic.clone(), trace.clone()))).collect())
}

/// One step of the migration: writes the traces that deleted rows imply. The topics of events without a row are
/// unknown.
pub(crate) fn migrate_some(tables: &Tables, txn: &mut RwTxn<'_>, place: &[u8]) -> Result<Option<Vec<u8>>> {
    let keys = tables.keys_after(txn, Table::Events, &[], place, STEP)?;
    for key in &keys {
        let Some(record) = tables.get(txn, Table::Events, key)? else { continue };
        let row = Row::unpack(record)?;
        if row.state != State::Deleted {
            continue;
        }
        let row = StoredRow::read(EventNo::of_key(key)?, row)?;
        for (topic, trace) in of_hidden(tables, txn, &row)? {
            put(tables, txn, &topic, &trace)?;
        }
    }
    Ok(keys.last().filter(|_| keys.len() == STEP).cloned())
}
