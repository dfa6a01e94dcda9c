//! What one write transaction knows, and what it has changed so far: all in memory.
//!
//! `batch` fills it with facts before decisions are made, and writes the differences when they are. In between nothing
//! is asked of the server, so a batch costs the same few statements whatever its size, and every event of it sees what
//! those before it changed.
//!
//! - This file: facts and how they differ from what is stored; topics by number; the outbox.
//! - `rows`: storing events and taking them away. `loading`: what another store knew.
//! - `counting`: counters and stages.

mod counting;
mod loading;
mod rows;

use std::{
    collections::{BTreeMap, HashMap},
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
    IdRecord, Op, OutboxRow, Seq, StageChange, StoreRules, counters::Counters, subscriptions::Subscriptions,
};

use crate::{
    codes::Class,
    error::{Result, damaged},
};

pub(crate) use counting::NODE;
pub(crate) use rows::{Filed, Loaded, Row};

/// A topic's number in other tables.
pub(crate) type TopicNo = i32;

/// Where a row is: its partition, and its place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) class: Class,
    pub(crate) ingested_at: Millis,
    pub(crate) no: u64,
}

/// A fact: as it is stored, and as it is now.
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

/// An id that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownId {
    pub(crate) record: IdRecord,
    /// Where its row is, if it has one.
    pub(crate) place: Option<Place>,
}

/// A key of which a version was seen.
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

/// Something remembered, with the time it was last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted<T> {
    pub(crate) what: T,
    pub(crate) at: Millis,
}

/// A topic that something was bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) counters: Counters,
    pub(crate) last_event_at: Millis,
}

/// The node's one row.
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
    /// Half a copy of another store is here.
    pub(crate) loading: bool,
}

/// A part of what a partition holds: class, where its month begins, topic (0 is the node), retention class.
pub(crate) type PartKey = (Class, Millis, TopicNo, RetentionClass);

/// By how much a part has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) effective: i64,
    pub(crate) events: i64,
    pub(crate) bytes: i64,
}

/// Facts and changes of one transaction.
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
    /// What requests leave in topics, if they are stored and passed on.
    pub(crate) traces: Vec<(TopicId, Trace)>,
    /// Requests that are stored no more: their traces go.
    pub(crate) gone_requests: Vec<EventId>,
    /// Of these, who takes their place: the request that took them away.
    pub(crate) heirs: Vec<(EventId, EventId)>,
    pub(crate) outbox: Vec<OutboxRow>,
    pub(crate) parts: HashMap<PartKey, Delta>,
    pub(crate) stages: Vec<StageChange>,
    touched: Vec<TopicNo>,
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
            gone_requests: Vec::new(),
            heirs: Vec::new(),
            outbox: Vec::new(),
            parts: HashMap::new(),
            stages: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// The time to stamp with: never behind an earlier one (P-5).
    pub(crate) fn stamp(&self) -> Millis {
        self.node.clock.latest
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

    /// The rows of a key that are known here, hidden or not.
    pub(crate) fn versions(&self, address: &Address) -> impl Iterator<Item = &Row> {
        let ids = self.versions.get(&address.digest()).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.row(id))
    }

    pub(crate) fn tombstones_under(&self, target: &DeletionTargetKind) -> Vec<Tombstone> {
        let requesters = self.requesters.get(target).map_or(&[][..], Vec::as_slice);
        let stones = requesters.iter().filter_map(|requester| self.tombstones.get(&(target.clone(), *requester)));
        stones.filter_map(|stone| stone.now.as_ref()).map(|noted| noted.what.clone()).collect()
    }

    /// The tombstones that name an event's id or its address.
    pub(crate) fn tombstones_of(&self, event: &Event) -> Vec<Tombstone> {
        let mut tombstones = self.tombstones_under(&DeletionTargetKind::EventId(event.id));
        if let Some(address) = event.address() {
            tombstones.extend(self.tombstones_under(&DeletionTargetKind::Address(address)));
        }
        tombstones
    }

    pub(crate) fn mark(&self, owner: &PublicKey) -> Option<VanishMark> {
        self.marks.get(owner)?.now.as_ref().map(|noted| noted.what)
    }

    // What was read.

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

    // Memories of requests.

    /// Records a tombstone, or merges it with the one that is known (D-6).
    pub(crate) fn record(&mut self, tombstone: Tombstone) {
        let at = self.stamp();
        let cell = self.tombstone_cell(&tombstone);
        let what = match cell.now.take() {
            Some(known) => tombstone.merged_with(known.what),
            None => tombstone,
        };
        cell.now = Some(Noted { what, at });
    }

    /// Leaves a mark. False: a known one covers everything that this one does (D-12).
    pub(crate) fn leave_mark(&mut self, mark: VanishMark) -> bool {
        let at = self.stamp();
        let cell = self.marks.entry(mark.pubkey).or_insert_with(|| Cell::stored(None));
        if cell.now.as_ref().is_some_and(|known| known.what.until >= mark.until) {
            return false;
        }
        cell.now = Some(Noted { what: mark, at });
        true
    }

    // Traces of requests.

    /// The topics whose sets a row is in: its own, and those that it left a trace in. What is stored of these is looked up
    /// when it is written.
    pub(crate) fn topics_reached(&mut self, id: &EventId) -> Result<Vec<TopicId>> {
        let Some(row) = self.row(id) else { return Ok(Vec::new()) };
        let (topics, is_request) = (row.topics.clone(), row.outline.kind.is_request());
        let mut topics = topics.into_iter().map(|no| self.topic_id(no)).collect::<Result<Vec<_>>>()?;
        if is_request {
            let traced = self.traces.iter().filter(|(_, trace)| trace.item().1 == *id);
            topics.extend(traced.map(|(topic, _)| topic.clone()));
        }
        Ok(topics)
    }

    /// A request goes, and its traces with it.
    fn drop_traces(&mut self, request: &EventId) {
        self.gone_requests.push(*request);
        self.traces.retain(|(_, trace)| trace.request() != *request);
    }

    // Topics by number.

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

    pub(crate) fn topic_id(&mut self, no: TopicNo) -> Result<TopicId> {
        self.topic(no).map(|topic| topic.id.clone())
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
