//! One write transaction: rows, indexes, outbox and counters change together or not at all (P-3).
//!
//! Counters, topic and author numbers are worked on in memory and written once, when the batch commits.
//!
//! - This file: the transaction, topics and authors by number, the outbox.
//! - `rows`: storing events and taking them away.
//! - `counting`: ages, counters and stages.

mod counting;
mod rows;

use std::{collections::HashMap, time::Duration};

use heed::RwTxn;
use kukuri_domain::{Address, Event, Millis, PublicKey, TopicId, capacity::Stage, clock::Clock};
use kukuri_store::{Op, OutboxRow, Seq, StageChange, StoreRules, subscriptions::Subscriptions};

use crate::{
    error::{Result, damaged, engine},
    format,
    key::{self, AuthorNo, TopicNo},
    record::{NodeRecord, OutboxRecord, TopicRecord},
    tables::{LmdbEnv, Table, Tables},
};

pub(crate) use rows::{StoredRow, hidden_keys};

/// What a batch works with besides the transaction.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'s> {
    pub(crate) env: &'s LmdbEnv,
    pub(crate) tables: Tables,
    pub(crate) rules: &'s StoreRules,
    pub(crate) subscriptions: &'s Subscriptions,
    /// The clock as this process has seen it; what is on disk may be a little behind.
    pub(crate) clock: Clock,
}

/// How far the clock on disk may fall behind while nothing else is written.
const CLOCK_LAG: Duration = Duration::from_secs(60);

/// What a batch leaves behind.
pub(crate) struct Committed {
    /// Capacity stages that changed.
    pub(crate) stages: Vec<StageChange>,
    /// The new head of the outbox.
    pub(crate) head: Seq,
    /// The clock as the batch has seen it.
    pub(crate) clock: Clock,
}

/// A topic as this batch sees it.
struct Topic {
    id: TopicId,
    record: TopicRecord,
    /// What is on disk.
    stored: Option<TopicRecord>,
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
    /// The rows of the outbox that this batch wrote, if somebody wants to know before it is committed.
    told: Option<Vec<OutboxRow>>,
    /// What is on disk of the node's own counters.
    stored: NodeRecord,
    /// Rows that were put or taken away.
    pub(crate) written: usize,
}

impl<'s> Batch<'s> {
    /// Begins a transaction at a new time.
    pub(crate) fn begin(around: Surroundings<'s>, now: Millis) -> Result<Self> {
        let mut batch = Self::resume(around)?;
        batch.tick(now);
        Ok(batch)
    }

    /// Time goes on while the transaction is open.
    pub(crate) fn tick(&mut self, now: Millis) {
        let before = self.node.clock;
        self.node.clock = before.tick(now);
        if self.node.clock.held && !before.held {
            tracing::warn!(
                now = now.0,
                latest = before.latest.0,
                "the clock jumped by more than an hour: nothing is purged until it is confirmed"
            );
        }
    }

    /// From now on its rows of the outbox are kept to be told.
    pub(crate) fn tell_rows(&mut self) {
        self.told = Some(Vec::new());
    }

    /// The rows since the last call.
    pub(crate) fn take_rows(&mut self) -> Vec<OutboxRow> {
        self.told.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The stages that changed since the last call.
    pub(crate) fn take_stages(&mut self) -> Vec<StageChange> {
        std::mem::take(&mut self.stages)
    }

    /// Begins a transaction at the time of the last one.
    pub(crate) fn resume(around: Surroundings<'s>) -> Result<Self> {
        let txn = around.env.write_txn().map_err(engine)?;
        let stored = format::node_record(&around.tables, &txn)?;
        Ok(Self {
            around,
            node: NodeRecord { clock: around.clock, ..stored },
            stored,
            written: 0,
            txn,
            topics: HashMap::new(),
            topic_nos: HashMap::new(),
            authors: HashMap::new(),
            touched: Vec::new(),
            stages: Vec::new(),
            told: None,
        })
    }

    /// Makes everything durable. If nothing changed there is nothing to wait for.
    pub(crate) fn commit(mut self) -> Result<Committed> {
        let topics = std::mem::take(&mut self.topics);
        for topic in topics.values().filter(|topic| topic.stored != Some(topic.record)) {
            self.put(Table::Topics, topic.id.as_str().as_bytes(), &topic.record.pack())?;
        }
        let committed = Committed { stages: self.stages, head: self.node.head, clock: self.node.clock };
        let is_same = self.node == NodeRecord { clock: self.node.clock, ..self.stored };
        let clock_is_near = self.node.clock.held == self.stored.clock.held
            && self.node.clock.last.0.abs_diff(self.stored.clock.last.0) < CLOCK_LAG.as_millis() as u64;
        if self.written > 0 || !is_same || !clock_is_near {
            format::put_node_record(&self.around.tables, &mut self.txn, &self.node)?;
            self.txn.commit().map_err(engine)?;
        }
        Ok(committed)
    }

    /// Writes the clock, if nothing but that has changed.
    pub(crate) fn commit_clock(mut self) -> Result<()> {
        self.written = usize::from(self.node != self.stored);
        self.commit().map(drop)
    }

    /// Something was written past this batch, in its transaction.
    pub(crate) fn mark_written(&mut self) {
        self.written += 1;
    }

    /// The time to stamp with: never behind an earlier one (P-5).
    pub(crate) fn stamp(&self) -> Millis {
        self.node.clock.latest
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        self.around.tables.get(&self.txn, table, key)
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.mark_written();
        self.around.tables.put(&mut self.txn, table, key, value)
    }

    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        self.mark_written();
        self.around.tables.delete(&mut self.txn, table, key)
    }

    /// Puts a key that is higher than all others of its table.
    fn append(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.mark_written();
        self.around.tables.append(&mut self.txn, table, key, value)
    }

    // Topics and authors by number.

    fn topic_no(&mut self, id: &TopicId) -> Result<TopicNo> {
        if let Some(no) = self.topic_nos.get(id) {
            return Ok(*no);
        }
        let stored = self.get(Table::Topics, id.as_str().as_bytes())?.map(TopicRecord::unpack).transpose()?;
        let record = match stored {
            Some(record) => record,
            None => {
                self.node.last_topic.0 += 1;
                let no = self.node.last_topic;
                self.put(Table::TopicNames, &no.0.to_be_bytes(), id.as_str().as_bytes())?;
                TopicRecord { no, ..TopicRecord::default() }
            }
        };
        self.topic_nos.insert(id.clone(), record.no);
        self.topics.insert(record.no, Topic { id: id.clone(), record, stored });
        Ok(record.no)
    }

    /// What a copy brings of a topic: its events come later.
    pub(crate) fn load_topic(&mut self, id: &TopicId, stage: Stage, last_event_at: Millis) -> Result<()> {
        let no = self.topic_no(id)?;
        let record = &mut self.topic(no)?.record;
        record.counters.stage = stage;
        record.last_event_at = last_event_at;
        Ok(())
    }

    /// Appends a row of the outbox as another store wrote it.
    pub(crate) fn load_outbox(&mut self, row: OutboxRow) -> Result<()> {
        let record = OutboxRecord {
            op: row.op,
            event_id: row.event_id,
            topic: self.topic_no(&row.topic)?,
            kind: row.kind,
            created_at: row.created_at,
            ingested_at: row.ingested_at,
            written_at: row.written_at,
            effective_key: row.effective_key,
        };
        self.append(Table::Outbox, &key::seq(row.seq), &record.pack())
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
            self.append(Table::Outbox, &key::seq(self.node.head), &record.pack())?;
            if self.told.is_some() {
                let row = record.clone().row(self.node.head, self.topic_id(*topic)?);
                self.told.get_or_insert_default().push(row);
            }
        }
        Ok(())
    }
}
