//! The port, on top of the parts: reads on the caller's thread in short steps, writes on a thread that may wait.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use heed::{CompactionOption, RoTxn};
use kukuri_domain::{
    Address, Admitted, EventId, Millis, State, TopicId,
    clock::Clock,
    retention::Retention,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    AddressExplanation, Answer, CheckReport, ConsumerOffset, Explanation, Ingested, OutboxRow, Purged, Query, Result,
    Seq, SnapshotCursor, SnapshotPage, Stats, Store, StoreError, StoredEvent, Swept,
};
use tokio::sync::watch;

use crate::{
    check,
    error::{Failure, engine},
    format,
    open::{self, LmdbOptions, Opened},
    query::{self, FilterScan},
    reading,
    repeats::Repeats,
    subscriptions::Subscriptions,
    tables::{LmdbEnv, Tables, used_bytes},
    upkeep::PurgeWork,
    writer::{Writer, locked},
};

/// The embedded store: one LMDB environment in a directory.
pub struct LmdbStore {
    env: LmdbEnv,
    tables: Tables,
    /// None if the store was opened for reading.
    writer: Option<Arc<Mutex<Writer>>>,
    repeats: Arc<Repeats>,
    clock: Option<Arc<Mutex<Clock>>>,
    head: Arc<watch::Sender<Seq>>,
    subscriptions: watch::Sender<u64>,
}

impl LmdbStore {
    /// Opens the store in a directory for writing, making it if there is none. One process at a time may.
    pub fn open(path: impl AsRef<Path>, options: LmdbOptions) -> Result<Self> {
        let (Opened { env, tables }, writer) = open::writable(path.as_ref(), options)?;
        let head = writer.head()?;
        Ok(Self::new(env, tables, Some(writer), head))
    }

    /// Opens the store in a directory for reading; another process may be writing to it.
    pub fn open_for_reading(path: impl AsRef<Path>, options: LmdbOptions) -> Result<Self> {
        let Opened { env, tables } = open::readable(path.as_ref(), &options)?;
        Ok(Self::new(env, tables, None, Seq::default()))
    }

    /// Writes a consistent, compacted copy of the data file, while others read and write.
    pub fn copy_to(&self, file: impl AsRef<Path>) -> Result<()> {
        self.env.copy_to_path(file, CompactionOption::Enabled).map_err(engine)?;
        Ok(())
    }

    /// The part of the data file that has ever been used: it never shrinks, but its pages are used again.
    pub fn file_bytes(&self) -> u64 {
        used_bytes(&self.env)
    }

    /// How many transactions were ever committed.
    pub fn transactions(&self) -> u64 {
        self.env.info().last_txn_id as u64
    }

    fn new(env: LmdbEnv, tables: Tables, writer: Option<Writer>, head: Seq) -> Self {
        Self {
            env,
            tables,
            repeats: writer.as_ref().map(|writer| Arc::clone(&writer.repeats)).unwrap_or_default(),
            clock: writer.as_ref().map(|writer| Arc::clone(&writer.clock)),
            writer: writer.map(|writer| Arc::new(Mutex::new(writer))),
            head: Arc::new(watch::Sender::new(head)),
            subscriptions: watch::Sender::new(0),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_writer<T>(&self, act: impl FnOnce(&mut Writer) -> T) -> T {
        act(&mut locked(self.writer.as_ref().expect("a store opened for writing")))
    }

    /// Reads in one transaction. It must not outlive the call: an old transaction keeps LMDB from reusing pages.
    fn read<T>(&self, read: impl FnOnce(&Tables, &RoTxn<'_>) -> crate::error::Result<T>) -> Result<T> {
        let txn = self.env.read_txn().map_err(engine)?;
        read(&self.tables, &txn).map_err(StoreError::from)
    }

    /// Changes the store on a thread that may block, and wakes those who follow the outbox.
    async fn write<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> crate::error::Result<T> + Send + 'static,
    {
        let writer = Arc::clone(self.writer.as_ref().ok_or(StoreError::ReadOnly)?);
        let head = Arc::clone(&self.head);
        let work = tokio::task::spawn_blocking(move || {
            let mut writer = locked(&writer);
            let result = change(&mut writer)?;
            // What was done is done, even if nobody can be woken.
            if let Ok(newest) = writer.head() {
                head.send_if_modified(|head| std::mem::replace(head, newest) != newest);
            }
            Ok::<_, Failure>(result)
        });
        match work.await {
            Ok(result) => result.map_err(StoreError::from),
            Err(error) => Err(StoreError::Engine(Box::new(error))),
        }
    }

    /// Runs every filter of a query to its end, giving the thread back between steps, and hands each step's scan on.
    async fn scan<'q>(
        &self,
        query: &'q Query,
        limit: impl Fn(Option<usize>) -> usize,
        mut after_step: impl FnMut(&mut FilterScan<'q>),
    ) -> Result<(Seq, Vec<FilterScan<'q>>)> {
        let (node, mut scans) = self.read(|tables, txn| {
            let node = format::node_record(tables, txn)?;
            let scans = query
                .filters
                .iter()
                .map(|filter| FilterScan::new(filter, query, node.last_event, limit(filter.limit()), tables, txn));
            Ok((node, scans.collect::<crate::error::Result<Vec<_>>>()?))
        })?;
        for scan in &mut scans {
            loop {
                let is_done = self.read(|tables, txn| scan.step(tables, txn))?;
                after_step(scan);
                if is_done {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        Ok((node.head, scans))
    }
}

#[async_trait]
impl Store for LmdbStore {
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        self.write(move |writer| writer.ingest(&batch, now)).await
    }

    async fn recall(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>> {
        let states = self.read(|tables, txn| reading::recall(tables, txn, ids))?;
        let known = ids.iter().zip(&states).filter(|(_, state)| state.is_some());
        let latest = self.clock.as_ref().map_or(now, |clock| locked(clock).latest);
        self.repeats.note(known.map(|(id, _)| *id), latest.max(now));
        Ok(states)
    }

    async fn flush(&self) -> Result<()> {
        self.write(Writer::flush).await
    }

    async fn query(&self, query: &Query) -> Result<Answer> {
        let (seq, scans) = self.scan(query, |limit| limit.unwrap_or(usize::MAX), |_| {}).await?;
        let (events, cuts) = self.read(|tables, txn| {
            let (mut events, mut cuts) = (Vec::new(), Vec::new());
            for scan in scans {
                let finished = scan.finish(tables, txn)?;
                events.extend(finished.events);
                cuts.extend(finished.cut);
            }
            Ok((events, cuts))
        })?;
        let rest = query::rest(&cuts, &events);
        let mut events: Vec<StoredEvent> = events.into_iter().map(|(_, event)| event).collect();
        if query.filters.len() > 1 {
            events.sort_by(|left, right| right.created_at.cmp(&left.created_at).then(left.id.cmp(&right.id)));
            events.dedup_by_key(|event| event.id);
        }
        Ok(Answer { seq, events, rest })
    }

    async fn count(&self, query: &Query) -> Result<u64> {
        if query.filters.len() == 1 {
            let mut count = 0;
            let add = |scan: &mut FilterScan<'_>| {
                count += scan.count() as u64;
                scan.clear();
            };
            self.scan(query, |_| usize::MAX, add).await?;
            return Ok(count);
        }
        let mut numbers = Vec::new();
        let collect = |scan: &mut FilterScan<'_>| {
            numbers.extend(scan.numbers());
            scan.clear();
        };
        self.scan(query, |_| usize::MAX, collect).await?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers.len() as u64)
    }

    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<StoredEvent>>> {
        self.read(|tables, txn| ids.iter().map(|id| reading::get(tables, txn, id, now)).collect())
    }

    async fn expire(&self, now: Millis) -> Result<Swept> {
        let mut swept = Swept::default();
        loop {
            let (more, so_far) = self
                .write(move |writer| {
                    let more = writer.expire_some(now, &mut swept)?;
                    Ok((more, swept))
                })
                .await?;
            swept = so_far;
            if !more {
                return Ok(swept);
            }
        }
    }

    async fn purge(&self, retention: &Retention, now: Millis) -> Result<Purged> {
        let mut work = PurgeWork::new(*retention, now);
        loop {
            let (more, so_far) = self
                .write(move |writer| {
                    let more = writer.purge_some(&mut work)?;
                    Ok((more, work))
                })
                .await?;
            work = so_far;
            if !more {
                return Ok(work.purged);
            }
        }
    }

    async fn confirm_clock(&self, now: Millis) -> Result<()> {
        self.write(move |writer| writer.confirm_clock(now)).await
    }

    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        self.read(|tables, txn| reading::outbox(tables, txn, after, limit))
    }

    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        self.head.subscribe()
    }

    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
        self.read(|tables, txn| reading::snapshot(tables, txn, cursor, limit))
    }

    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        self.read(reading::offsets)
    }

    async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        let consumer = consumer.to_owned();
        self.write(move |writer| writer.set_offset(&consumer, seq, now)).await
    }

    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        self.read(|tables, txn| Ok(Subscriptions::load(tables, txn)?.all().cloned().collect()))
    }

    async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription> {
        let topic = topic.clone();
        let changed = self.write(move |writer| writer.change_subscription(&topic, change, now)).await?;
        self.subscriptions.send_modify(|version| *version += 1);
        Ok(changed)
    }

    fn watch_subscriptions(&self) -> watch::Receiver<u64> {
        self.subscriptions.subscribe()
    }

    async fn stats(&self) -> Result<Stats> {
        self.read(reading::stats)
    }

    async fn explain(&self, id: &EventId) -> Result<Explanation> {
        let mut explanation = self.read(|tables, txn| reading::explain(tables, txn, id))?;
        if let (Some(record), Some(repeat)) = (&mut explanation.record, self.repeats.get(id)) {
            repeat.add_to(record);
        }
        Ok(explanation)
    }

    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation> {
        self.read(|tables, txn| reading::explain_address(tables, txn, address))
    }

    async fn check(&self) -> Result<CheckReport> {
        self.read(check::check)
    }
}
