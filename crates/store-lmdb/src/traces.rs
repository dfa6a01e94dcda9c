//! Traces that requests leave in topics, for other nodes (G-7): by topic, newest first, and by id.
//!
//! Keys name topics by a hash: a trace may be for a topic that is new to this store, and does not create it.

use heed::{RoTxn, RwTxn};
use kukuri_domain::{
    Event, EventId, Kind, Rank, State, TopicId,
    deletion::{DeletionTarget, DeletionTargetKind},
    sharing::{self, FloorHint, Trace},
};
use kukuri_store::{Item, Standing};

use crate::{
    batch::{Batch, StoredRow},
    error::Result,
    key::{EventNo, Order},
    pack::{Field, Pack, Record, Unpack},
    record::{Row, fields},
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

fields! {
    TraceRecord: |record, pack| {
            let (created_at, id) = record.trace.item();
            let topic = record.topic.as_str().as_bytes();
            let pack = pack.field(&created_at).field(&id).u16(topic.len() as u16).bytes(topic);
            match &record.trace {
                Trace::Request { .. } => pack,
                Trace::Hint(hint) => pack.field(&hint.request).field(&hint.key),
            }
        },
        |record| {
            let (floor, length): (Rank, _) = (record.field()?, record.u16()?);
            let topic = TopicId::new_unchecked(record.text(length.into())?);
            let trace = if record.is_empty() {
                Trace::Request { created_at: floor.created_at, id: floor.id }
            } else {
                let (request, key) = (record.field()?, record.field()?);
                Trace::Hint(FloorHint { key, floor, request })
            };
            Ok(Self { topic, trace })
        };
}

impl Record for TraceRecord {
    const TABLE: Table = Table::Traces;
}

impl TraceRecord {
    fn keys(&self) -> (Vec<u8>, Vec<u8>) {
        let item = Item::new(self.trace.item());
        (key(&self.topic, item), key_by_id(&self.topic, &item.id))
    }
}

pub(crate) fn find(tables: &Tables, txn: &RoTxn<'_>, topic: &TopicId, id: &EventId) -> Result<Option<Trace>> {
    let Some(time) = tables.get(txn, Table::TracesById, &key_by_id(topic, id))? else { return Ok(None) };
    let created_at = Unpack::new("traces-by-id", time).field()?;
    let record: Option<TraceRecord> = tables.find(txn, &key(topic, Item { created_at, id: *id }))?;
    Ok(record.map(|record| record.trace))
}

/// Writes a trace, unless the topic has one with the same id. Returns whether it is new.
pub(crate) fn put(tables: &Tables, txn: &mut RwTxn<'_>, topic: TopicId, trace: Trace) -> Result<bool> {
    let record = TraceRecord { topic, trace };
    let (key, by_id) = record.keys();
    if tables.get(txn, Table::TracesById, &by_id)?.is_some() {
        return Ok(false);
    }
    tables.put(txn, Table::Traces, &key, &record.pack())?;
    tables.put(txn, Table::TracesById, &by_id, &record.trace.item().0.pack())?;
    Ok(true)
}

/// The traces of this id, in all topics.
pub(crate) fn of_id(tables: &Tables, txn: &RoTxn<'_>, id: &EventId) -> Result<Vec<TraceRecord>> {
    let mut traces = Vec::new();
    for entry in tables.of(Table::TracesById).prefix_iter(txn, id.as_bytes())? {
        let (by_id, time) = entry?;
        let order = Order::at(Unpack::new("traces-by-id", time).field()?);
        let key = Pack::with_capacity(55).bytes(&by_id[32..]).bytes(order.time()).bytes(id.as_bytes()).done();
        traces.extend(tables.find(txn, &key)?);
    }
    Ok(traces)
}

/// The request of this id, if it is stored and may be shared with other nodes.
pub(crate) fn passed_on(tables: &Tables, txn: &RoTxn<'_>, request: &EventId) -> Result<Option<Event>> {
    let Some(row) = tables.row_of(txn, request)?.filter(Row::is_effective) else { return Ok(None) };
    Ok(Some(row.event()?).filter(sharing::may_pass_on))
}

impl Batch<'_> {
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
pub(crate) fn of_hidden(tables: &Tables, txn: &RoTxn<'_>, row: &StoredRow<'_>) -> Result<Vec<(TopicId, Trace)>> {
    let known = tables.known_id(txn, &row.event.id)?;
    let Some(Standing::Gone { cause: Some(cause), .. }) = known.map(|known| known.record.standing) else {
        return Ok(Vec::new());
    };
    let Some(request) = passed_on(tables, txn, &cause)? else { return Ok(Vec::new()) };
    let topics = tables.topic_ids(txn, &row.topics)?;
    let traces = Trace::of_request(&request, &row.event);
    Ok(topics.iter().flat_map(|topic| traces.iter().map(|trace| (topic.clone(), trace.clone()))).collect())
}

/// One step of the migration: writes the traces that deleted rows imply. The topics of events without a row are
/// unknown.
pub(crate) fn migrate_some(tables: &Tables, txn: &mut RwTxn<'_>, after: &[u8]) -> Result<Option<Vec<u8>>> {
    let keys = tables.keys_after(txn, Table::Events, &[], after, STEP)?;
    for key in &keys {
        let Some(record) = tables.get(txn, Table::Events, key)? else { continue };
        let row = Row::unpack(record)?;
        if row.state != State::Deleted {
            continue;
        }
        let row = StoredRow::read(EventNo::of_key(key)?, row)?;
        for (topic, trace) in of_hidden(tables, txn, &row)? {
            put(tables, txn, topic, trace)?;
        }
    }
    Ok(keys.last().filter(|_| keys.len() == STEP).cloned())
}
