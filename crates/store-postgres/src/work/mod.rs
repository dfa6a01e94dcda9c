//! The unit of work of one write transaction: the facts that it has read and its changes so far, all in memory.
//!
//! `batch` loads the facts before decisions are made and writes the changes afterwards. In between no statement runs,
//! so a batch costs a constant number of statements whatever its size, and every event sees the changes of earlier
//! events.
//!
//! - This file: facts, rows, topic numbers, counters.
//! - `ledger`: the ingest procedure's reads and writes, and purges.

mod ledger;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use kukuri_domain::{
    Address, AddressDigest, Admitted, Event, EventId, Millis, PublicKey, Rank, State, TopicId,
    clock::Clock,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    remains::{Remains, Subject},
    retention::RetentionClass,
    sharing::Trace,
    vanish::VanishMark,
};
use kukuri_store::{
    IdRecord, OutboxRow, RowRecord, Seq, StageChange, Standing, StoreError, StoreRules, counters::Counters,
    subscriptions::Subscriptions,
};

use crate::{
    columns::Class,
    error::{Result, damaged},
    months,
};

/// Number of a topic in other tables.
pub(crate) type TopicNo = i32;

/// Topic number that stands for the node in partition counters.
pub(crate) const NODE: TopicNo = 0;

/// Facts by key, each as stored and as changed by this transaction.
pub(crate) struct Facts<K, T>(HashMap<K, Fact<T>>);

pub(crate) struct Fact<T> {
    pub(crate) stored: Option<T>,
    pub(crate) now: T,
}

impl<K, T> Default for Facts<K, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, T: Clone + PartialEq> Facts<K, T> {
    pub(crate) fn get(&self, key: &K) -> Option<&T> {
        self.0.get(key).map(|fact| &fact.now)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        self.0.get_mut(key).map(|fact| &mut fact.now)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|fact| &fact.now)
    }

    /// Adds a stored fact, unless it was read before.
    pub(crate) fn load(&mut self, key: K, stored: T) {
        self.0.entry(key).or_insert_with(|| Fact { stored: Some(stored.clone()), now: stored });
    }

    pub(crate) fn put(&mut self, key: K, now: T) {
        let stored = self.0.remove(&key).and_then(|fact| fact.stored);
        self.0.insert(key, Fact { stored, now });
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Fact<T>> {
        self.0.values()
    }

    pub(crate) fn changed(&self) -> impl Iterator<Item = &Fact<T>> {
        self.0.values().filter(|fact| fact.stored.as_ref() != Some(&fact.now))
    }
}

/// The state of a replaceable key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) address: Address,
    pub(crate) floor: Rank,
    pub(crate) raised_at: Millis,
    pub(crate) current: Option<EventId>,
}

impl Key {
    pub(crate) fn state(&self) -> KeyState {
        KeyState { floor: self.floor, current: self.current }
    }
}

/// A tombstone or vanish mark with the time it was last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted<T> {
    pub(crate) what: T,
    pub(crate) at: Millis,
}

/// A topic that an event was bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) no: TopicNo,
    pub(crate) id: TopicId,
    pub(crate) counters: Counters,
    pub(crate) last_event_at: Millis,
}

/// The node's only row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) head: Seq,
    pub(crate) outbox_dropped: Seq,
    pub(crate) last_event: u64,
    pub(crate) last_topic: TopicNo,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) ids: u64,
    pub(crate) failed: u64,
    pub(crate) subscriptions_version: u64,
    /// A load of another store is unfinished.
    pub(crate) loading: bool,
}

/// Position of a row: its partition, and its number in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlace {
    pub(crate) class: Class,
    pub(crate) ingested_at: Millis,
    pub(crate) no: u64,
}

/// The part of a row that decisions and counters need, and the record of its id.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) place: RowPlace,
    /// The event without its content, and with only the tags that determine its owners and its key.
    pub(crate) outline: Event,
    /// Length of its JSON.
    pub(crate) bytes: u64,
    pub(crate) topics: Vec<TopicNo>,
    pub(crate) record: IdRecord,
    pub(crate) source: RowSource,
    /// The row is removed; the record of its id stays.
    pub(crate) is_gone: bool,
}

/// Where a row comes from.
#[derive(Clone, Debug)]
pub(crate) enum RowSource {
    /// Ingested by this transaction.
    Admitted(Admitted),
    /// Loaded from another store, unchanged.
    Loaded(Arc<(Event, RowRecord)>),
    /// Stored on the server, with this record and in this class.
    Stored { record: IdRecord, class: Class },
}

impl Row {
    pub(crate) fn class(&self) -> RetentionClass {
        RetentionClass::of(self.outline.kind, self.is_effective())
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.record.standing == Standing::Effective
    }

    /// Whether a deletion request has hidden this row.
    pub(crate) fn is_deleted(&self) -> bool {
        self.record.standing.state() == State::Deleted
    }

    /// Whether the stored row says that a deletion request has hidden it.
    pub(crate) fn was_deleted(&self) -> bool {
        matches!(&self.source, RowSource::Stored { record, .. } if record.standing.state() == State::Deleted)
    }

    /// Whether the server has index rows for this row.
    pub(crate) fn was_effective(&self) -> bool {
        matches!(&self.source, RowSource::Stored { record, .. } if record.standing == Standing::Effective)
    }
}

/// Change of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) effective: i64,
    pub(crate) events: i64,
    pub(crate) bytes: i64,
}

#[derive(Default)]
pub(crate) struct Work {
    pub(crate) rules: Arc<StoreRules>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) node: Node,
    pub(crate) topics: Facts<TopicNo, Topic>,
    pub(crate) topic_nos: HashMap<TopicId, TopicNo>,
    /// Effective rows in `rows`, by author.
    pub(crate) effective_by: HashMap<PublicKey, usize>,
    /// Authors with an effective event that is not in `rows`. Read only if permanent rows may fill their share.
    pub(crate) authors: HashSet<PublicKey>,
    /// States of known ids.
    pub(crate) known: HashMap<EventId, State>,
    /// New records of ids without a row.
    pub(crate) new_ids: Vec<(EventId, IdRecord)>,
    pub(crate) rows: HashMap<EventId, Row>,
    /// Rows of a key, hidden or not.
    pub(crate) versions: HashMap<AddressDigest, Vec<EventId>>,
    pub(crate) keys: Facts<AddressDigest, Key>,
    pub(crate) tombstones: HashMap<DeletionTargetKind, Facts<PublicKey, Noted<Tombstone>>>,
    pub(crate) marks: Facts<PublicKey, Noted<VanishMark>>,
    /// Traces to write, if their requests are stored and shared.
    pub(crate) traces: Vec<(TopicId, Trace)>,
    /// Topic and item of traces that already exist, so that hints need not leave them again.
    pub(crate) traced: HashSet<(TopicId, EventId)>,
    /// Stored, effective requests that hints name.
    pub(crate) requests: HashMap<EventId, Arc<Event>>,
    /// Requests that are no longer stored: their traces are deleted.
    pub(crate) gone_requests: Vec<EventId>,
    /// Topics with stored traces of requests that a vanish request may remove.
    pub(crate) topics_of_traces: HashMap<EventId, Vec<TopicId>>,
    /// Remains of subjects that requests name, and those that this transaction left.
    pub(crate) remains: HashMap<Subject, BTreeMap<TopicId, Remains>>,
    /// Remains that this transaction left, to be merged with the stored ones.
    pub(crate) noted_remains: HashMap<(Subject, TopicId), Remains>,
    pub(crate) outbox: Vec<OutboxRow>,
    /// By class, start of the month, topic (0 is the node) and retention class.
    pub(crate) partition_counters: HashMap<(Class, Millis, TopicNo, RetentionClass), Delta>,
    pub(crate) stages: Vec<StageChange>,
    /// Topics whose stage has to be recomputed.
    pub(crate) changed_topics: Vec<TopicNo>,
}

impl Work {
    /// A row that is not removed.
    pub(crate) fn row(&self, id: &EventId) -> Option<&Row> {
        self.rows.get(id).filter(|row| !row.is_gone)
    }

    /// Adds a row, unless it was read before.
    pub(crate) fn put_row(&mut self, row: Row) {
        let id = row.outline.id;
        if self.rows.contains_key(&id) {
            return;
        }
        self.known.insert(id, row.record.standing.state());
        if row.is_effective() {
            *self.effective_by.entry(row.outline.pubkey).or_default() += 1;
        }
        if let Some(address) = row.outline.address() {
            self.versions.entry(address.digest()).or_default().push(id);
        }
        self.rows.insert(id, row);
    }

    pub(crate) fn next_place(&mut self, event: &Event, ingested_at: Millis) -> RowPlace {
        self.node.last_event += 1;
        RowPlace { class: Class::of(event.kind), ingested_at, no: self.node.last_event }
    }

    /// The number of a topic, a new one if it has no record. Numbers are never given away again.
    pub(crate) fn topic_no(&mut self, id: &TopicId) -> Result<TopicNo> {
        if let Some(no) = self.topic_nos.get(id) {
            return Ok(*no);
        }
        let no = self.node.last_topic.checked_add(1).ok_or(StoreError::NumbersExhausted("topics"))?;
        self.node.last_topic = no;
        let topic = Topic { no, id: id.clone(), counters: Counters::default(), last_event_at: Millis::default() };
        self.topic_nos.insert(id.clone(), no);
        self.topics.put(no, topic);
        Ok(no)
    }

    pub(crate) fn topic(&mut self, no: TopicNo) -> Result<&mut Topic> {
        self.topics.get_mut(&no).ok_or_else(|| damaged(format!("topic number {no} was not read")))
    }

    /// Adds (1) or subtracts (-1) a row, in its current state, from the counters of the node, its topics and its
    /// partition.
    pub(crate) fn count(&mut self, row: &Row, sign: i64) -> Result<()> {
        let (class, month) = (row.class(), months::begin_of(row.place.ingested_at));
        let effective = sign * i64::from(row.is_effective());
        let delta = Delta { effective, events: sign, bytes: sign * row.bytes as i64 };
        for topic in std::iter::once(NODE).chain(row.topics.iter().copied()) {
            self.change_counters(topic, class, delta)?;
            let sum = self.partition_counters.entry((row.place.class, month, topic, class)).or_default();
            sum.effective += delta.effective;
            sum.events += delta.events;
            sum.bytes += delta.bytes;
        }
        Ok(())
    }

    /// Changes the counters of a topic, or of the node.
    pub(crate) fn change_counters(&mut self, topic: TopicNo, class: RetentionClass, delta: Delta) -> Result<()> {
        let counters = if topic == NODE {
            &mut self.node.counters
        } else {
            self.changed_topics.push(topic);
            &mut self.topic(topic)?.counters
        };
        let usage = &mut counters.by_class[class as usize];
        let changed = (|| {
            counters.effective = counters.effective.checked_add_signed(delta.effective)?;
            usage.events = usage.events.checked_add_signed(delta.events)?;
            usage.bytes = usage.bytes.checked_add_signed(delta.bytes)?;
            Some(())
        })();
        changed.ok_or_else(|| damaged(format!("the counters of topic {topic} hold less than there is")))
    }

    /// Moves a row to another partition class.
    pub(crate) fn change_class(&mut self, id: &EventId, class: Class) -> Result<()> {
        let Some(mut row) = self.row(id).cloned() else { return Ok(()) };
        self.count(&row, -1)?;
        row.place.class = class;
        self.count(&row, 1)?;
        self.rows.insert(*id, row);
        Ok(())
    }
}
