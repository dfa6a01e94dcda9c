//! One write transaction: rows, indexes, outbox and counters change together or not at all (P-3).
//!
//! Counters, topic and author numbers are changed in memory and written once, when the batch commits.
//!
//! - This file: the transaction, topic and author numbers, the outbox.
//! - `ledger`: the ingest procedure's reads and writes. `rows`: rows with their index rows and counters.

mod ledger;
mod rows;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use heed::{PutFlags, RwTxn};
use kukuri_domain::{Address, Admitted, Millis, PublicKey, TopicId, capacity::Stage, clock::Clock, vanish::VanishMark};
use kukuri_store::{
    Op, OutboxRow, Seq, StageChange, Stats, StoreError, StoreRules,
    counters::Tally as _,
    ingest::{BatchEffect, EventFailure, Ledger as _, ingest_batch},
    subscriptions::Subscriptions,
};

use crate::{
    error::{Failure, Result, damaged},
    format, former_topics,
    key::{self, AuthorNo, TopicNo},
    lookup,
    pack::{Field as _, Record},
    record::{NodeRecord, OutboxRecord, TopicRecord},
    tables::{Table, Tables, View},
};

pub(crate) use rows::StoredRow;

/// The writer's state that a batch works with.
#[derive(Clone, Copy)]
pub(crate) struct BatchContext<'s> {
    pub(crate) tables: &'s Tables,
    pub(crate) rules: &'s StoreRules,
    pub(crate) subscriptions: &'s Subscriptions,
    /// The clock as this process has seen it; the clock on disk may lag a little.
    pub(crate) clock: Clock,
    #[cfg(test)]
    pub(crate) faults: &'s kukuri_store::conformance::faults::Faults,
}

/// How far the clock on disk may lag while nothing else is written.
const CLOCK_LAG: Duration = Duration::from_secs(60);

/// Result of a committed batch.
pub(crate) struct Committed {
    /// Capacity stages that changed.
    pub(crate) stages: Vec<StageChange>,
    /// The new head of the outbox.
    pub(crate) head: Seq,
    /// The clock that the batch has seen.
    pub(crate) clock: Clock,
}

/// A topic as this batch sees it.
struct Topic {
    id: TopicId,
    record: TopicRecord,
    /// The record on disk.
    stored: Option<TopicRecord>,
}

/// A write transaction in progress.
pub(crate) struct Batch<'s> {
    pub(crate) ctx: BatchContext<'s>,
    pub(crate) txn: RwTxn<'s>,
    pub(crate) node: NodeRecord,
    /// Ordered: a batch has few topics, and finding one by its number costs less than a hash.
    topics: BTreeMap<TopicNo, Topic>,
    topic_nos: HashMap<TopicId, TopicNo>,
    authors: HashMap<PublicKey, AuthorNo>,
    changed_topics: Vec<TopicNo>,
    pub(crate) stages: Vec<StageChange>,
    /// Copies of the outbox rows that this batch wrote, if readers need them before the commit.
    pub(crate) emitted: Option<Vec<OutboxRow>>,
    /// The node's own counters on disk.
    stored: NodeRecord,
    /// Rows inserted or deleted.
    pub(crate) written: usize,
    /// Only requests (kinds 5 and 62) are stored.
    pub(crate) is_disk_full: bool,
    /// Another store is loaded: topics come before their rows.
    pub(crate) is_loading: bool,
    /// While loading: numbers of topics that only outbox rows name, and the last of these rows.
    former_topics: HashMap<TopicId, (TopicNo, Seq)>,
    /// The mark that the last written vanish mark replaced. The ingest procedure writes a mark, then asks for its rows.
    replaced_mark: Option<VanishMark>,
}

impl<'s> Batch<'s> {
    /// Begins a transaction and advances the clock to `now`.
    pub(crate) fn begin(ctx: BatchContext<'s>, now: Millis) -> Result<Self> {
        let mut batch = Self::resume(ctx)?;
        batch.tick(now);
        Ok(batch)
    }

    /// The number that LMDB gives to this transaction.
    pub(crate) fn transaction(&self) -> u64 {
        self.txn.id() as u64
    }

    /// Ingests events in this transaction. Copies of known events alone do not advance the clock.
    pub(crate) fn ingest(
        &mut self,
        events: &[Admitted],
        failed: &HashSet<usize>,
        now: Millis,
    ) -> Result<BatchEffect, EventFailure<Failure>> {
        let before = self.node.clock;
        self.tick(now);
        #[cfg(test)]
        let faults = self.ctx.faults;
        let effect = ingest_batch(self, events, failed, now, |_admitted| {
            #[cfg(test)]
            faults.strike(_admitted)?;
            Ok(())
        })?;
        if !effect.has_unknown {
            self.node.clock = before;
        }
        Ok(effect)
    }

    /// Advances the clock of the open transaction.
    pub(crate) fn tick(&mut self, now: Millis) {
        self.node.clock = self.ctx.rules.tick(self.node.clock, self.node.head, now);
    }

    /// The timestamp for copies of known events, which do not advance the clock.
    pub(crate) fn stamp_of_copies(&self, now: Millis) -> Millis {
        self.node.clock.tick(now, &self.ctx.rules.clock).latest
    }

    /// Outbox rows since the last call.
    pub(crate) fn take_outbox_rows(&mut self) -> Vec<OutboxRow> {
        self.emitted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Begins a transaction without advancing the clock.
    pub(crate) fn resume(ctx: BatchContext<'s>) -> Result<Self> {
        let txn = ctx.tables.env.write_txn()?;
        let stored = View { tables: ctx.tables, txn: &txn }.node()?;
        Ok(Self {
            ctx,
            node: NodeRecord { clock: ctx.clock, ..stored },
            stored,
            written: 0,
            is_disk_full: false,
            is_loading: false,
            former_topics: HashMap::new(),
            replaced_mark: None,
            txn,
            topics: BTreeMap::new(),
            topic_nos: HashMap::new(),
            authors: HashMap::new(),
            changed_topics: Vec::new(),
            stages: Vec::new(),
            emitted: None,
        })
    }

    /// Commits durably. Returns at once if nothing changed.
    pub(crate) fn commit(mut self) -> Result<Committed> {
        for topic in std::mem::take(&mut self.topics).into_values() {
            self.write_topic(&topic)?;
        }
        let clock = self.node.clock;
        let committed = Committed { stages: std::mem::take(&mut self.stages), head: self.node.head, clock };
        let is_same = self.node == NodeRecord { clock, ..self.stored };
        let clock_is_near = clock.is_held() == self.stored.clock.is_held()
            && clock.last.0.abs_diff(self.stored.clock.last.0) < CLOCK_LAG.as_millis() as u64;
        // A full disk takes no write for the clock alone.
        if self.written > 0 || !is_same || !(clock_is_near || self.is_disk_full) {
            self.put(Table::Meta, format::STATE_KEY, &self.node.pack())?;
            self.txn.commit()?;
        }
        Ok(committed)
    }

    /// Writes the record of a topic, or removes it if the topic is over (T-10).
    fn write_topic(&mut self, topic: &Topic) -> Result<()> {
        let Topic { id, record, stored } = topic;
        if !self.is_loading && self.is_topic_over(id, &record.counters) {
            self.written += 1;
            let tables = self.ctx.tables;
            return former_topics::remove(tables, &mut self.txn, id.as_str().as_bytes(), record.no, self.node.head);
        }
        if *stored != Some(*record) {
            self.put_record(id.as_str().as_bytes(), record)?;
        }
        Ok(())
    }

    /// Writes the clock, if nothing else has changed.
    pub(crate) fn commit_clock(mut self) -> Result<()> {
        self.written = usize::from(self.node != self.stored);
        self.commit().map(drop)
    }

    /// The statistics of this transaction: the record of the node is written when it commits.
    pub(crate) fn stats(&self) -> Result<Stats> {
        lookup::stats_of(&self.node, self.view())
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { tables: self.ctx.tables, txn: &self.txn }
    }

    pub(crate) fn put_record<R: Record>(&mut self, key: &[u8], record: &R) -> Result<()> {
        self.put(R::TABLE, key, &record.pack())
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.written += 1;
        Ok(self.ctx.tables.of(table).put(&mut self.txn, key, value)?)
    }

    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.written += 1;
        self.ctx.tables.of(table).delete(&mut self.txn, key)?;
        Ok(())
    }

    /// Appends a key that is greater than all others of its table, which fills pages completely.
    fn append(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.written += 1;
        Ok(self.ctx.tables.of(table).put_with_flags(&mut self.txn, PutFlags::APPEND, key, value)?)
    }

    // Topic and author numbers.

    /// The number of a topic, if it has one.
    fn known_topic_no(&mut self, id: &TopicId) -> Result<Option<TopicNo>> {
        if let Some(no) = self.topic_nos.get(id) {
            return Ok(Some(*no));
        }
        let stored: Option<TopicRecord> = self.view().find(id.as_str().as_bytes())?;
        if let Some(record) = stored {
            self.hold_topic(id, record, stored);
        }
        Ok(stored.map(|record| record.no))
    }

    /// The number of a topic. A new topic gets the next number.
    fn topic_no(&mut self, id: &TopicId) -> Result<TopicNo> {
        if let Some(no) = self.known_topic_no(id)? {
            return Ok(no);
        }
        let no = self.new_topic_no(id)?;
        self.hold_topic(id, TopicRecord { no, ..TopicRecord::default() }, None);
        Ok(no)
    }

    /// The next number, with this name. Numbers are never given away again.
    fn new_topic_no(&mut self, id: &TopicId) -> Result<TopicNo> {
        let next = self.node.last_topic.0.checked_add(1).ok_or(StoreError::NumbersExhausted("topics"))?;
        self.node.last_topic = TopicNo(next);
        self.put(Table::TopicNames, &former_topics::name_key(TopicNo(next)), id.as_str().as_bytes())?;
        Ok(TopicNo(next))
    }

    fn hold_topic(&mut self, id: &TopicId, record: TopicRecord, stored: Option<TopicRecord>) {
        self.topic_nos.insert(id.clone(), record.no);
        self.topics.insert(record.no, Topic { id: id.clone(), record, stored });
    }

    /// Loads another store's record of a topic; its events are loaded later.
    pub(crate) fn load_topic(&mut self, id: &TopicId, stage: Stage, last_event_at: Millis) -> Result<()> {
        let no = self.topic_no(id)?;
        let record = &mut self.topic(no)?.record;
        record.counters.stage = stage;
        record.last_event_at = last_event_at;
        Ok(())
    }

    /// Marks a topic whose policy changed, so that its stage is recomputed.
    pub(crate) fn touch(&mut self, topic: &TopicId) -> Result<()> {
        let no = self.known_topic_no(topic)?;
        self.changed_topics.extend(no);
        Ok(())
    }

    /// Marks every topic that can have a stage, after a change of configuration, so that it is recomputed.
    pub(crate) fn touch_topics_with_capacity(&mut self) -> Result<()> {
        let subscriptions = self.ctx.subscriptions;
        subscriptions.with_capacity().try_for_each(|topic| self.touch(topic))
    }

    fn topic(&mut self, no: TopicNo) -> Result<&mut Topic> {
        if !self.topics.contains_key(&no) {
            let id = self.view().topic_id(no)?;
            self.topic_no(&id)?;
        }
        self.topics.get_mut(&no).ok_or_else(|| damaged(format!("topic number {} is not its name's", no.0)))
    }

    fn author_no(&mut self, pubkey: &PublicKey) -> Result<AuthorNo> {
        if let Some(no) = self.authors.get(pubkey) {
            return Ok(*no);
        }
        let no = match self.view().find(pubkey.as_bytes())? {
            Some(no) => no,
            None => {
                let next = self.node.last_author.0.checked_add(1).ok_or(StoreError::NumbersExhausted("authors"))?;
                let no = AuthorNo(next);
                self.node.last_author = no;
                self.put_record(pubkey.as_bytes(), &no)?;
                no
            }
        };
        self.authors.insert(*pubkey, no);
        Ok(no)
    }

    // Outbox.

    /// Appends an outbox row of another store unchanged.
    pub(crate) fn load_outbox(&mut self, row: OutboxRow) -> Result<()> {
        let OutboxRow { seq, op, event_id, topic, kind, created_at, ingested_at, effective_key, written_at } = row;
        let topic = match self.known_topic_no(&topic)? {
            Some(no) => no,
            None => self.former_topic_no(&topic, seq)?,
        };
        let record = OutboxRecord { op, event_id, topic, kind, created_at, ingested_at, written_at, effective_key };
        self.append(Table::Outbox, &key::seq(seq), &record.pack())
    }

    /// A number for a topic that has no record any more and is named by the outbox row `seq`, which is loaded.
    fn former_topic_no(&mut self, id: &TopicId, seq: Seq) -> Result<TopicNo> {
        let no = match self.former_topics.get(id).copied() {
            Some((no, last)) => {
                self.delete(Table::FormerTopics, &key::former_topic(last, no))?;
                no
            }
            None => self.new_topic_no(id)?,
        };
        self.put(Table::FormerTopics, &key::former_topic(seq, no), &[])?;
        self.former_topics.insert(id.clone(), (no, seq));
        Ok(no)
    }

    fn write_outbox(&mut self, row: &StoredRow<'_>, effective_key: Option<Address>, op: Op) -> Result<()> {
        let mut record = OutboxRecord {
            op,
            event_id: row.event.id,
            topic: TopicNo::default(),
            kind: row.event.kind,
            created_at: row.event.created_at,
            ingested_at: row.ingested_at,
            written_at: self.stamp(),
            effective_key,
        };
        for topic in &row.topics {
            self.node.head = self.node.head.next();
            record.topic = *topic;
            self.append(Table::Outbox, &key::seq(self.node.head), &record.pack())?;
            if self.emitted.is_some() {
                let row = record.clone().row(self.node.head, self.topic_id(*topic)?);
                self.emitted.get_or_insert_default().push(row);
            }
        }
        Ok(())
    }
}
