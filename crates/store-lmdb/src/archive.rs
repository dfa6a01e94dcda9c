//! Dump of a whole store, piece by piece, and load into another store.

use std::ops::Bound;

use heed::RoTxn;
use kukuri_domain::{AddressDigest, Event, EventId, TopicId};
use kukuri_store::{DumpCursor, DumpPage, IdRecord, Piece, RowRecord, Standing, StoreError};

use crate::{
    batch::Batch,
    error::{Result, damaged, engine},
    format,
    key::{self, EventNo},
    lookup::{self, Names},
    pack::Pack,
    record::{KeyRecord, KnownId, OutboxRecord, Row, TombstoneRecord, TopicRecord, VanishRecord},
    subscriptions,
    tables::{Table, Tables},
    traces::{self, TraceRecord},
    writer::Writer,
};

/// The table of each kind of piece, in the order of [`Piece`]. The last kind has no table of its own.
const SECTIONS: [Table; 10] = [
    Table::Subscriptions,
    Table::Topics,
    Table::Keys,
    Table::Tombstones,
    Table::Vanished,
    Table::Traces,
    Table::Events,
    Table::Ids,
    Table::Outbox,
    Table::Offsets,
];

pub(crate) fn dump(tables: &Tables, txn: &RoTxn<'_>, cursor: DumpCursor, limit: usize) -> Result<DumpPage> {
    let Some(table) = SECTIONS.get(usize::from(cursor.section)).copied() else {
        return Ok(DumpPage { pieces: vec![standing(tables, txn)?], next: None });
    };
    let from = if cursor.after.is_empty() { Bound::Unbounded } else { Bound::Excluded(&cursor.after[..]) };
    let mut pieces = Vec::new();
    let mut last = Vec::new();
    let mut seen = 0;
    for entry in tables.of(table).range(txn, &(from, Bound::Unbounded)).map_err(engine)?.take(limit.max(1)) {
        let (key, record) = entry.map_err(engine)?;
        pieces.extend(piece(table, key, record, tables, txn)?);
        last = key.to_vec();
        seen += 1;
    }
    let next = if seen < limit.max(1) {
        DumpCursor { section: cursor.section + 1, after: Vec::new() }
    } else {
        DumpCursor { section: cursor.section, after: last }
    };
    Ok(DumpPage { pieces, next: Some(next) })
}

/// The piece for a record. An id that has a row is dumped with its row.
fn piece(table: Table, key: &[u8], record: &[u8], tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<Piece>> {
    let names = Names::new(tables, txn);
    let text = || std::str::from_utf8(key).map(TopicId::trusted).map_err(|_| damaged("a topic's name is no text"));
    Ok(Some(match table {
        Table::Subscriptions => Piece::Subscription(subscriptions::unpack(text()?, record)?),
        Table::Topics => {
            let TopicRecord { counters, last_event_at, .. } = TopicRecord::unpack(record)?;
            Piece::Topic { topic: text()?, stage: counters.stage, last_event_at }
        }
        Table::Keys => {
            let digest = key.try_into().map_err(|_| damaged("a key is no digest"))?;
            let KeyRecord { floor, raised_at, .. } = KeyRecord::unpack(record)?;
            Piece::Floor { key: AddressDigest(digest), floor, raised_at }
        }
        Table::Tombstones => {
            let TombstoneRecord { tombstone, noted_at } = TombstoneRecord::unpack(record)?;
            Piece::Tombstone(tombstone, noted_at)
        }
        Table::Vanished => {
            let VanishRecord { mark, noted_at } = VanishRecord::unpack(record)?;
            Piece::Vanish(mark, noted_at)
        }
        Table::Traces => {
            let TraceRecord { topic, trace } = TraceRecord::unpack(record)?;
            Piece::Trace(topic, trace)
        }
        Table::Events => {
            let row = Row::unpack(record)?;
            let id = row.id()?;
            let known = tables.get(txn, Table::Ids, id.as_bytes())?.map(KnownId::unpack).transpose()?;
            let known = known.ok_or_else(|| damaged(format!("row {id} has no id record")))?;
            let topics = row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<_>>()?;
            Piece::Event(id, known.record, RowRecord { json: row.json(), topics, ingested_at: row.ingested_at })
        }
        Table::Ids => {
            let known = KnownId::unpack(record)?;
            if known.no.is_some() {
                return Ok(None);
            }
            let id = key.try_into().map_err(|_| damaged("an id is too short"))?;
            Piece::Id(EventId::from_bytes(id), known.record)
        }
        Table::Outbox => {
            let record = OutboxRecord::unpack(record)?;
            let topic = names.topic(record.topic)?;
            Piece::Outbox(record.row(key::seq_of(key)?, topic))
        }
        _ => Piece::Offset(lookup::offset(key, record)?),
    }))
}

fn standing(tables: &Tables, txn: &RoTxn<'_>) -> Result<Piece> {
    let node = format::node_record(tables, txn)?;
    Ok(Piece::Standing {
        head: node.head,
        dropped: node.outbox_dropped,
        clock: node.clock,
        failed: node.failed,
        stage: node.counters.stage,
    })
}

impl Writer {
    /// Loads pieces of another store, in one transaction.
    pub(crate) fn load(&mut self, pieces: Vec<Piece>) -> Result<()> {
        let mut subscriptions = self.subscriptions.clone();
        let mut batch = Batch::resume(self.context())?;
        if !format::is_loading(&batch.ctx.tables, &batch.txn)? {
            refuse_if_filled(&batch)?;
            format::set_loading(&self.tables, &mut batch.txn, true)?;
        }
        for piece in pieces {
            if let Piece::Subscription(subscription) = &piece {
                subscriptions.insert(subscription.clone());
            }
            load(&mut batch, piece)?;
        }
        // These writes may bypass the batch, which then does not see that anything changed.
        batch.mark_written();
        let clock = batch.commit()?.clock;
        self.note_clock(clock);
        self.subscriptions = subscriptions;
        self.walked.forget();
        Ok(())
    }
}

fn refuse_if_filled(batch: &Batch<'_>) -> Result<()> {
    for table in SECTIONS {
        if batch.ctx.tables.len(&batch.txn, table)? > 0 {
            return Err(StoreError::NotEmpty.into());
        }
    }
    Ok(())
}

fn load(batch: &mut Batch<'_>, piece: Piece) -> Result<()> {
    match piece {
        Piece::Subscription(subscription) => {
            let record = subscriptions::pack(&subscription)?;
            batch.put(Table::Subscriptions, subscription.topic.as_str().as_bytes(), &record)
        }
        Piece::Topic { topic, stage, last_event_at } => batch.load_topic(&topic, stage, last_event_at),
        Piece::Floor { key, floor, raised_at } => {
            batch.put(Table::Keys, &key.0, &KeyRecord { floor, raised_at, current: None }.pack())
        }
        Piece::Tombstone(tombstone, noted_at) => {
            let key = key::tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey);
            batch.put(Table::Tombstones, &key, &TombstoneRecord { tombstone, noted_at }.pack())
        }
        Piece::Vanish(mark, noted_at) => {
            batch.put(Table::Vanished, mark.pubkey.as_bytes(), &VanishRecord { mark, noted_at }.pack())
        }
        Piece::Trace(topic, trace) => {
            let tables = batch.ctx.tables;
            traces::put(&tables, &mut batch.txn, &topic, &trace).map(drop)
        }
        Piece::Event(id, record, row) => load_event(batch, id, record, row),
        Piece::Id(id, record) => {
            batch.put(Table::Gone, &key::gone(record.last_seen_at, &id), &[])?;
            load_id(batch, id, record, None)
        }
        Piece::Outbox(row) => batch.load_outbox(row),
        Piece::Offset(offset) => {
            let record = Pack::default().u64(offset.last_seq.0).millis(offset.updated_at).done();
            batch.put(Table::Offsets, offset.consumer.as_bytes(), &record)
        }
        Piece::Standing { head, dropped, clock, failed, stage } => {
            batch.node.head = head;
            batch.node.outbox_dropped = dropped;
            batch.node.clock = clock;
            batch.node.failed = failed;
            batch.node.counters.stage = stage;
            let tables = batch.ctx.tables;
            format::set_loading(&tables, &mut batch.txn, false)
        }
    }
}

fn load_event(batch: &mut Batch<'_>, id: EventId, record: IdRecord, row: RowRecord) -> Result<()> {
    let event = Event::from_json(&row.json).map_err(|error| damaged(format!("event {id}: {error}")))?;
    let no = match record.standing {
        Standing::Effective => {
            let (no, _) = batch.file(&event, &row.topics, &row.json, row.ingested_at)?;
            if let Some(address) = event.address() {
                let raised_at = batch.key(&address)?.map_or(row.ingested_at, |key| key.raised_at);
                let key = KeyRecord { floor: event.rank(), raised_at, current: Some(no) };
                batch.put(Table::Keys, &address.digest().0, &key.pack())?;
            }
            no
        }
        Standing::Gone { reason, .. } => {
            batch.file_hidden(event, &row.topics, row.json, row.ingested_at, reason.state())?
        }
    };
    load_id(batch, id, record, Some(no))
}

fn load_id(batch: &mut Batch<'_>, id: EventId, record: IdRecord, no: Option<EventNo>) -> Result<()> {
    batch.put(Table::Ids, id.as_bytes(), &KnownId { record, no }.pack())
}
