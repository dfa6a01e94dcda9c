//! Loads the pieces of another store's dump unchanged: nothing is decided, announced or stamped again.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use kukuri_domain::{Event, TopicId};
use kukuri_postgres::{ColumnOf, RowSet, Session, Type};
use kukuri_store::{IdRecord, Piece, RowRecord, Standing, StoreError};

use crate::{
    batch::{Batch, load_remains, put_row, put_traces},
    columns::{Class, Column as _, query},
    error::Result,
    months, partitions, records, subscriptions,
    work::{Key, Node, Noted, Row, RowSource},
    writer::Writer,
};

const FLOORS: &[ColumnOf] =
    &[("key", Type::BYTEA), ("created_at", Type::INT8), ("id", Type::BYTEA), ("raised_at", Type::INT8)];
const OFFSETS: &[ColumnOf] = &[("consumer", Type::TEXT), ("last_seq", Type::INT8), ("updated_at", Type::INT8)];

/// A piece with this many events belongs to a large load: indexes are created after it.
const LARGE_LOAD_EVENTS: usize = 1_000;

impl Writer {
    /// Loads pieces of another store, in one transaction.
    pub(crate) async fn load(&self, pieces: Vec<Piece>) -> Result<()> {
        let mut batch = Batch::resume_any(self).await?;
        batch.begin_loading().await?;
        let mut indexes = self.loading.lock().take().unwrap_or_default();
        batch.load(pieces, &mut indexes).await?;
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
        let is_filled: bool = query(IS_FILLED).fetch_value(self.session()).await?;
        if is_filled {
            return Err(StoreError::NotEmpty.into());
        }
        self.work.node.loading = true;
        Ok(())
    }

    /// Adds pieces to the changes in `Work`; kinds that `Work` does not hold are written at once.
    async fn load(&mut self, pieces: Vec<Piece>, indexes: &mut Vec<String>) -> Result<()> {
        let mut floors = RowSet::new("cn_relay.floors", FLOORS);
        let mut offsets = RowSet::new("cn_relay.consumer_offsets", OFFSETS);
        let (mut subscriptions, mut traces, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let mut remains = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Subscription(subscription) => subscriptions.push(subscription),
                Piece::Topic { topic, stage, last_event_at } => {
                    let no = self.work.topic_no(&topic)?;
                    let topic = self.work.topic(no)?;
                    (topic.counters.stage, topic.last_event_at) = (stage, last_event_at);
                }
                Piece::Floor { key, floor, raised_at } => {
                    put_row!(floors; key, floor.created_at, floor.id, raised_at);
                }
                Piece::Tombstone(what, at) => self.work.put_noted_tombstone(Noted { what, at }),
                Piece::Vanish(what, at) => self.work.marks.put(what.pubkey, Noted { what, at }),
                Piece::Trace(topic, trace) => traces.push((topic, trace)),
                Piece::Remains(left, at) => remains.push((left, at)),
                Piece::Event(id, record, row) => events.push((records::event(&id, &row.json)?, record, row)),
                Piece::Id(id, record) => {
                    self.work.node.ids += 1;
                    self.work.new_ids.push((id, record));
                }
                Piece::Outbox(row) => self.work.outbox.push(row),
                Piece::Offset(offset) => {
                    put_row!(offsets; offset.consumer, offset.last_seq, offset.updated_at);
                }
                Piece::Standing { head, dropped, clock, failed, stage } => {
                    let node = &mut self.work.node;
                    (node.head, node.outbox_dropped, node.clock, node.failed) = (head, dropped, clock, failed);
                    node.counters.stage = stage;
                    node.loading = false;
                }
            }
        }
        self.raise_timeout().await?;
        if indexes.is_empty() && events.len() >= LARGE_LOAD_EVENTS {
            *indexes = drop_indexes(self.session()).await?;
        }
        if !subscriptions.is_empty() {
            subscriptions::write(&subscriptions, self.session()).await?;
            self.work.node.subscriptions_version += 1;
        }
        let mut statements = Vec::new();
        statements.extend(floors.insert());
        statements.extend(offsets.insert());
        put_traces(&traces, &mut statements);
        load_remains(&remains, &mut statements);
        self.session().pipeline(statements).await?;
        self.prepare_for(&events).await?;
        for (event, record, row) in events {
            self.load_row(event, record, row)?;
        }
        if !self.work.node.loading {
            self.session().run("SET LOCAL statement_timeout = 0").await?;
            for index in std::mem::take(indexes) {
                self.session().run(index).await?;
            }
        }
        Ok(())
    }

    /// Reads the records that rows refer to, and creates the partitions for their months.
    async fn prepare_for(&mut self, events: &[(Event, IdRecord, RowRecord)]) -> Result<()> {
        let topics: HashSet<TopicId> = events.iter().flat_map(|(_, _, row)| row.topics.iter().cloned()).collect();
        self.read_references(&topics).await?;
        self.read_keys(events.iter().filter_map(|(event, ..)| event.address())).await?;
        let months = events.iter().map(|(event, _, row)| (Class::of(event.kind), months::begin_of(row.ingested_at)));
        for (class, month) in months.collect::<BTreeSet<_>>() {
            partitions::open_one(class, month, self.session()).await?;
        }
        Ok(())
    }

    /// Loads a row, effective or hidden. Rows come in the other store's order of arrival.
    fn load_row(&mut self, event: Event, record: IdRecord, row: RowRecord) -> Result<()> {
        let work = &mut self.work;
        if let (Standing::Effective, Some(address)) = (record.standing, event.address()) {
            // The key's floor was loaded before; without one, this version is the floor.
            let raised_at = work.keys.get(&address.digest()).map_or(row.ingested_at, |key| key.raised_at);
            let key = Key { floor: event.rank(), raised_at, current: Some(event.id), address };
            work.keys.put(key.address.digest(), key);
        }
        work.node.ids += 1;
        let row = Row {
            place: work.next_place(&event, row.ingested_at),
            outline: Event { content: String::new(), ..event.clone() },
            bytes: row.json.len() as u64,
            topics: row.topics.iter().map(|topic| work.topic_no(topic)).collect::<Result<_>>()?,
            record,
            source: RowSource::Loaded(Arc::new((event, row))),
            is_gone: false,
        };
        work.count(&row, 1)?;
        work.put_row(row);
        Ok(())
    }
}

/// Drops the indexes of the monthly tables, except unique ones: no query reads the store while it is loaded, and
/// indexes are rebuilt faster from all rows at once. Returns the statements that create them again.
async fn drop_indexes(session: &Session) -> Result<Vec<String>> {
    let indexes = query(
        "SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition FROM pg_index \
         WHERE indrelid IN ('cn_relay.events'::regclass, 'cn_relay.event_topics'::regclass, \
         'cn_relay.event_tags'::regclass) AND NOT indisunique",
    );
    let indexes = indexes.fetch_all(session).await?;
    let names = indexes.iter().map(|index| index.get::<&str>("name")).collect::<Result<Vec<_>, _>>()?;
    session.run(format!("DROP INDEX {}", names.join(", "))).await?;
    // The server defines the index for the parent table only; the partitions need it, too.
    let definitions = indexes.iter().map(|index| index.get::<&str>("definition"));
    definitions.map(|definition| Ok(definition?.replacen(" ON ONLY ", " ON ", 1))).collect()
}

const IS_FILLED: &str = "SELECT (SELECT head > 0 OR ids > 0 FROM cn_relay.node) \
     OR EXISTS (SELECT 1 FROM cn_relay.node_subscriptions) OR EXISTS (SELECT 1 FROM cn_relay.topics) \
     OR EXISTS (SELECT 1 FROM cn_relay.floors) OR EXISTS (SELECT 1 FROM cn_relay.deletion_tombstones) \
     OR EXISTS (SELECT 1 FROM cn_relay.vanish_marks) OR EXISTS (SELECT 1 FROM cn_relay.consumer_offsets)";
