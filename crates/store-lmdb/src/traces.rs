//! Traces that requests leave in topics, for other nodes (G-7): by topic, newest first, and by id.
//!
//! Keys name topics by a hash: a trace may be for a topic that is new to this store, and does not create it.

use heed::RwTxn;
use kukuri_domain::{
    Event, EventId, Kind, Rank, State, Timestamp, TopicId,
    deletion::{DeletionTarget, DeletionTargetKind},
    sharing::{self, FloorHint, Trace},
};
use kukuri_store::{Item, Standing};

use crate::{
    batch::{Batch, StoredRow},
    error::Result,
    key::{EventNo, Order},
    pack::{Field, Pack, Record, take, unpack},
    record::{fields, take_last, take_topic},
    tables::{Table, Tables, View},
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
    Pack::with_capacity(55).field(&prefix(topic)).bytes(order.time()).field(&item.id).done()
}

fn key_by_id(topic: &TopicId, id: &EventId) -> Vec<u8> {
    Pack::with_capacity(48).field(id).field(&prefix(topic)).done()
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
            let pack = pack.field(&created_at).field(&id).field(&(topic.len() as u16)).bytes(topic);
            match &record.trace {
                Trace::Request { .. } => pack,
                Trace::Hint(hint) => pack.field(&hint.request).field(&hint.key),
            }
        },
        |record| {
            let floor: Rank = take(record)?;
            let topic = take_topic(record)?;
            let trace = match take_last(record)? {
                None => Trace::Request { created_at: floor.created_at, id: floor.id },
                Some(request) => Trace::Hint(FloorHint { key: take(record)?, floor, request }),
            };
            Some(Self { topic, trace })
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

pub(crate) fn find(view: View<'_>, topic: &TopicId, id: &EventId) -> Result<Option<Trace>> {
    let Some(time) = view.get(Table::TracesById, &key_by_id(topic, id))? else { return Ok(None) };
    let created_at = unpack(Table::TracesById.name(), time, take)?;
    let record: Option<TraceRecord> = view.find(&key(topic, Item { created_at, id: *id }))?;
    Ok(record.map(|record| record.trace))
}

/// Writes a trace, unless the topic has one with the same id. Returns whether it is new. A hint of a later request
/// replaces the known one, because a vanish request removes the earlier request first.
pub(crate) fn put(tables: &Tables, txn: &mut RwTxn<'_>, topic: TopicId, trace: Trace) -> Result<bool> {
    let record = TraceRecord { topic, trace };
    let (key, by_id) = record.keys();
    if tables.of(Table::TracesById).get(txn, &by_id)?.is_some() {
        let view = View { tables, txn };
        let known: Option<TraceRecord> = view.find(&key)?;
        let time_of = |trace: &Trace| time_of_request(view, &record.topic, trace);
        if let Some(known) = known.filter(|known| known.trace.request() != record.trace.request())
            && time_of(&known.trace)? < time_of(&record.trace)?
        {
            tables.of(Table::Traces).put(txn, &key, &record.pack())?;
        }
        return Ok(false);
    }
    tables.of(Table::Traces).put(txn, &key, &record.pack())?;
    tables.of(Table::TracesById).put(txn, &by_id, &record.trace.item().0.pack())?;
    Ok(true)
}

/// `created_at` of a trace's request, which has a trace of its own in every topic with a hint of it.
fn time_of_request(view: View<'_>, topic: &TopicId, trace: &Trace) -> Result<Option<Timestamp>> {
    Ok(find(view, topic, &trace.request())?.map(|request| request.item().0))
}

/// The traces of this id, in all topics.
pub(crate) fn of_id(view: View<'_>, id: &EventId) -> Result<Vec<TraceRecord>> {
    let mut traces = Vec::new();
    for entry in view.prefix_iter(Table::TracesById, id.as_bytes())? {
        let (by_id, time) = entry?;
        let order = Order::at(unpack(Table::TracesById.name(), time, take)?);
        let key = Pack::with_capacity(55).bytes(&by_id[32..]).bytes(order.time()).field(id).done();
        traces.extend(view.find(&key)?);
    }
    Ok(traces)
}

/// The request of this id, if it is stored and may be shared with other nodes.
pub(crate) fn passed_on(view: View<'_>, request: &EventId) -> Result<Option<Event>> {
    let Some(row) = view.effective_row_of(request)? else { return Ok(None) };
    Ok(Some(row.event()?).filter(sharing::may_pass_on))
}

impl Batch<'_> {
    /// Like [`put`].
    pub(crate) fn put_trace(&mut self, topic: TopicId, trace: Trace) -> Result<bool> {
        self.written += 1;
        put(self.ctx.tables, &mut self.txn, topic, trace)
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
            for record in of_id(self.view(), &id)? {
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
pub(crate) fn of_hidden(view: View<'_>, row: &StoredRow<'_>) -> Result<Vec<(TopicId, Trace)>> {
    let known = view.known_id(&row.event.id)?;
    let Some(Standing::Gone { cause: Some(cause), .. }) = known.map(|known| known.record.standing) else {
        return Ok(Vec::new());
    };
    let Some(request) = passed_on(view, &cause)? else { return Ok(Vec::new()) };
    let topics = view.topic_ids(&row.topics)?;
    let traces = Trace::of_request(&request, &row.event);
    Ok(topics.iter().flat_map(|topic| traces.iter().map(|trace| (topic.clone(), trace.clone()))).collect())
}

/// One step of the migration: writes the traces that deleted rows imply. The topics of events without a row are
/// unknown.
pub(crate) fn migrate_some(tables: &Tables, txn: &mut RwTxn<'_>, after: &[u8]) -> Result<Option<Vec<u8>>> {
    let keys = View { tables, txn }.keys_after(Table::Events, &[], after, STEP)?;
    for key in &keys {
        let (view, no) = (View { tables, txn }, EventNo::of_key(key)?);
        let Some(row) = view.row(no)?.filter(|row| row.state == State::Deleted) else { continue };
        for (topic, trace) in of_hidden(view, &StoredRow::read(no, row)?)? {
            put(tables, txn, topic, trace)?;
        }
    }
    Ok(keys.last().filter(|_| keys.len() == STEP).cloned())
}
