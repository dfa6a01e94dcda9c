//! Reads other than filters: by id, the outbox, snapshots, statistics, explanations.

use std::collections::HashMap;

use kukuri_domain::{
    Address, Event, EventId, Millis, PublicKey, State, TopicId,
    deletion::{DeletionTargetKind, Tombstone},
    sharing::RequestRef,
    vanish::VanishMark,
};
use kukuri_store::{
    AddressExplanation, BoundEvent, ConsumerOffset, Explanation, OutboxRow, RowRecord, Seq, SnapshotCursor,
    SnapshotPage, Stats, StoreError, StoredEvent, TopicStats, outbox::MAX_SNAPSHOT_PAGE_BYTES,
};

use crate::{
    error::{Result, damaged},
    format,
    key::{self, EventNo, TopicNo},
    pack::Record as _,
    query::Part,
    record::{
        KeyRecord, KnownId, NodeRecord, OffsetRecord, OutboxRecord, Row, TombstoneRecord, TopicRecord, VanishRecord,
    },
    tables::{Table, View},
    traces,
};

impl<'t> View<'t> {
    /// The node's own counters.
    pub(crate) fn node(self) -> Result<NodeRecord> {
        self.find(format::STATE_KEY)?.ok_or_else(|| damaged("the node's state is gone"))
    }

    /// A stored row, effective or hidden.
    pub(crate) fn row(self, no: EventNo) -> Result<Option<Row<'t>>> {
        self.get(Table::Events, &no.key())?.map(Row::unpack).transpose()
    }

    pub(crate) fn effective_row(self, no: EventNo) -> Result<Option<Row<'t>>> {
        Ok(self.row(no)?.filter(Row::is_effective))
    }

    pub(crate) fn known_id(self, id: &EventId) -> Result<Option<KnownId>> {
        self.find(id.as_bytes())
    }

    /// The effective row of an id.
    pub(crate) fn effective_row_of(self, id: &EventId) -> Result<Option<Row<'t>>> {
        self.known_id(id)?.and_then(|known| known.no).map_or(Ok(None), |no| self.effective_row(no))
    }

    pub(crate) fn key(self, address: &Address) -> Result<Option<KeyRecord>> {
        self.find(&address.digest().0)
    }

    pub(crate) fn vanish_mark(self, author: &PublicKey) -> Result<Option<VanishMark>> {
        self.find(author.as_bytes())?.map(|record| self.vanish_mark_in(record)).transpose()
    }

    /// The mark of a record. One of format 2 has a shareable request if its own is shared.
    pub(crate) fn vanish_mark_in(self, record: VanishRecord) -> Result<VanishMark> {
        let mut mark = record.mark;
        if !record.has_shareable {
            mark.shareable = self.shareable(&mark.request_id)?;
        }
        Ok(mark)
    }

    /// The tombstone of a record. One of format 2 has a shareable request if its own is shared.
    pub(crate) fn tombstone_in(self, record: TombstoneRecord) -> Result<Tombstone> {
        let mut tombstone = record.tombstone;
        if !record.has_shareable {
            tombstone.shareable = self.shareable(&tombstone.deletion_id)?;
        }
        Ok(tombstone)
    }

    fn shareable(self, request: &EventId) -> Result<Option<RequestRef>> {
        Ok(traces::passed_on(self, request)?.as_ref().map(RequestRef::of))
    }

    pub(crate) fn topic_id(self, no: TopicNo) -> Result<TopicId> {
        let name = self.get(Table::TopicNames, &no.0.to_be_bytes())?;
        topic_of_key(name.ok_or_else(|| damaged(format!("topic number {} has no name", no.0)))?)
    }

    pub(crate) fn topic_ids(self, topics: &[TopicNo]) -> Result<Vec<TopicId>> {
        topics.iter().map(|no| self.topic_id(*no)).collect()
    }

    /// All topics with their records.
    pub(crate) fn topics(self) -> Result<Vec<(TopicId, TopicRecord)>> {
        let read = |(topic, record)| Ok((topic_of_key(topic)?, TopicRecord::unpack(record)?));
        self.iter(Table::Topics)?.map(|entry| read(entry?)).collect()
    }

    /// Tombstones that name an event's id or its address.
    pub(crate) fn tombstones_of(self, event: &Event) -> Result<Vec<Tombstone>> {
        let mut tombstones = self.tombstones_under(&DeletionTargetKind::EventId(event.id))?;
        if let Some(address) = event.address() {
            tombstones.extend(self.tombstones_under(&DeletionTargetKind::Address(address))?);
        }
        Ok(tombstones)
    }

    fn tombstones_under(self, target: &DeletionTargetKind) -> Result<Vec<Tombstone>> {
        let entries = self.prefix_iter(Table::Tombstones, &key::tombstones(target))?;
        entries.map(|entry| self.tombstone_in(TombstoneRecord::unpack(entry?.1)?)).collect()
    }
}

pub(crate) fn topic_of_key(key: &[u8]) -> Result<TopicId> {
    std::str::from_utf8(key).map(TopicId::new_unchecked).map_err(|_| damaged("a topic's name is no text"))
}

/// The states of these ids, in order.
pub(crate) fn read_states(view: View<'_>, ids: &[EventId]) -> Result<Vec<Option<State>>> {
    ids.iter().map(|id| Ok(view.known_id(id)?.map(|known| known.record.standing.state()))).collect()
}

pub(crate) fn get(view: View<'_>, id: &EventId, now: Millis) -> Result<Option<BoundEvent>> {
    let Some(row) = view.effective_row_of(id)? else { return Ok(None) };
    if !row.traits.is_plain() && row.event()?.is_expired(now) {
        return Ok(None);
    }
    bound(&row, view).map(Some)
}

fn bound(row: &Row<'_>, view: View<'_>) -> Result<BoundEvent> {
    let topics = view.topic_ids(&row.topics)?;
    Ok(BoundEvent { event: StoredEvent::from_row(row)?, topics, ingested_at: row.ingested_at })
}

pub(crate) fn outbox(view: View<'_>, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
    let node = view.node()?;
    if after < node.outbox_dropped {
        return Err(StoreError::Truncated { after, first: node.outbox_dropped.next() }.into());
    }
    let mut topics: HashMap<TopicNo, TopicId> = HashMap::new();
    let mut rows = Vec::with_capacity(limit.min(1_024));
    for entry in view.after(Table::Outbox, &key::seq(after))?.take(limit) {
        let (seq, record) = entry?;
        let record = OutboxRecord::unpack(record)?;
        let topic = match topics.get(&record.topic) {
            Some(topic) => topic.clone(),
            None => topics.entry(record.topic).or_insert(view.topic_id(record.topic)?).clone(),
        };
        rows.push(record.row(key::seq_of(seq)?, topic));
    }
    Ok(rows)
}

/// Rows, hidden ones among them, that one page of a snapshot looks at: a page is read in one go on a thread of the runtime.
const MAX_SNAPSHOT_ROWS: usize = 4_096;

pub(crate) fn snapshot(view: View<'_>, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
    let seq = match cursor.seq {
        Some(seq) => seq,
        None => view.node()?.head,
    };
    let (mut events, mut bytes) = (Vec::new(), 0);
    let mut last = cursor.after;
    for (looked_at, entry) in view.after(Table::Events, &EventNo(cursor.after).key())?.enumerate() {
        let (no, record) = entry?;
        let row = Row::unpack(record)?;
        let is_over = row.is_effective()
            && (events.len() == limit || !events.is_empty() && bytes + record.len() > MAX_SNAPSHOT_PAGE_BYTES);
        if is_over || looked_at == MAX_SNAPSHOT_ROWS {
            let next = SnapshotCursor { seq: Some(seq), after: last };
            return Ok(SnapshotPage { seq, events, next: Some(next) });
        }
        if row.is_effective() {
            bytes += record.len();
            events.push(bound(&row, view)?);
        }
        last = EventNo::of_key(no)?.0;
    }
    Ok(SnapshotPage { seq, events, next: None })
}

pub(crate) fn offsets(view: View<'_>) -> Result<Vec<ConsumerOffset>> {
    let entries = view.iter(Table::Offsets)?;
    entries.map(|entry| entry.map_err(Into::into).and_then(offset)).collect()
}

pub(crate) fn offset((consumer, record): (&[u8], &[u8])) -> Result<ConsumerOffset> {
    let OffsetRecord { last_seq, updated_at } = OffsetRecord::unpack(record)?;
    Ok(ConsumerOffset { consumer: String::from_utf8_lossy(consumer).into_owned(), last_seq, updated_at })
}

pub(crate) fn stats(view: View<'_>) -> Result<Stats> {
    stats_of(&view.node()?, view)
}

/// The statistics in a transaction that is not committed: `node` is newer than its record.
pub(crate) fn stats_of(node: &NodeRecord, view: View<'_>) -> Result<Stats> {
    Ok(Stats {
        effective: node.counters.effective,
        by_class: node.counters.by_class,
        stage: node.counters.stage,
        head: node.head,
        outbox_first: node.outbox_dropped.next(),
        ids: view.len(Table::Ids)?,
        failed: node.failed,
        disk_bytes: Some(view.bytes()?),
        clock_held: node.clock.is_held(),
    })
}

/// Statistics of these topics, in order.
pub(crate) fn topic_stats(view: View<'_>, topics: &[TopicId]) -> Result<Vec<Option<TopicStats>>> {
    let read = |topic: &TopicId| {
        let record: Option<TopicRecord> = view.find(topic.as_str().as_bytes())?;
        Ok(record.map(|record| stats_of_topic(topic.clone(), &record)))
    };
    topics.iter().map(read).collect()
}

/// Statistics of the topics after one, ordered by id.
pub(crate) fn list_topics(view: View<'_>, after: Option<&TopicId>, limit: usize) -> Result<Vec<TopicStats>> {
    let after = after.map_or(&[][..], |topic| topic.as_str().as_bytes());
    let read = |(topic, record)| Ok(stats_of_topic(topic_of_key(topic)?, &TopicRecord::unpack(record)?));
    view.after(Table::Topics, after)?.take(limit).map(|entry| read(entry?)).collect()
}

fn stats_of_topic(topic: TopicId, record: &TopicRecord) -> TopicStats {
    TopicStats {
        topic,
        effective: record.counters.effective,
        by_class: record.counters.by_class,
        stage: record.counters.stage,
        last_event_at: Some(record.last_event_at).filter(|at| *at > Millis(0)),
    }
}

pub(crate) fn explain(view: View<'_>, id: &EventId) -> Result<Explanation> {
    let known = view.known_id(id)?;
    let record = known.map(|known| known.record);
    let Some(row) = known.and_then(|known| known.no).map_or(Ok(None), |no| view.row(no))? else {
        let tombstones = view.tombstones_under(&DeletionTargetKind::EventId(*id))?;
        return Ok(Explanation { record, tombstones, ..Explanation::default() });
    };
    let event = row.event()?;
    let marks = event.owners().filter_map(|owner| view.vanish_mark(&owner).transpose());
    let key = event.address().and_then(|address| view.key(&address).transpose()).transpose()?;
    let topics = view.topic_ids(&row.topics)?;
    Ok(Explanation {
        record,
        row: Some(RowRecord { json: row.json(), topics, ingested_at: row.ingested_at }),
        tombstones: view.tombstones_of(&event)?,
        vanish_marks: marks.collect::<Result<_>>()?,
        key: key.map(|key| key.state()),
    })
}

pub(crate) fn explain_address(view: View<'_>, address: &Address) -> Result<AddressExplanation> {
    Ok(AddressExplanation {
        key: view.key(address)?.map(|key| key.state()),
        tombstone: view.tombstones_under(&DeletionTargetKind::Address(address.clone()))?.pop(),
        vanish_mark: view.vanish_mark(&address.pubkey())?,
    })
}
