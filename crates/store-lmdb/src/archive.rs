//! Dump of a whole store, piece by piece, and load into another store.

use std::borrow::Cow;

use kukuri_domain::{AddressDigest, Event, EventId, State};
use kukuri_store::{ConsumerOffset, DumpCursor, DumpPage, IdRecord, Piece, RowRecord, StoreError};

use crate::{
    batch::Batch,
    error::{Result, damaged},
    format, key,
    lookup::{self, topic_of_key},
    pack::{Record as _, take, unpack},
    record::{KeyRecord, KnownId, OffsetRecord, OutboxRecord, Row, TombstoneRecord, TopicRecord, VanishRecord},
    remains::RemainsRecord,
    subscriptions,
    tables::{Table, View},
    traces::TraceRecord,
    writer::Writer,
};

/// The table of each kind of piece, in the order of [`Piece`]. The last kind has no table of its own.
const SECTIONS: [Table; 11] = [
    Table::Subscriptions,
    Table::Topics,
    Table::Keys,
    Table::Tombstones,
    Table::Vanished,
    Table::Traces,
    Table::Remains,
    Table::Events,
    Table::Ids,
    Table::Outbox,
    Table::Offsets,
];

pub(crate) fn dump(view: View<'_>, cursor: DumpCursor, limit: usize) -> Result<DumpPage> {
    let DumpCursor { section, mut after } = cursor;
    let Some(table) = SECTIONS.get(usize::from(section)).copied() else {
        return Ok(DumpPage { pieces: vec![standing(view)?], next: None });
    };
    let (mut pieces, mut seen) = (Vec::new(), 0);
    for entry in view.after(table, &after.clone())?.take(limit.max(1)) {
        let (key, record) = entry?;
        pieces.extend(piece(table, key, record, view)?);
        after = key.to_vec();
        seen += 1;
    }
    let next = if seen < limit.max(1) {
        DumpCursor { section: section + 1, after: Vec::new() }
    } else {
        DumpCursor { section, after }
    };
    Ok(DumpPage { pieces, next: Some(next) })
}

/// The piece for a record. An id that has a row is dumped with its row.
fn piece(table: Table, key: &[u8], record: &[u8], view: View<'_>) -> Result<Option<Piece>> {
    Ok(Some(match table {
        Table::Subscriptions => Piece::Subscription(subscriptions::read(topic_of_key(key)?, record)?),
        Table::Topics => {
            let TopicRecord { counters, last_event_at, .. } = TopicRecord::unpack(record)?;
            Piece::Topic { topic: topic_of_key(key)?, stage: counters.stage, last_event_at }
        }
        Table::Keys => {
            let digest = key.try_into().map_err(|_| damaged("a key is no digest"))?;
            let KeyRecord { floor, raised_at, .. } = KeyRecord::unpack(record)?;
            Piece::Floor { key: AddressDigest(digest), floor, raised_at }
        }
        Table::Tombstones => {
            let record = TombstoneRecord::unpack(record)?;
            let noted_at = record.noted_at;
            Piece::Tombstone(view.tombstone_in(record)?, noted_at)
        }
        Table::Vanished => {
            let record = VanishRecord::unpack(record)?;
            let noted_at = record.noted_at;
            Piece::Vanish(view.vanish_mark_in(record)?, noted_at)
        }
        Table::Traces => {
            let TraceRecord { topic, trace } = TraceRecord::unpack(record)?;
            Piece::Trace(topic, trace)
        }
        Table::Remains => {
            let record = RemainsRecord::unpack(record)?;
            let noted_at = record.noted_at;
            Piece::Remains(record.remains(key)?, noted_at)
        }
        Table::Events => {
            let row = Row::unpack(record)?;
            let id = row.id()?;
            let known = view.known_id(&id)?.ok_or_else(|| damaged(format!("row {id} has no id record")))?;
            let topics = view.topic_ids(&row.topics)?;
            Piece::Event(id, known.record, RowRecord { json: row.json(), topics, ingested_at: row.ingested_at })
        }
        Table::Ids => match KnownId::unpack(record)? {
            KnownId { no: Some(_), .. } => return Ok(None),
            KnownId { record, no: None } => Piece::Id(unpack(Table::Ids.name(), key, take)?, record),
        },
        Table::Outbox => {
            let record = OutboxRecord::unpack(record)?;
            let topic = view.topic_id(record.topic)?;
            Piece::Outbox(record.row(key::seq_of(key)?, topic))
        }
        _ => Piece::Offset(lookup::offset((key, record))?),
    }))
}

fn standing(view: View<'_>) -> Result<Piece> {
    let node = view.node()?;
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
        let mut batch = Batch::resume(self.context())?;
        batch.is_loading = true;
        if !format::is_loading(batch.view())? {
            refuse_if_filled(&batch)?;
            batch.put(Table::Meta, format::LOADING_KEY, &[1])?;
        }
        pieces.into_iter().try_for_each(|piece| load(&mut batch, piece))?;
        self.commit(batch)?;
        self.subscriptions = self.tables.read(subscriptions::load)?;
        self.scanned.forget();
        Ok(())
    }
}

fn refuse_if_filled(batch: &Batch<'_>) -> Result<()> {
    for table in SECTIONS {
        if batch.view().len(table)? > 0 {
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
            batch.put_record(&key.0, &KeyRecord { floor, raised_at, current: None })
        }
        Piece::Tombstone(tombstone, noted_at) => {
            let key = key::tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey);
            batch.put_record(&key, &TombstoneRecord::new(tombstone, noted_at))
        }
        Piece::Vanish(mark, noted_at) => batch.put_record(mark.pubkey.as_bytes(), &VanishRecord::new(mark, noted_at)),
        Piece::Trace(topic, trace) => batch.put_trace(topic, trace).map(drop),
        Piece::Remains(remains, noted_at) => batch.load_remains(remains, noted_at),
        Piece::Event(id, record, row) => load_event(batch, id, record, row),
        Piece::Id(id, record) => batch.put_known_id(&id, KnownId { record, no: None }),
        Piece::Outbox(row) => batch.load_outbox(row),
        Piece::Offset(ConsumerOffset { consumer, last_seq, updated_at }) => {
            batch.put_record(consumer.as_bytes(), &OffsetRecord { last_seq, updated_at })
        }
        Piece::Standing { head, dropped, clock, failed, stage } => {
            batch.node.head = head;
            batch.node.outbox_dropped = dropped;
            batch.node.clock = clock;
            batch.node.failed = failed;
            batch.node.counters.stage = stage;
            batch.delete(Table::Meta, format::LOADING_KEY)
        }
    }
}

fn load_event(batch: &mut Batch<'_>, id: EventId, record: IdRecord, row: RowRecord) -> Result<()> {
    let event = Event::from_json(&row.json).map_err(|error| damaged(format!("event {id}: {error}")))?;
    let state = record.standing.state();
    let row = batch.add_row(Cow::Owned(event), &row.topics, row.json, row.ingested_at, state)?;
    if state == State::Effective
        && let Some(address) = row.event.address()
    {
        let raised_at = batch.view().key(&address)?.map_or(row.ingested_at, |key| key.raised_at);
        batch.put_key(&address, &KeyRecord { floor: row.event.rank(), raised_at, current: Some(row.no) })?;
    }
    batch.put_known_id(&id, KnownId { record, no: Some(row.no) })
}
