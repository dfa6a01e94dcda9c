//! Reads other than filters: by id, the outbox, snapshots, statistics, explanations.

use std::collections::HashMap;

use heed::RoTxn;
use kukuri_domain::{
    Address, Event, EventId, Millis, State, TopicId,
    deletion::{DeletionTargetKind, Tombstone},
};
use kukuri_store::{
    AddressExplanation, BoundEvent, ConsumerOffset, Explanation, OutboxRow, RowRecord, Seq, SnapshotCursor,
    SnapshotPage, Stats, StoreError, StoredEvent, TopicStats,
};

use crate::{
    error::{Result, damaged},
    format,
    key::{self, EventNo, TopicNo},
    pack::Record as _,
    query::Part,
    record::{KeyRecord, KnownId, OffsetRecord, OutboxRecord, Row, TombstoneRecord, TopicRecord, VanishRecord},
    tables::{Table, Tables},
};

impl Tables {
    /// A stored row, effective or hidden.
    pub(crate) fn row<'t>(&self, txn: &'t RoTxn<'_>, no: EventNo) -> Result<Option<Row<'t>>> {
        self.get(txn, Table::Events, &no.key())?.map(Row::unpack).transpose()
    }

    pub(crate) fn known_id(&self, txn: &RoTxn<'_>, id: &EventId) -> Result<Option<KnownId>> {
        self.find(txn, id.as_bytes())
    }

    /// The row of an id, if the event is stored.
    pub(crate) fn row_of<'t>(&self, txn: &'t RoTxn<'_>, id: &EventId) -> Result<Option<Row<'t>>> {
        match self.known_id(txn, id)?.and_then(|known| known.no) {
            Some(no) => self.row(txn, no),
            None => Ok(None),
        }
    }

    pub(crate) fn key(&self, txn: &RoTxn<'_>, address: &Address) -> Result<Option<KeyRecord>> {
        self.find(txn, &address.digest().0)
    }

    pub(crate) fn topic_id(&self, txn: &RoTxn<'_>, no: TopicNo) -> Result<TopicId> {
        let name = self.get(txn, Table::TopicNames, &no.0.to_be_bytes())?;
        topic_of_key(name.ok_or_else(|| damaged(format!("topic number {} has no name", no.0)))?)
    }

    pub(crate) fn topic_ids(&self, txn: &RoTxn<'_>, topics: &[TopicNo]) -> Result<Vec<TopicId>> {
        topics.iter().map(|no| self.topic_id(txn, *no)).collect()
    }

    /// All topics with their records.
    pub(crate) fn topics(&self, txn: &RoTxn<'_>) -> Result<Vec<(TopicId, TopicRecord)>> {
        let read = |(topic, record)| Ok((topic_of_key(topic)?, TopicRecord::unpack(record)?));
        self.of(Table::Topics).iter(txn)?.map(|entry| read(entry?)).collect()
    }

    /// Tombstones that name an event's id or its address.
    pub(crate) fn tombstones_of(&self, txn: &RoTxn<'_>, event: &Event) -> Result<Vec<Tombstone>> {
        let mut tombstones = self.tombstones_under(txn, &DeletionTargetKind::EventId(event.id))?;
        if let Some(address) = event.address() {
            tombstones.extend(self.tombstones_under(txn, &DeletionTargetKind::Address(address))?);
        }
        Ok(tombstones)
    }

    fn tombstones_under(&self, txn: &RoTxn<'_>, target: &DeletionTargetKind) -> Result<Vec<Tombstone>> {
        let entries = self.of(Table::Tombstones).prefix_iter(txn, &key::tombstones(target))?;
        entries.map(|entry| Ok(TombstoneRecord::unpack(entry?.1)?.tombstone)).collect()
    }
}

pub(crate) fn topic_of_key(key: &[u8]) -> Result<TopicId> {
    std::str::from_utf8(key).map(TopicId::new_unchecked).map_err(|_| damaged("a topic's name is no text"))
}

/// The states of these ids, in order.
pub(crate) fn read_states(tables: &Tables, txn: &RoTxn<'_>, ids: &[EventId]) -> Result<Vec<Option<State>>> {
    ids.iter().map(|id| Ok(tables.known_id(txn, id)?.map(|known| known.record.standing.state()))).collect()
}

pub(crate) fn get(tables: &Tables, txn: &RoTxn<'_>, id: &EventId, now: Millis) -> Result<Option<BoundEvent>> {
    let Some(row) = tables.row_of(txn, id)?.filter(Row::is_effective) else { return Ok(None) };
    if !row.traits.is_plain() && row.event()?.is_expired(now) {
        return Ok(None);
    }
    bound(&row, tables, txn).map(Some)
}

fn bound(row: &Row<'_>, tables: &Tables, txn: &RoTxn<'_>) -> Result<BoundEvent> {
    let topics = tables.topic_ids(txn, &row.topics)?;
    Ok(BoundEvent { event: StoredEvent::from_row(row)?, topics, ingested_at: row.ingested_at })
}

pub(crate) fn outbox(tables: &Tables, txn: &RoTxn<'_>, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
    let node = format::node_record(tables, txn)?;
    if after < node.outbox_dropped {
        return Err(StoreError::Truncated { after, first: node.outbox_dropped.next() }.into());
    }
    let mut topics: HashMap<TopicNo, TopicId> = HashMap::new();
    let mut rows = Vec::with_capacity(limit.min(1_024));
    for entry in tables.after(txn, Table::Outbox, &key::seq(after))?.take(limit) {
        let (seq, record) = entry?;
        let record = OutboxRecord::unpack(record)?;
        let topic = match topics.get(&record.topic) {
            Some(topic) => topic.clone(),
            None => topics.entry(record.topic).or_insert(tables.topic_id(txn, record.topic)?).clone(),
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
    let mut events = Vec::new();
    let mut last = cursor.after;
    for entry in tables.after(txn, Table::Events, &EventNo(cursor.after).key())? {
        let (no, record) = entry?;
        let row = Row::unpack(record)?;
        if !row.is_effective() {
            continue;
        }
        if events.len() == limit {
            let next = SnapshotCursor { seq: Some(seq), after: last };
            return Ok(SnapshotPage { seq, events, next: Some(next) });
        }
        events.push(bound(&row, tables, txn)?);
        last = EventNo::of_key(no)?.0;
    }
    Ok(SnapshotPage { seq, events, next: None })
}

pub(crate) fn offsets(tables: &Tables, txn: &RoTxn<'_>) -> Result<Vec<ConsumerOffset>> {
    let entries = tables.of(Table::Offsets).iter(txn)?;
    entries.map(|entry| entry.map_err(Into::into).and_then(|(consumer, record)| offset(consumer, record))).collect()
}

pub(crate) fn offset(consumer: &[u8], record: &[u8]) -> Result<ConsumerOffset> {
    let OffsetRecord { last_seq, updated_at } = OffsetRecord::unpack(record)?;
    Ok(ConsumerOffset { consumer: String::from_utf8_lossy(consumer).into_owned(), last_seq, updated_at })
}

pub(crate) fn stats(tables: &Tables, txn: &RoTxn<'_>) -> Result<Stats> {
    let node = format::node_record(tables, txn)?;
    let topics = tables.topics(txn)?.into_iter().map(|(topic, record)| TopicStats {
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
    let record = tables.known_id(txn, id)?.map(|known| known.record);
    let Some(row) = tables.row_of(txn, id)? else {
        let tombstones = tables.tombstones_under(txn, &DeletionTargetKind::EventId(*id))?;
        return Ok(Explanation { record, tombstones, ..Explanation::default() });
    };
    let event = row.event()?;
    let marks = event.owners().filter_map(|owner| tables.find::<VanishRecord>(txn, owner.as_bytes()).transpose());
    let key = event.address().and_then(|address| tables.key(txn, &address).transpose()).transpose()?;
    let topics = tables.topic_ids(txn, &row.topics)?;
    Ok(Explanation {
        record,
        row: Some(RowRecord { json: row.json(), topics, ingested_at: row.ingested_at }),
        tombstones: tables.tombstones_of(txn, &event)?,
        vanish_marks: marks.map(|record| Ok(record?.mark)).collect::<Result<_>>()?,
        key: key.map(|key| key.state()),
    })
}

pub(crate) fn explain_address(tables: &Tables, txn: &RoTxn<'_>, address: &Address) -> Result<AddressExplanation> {
    let mark = tables.find::<VanishRecord>(txn, address.pubkey().as_bytes())?;
    Ok(AddressExplanation {
        key: tables.key(txn, address)?.map(|key| key.state()),
        tombstone: tables.tombstones_under(txn, &DeletionTargetKind::Address(address.clone()))?.pop(),
        vanish_mark: mark.map(|record| record.mark),
    })
}
