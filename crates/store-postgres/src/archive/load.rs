//! Loads the pieces of another store's dump.

use std::collections::{BTreeSet, HashSet};

use kukuri_domain::{
    Event, EventId, Millis, TopicId, capacity::Stage, clock::Clock, deletion::Tombstone, sharing::Trace,
    subscription::NodeSubscription, vanish::VanishMark,
};
use kukuri_store::{IdRecord, OutboxRow, Piece, RowRecord, Seq, StoreError};

use super::indexes;
use crate::{
    batch::Batch,
    codes::{Class, signed},
    copy::Copy,
    error::Result,
    months, partitions, records, subscriptions,
    work::Node,
    writer::Writer,
};

/// A piece with this many events belongs to a large load: indexes are created after it.
const LARGE_LOAD_EVENTS: usize = 1_000;

impl Writer {
    /// Loads pieces of another store, in one transaction.
    pub(crate) async fn load(&self, pieces: Vec<Piece>) -> Result<()> {
        let mut sorted = Pieces::default();
        for piece in pieces {
            sorted.add(piece)?;
        }
        let mut batch = Batch::resume_any(self).await?;
        if let Err(refused) = batch.begin_loading().await {
            batch.abandon().await?;
            return Err(refused);
        }
        let mut indexes = self.loading.lock().take().unwrap_or_default();
        batch.load(sorted, &mut indexes).await?;
        let Node { loading, subscriptions_version, .. } = batch.work.node;
        batch.commit().await?;
        *self.loading.lock() = loading.then_some(indexes);
        self.subscription_version.send_replace(subscriptions_version);
        Ok(())
    }
}

impl Batch<'_> {
    /// Continues a load that this process has begun, or begins one in an empty store.
    async fn begin_loading(&mut self) -> Result<()> {
        if self.work.node.loading {
            let is_own = self.writer.loading.lock().is_some();
            return if is_own { Ok(()) } else { Err(self.writer.unfinished()) };
        }
        let is_filled: bool = sqlx::query_scalar(IS_FILLED).fetch_one(self.connection()).await?;
        if is_filled {
            return Err(StoreError::NotEmpty.into());
        }
        self.work.node.loading = true;
        Ok(())
    }

    /// Adds pieces to the changes in `Work`; kinds that `Work` does not hold are written at once.
    async fn load(&mut self, pieces: Pieces, indexes: &mut Vec<String>) -> Result<()> {
        self.take_time().await?;
        if indexes.is_empty() && pieces.events.len() >= LARGE_LOAD_EVENTS {
            *indexes = indexes::drop_all(self.connection()).await?;
        }
        if !pieces.subscriptions.is_empty() {
            subscriptions::write(&pieces.subscriptions, self.connection()).await?;
            self.work.node.subscriptions_version += 1;
        }
        pieces.floors.send(self.connection()).await?;
        pieces.offsets.send(self.connection()).await?;
        self.make_ready_for(&pieces.events).await?;
        for (topic, stage, last_event_at) in &pieces.topics {
            self.work.load_topic(topic, *stage, *last_event_at)?;
        }
        for (tombstone, at) in pieces.tombstones {
            self.work.load_tombstone(tombstone, at);
        }
        for (mark, at) in pieces.marks {
            self.work.load_mark(mark, at);
        }
        self.put_traces(&pieces.traces).await?;
        for (event, record, row) in pieces.events {
            self.work.load_row(event, record, row)?;
        }
        for (id, record) in pieces.ids {
            self.work.load_id(id, record, None);
        }
        self.work.outbox = pieces.outbox;
        if let Some((head, dropped, clock, failed, stage)) = pieces.standing {
            let node = &mut self.work.node;
            (node.head, node.outbox_dropped, node.clock, node.failed) = (head, dropped, clock, failed);
            node.counters.stage = stage;
            node.loading = false;
            indexes::make(std::mem::take(indexes), self.connection()).await?;
        }
        Ok(())
    }

    /// Reads the records that rows refer to, and creates the partitions for their months.
    async fn make_ready_for(&mut self, events: &[LoadedEvent]) -> Result<()> {
        let topics: HashSet<TopicId> = events.iter().flat_map(|(_, _, row)| row.topics.iter().cloned()).collect();
        self.read_references(&topics).await?;
        let addresses = events.iter().filter_map(|(event, ..)| event.address());
        self.read_keys(addresses.map(|address| (address.digest().0, address)).collect()).await?;
        let months = events.iter().map(|(event, _, row)| (Class::of(event.kind), months::begin_of(row.ingested_at)));
        for (class, month) in months.collect::<BTreeSet<_>>() {
            partitions::open_one(class, month, self.connection()).await?;
        }
        Ok(())
    }
}

const IS_FILLED: &str = "SELECT (SELECT head > 0 OR ids > 0 FROM cn_relay.node) \
     OR EXISTS (SELECT 1 FROM cn_relay.node_subscriptions) OR EXISTS (SELECT 1 FROM cn_relay.topics) \
     OR EXISTS (SELECT 1 FROM cn_relay.floors) OR EXISTS (SELECT 1 FROM cn_relay.deletion_tombstones) \
     OR EXISTS (SELECT 1 FROM cn_relay.vanish_marks) OR EXISTS (SELECT 1 FROM cn_relay.consumer_offsets)";

type LoadedEvent = (Event, IdRecord, RowRecord);

/// Pieces by kind.
struct Pieces {
    subscriptions: Vec<NodeSubscription>,
    topics: Vec<(TopicId, Stage, Millis)>,
    floors: Copy,
    tombstones: Vec<(Tombstone, Millis)>,
    marks: Vec<(VanishMark, Millis)>,
    traces: Vec<(TopicId, Trace)>,
    events: Vec<LoadedEvent>,
    ids: Vec<(EventId, IdRecord)>,
    outbox: Vec<OutboxRow>,
    offsets: Copy,
    standing: Option<(Seq, Seq, Clock, u64, Stage)>,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            subscriptions: Vec::new(),
            topics: Vec::new(),
            floors: Copy::new("COPY cn_relay.floors (key, created_at, id, raised_at) FROM STDIN (FORMAT binary)", 4),
            tombstones: Vec::new(),
            marks: Vec::new(),
            traces: Vec::new(),
            events: Vec::new(),
            ids: Vec::new(),
            outbox: Vec::new(),
            offsets: Copy::new(
                "COPY cn_relay.consumer_offsets (consumer, last_seq, updated_at) FROM STDIN (FORMAT binary)",
                3,
            ),
            standing: None,
        }
    }
}

impl Pieces {
    fn add(&mut self, piece: Piece) -> Result<()> {
        match piece {
            Piece::Subscription(subscription) => self.subscriptions.push(subscription),
            Piece::Topic { topic, stage, last_event_at } => self.topics.push((topic, stage, last_event_at)),
            Piece::Floor { key, floor, raised_at } => {
                let row = self.floors.row().bytes(&key.0).i64(signed(floor.created_at.0));
                row.bytes(floor.id.as_bytes()).i64(signed(raised_at.0));
            }
            Piece::Tombstone(tombstone, at) => self.tombstones.push((tombstone, at)),
            Piece::Vanish(mark, at) => self.marks.push((mark, at)),
            Piece::Trace(topic, trace) => self.traces.push((topic, trace)),
            Piece::Event(id, record, row) => self.events.push((records::event(&id, &row.json)?, record, row)),
            Piece::Id(id, record) => self.ids.push((id, record)),
            Piece::Outbox(row) => self.outbox.push(row),
            Piece::Offset(offset) => {
                let row = self.offsets.row().text(&offset.consumer);
                row.i64(signed(offset.last_seq.0)).i64(signed(offset.updated_at.0));
            }
            Piece::Standing { head, dropped, clock, failed, stage } => {
                self.standing = Some((head, dropped, clock, failed, stage));
            }
        }
        Ok(())
    }
}
