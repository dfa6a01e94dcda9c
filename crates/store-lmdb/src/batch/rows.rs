//! Storing and removing events.

use std::collections::BTreeSet;

use bytes::Bytes;
use kukuri_domain::{
    Address, Admitted, Event, EventId, Kind, Millis, Rank, Reason, State, Tags, Timestamp, TopicId,
    retention::RetentionClass,
};
use kukuri_store::{IdRecord, Op, Standing, counters::Tally as _, ingest::Ledger as _};

use super::{Batch, counting::add};
use crate::{
    error::{Result, damaged},
    index::IndexRows,
    key::{self, EventNo, TopicNo},
    record::{KeyRecord, KnownId, Row, Traits},
    tables::Table,
};

/// A row read in the transaction.
pub(crate) struct StoredRow {
    pub(crate) no: EventNo,
    pub(crate) event: Event,
    pub(crate) json: Bytes,
    pub(crate) topics: Vec<TopicNo>,
    pub(crate) ingested_at: Millis,
    pub(crate) state: State,
}

impl StoredRow {
    pub(crate) fn class(&self) -> RetentionClass {
        RetentionClass::of(self.event.kind, self.is_effective())
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.state == State::Effective
    }

    pub(crate) fn read(no: EventNo, row: Row<'_>) -> Result<Self> {
        Ok(Self {
            no,
            event: row.event()?,
            json: row.json(),
            ingested_at: row.ingested_at,
            state: row.state,
            topics: row.topics,
        })
    }

    fn as_row(&self) -> Row<'_> {
        Row {
            ingested_at: self.ingested_at,
            state: self.state,
            traits: Traits::of(&self.event, self.topics.len()),
            topics: self.topics.clone(),
            json: &self.json,
        }
    }
}

impl Batch<'_> {
    pub(crate) fn known_id(&self, id: &EventId) -> Result<Option<KnownId>> {
        self.get(Table::Ids, id.as_bytes())?.map(KnownId::unpack).transpose().map_err(Into::into)
    }

    pub(crate) fn row(&self, no: EventNo) -> Result<Option<StoredRow>> {
        let Some(record) = self.get(Table::Events, &no.key())? else { return Ok(None) };
        StoredRow::read(no, Row::unpack(record)?).map(Some)
    }

    /// The event's `created_at`, without parsing the rest of the row.
    pub(crate) fn created_at(&self, no: EventNo) -> Result<Timestamp> {
        let record = self.get(Table::Events, &no.key())?;
        let record = record.ok_or_else(|| damaged(format!("row {} is not there", no.0)))?;
        Ok(Row::unpack(record)?.created_at()?)
    }

    /// The part of a row that a decision needs: the event without its content, and with only the tags that determine
    /// its owner and its key.
    pub(crate) fn outline(&self, no: EventNo) -> Result<Option<(Event, State)>> {
        let Some(record) = self.get(Table::Events, &no.key())? else { return Ok(None) };
        let row = Row::unpack(record)?;
        let mut event = row.event()?;
        event.content = String::new();
        if event.kind != Kind::GIFT_WRAP && !event.kind.is_keyed() {
            event.tags = Tags::default();
        }
        Ok(Some((event, row.state)))
    }

    /// Stores an event as effective.
    pub(crate) fn store(&mut self, admitted: &Admitted) -> Result<()> {
        let event = admitted.event();
        let stamp = self.stamp();
        let address = event.address();
        let (no, topics) = self.file(event, admitted.topics(), admitted.json(), stamp)?;
        if let Some(address) = &address {
            let floor = event.rank();
            let record = KeyRecord { floor, raised_at: stamp, current: Some(no) };
            self.put(Table::Keys, &address.digest().0, &record.pack())?;
        }
        for topic in &topics {
            self.topic(*topic)?.record.last_event_at = stamp;
        }
        self.put_id(admitted, Standing::Effective, Some(no))?;
        self.write_outbox(event, address, &topics, stamp, Op::Upsert)
    }

    /// Writes the row of an effective event, its index rows and its counters.
    pub(crate) fn file(
        &mut self,
        event: &Event,
        topic_ids: &[TopicId],
        json: &[u8],
        ingested_at: Millis,
    ) -> Result<(EventNo, Vec<TopicNo>)> {
        let (no, topics) = self.next_row(topic_ids)?;
        let traits = Traits::of(event, topics.len());
        let row = Row { ingested_at, state: State::Effective, traits, topics, json };
        self.append(Table::Events, &no.key(), &row.pack())?;
        let topics = row.topics;

        let author = self.author_no(&event.pubkey)?;
        let named: Vec<_> = topics.iter().copied().zip(topic_ids).collect();
        let rows = IndexRows::of(event, no, author, &named);
        for (table, key) in &rows.keys {
            self.put(*table, key, rows.value(*table))?;
        }
        let class = RetentionClass::of(event.kind, true);
        self.age(no, &topics, class)?;
        self.count(&topics, |counters| {
            counters.effective += 1;
            add(&mut counters.by_class[class as usize], json.len());
        })?;
        Ok((no, topics))
    }

    /// Writes the row of a hidden event, its index rows and its counters.
    pub(crate) fn file_hidden(
        &mut self,
        event: Event,
        topic_ids: &[TopicId],
        json: Bytes,
        ingested_at: Millis,
        state: State,
    ) -> Result<EventNo> {
        let (no, topics) = self.next_row(topic_ids)?;
        self.put_hidden(&StoredRow { no, event, json, topics, ingested_at, state })?;
        Ok(no)
    }

    fn next_row(&mut self, topics: &[TopicId]) -> Result<(EventNo, Vec<TopicNo>)> {
        self.node.last_event.0 += 1;
        let topics = topics.iter().map(|topic| self.topic_no(topic)).collect::<Result<Vec<_>>>()?;
        Ok((self.node.last_event, topics))
    }

    /// Records the id of an event after its first decision.
    pub(super) fn put_id(&mut self, admitted: &Admitted, standing: Standing, no: Option<EventNo>) -> Result<()> {
        let stamp = self.stamp();
        let id = admitted.event().id;
        let record =
            IdRecord { source: admitted.source(), first_seen_at: stamp, last_seen_at: stamp, seen_count: 1, standing };
        self.put(Table::Ids, id.as_bytes(), &KnownId { record, no }.pack())?;
        if no.is_none() {
            self.put(Table::Gone, &key::gone(stamp, &id), &[])?;
        }
        Ok(())
    }

    /// Retires a row, effective or hidden, for this reason.
    pub(crate) fn retire(&mut self, mut row: StoredRow, reason: Reason, cause: Option<EventId>) -> Result<()> {
        if row.is_effective() {
            self.leave_indexes(&row)?;
            self.leave_key(&row.event)?;
            if row.event.kind.is_request() {
                self.drop_traces(&row.event)?;
            }
            self.write_outbox(&row.event, row.event.address(), &row.topics, row.ingested_at, Op::Delete(reason))?;
        }
        let keeps_row = self.ctx.rules.deletion.keeps_row(reason);
        let standing = Standing::Gone { reason, cause, since: self.stamp() };
        self.change_standing(&row.event.id, standing, keeps_row.then_some(row.no))?;
        if !keeps_row {
            return self.remove(&row);
        }
        self.unfile(&row)?;
        row.state = reason.state();
        self.put_hidden(&row)
    }

    /// Deletes a row for good. A hidden row is not announced (P-8).
    pub(crate) fn purge_row(&mut self, row: StoredRow, reason: Reason) -> Result<()> {
        if row.is_effective() {
            return self.retire(row, reason, None);
        }
        if let Some(known) = self.known_id(&row.event.id)? {
            self.change_standing(&row.event.id, known.record.standing, None)?;
        }
        self.remove(&row)
    }

    fn leave_indexes(&mut self, row: &StoredRow) -> Result<()> {
        let author = self.author_no(&row.event.pubkey)?;
        let ids = row.topics.iter().map(|topic| self.topic_id(*topic)).collect::<Result<Vec<_>>>()?;
        let named: Vec<_> = row.topics.iter().copied().zip(&ids).collect();
        let rows = IndexRows::of(&row.event, row.no, author, &named);
        for (table, key) in &rows.keys {
            self.delete(*table, key)?;
        }
        Ok(())
    }

    /// The key keeps its floor and has no effective version any more (D-9).
    fn leave_key(&mut self, event: &Event) -> Result<()> {
        let Some(address) = event.address() else { return Ok(()) };
        let Some(mut key) = self.key(&address)? else { return Ok(()) };
        key.current = None;
        self.put(Table::Keys, &address.digest().0, &key.pack())
    }

    pub(crate) fn key(&self, address: &Address) -> Result<Option<KeyRecord>> {
        self.get(Table::Keys, &address.digest().0)?.map(KeyRecord::unpack).transpose().map_err(Into::into)
    }

    /// Raises a key's floor for a version that is refused (D-9).
    pub(crate) fn raise_floor(&mut self, address: &Address, floor: Rank) -> Result<()> {
        let record = KeyRecord { floor, raised_at: self.stamp(), current: None };
        self.put(Table::Keys, &address.digest().0, &record.pack())
    }

    fn put_hidden(&mut self, row: &StoredRow) -> Result<()> {
        self.put(Table::Events, &row.no.key(), &row.as_row().pack())?;
        for key in hidden_keys(row) {
            self.put(Table::Hidden, &key, &[])?;
        }
        self.age(row.no, &row.topics, row.class())?;
        self.count(&row.topics, |counters| add(&mut counters.by_class[row.class() as usize], row.json.len()))
    }

    fn remove(&mut self, row: &StoredRow) -> Result<()> {
        self.unfile(row)?;
        self.delete(Table::Events, &row.no.key())?;
        Ok(())
    }

    /// Removes the index rows of a row and subtracts it from the counters, by its class and state.
    fn unfile(&mut self, row: &StoredRow) -> Result<()> {
        self.uncount(row)?;
        if !row.is_effective() {
            for key in hidden_keys(row) {
                self.delete(Table::Hidden, &key)?;
            }
        }
        Ok(())
    }

    fn change_standing(&mut self, id: &EventId, standing: Standing, no: Option<EventNo>) -> Result<()> {
        let Some(mut known) = self.known_id(id)? else { return Err(damaged(format!("row {id} has no id record"))) };
        known.record.standing = standing;
        known.no = no;
        if no.is_none() {
            self.put(Table::Gone, &key::gone(known.record.last_seen_at, id), &[])?;
        }
        self.put(Table::Ids, id.as_bytes(), &known.pack())
    }
}

/// Keys of a hidden row, one for each of its owners, so that their requests find it. A deleted row need not be found by
/// its address again.
pub(crate) fn hidden_keys(row: &StoredRow) -> BTreeSet<Vec<u8>> {
    let address = row.event.address().filter(|_| row.state != State::Deleted);
    row.event.owners().map(|owner| key::hidden(&owner, address.as_ref(), row.no)).collect()
}
