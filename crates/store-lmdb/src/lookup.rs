//! Reads other than filters: by id, the outbox, snapshots, statistics, explanations.

use std::{collections::HashMap, ops::Bound};

use heed::RoTxn;
use kukuri_domain::{Address, EventId, Millis, State, TopicId, deletion::DeletionTargetKind};
use kukuri_store::{
    AddressExplanation, BoundEvent, ConsumerOffset, Explanation, OutboxRow, RowRecord, Seq, SnapshotCursor,
    SnapshotPage, Stats, StoreError, StoredEvent, TopicStats,
};

use crate::{
    error::{Result, damaged, engine},
    format,
    key::{self, EventNo, TopicNo},
    known::{tombstones_of, tombstones_under, vanish_marks_of},
    pack::Unpack,
    query::Part,
    record::{KeyRecord, KnownId, OutboxRecord, Row, TopicRecord, VanishRecord},
    tables::{Table, Tables},
};

/// Cache of topic ids by number.
pub(crate) struct Names<'t> {
    tables: &'t Tables,
    txn: &'t RoTxn<'t>,
}

impl<'t> Names<'t> {
    pub(crate) fn new(tables: &'t Tables, txn: &'t RoTxn<'t>) -> Self {
        Self { tables, txn }
    }

    pub(crate) fn topic(&self, no: TopicNo) -> Result<TopicId> {
        let name = self.tables.get(self.txn, Table::TopicNames, &no.0.to_be_bytes())?;
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        name.map(TopicId::trusted).ok_or_else(|| damaged(format!("topic number {} has no name", no.0)))
    }
}

/// The states of these ids, in order.
pub(crate) fn recall(tables: &Tables, txn: &RoTxn<'_>, ids: &[EventId]) -> Result<Vec<Option<State>>> {
    let mut states = Vec::with_capacity(ids.len());
    for id in ids {
        let known = tables.get(txn, Table::Ids, id.as_bytes())?.map(KnownId::unpack).transpose()?;
        states.push(known.map(|known| known.record.standing.state()));
    }
    Ok(states)
}

pub(crate) fn get(tables: &Tables, txn: &RoTxn<'_>, id: &EventId, now: Millis) -> Result<Option<BoundEvent>> {
    let Some(row) = row_of(tables, txn, id)?.filter(|row| row.is_effective()) else { return Ok(None) };
    if !row.traits.is_plain() && row.event()?.is_expired(now) {
        return Ok(None);
    }
    bound(&row, &Names::new(tables, txn)).map(Some)
}

fn bound(row: &Row<'_>, names: &Names<'_>) -> Result<BoundEvent> {
    Ok(BoundEvent {
        event: StoredEvent::read(row)?,
        topics: row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<_>>()?,
        ingested_at: row.ingested_at,
    })
}

pub(crate) fn row_of<'t>(tables: &Tables, txn: &'t RoTxn<'_>, id: &EventId) -> Result<Option<Row<'t>>> {
    let Some(known) = tables.get(txn, Table::Ids, id.as_bytes())? else { return Ok(None) };
    let Some(no) = KnownId::unpack(known)?.no else { return Ok(None) };
    let record = tables.get(txn, Table::Events, &no.key())?;
    record.map(Row::unpack).transpose().map_err(Into::into)
}

pub(crate) fn outbox(tables: &Tables, txn: &RoTxn<'_>, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
    let node = format::node_record(tables, txn)?;
    if after < node.outbox_dropped {
        return Err(StoreError::Truncated { after, first: node.outbox_dropped.next() }.into());
    }
    let names = Names::new(tables, txn);
    let mut topics: HashMap<TopicNo, TopicId> = HashMap::new();
    let mut rows = Vec::with_capacity(limit.min(1_024));
    let from = key::seq(after);
    let bounds = (Bound::Excluded(&from[..]), Bound::Unbounded);
    for entry in tables.of(Table::Outbox).range(txn, &bounds).map_err(engine)?.take(limit) {
        let (seq, record) = entry.map_err(engine)?;
        let record = OutboxRecord::unpack(record)?;
        let topic = match topics.get(&record.topic) {
            Some(topic) => topic.clone(),
            None => topics.entry(record.topic).or_insert(names.topic(record.topic)?).clone(),
        };
        rows.push(record.row(key::seq_of(seq)?, topic));
    }
    Ok(rows)
}

pub(crate) fn snapshot(tables: &Tables, txn: &RoTxn<'_>, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
    let seq = match cursor.seq {
        Some(seq) => seq,
        None => format::node_record(tables, txn)?.head,
    };
    let names = Names::new(tables, txn);
    let mut events = Vec::new();
    let mut last = cursor.after;
    let from = EventNo(cursor.after).key();
    let bounds = (Bound::Excluded(&from[..]), Bound::Unbounded);
    for entry in tables.of(Table::Events).range(txn, &bounds).map_err(engine)? {
        let (no, record) = entry.map_err(engine)?;
        let row = Row::unpack(record)?;
        if !row.is_effective() {
            continue;
        }
        if events.len() == limit {
            let next = SnapshotCursor { seq: Some(seq), after: last };
            return Ok(SnapshotPage { seq, events, next: Some(next) });
        }
        events.push(bound(&row, &names)?);
        last = EventNo::of_key(no)?.0;
    }
    Ok(SnapshotPage { seq, events, next: None })
}

pub(crate) fn offsets(tables: &Tables, txn: &RoTxn<'_>) -> Result<Vec<ConsumerOffset>> {
    let mut offsets = Vec::new();
    for entry in tables.of(Table::Offsets).iter(txn).map_err(engine)? {
        let (consumer, record) = entry.map_err(engine)?;
        offsets.push(offset(consumer, record)?);
    }
    Ok(offsets)
}

pub(crate) fn offset(consumer: &[u8], record: &[u8]) -> Result<ConsumerOffset> {
    let mut record = Unpack::new("offsets", record);
    Ok(ConsumerOffset {
        consumer: String::from_utf8_lossy(consumer).into_owned(),
        last_seq: Seq(record.u64()?),
        updated_at: record.millis()?,
    })
}

/// All topics with their records.
pub(crate) fn topics(tables: &Tables, txn: &RoTxn<'_>) -> Result<Vec<(TopicId, TopicRecord)>> {
    let mut topics = Vec::new();
    for entry in tables.of(Table::Topics).iter(txn).map_err(engine)? {
        let (topic, record) = entry.map_err(engine)?;
        let topic = std::str::from_utf8(topic).map_err(|_| damaged("a topic's name is no text"))?;
        topics.push((TopicId::trusted(topic), TopicRecord::unpack(record)?));
    }
    Ok(topics)
}

pub(crate) fn stats(tables: &Tables, txn: &RoTxn<'_>) -> Result<Stats> {
    let node = format::node_record(tables, txn)?;
    let topics = topics(tables, txn)?.into_iter().map(|(topic, record)| TopicStats {
        topic,
        effective: record.counters.effective,
        by_class: record.counters.by_class,
        stage: record.counters.stage,
        last_event_at: Some(record.last_event_at),
    });
    Ok(Stats {
        effective: node.counters.effective,
        by_class: node.counters.by_class,
        stage: node.counters.stage,
        topics: topics.collect(),
        head: node.head,
        outbox_first: node.outbox_dropped.next(),
        ids: tables.len(txn, Table::Ids)?,
        failed: node.failed,
        disk_bytes: Some(tables.bytes(txn)?),
        clock_held: node.clock.held,
    })
}

pub(crate) fn explain(tables: &Tables, txn: &RoTxn<'_>, id: &EventId) -> Result<Explanation> {
    let known = tables.get(txn, Table::Ids, id.as_bytes())?.map(KnownId::unpack).transpose()?;
    let record = known.map(|known| known.record);
    let Some(row) = row_of(tables, txn, id)? else {
        let tombstones = tombstones_under(tables, txn, &DeletionTargetKind::EventId(*id))?;
        return Ok(Explanation { record, tombstones, ..Explanation::default() });
    };
    let event = row.event()?;
    let names = Names::new(tables, txn);
    let key = match event.address() {
        Some(address) => key_of(tables, txn, &address)?.map(|key| key.state()),
        None => None,
    };
    Ok(Explanation {
        record,
        row: Some(RowRecord {
            json: row.json(),
            topics: row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<_>>()?,
            ingested_at: row.ingested_at,
        }),
        tombstones: tombstones_of(tables, txn, &event)?,
        vanish_marks: vanish_marks_of(tables, txn, &event)?,
        key,
    })
}

pub(crate) fn explain_address(tables: &Tables, txn: &RoTxn<'_>, address: &Address) -> Result<AddressExplanation> {
    let mark = tables.get(txn, Table::Vanished, address.pubkey().as_bytes())?;
    Ok(AddressExplanation {
        key: key_of(tables, txn, address)?.map(|key| key.state()),
        tombstone: tombstones_under(tables, txn, &DeletionTargetKind::Address(address.clone()))?.pop(),
        vanish_mark: mark.map(VanishRecord::unpack).transpose()?.map(|record| record.mark),
    })
}

fn key_of(tables: &Tables, txn: &RoTxn<'_>, address: &Address) -> Result<Option<KeyRecord>> {
    let record = tables.get(txn, Table::Keys, &address.digest().0)?;
    record.map(KeyRecord::unpack).transpose().map_err(Into::into)
}
