//! Storing and removing events.

use std::{borrow::Cow, iter};

use bytes::Bytes;
use kukuri_domain::{
    Address, Admitted, Event, EventId, Millis, Reason, State, TopicId,
    retention::{RetentionClass, TopicRetention},
};
use kukuri_store::{IdRecord, Standing, counters::Tally as _, ingest::Ledger as _};

use super::Batch;
use crate::{
    error::{Result, damaged},
    index::IndexRows,
    key::{self, EventNo, TopicNo},
    pack::Pack,
    record::{KeyRecord, KnownId, Row, Traits},
    tables::Table,
};

/// A row as it is stored, effective or hidden.
pub(crate) struct StoredRow<'e> {
    pub(crate) no: EventNo,
    pub(crate) event: Cow<'e, Event>,
    pub(crate) json: Bytes,
    pub(crate) topics: Vec<TopicNo>,
    pub(crate) ingested_at: Millis,
    pub(crate) state: State,
}

impl StoredRow<'_> {
    pub(crate) fn class(&self) -> RetentionClass {
        RetentionClass::of(self.event.kind, self.is_effective())
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.state == State::Effective
    }

    pub(crate) fn read(no: EventNo, row: Row<'_>) -> Result<Self> {
        let (event, json) = (Cow::Owned(row.event()?), row.json());
        Ok(Self { no, event, json, ingested_at: row.ingested_at, state: row.state, topics: row.topics })
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        let topics = &self.topics;
        let pack = Pack::with_capacity(12 + 4 * topics.len() + self.json.len())
            .field(&self.ingested_at)
            .field(&self.state)
            .field(&Traits::of(&self.event, topics.len()))
            .field(&(topics.len() as u16));
        topics.iter().fold(pack, Pack::field).bytes(&self.json).done()
    }
}

impl Batch<'_> {
    pub(crate) fn put_key(&mut self, address: &Address, key: &KeyRecord) -> Result<()> {
        self.put_record(&address.digest().0, key)
    }

    /// A row that an index or another record names.
    pub(crate) fn row(&self, no: EventNo) -> Result<Row<'_>> {
        self.view().row(no)?.ok_or_else(|| damaged(format!("row {} is missing", no.0)))
    }

    /// Stores a new row with its index rows and counters.
    pub(crate) fn add_row<'e>(
        &mut self,
        event: Cow<'e, Event>,
        topics: &[TopicId],
        json: Bytes,
        ingested_at: Millis,
        state: State,
    ) -> Result<StoredRow<'e>> {
        self.node.last_event.0 += 1;
        let topics = topics.iter().map(|topic| self.topic_no(topic)).collect::<Result<_>>()?;
        let row = StoredRow { no: self.node.last_event, event, json, topics, ingested_at, state };
        self.append(Table::Events, &row.no.key(), &row.pack())?;
        self.file(&row)?;
        Ok(row)
    }

    /// Records the id of an event after its first decision.
    pub(super) fn put_id(&mut self, admitted: &Admitted, standing: Standing, no: Option<EventNo>) -> Result<()> {
        let stamp = self.stamp();
        let record =
            IdRecord { source: admitted.source(), first_seen_at: stamp, last_seen_at: stamp, seen_count: 1, standing };
        self.put_known_id(&admitted.event().id, KnownId { record, no })
    }

    /// Writes the record of an id. An id without a row is listed to be forgotten.
    pub(crate) fn put_known_id(&mut self, id: &EventId, known: KnownId) -> Result<()> {
        if known.no.is_none() {
            self.put(Table::Gone, &key::gone(known.record.last_seen_at, id), &[])?;
        }
        self.put_record(id.as_bytes(), &known)
    }

    /// Deletes a row for good. A hidden row is not announced (P-8).
    pub(crate) fn purge_row(&mut self, row: StoredRow<'static>, reason: Reason) -> Result<()> {
        if row.is_effective() {
            return self.retire(row, reason, None);
        }
        if let Some(known) = self.view().known_id(&row.event.id)? {
            self.put_known_id(&row.event.id, KnownId { no: None, ..known })?;
        }
        self.unfile(&row)?;
        self.delete(Table::Events, &row.no.key())
    }

    /// Inserts the index rows of a row and counts it, by its class and state.
    pub(super) fn file(&mut self, row: &StoredRow<'_>) -> Result<()> {
        let rows = self.index_rows(row)?;
        for (table, key) in &rows.keys {
            self.put(*table, key, rows.value(*table))?;
        }
        self.count(row, 1)
    }

    /// Reverses [`Self::file`].
    pub(super) fn unfile(&mut self, row: &StoredRow<'_>) -> Result<()> {
        for (table, key) in self.index_rows(row)?.keys {
            self.delete(table, &key)?;
        }
        self.count(row, -1)
    }

    fn index_rows(&mut self, row: &StoredRow<'_>) -> Result<IndexRows> {
        if !row.is_effective() {
            return Ok(IndexRows::of_hidden(row));
        }
        let author = self.author_no(&row.event.pubkey)?;
        Ok(IndexRows::of_effective(row, author, &self.topic_ids(&row.topics)?))
    }

    /// Adds (1) or subtracts (-1) a row from the counters of the node and of its topics.
    fn count(&mut self, row: &StoredRow<'_>, sign: i64) -> Result<()> {
        for topic in iter::once(None).chain(row.topics.iter().copied().map(Some)) {
            self.counters(topic)?.count(row.event.kind, row.state, row.json.len(), sign);
        }
        self.changed_topics.extend_from_slice(&row.topics);
        Ok(())
    }

    pub(crate) fn topic_ids(&mut self, topics: &[TopicNo]) -> Result<Vec<TopicId>> {
        topics.iter().map(|topic| self.topic_id(*topic)).collect()
    }

    pub(crate) fn topic_retention(&mut self, topic: TopicNo) -> Result<TopicRetention> {
        let id = self.topic_id(topic)?;
        Ok(self.ctx.subscriptions.policy(&id).retention)
    }
}
