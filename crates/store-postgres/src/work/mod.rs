//! The facts that one write transaction has read, and its changes so far, all in memory.
//!
//! `batch` loads the facts before decisions are made and writes the differences afterwards. In between no statement
//! runs, so a batch costs a constant number of statements whatever its size, and every event sees the changes of those
//! before it.
//!
//! - This file: facts and their differences from the stored state; topic numbers; the outbox.
//! - `ledger`: the ingest procedure's reads and writes. `rows`: storing and removing events. `loading`: another store's
//!   pieces.
//! - `counting`: counters and stages.

mod counting;
mod ledger;
mod loading;
mod rows;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use kukuri_domain::{
    Address, AddressDigest, Event, EventId, Millis, PublicKey, Rank, TopicId,
    clock::Clock,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    retention::RetentionClass,
    sharing::Trace,
    vanish::VanishMark,
};
use kukuri_store::{
    IdRecord, Op, OutboxRow, Seq, StageChange, StoreRules,
    counters::{Counters, Tally as _},
    ingest::Ledger as _,
    subscriptions::Subscriptions,
};

use crate::{
    codes::Class,
    error::{Result, damaged},
};

pub(crate) use counting::NODE;
pub(crate) use rows::{Filed, Loaded, Row};

/// Number of a topic in other tables.
pub(crate) type TopicNo = i32;

/// Position of a row: its partition, and its number in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowPlace {
    pub(crate) class: Class,
    pub(crate) ingested_at: Millis,
    pub(crate) no: u64,
}

/// A fact as it is stored and as it is now.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    pub(crate) was: Option<T>,
    pub(crate) now: Option<T>,
}

impl<T: Clone + PartialEq> Cell<T> {
    pub(crate) fn stored(fact: Option<T>) -> Self {
        Self { was: fact.clone(), now: fact }
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.was != self.now
    }
}

/// The record of a known id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownId {
    pub(crate) record: IdRecord,
    /// Position of its row, if it has one.
    pub(crate) place: Option<RowPlace>,
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

/// A counter of a partition: class, start of its month, topic (0 is the node), retention class.
pub(crate) type PartKey = (Class, Millis, TopicNo, RetentionClass);

/// Change of a partition counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) effective: i64,
    pub(crate) events: i64,
    pub(crate) bytes: i64,
}

pub(crate) struct Work {
    pub(crate) rules: Arc<StoreRules>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) node: Node,
    pub(crate) topics: BTreeMap<TopicNo, Cell<Topic>>,
    pub(crate) topic_nos: HashMap<TopicId, TopicNo>,
    pub(crate) ids: HashMap<EventId, Cell<KnownId>>,
    pub(crate) rows: HashMap<EventId, Row>,
    /// Rows of a key, hidden or not.
    versions: HashMap<AddressDigest, Vec<EventId>>,
    pub(crate) keys: HashMap<AddressDigest, Cell<Key>>,
    pub(crate) tombstones: HashMap<(DeletionTargetKind, PublicKey), Cell<Noted<Tombstone>>>,
    requesters: HashMap<DeletionTargetKind, Vec<PublicKey>>,
    pub(crate) marks: HashMap<PublicKey, Cell<Noted<VanishMark>>>,
    /// Traces to write, if their requests are stored and shared.
    pub(crate) traces: Vec<(TopicId, Trace)>,
    /// Topic and item of traces that already exist, so that hints need not leave them again.
    pub(crate) traced: HashSet<(TopicId, EventId)>,
    /// Stored, effective requests that hints name.
    pub(crate) requests: HashMap<EventId, Arc<Event>>,
    /// Requests that are no longer stored: their traces are deleted.
    pub(crate) gone_requests: Vec<EventId>,
    /// Removed requests, each with the request that removed it and inherits its topics.
    pub(crate) heirs: Vec<(EventId, EventId)>,
    pub(crate) outbox: Vec<OutboxRow>,
    pub(crate) parts: HashMap<PartKey, Delta>,
    pub(crate) stages: Vec<StageChange>,
    changed_topics: Vec<TopicNo>,
}

impl Work {
    pub(crate) fn new(rules: Arc<StoreRules>, subscriptions: Arc<Subscriptions>, node: Node) -> Self {
        Self {
            rules,
            subscriptions,
            node,
            topics: BTreeMap::new(),
            topic_nos: HashMap::new(),
            ids: HashMap::new(),
            rows: HashMap::new(),
            versions: HashMap::new(),
            keys: HashMap::new(),
            tombstones: HashMap::new(),
            requesters: HashMap::new(),
            marks: HashMap::new(),
            traces: Vec::new(),
            traced: HashSet::new(),
            requests: HashMap::new(),
            gone_requests: Vec::new(),
            heirs: Vec::new(),
            outbox: Vec::new(),
            parts: HashMap::new(),
            stages: Vec::new(),
            changed_topics: Vec::new(),
        }
    }

    // Facts.

    pub(crate) fn known_id(&self, id: &EventId) -> Option<&KnownId> {
        self.ids.get(id)?.now.as_ref()
    }

    pub(crate) fn row(&self, id: &EventId) -> Option<&Row> {
        self.rows.get(id).filter(|row| !row.is_gone)
    }

    pub(crate) fn key(&self, address: &Address) -> Option<&Key> {
        self.keys.get(&address.digest())?.now.as_ref()
    }

    /// The known rows of a key, hidden or not.
    pub(crate) fn versions(&self, address: &Address) -> impl Iterator<Item = &Row> {
        let ids = self.versions.get(&address.digest()).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.row(id))
    }

    pub(crate) fn tombstones_under(&self, target: &DeletionTargetKind) -> Vec<Tombstone> {
        let requesters = self.requesters.get(target).map_or(&[][..], Vec::as_slice);
        let stones = requesters.iter().filter_map(|requester| self.tombstones.get(&(target.clone(), *requester)));
        stones.filter_map(|stone| stone.now.as_ref()).map(|noted| noted.what.clone()).collect()
    }

    pub(crate) fn mark(&self, owner: &PublicKey) -> Option<VanishMark> {
        self.marks.get(owner)?.now.as_ref().map(|noted| noted.what)
    }

    // Loaded facts.

    pub(crate) fn put_id(&mut self, id: EventId, known: KnownId) {
        self.ids.entry(id).or_insert_with(|| Cell::stored(Some(known)));
    }

    pub(crate) fn put_row(&mut self, row: Row) {
        let id = row.outline.id;
        if self.rows.contains_key(&id) {
            return;
        }
        self.list_version(&row);
        self.rows.insert(id, row);
    }

    fn list_version(&mut self, row: &Row) {
        if let Some(address) = row.outline.address() {
            self.versions.entry(address.digest()).or_default().push(row.outline.id);
        }
    }

    pub(crate) fn put_key(&mut self, key: Key) {
        self.keys.entry(key.address.digest()).or_insert_with(|| Cell::stored(Some(key)));
    }

    pub(crate) fn put_tombstone(&mut self, noted: Noted<Tombstone>) {
        let cell = self.tombstone_cell(&noted.what);
        *cell = Cell::stored(Some(noted));
    }

    pub(crate) fn put_mark(&mut self, noted: Noted<VanishMark>) {
        self.marks.insert(noted.what.pubkey, Cell::stored(Some(noted)));
    }

    pub(crate) fn put_topic(&mut self, no: TopicNo, topic: Topic) {
        self.topic_nos.insert(topic.id.clone(), no);
        self.topics.entry(no).or_insert_with(|| Cell::stored(Some(topic)));
    }

    fn tombstone_cell(&mut self, tombstone: &Tombstone) -> &mut Cell<Noted<Tombstone>> {
        let (target, requester) = (tombstone.target.target.clone(), tombstone.target.requester_pubkey);
        self.tombstones.entry((target.clone(), requester)).or_insert_with(|| {
            self.requesters.entry(target).or_default().push(requester);
            Cell::stored(None)
        })
    }

    // Traces of requests.

    /// Schedules the traces of a removed request for deletion.
    fn drop_traces(&mut self, request: &EventId) {
        self.gone_requests.push(*request);
        self.traces.retain(|(_, trace)| trace.request() != *request);
    }

    // Topic numbers.

    fn topic_no(&mut self, id: &TopicId) -> TopicNo {
        if let Some(no) = self.topic_nos.get(id) {
            return *no;
        }
        self.node.last_topic += 1;
        let no = self.node.last_topic;
        let topic = Topic { id: id.clone(), counters: Counters::default(), last_event_at: Millis::default() };
        self.topic_nos.insert(id.clone(), no);
        self.topics.insert(no, Cell { was: None, now: Some(topic) });
        no
    }

    pub(crate) fn topic(&mut self, no: TopicNo) -> Result<&mut Topic> {
        let topic = self.topics.get_mut(&no).and_then(|cell| cell.now.as_mut());
        topic.ok_or_else(|| damaged(format!("topic number {no} was not read")))
    }

    // Outbox.

    fn write_outbox(&mut self, event: &Event, topics: &[TopicNo], ingested_at: Millis, op: Op) -> Result<()> {
        let (effective_key, written_at) = (event.address(), self.stamp());
        for topic in topics {
            let topic = self.topic_id(*topic)?;
            self.node.head = self.node.head.next();
            self.outbox.push(OutboxRow {
                seq: self.node.head,
                op,
                event_id: event.id,
                topic,
                kind: event.kind,
                created_at: event.created_at,
                ingested_at,
                effective_key: effective_key.clone(),
                written_at,
            });
        }
        Ok(())
    }
}
