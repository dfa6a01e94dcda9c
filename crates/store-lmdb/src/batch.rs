//! One write transaction: rows, indexes, outbox and counters change together or not at all (P-3).
//!
//! Counters, topic and author numbers are worked on in memory and written once, when the batch commits.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use heed::RwTxn;
use kukuri_domain::{
    Address, Admitted, Event, EventId, Millis, PublicKey, Rank, Reason, State, TopicId,
    capacity::{Capacity, Load, Stage, Usage},
    retention::RetentionClass,
    subscription::IngestPolicy,
};
use kukuri_store::{IdRecord, Op, Seq, StageChange, Standing, StoreRules, report};

use crate::{
    error::{Result, damaged, engine},
    format,
    index::IndexRows,
    key::{self, AuthorNo, EventNo, TopicNo},
    record::{Counters, KeyRecord, KnownId, NodeRecord, OutboxRecord, Row, TopicRecord, Traits},
    subscriptions::Subscriptions,
    tables::{LmdbEnv, Table, Tables},
};

/// What a batch works with besides the transaction.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'s> {
    pub(crate) env: &'s LmdbEnv,
    pub(crate) tables: Tables,
    pub(crate) rules: &'s StoreRules,
    pub(crate) subscriptions: &'s Subscriptions,
}

/// A topic as this batch sees it.
struct Topic {
    id: TopicId,
    record: TopicRecord,
}

/// A row that was read out of the transaction.
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

/// A write transaction under way.
pub(crate) struct Batch<'s> {
    pub(crate) around: Surroundings<'s>,
    pub(crate) txn: RwTxn<'s>,
    pub(crate) node: NodeRecord,
    topics: HashMap<TopicNo, Topic>,
    topic_nos: HashMap<TopicId, TopicNo>,
    authors: HashMap<PublicKey, AuthorNo>,
    touched: Vec<TopicNo>,
    stages: Vec<StageChange>,
}

impl<'s> Batch<'s> {
    /// Begins a transaction at a new time.
    pub(crate) fn begin(around: Surroundings<'s>, now: Millis) -> Result<Self> {
        let mut batch = Self::resume(around)?;
        let before = batch.node.clock;
        batch.node.clock = before.tick(now);
        if batch.node.clock.held && !before.held {
            tracing::warn!(
                now = now.0,
                latest = before.latest.0,
                "the clock jumped by more than an hour: nothing is purged until it is confirmed"
            );
        }
        Ok(batch)
    }

    /// Begins a transaction at the time of the last one.
    pub(crate) fn resume(around: Surroundings<'s>) -> Result<Self> {
        let txn = around.env.write_txn().map_err(engine)?;
        Ok(Self {
            around,
            node: format::node_record(&around.tables, &txn)?,
            txn,
            topics: HashMap::new(),
            topic_nos: HashMap::new(),
            authors: HashMap::new(),
            touched: Vec::new(),
            stages: Vec::new(),
        })
    }

    /// Makes everything durable. Returns the stages that changed and the new head of the outbox.
    pub(crate) fn commit(mut self) -> Result<(Vec<StageChange>, Seq)> {
        for topic in self.topics.values() {
            let record = topic.record.pack();
            self.around.tables.put(&mut self.txn, Table::Topics, topic.id.as_str().as_bytes(), &record)?;
        }
        format::put_node_record(&self.around.tables, &mut self.txn, &self.node)?;
        self.txn.commit().map_err(engine)?;
        Ok((self.stages, self.node.head))
    }

    /// The time to stamp with: never behind an earlier one (P-5).
    pub(crate) fn stamp(&self) -> Millis {
        self.node.clock.latest
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        self.around.tables.get(&self.txn, table, key)
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.around.tables.put(&mut self.txn, table, key, value)
    }

    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        self.around.tables.delete(&mut self.txn, table, key)
    }

    // Topics and authors by number.

    fn topic_no(&mut self, id: &TopicId) -> Result<TopicNo> {
        if let Some(no) = self.topic_nos.get(id) {
            return Ok(*no);
        }
        let record = match self.get(Table::Topics, id.as_str().as_bytes())? {
            Some(record) => TopicRecord::unpack(record)?,
            None => {
                self.node.last_topic.0 += 1;
                let no = self.node.last_topic;
                self.put(Table::TopicNames, &no.0.to_be_bytes(), id.as_str().as_bytes())?;
                TopicRecord { no, ..TopicRecord::default() }
            }
        };
        self.topic_nos.insert(id.clone(), record.no);
        self.topics.insert(record.no, Topic { id: id.clone(), record });
        Ok(record.no)
    }

    fn topic(&mut self, no: TopicNo) -> Result<&mut Topic> {
        if !self.topics.contains_key(&no) {
            let name = self.get(Table::TopicNames, &no.0.to_be_bytes())?;
            let name = name.and_then(|name| std::str::from_utf8(name).ok());
            let id = TopicId::trusted(name.ok_or_else(|| damaged(format!("topic number {} has no name", no.0)))?);
            self.topic_no(&id)?;
        }
        self.topics.get_mut(&no).ok_or_else(|| damaged(format!("topic number {} is not its name's", no.0)))
    }

    pub(crate) fn topic_id(&mut self, no: TopicNo) -> Result<TopicId> {
        self.topic(no).map(|topic| topic.id.clone())
    }

    fn author_no(&mut self, pubkey: &PublicKey) -> Result<AuthorNo> {
        if let Some(no) = self.authors.get(pubkey) {
            return Ok(*no);
        }
        let known = self.get(Table::Authors, pubkey.as_bytes())?;
        let no = match known {
            Some(no) => AuthorNo(crate::pack::Unpack::new("authors", no).u32()?),
            None => {
                self.node.last_author.0 += 1;
                let no = self.node.last_author;
                self.put(Table::Authors, pubkey.as_bytes(), &no.0.to_be_bytes())?;
                no
            }
        };
        self.authors.insert(*pubkey, no);
        Ok(no)
    }

    // Rows.

    pub(crate) fn known_id(&self, id: &EventId) -> Result<Option<KnownId>> {
        self.get(Table::Ids, id.as_bytes())?.map(KnownId::unpack).transpose().map_err(Into::into)
    }

    pub(crate) fn row(&self, no: EventNo) -> Result<Option<StoredRow>> {
        let Some(record) = self.get(Table::Events, &no.key())? else { return Ok(None) };
        StoredRow::read(no, Row::unpack(record)?).map(Some)
    }

    /// Stores an event as effective.
    pub(crate) fn store(&mut self, admitted: &Admitted) -> Result<()> {
        let event = admitted.event();
        self.node.last_event.0 += 1;
        let no = self.node.last_event;
        let topics = admitted.topics().iter().map(|topic| self.topic_no(topic)).collect::<Result<Vec<_>>>()?;
        let stamp = self.stamp();
        let traits = Traits::of(event, topics.len());
        let row = Row { ingested_at: stamp, state: State::Effective, traits, topics, json: admitted.json() };
        self.around.tables.append(&mut self.txn, Table::Events, &no.key(), &row.pack())?;
        let topics = row.topics;

        let author = self.author_no(&event.pubkey)?;
        let named: Vec<_> = topics.iter().copied().zip(admitted.topics()).collect();
        let rows = IndexRows::of(event, no, author, &named);
        for (table, key) in &rows.keys {
            self.put(*table, key, rows.value(*table))?;
        }
        let address = event.address();
        if let Some(address) = &address {
            let floor = event.rank();
            let record = KeyRecord { floor, raised_at: stamp, current: Some(no) };
            self.put(Table::Keys, &address.digest().0, &record.pack())?;
        }

        let class = RetentionClass::of(event.kind, true);
        self.age(no, &topics, class)?;
        self.count(&topics, |counters| {
            counters.effective += 1;
            add(&mut counters.by_class[class as usize], admitted.json().len());
        })?;
        for topic in &topics {
            self.topic(*topic)?.record.last_event_at = stamp;
        }
        self.remember(admitted, Standing::Effective, Some(no))?;
        self.write_outbox(event, address, &topics, stamp, Op::Upsert)
    }

    /// Remembers the id of an event that was decided on for the first time.
    pub(crate) fn remember(&mut self, admitted: &Admitted, standing: Standing, no: Option<EventNo>) -> Result<()> {
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

    /// A row, effective or hidden, loses its standing for this reason.
    pub(crate) fn take_away(&mut self, mut row: StoredRow, reason: Reason, cause: Option<EventId>) -> Result<()> {
        if row.is_effective() {
            self.leave_indexes(&row)?;
            self.leave_key(&row.event)?;
            self.write_outbox(&row.event, row.event.address(), &row.topics, row.ingested_at, Op::Delete(reason))?;
        }
        let keeps_row = self.around.rules.deletion.keeps_row(reason);
        let standing = Standing::Gone { reason, cause, since: self.stamp() };
        self.change_standing(&row.event.id, standing, keeps_row.then_some(row.no))?;
        if !keeps_row {
            return self.remove(&row);
        }
        self.unfile(&row)?;
        row.state = reason.state();
        self.put_hidden(&row)
    }

    /// Throws a row away for good. Of a hidden one nobody need hear (P-8).
    pub(crate) fn throw_away(&mut self, row: StoredRow, reason: Reason) -> Result<()> {
        if row.is_effective() {
            return self.take_away(row, reason, None);
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

    /// A version that is refused raises its key's floor all the same (D-9).
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

    /// Takes back what a row of this class and state is listed and counted under.
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

    // Ages, counters, stages.

    fn age(&mut self, no: EventNo, topics: &[TopicNo], class: RetentionClass) -> Result<()> {
        topics.iter().try_for_each(|topic| self.put(Table::Ages, &key::age(*topic, class, no), &[]))
    }

    fn uncount(&mut self, row: &StoredRow) -> Result<()> {
        for topic in &row.topics {
            self.delete(Table::Ages, &key::age(*topic, row.class(), row.no))?;
        }
        self.count(&row.topics, |counters| {
            counters.effective -= u64::from(row.is_effective());
            take(&mut counters.by_class[row.class() as usize], row.json.len());
        })
    }

    /// Changes the counters of the node and of these topics alike.
    fn count(&mut self, topics: &[TopicNo], change: impl Fn(&mut Counters)) -> Result<()> {
        change(&mut self.node.counters);
        for topic in topics {
            change(&mut self.topic(*topic)?.record.counters);
            self.touched.push(*topic);
        }
        Ok(())
    }

    pub(crate) fn policy(&self, topic: &TopicId) -> IngestPolicy {
        self.around.subscriptions.policy(topic)
    }

    /// How loaded the node is.
    pub(crate) fn node_load(&self) -> Load {
        load(&self.node.counters, self.around.rules.capacity)
    }

    /// How loaded a topic is. One that nothing was ever bound to is empty.
    pub(crate) fn topic_load(&mut self, id: &TopicId) -> Result<Load> {
        let capacity = self.policy(id).capacity();
        if !self.topic_nos.contains_key(id) && self.get(Table::Topics, id.as_str().as_bytes())?.is_none() {
            return Ok(load(&Counters::default(), capacity));
        }
        let no = self.topic_no(id)?;
        Ok(load(&self.topic(no)?.record.counters, capacity))
    }

    pub(crate) fn counters(&mut self, topic: TopicNo) -> Result<Counters> {
        Ok(self.topic(topic)?.record.counters)
    }

    /// Brings the stages of the node and of every topic that changed up to date (P-6).
    pub(crate) fn update_stages(&mut self) -> Result<()> {
        let thresholds = self.around.rules.thresholds;
        let next = |counters: &mut Counters, capacity: Capacity| {
            let from = counters.stage;
            counters.stage = from.next(report::total(&counters.by_class), capacity, &thresholds);
            (from, counters.stage)
        };
        let mut changes = Vec::new();
        let mut note = |topic: Option<TopicId>, (from, to): (Stage, Stage)| {
            if from != to {
                changes.push(StageChange { topic, from, to });
            }
        };
        note(None, next(&mut self.node.counters, self.around.rules.capacity));
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for no in touched {
            let id = self.topic_id(no)?;
            let capacity = self.policy(&id).capacity();
            note(Some(id), next(&mut self.topic(no)?.record.counters, capacity));
        }
        self.stages.extend(changes);
        Ok(())
    }

    /// A topic whose policy changed gets a new look at its stage.
    pub(crate) fn touch(&mut self, topic: &TopicId) -> Result<()> {
        if self.get(Table::Topics, topic.as_str().as_bytes())?.is_some() {
            let no = self.topic_no(topic)?;
            self.touched.push(no);
        }
        Ok(())
    }

    /// The configuration changed: every topic gets a new look at its stage.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend((1..=self.node.last_topic.0).map(TopicNo));
    }

    // Outbox.

    fn write_outbox(
        &mut self,
        event: &Event,
        effective_key: Option<Address>,
        topics: &[TopicNo],
        ingested_at: Millis,
        op: Op,
    ) -> Result<()> {
        let mut record = OutboxRecord {
            op,
            event_id: event.id,
            topic: TopicNo::default(),
            kind: event.kind,
            created_at: event.created_at,
            ingested_at,
            written_at: self.stamp(),
            effective_key,
        };
        for topic in topics {
            self.node.head = self.node.head.next();
            record.topic = *topic;
            self.around.tables.append(&mut self.txn, Table::Outbox, &key::seq(self.node.head), &record.pack())?;
        }
        Ok(())
    }
}

/// A hidden row stands under each of its owners, so that their requests find it. One that is deleted already need not
/// be found by its address again.
pub(crate) fn hidden_keys(row: &StoredRow) -> BTreeSet<Vec<u8>> {
    let address = row.event.address().filter(|_| row.state != State::Deleted);
    row.event.owners().map(|owner| key::hidden(&owner, address.as_ref(), row.no)).collect()
}

fn load(counters: &Counters, capacity: Capacity) -> Load {
    Load { stage: counters.stage, is_full: capacity.is_reached(report::lasting(&counters.by_class), 100) }
}

fn add(usage: &mut Usage, bytes: usize) {
    usage.events += 1;
    usage.bytes += bytes as u64;
}

fn take(usage: &mut Usage, bytes: usize) {
    usage.events -= 1;
    usage.bytes -= bytes as u64;
}
