//! The port, on top of the parts: reads on the caller's thread in short steps, writes on a thread that may wait.

use std::{
    collections::HashSet,
    fs::File,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use heed::{CompactionOption, RoTxn};
use kukuri_domain::{
    Address, Admitted, EventId, Filter, Millis, PublicKey, Sketch, State, Timestamp, TopicId,
    clock::Clock,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    AddressExplanation, Answer, Archive, BoundEvent, CheckReport, ConsumerOffset, Count, DumpCursor, DumpPage,
    Explanation, Holder, Ingested, OutboxRow, Piece, PurgeCursor, PurgeStep, Purged, Query, Raised, Result, Seq,
    Shared, SharedPage, SharedSet, SnapshotCursor, SnapshotPage, Span, Stats, Store, StoreError, StoreRules,
    StoredEvent, Swept, lease::Leases, outbox::check_consumer,
};
use tokio::sync::watch;

use kukuri_store::repeats::Repeats;

use crate::{
    archive, check,
    error::engine,
    files, format,
    key::Order,
    open::{self, LmdbOptions, Opened},
    preview::Preview,
    query::{self, Cut, FilterScan, Part},
    reading,
    sharing::{self, Reading},
    subscriptions,
    tables::{LmdbEnv, Tables, used_bytes},
    thread::WriterThread,
    unsettled::Unsettled,
    upkeep::PurgeWork,
    writer::{Writer, locked, tell},
};

/// The embedded store: one LMDB environment in a directory.
pub struct LmdbStore {
    env: LmdbEnv,
    tables: Tables,
    rules: StoreRules,
    /// None if the store was opened for reading.
    writer: Option<WriterThread>,
    unsettled: Arc<Unsettled>,
    repeats: Arc<Repeats>,
    clock: Option<Arc<Mutex<Clock>>>,
    head: Arc<watch::Sender<Seq>>,
    subscriptions: watch::Sender<u64>,
    leases: Leases,
    /// Tells others that the files are in use.
    _in_use: Option<File>,
}

impl LmdbStore {
    /// Opens the store in a directory for writing, making it if there is none. One process at a time may.
    pub fn open(path: impl AsRef<Path>, options: LmdbOptions) -> Result<Self> {
        let rules = options.rules.clone();
        let (opened, writer) = open::writable(path.as_ref(), options)?;
        let mut store = Self::new(opened, rules);
        store.repeats = Arc::clone(&writer.repeats);
        store.clock = Some(Arc::clone(&writer.clock));
        store.unsettled = Arc::clone(&writer.unsettled);
        store.head = Arc::clone(&writer.head);
        store.writer = Some(WriterThread::start(writer).map_err(open::io)?);
        Ok(store)
    }

    /// Opens the store in a directory for reading; another process may be writing to it.
    pub fn open_for_reading(path: impl AsRef<Path>, options: LmdbOptions) -> Result<Self> {
        let opened = open::readable(path.as_ref(), &options)?;
        Ok(Self::new(opened, options.rules))
    }

    /// Writes a consistent, compacted copy of the data file, while others read and write.
    pub fn copy_to(&self, file: impl AsRef<Path>) -> Result<()> {
        if let Some(writer) = &self.writer {
            writer.settle_now()?;
        }
        self.env.copy_to_path(file, CompactionOption::Enabled).map_err(engine)?;
        Ok(())
    }

    /// Writes the data file of a store anew, without the pages that are free. Nobody may have it open. Returns its
    /// bytes before and after.
    pub fn compact(path: impl AsRef<Path>, options: &LmdbOptions) -> Result<(u64, u64)> {
        Ok(files::compact(path.as_ref(), options)?)
    }

    /// Makes a store of a data file that [`Self::copy_to`] wrote, in a directory that has none.
    pub fn install(path: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<()> {
        Ok(files::install(path.as_ref(), file.as_ref())?)
    }

    /// The part of the data file that has ever been used: it never shrinks, but its pages are used again.
    pub fn file_bytes(&self) -> u64 {
        used_bytes(&self.env)
    }

    /// How many transactions were ever committed.
    pub fn transactions(&self) -> u64 {
        self.env.info().last_txn_id as u64
    }

    fn new(Opened { env, tables, in_use }: Opened, rules: StoreRules) -> Self {
        Self {
            env,
            tables,
            rules,
            writer: None,
            unsettled: Arc::default(),
            repeats: Arc::default(),
            clock: None,
            head: Arc::new(watch::Sender::new(Seq::default())),
            subscriptions: watch::Sender::new(0),
            leases: Leases::default(),
            _in_use: in_use,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_writer<T: Send + 'static>(&self, act: impl FnOnce(&mut Writer) -> T + Send + 'static) -> T {
        self.writer.as_ref().expect("a store opened for writing").change_now(act)
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
        let writer = self.writer.as_ref().ok_or(StoreError::ReadOnly)?;
        let changed = writer.change(|writer| {
            let result = change(writer)?;
            // What was done is done, even if nobody can be woken.
            if let Ok(stored) = writer.stored() {
                tell(&writer.head, stored.head);
            }
            Ok(result)
        });
        Ok(changed.await?)
    }

    /// Has what is acknowledged committed first, if that concerns what is to be read (W-9).
    async fn settle_if(&self, concerned: impl FnOnce(&Unsettled) -> bool) -> Result<()> {
        match &self.writer {
            Some(writer) if concerned(&self.unsettled) => Ok(writer.settle().await?),
            _ => Ok(()),
        }
    }

    /// The same for a query. Returns the row up to which its answer holds even if nothing was committed.
    async fn settle_for(&self, query: &Query) -> Result<Seq> {
        if let Some(passed_over) = self.unsettled.passed_over(query) {
            return Ok(passed_over);
        }
        self.settle().await?;
        Ok(Seq::default())
    }

    async fn settle(&self) -> Result<()> {
        self.settle_if(Unsettled::is_some).await
    }

    /// The filters of a query, all at one moment, with limits of their own or of the caller's.
    fn begin<'q, P: Part>(
        &self,
        query: &'q Query,
        limit: impl Fn(&Filter) -> usize,
    ) -> Result<(Seq, Vec<FilterScan<'q, P>>)> {
        self.read(|tables, txn| {
            let node = format::node_record(tables, txn)?;
            let scan = |filter| FilterScan::new(filter, query, node.last_event, limit(filter), tables, txn);
            let scans = query.filters.iter().map(scan).collect::<crate::error::Result<_>>()?;
            Ok((node.head, scans))
        })
    }

    /// Walks along a filter's way while `go_on` says so, giving the thread back between steps. Returns whether it has
    /// come to the end.
    async fn walk<'q, P: Part>(
        &self,
        scan: &mut FilterScan<'q, P>,
        mut go_on: impl FnMut(&mut FilterScan<'q, P>, &Tables, &RoTxn<'_>) -> crate::error::Result<bool>,
    ) -> Result<bool> {
        loop {
            let (is_done, goes_on) = self.read(|tables, txn| {
                let is_done = scan.step(tables, txn)?;
                Ok((is_done, go_on(scan, tables, txn)?))
            })?;
            if is_done || !goes_on {
                return Ok(goes_on);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads what a filter has found, in order and within its limit; and whether that leaves anything out.
    async fn finish<P: Part>(
        &self,
        mut scan: FilterScan<'_, P>,
        id: impl Fn(&P) -> EventId,
    ) -> Result<(Vec<(Order, P)>, Option<Cut>)> {
        let mut read = Vec::with_capacity(scan.count());
        while !self.read(|tables, txn| scan.read_some(&mut read, tables, txn))? {
            tokio::task::yield_now().await;
        }
        let cut = scan.finish(&mut read, id);
        Ok((read, cut))
    }
}

/// A filter without a limit gets everything (W-1).
fn own_limit(filter: &Filter) -> usize {
    filter.limit().unwrap_or(usize::MAX)
}

fn no_limit(_: &Filter) -> usize {
    usize::MAX
}

#[async_trait]
impl Store for LmdbStore {
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        let writer = self.writer.as_ref().ok_or(StoreError::ReadOnly)?;
        Ok(writer.take_in(batch, now).await?)
    }

    async fn recall(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>> {
        self.settle_if(|unsettled| unsettled.concerns_ids(ids)).await?;
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
        let passed_over = self.settle_for(query).await?;
        let (seq, scans) = self.begin::<StoredEvent>(query, own_limit)?;
        let (mut events, mut cuts) = (Vec::new(), Vec::new());
        for mut scan in scans {
            self.walk(&mut scan, |_, _, _| Ok(true)).await?;
            let (found, cut) = self.finish(scan, |event| event.id).await?;
            events.extend(found);
            cuts.extend(cut);
        }
        let rest = query::rest(&cuts, &events);
        let mut events: Vec<StoredEvent> = events.into_iter().map(|(_, event)| event).collect();
        if query.filters.len() > 1 {
            events.sort_by(|left, right| right.created_at.cmp(&left.created_at).then(left.id.cmp(&right.id)));
            events.dedup_by_key(|event| event.id);
        }
        Ok(Answer { seq: seq.max(passed_over), events, rest })
    }

    async fn ids(&self, query: &Query, most: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        self.settle_for(query).await?;
        let (_, scans) = self.begin::<EventId>(query, own_limit)?;
        let mut all = Vec::new();
        for mut scan in scans {
            if !self.walk(&mut scan, |scan, _, _| Ok(scan.count() <= most)).await? {
                return Ok(None);
            }
            let (found, _) = self.finish(scan, |id| *id).await?;
            all.extend(found.into_iter().map(|(order, id)| (order.created_at(), id)));
            all.sort_unstable();
            all.dedup();
            if all.len() > most {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    async fn count(&self, query: &Query, mut sketch: Option<Sketch>) -> Result<Count> {
        self.settle_for(query).await?;
        let (_, scans) = self.begin::<PublicKey>(query, no_limit)?;
        let is_single = scans.len() == 1;
        let (mut count, mut numbers, mut noted) = (0, Vec::new(), HashSet::new());
        for mut scan in scans {
            let add = |scan: &mut FilterScan<'_, _>, tables: &Tables, txn: &RoTxn<'_>| {
                count += scan.count() as u64;
                if !is_single {
                    numbers.extend(scan.numbers());
                }
                if let Some(sketch) = &mut sketch {
                    scan.note_authors(&mut noted, sketch, tables, txn)?;
                }
                scan.clear();
                Ok(true)
            };
            self.walk(&mut scan, add).await?;
            // What several filters match counts once, and is held once.
            numbers.sort_unstable();
            numbers.dedup();
        }
        if !is_single {
            count = numbers.len() as u64;
        }
        Ok(Count { events: count, sketch })
    }

    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        self.settle_if(|unsettled| unsettled.concerns_ids(ids)).await?;
        self.read(|tables, txn| ids.iter().map(|id| reading::get(tables, txn, id, now)).collect())
    }

    async fn shared(&self, set: &SharedSet, span: Span, most: usize) -> Result<SharedPage> {
        self.settle().await?;
        let mut reading = Reading::new(set, span, most);
        while self.read(|tables, txn| reading.step(tables, txn))? {
            tokio::task::yield_now().await;
        }
        self.read(|tables, txn| reading.finish(tables, txn))
    }

    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>> {
        self.settle().await?;
        self.read(|tables, txn| ids.iter().map(|id| sharing::share(tables, txn, set, id)).collect())
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised> {
        let topic = topic.clone();
        self.write(move |writer| writer.raise_floors(&topic, &hints, now)).await
    }

    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        self.write(move |writer| {
            let mut swept = Swept::default();
            let more = writer.expire_some(now, &mut swept)?;
            Ok((swept, more))
        })
        .await
    }

    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep> {
        let begun = cursor.0.and_then(|work| work.downcast::<PurgeWork>().ok());
        let mut work = begun.unwrap_or_else(|| Box::new(PurgeWork::new(*retention, now)));
        let (more, work) = self
            .write(move |writer| {
                let more = writer.purge_some(&mut work)?;
                Ok((more, work))
            })
            .await?;
        Ok(PurgeStep { purged: work.purged.clone(), next: more.then(|| PurgeCursor(Some(work))) })
    }

    async fn preview_purge(&self, retention: &Retention, now: Millis) -> Result<Purged> {
        self.settle().await?;
        let clock = self.clock.as_ref().map(|clock| *locked(clock));
        let begin =
            |tables: &Tables, txn: &RoTxn<'_>| Preview::begin((*retention, now), clock, &self.rules, tables, txn);
        let mut preview = self.read(begin)?;
        while self.read(|tables, txn| preview.step(&self.repeats, tables, txn))? {
            tokio::task::yield_now().await;
        }
        Ok(preview.purged)
    }

    async fn confirm_clock(&self, now: Millis) -> Result<()> {
        self.write(move |writer| writer.confirm_clock(now)).await
    }

    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        // First: what is committed meanwhile is found below.
        let (unsettled, are_all) = self.unsettled.rows_after(after, limit);
        if are_all {
            return Ok(unsettled);
        }
        let mut rows = self.read(|tables, txn| reading::outbox(tables, txn, after, limit))?;
        let last = rows.last().map_or(after, |row| row.seq);
        let missing = limit - rows.len();
        rows.extend(unsettled.into_iter().filter(|row| row.seq > last).take(missing));
        Ok(rows)
    }

    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        self.head.subscribe()
    }

    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
        self.settle().await?;
        self.read(|tables, txn| reading::snapshot(tables, txn, cursor, limit))
    }

    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        self.read(reading::offsets)
    }

    async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        let consumer = consumer.to_owned();
        self.write(move |writer| writer.set_offset(&consumer, seq, now)).await
    }

    async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool> {
        check_consumer(consumer)?;
        Ok(self.leases.take(consumer, holder, until, now))
    }

    async fn release(&self, consumer: &str, holder: Holder) -> Result<()> {
        self.leases.release(consumer, holder);
        Ok(())
    }

    async fn advance(&self, consumer: &str, holder: Holder, seq: Seq, now: Millis) -> Result<()> {
        self.leases.check(consumer, holder)?;
        self.set_offset(consumer, seq, now).await
    }

    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        self.read(|tables, txn| Ok(subscriptions::load(tables, txn)?.all().cloned().collect()))
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
        self.settle().await?;
        self.read(reading::stats)
    }

    async fn explain(&self, id: &EventId) -> Result<Explanation> {
        self.settle().await?;
        let mut explanation = self.read(|tables, txn| reading::explain(tables, txn, id))?;
        if let (Some(record), Some(repeat)) = (&mut explanation.record, self.repeats.get(id)) {
            repeat.add_to(record);
        }
        Ok(explanation)
    }

    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation> {
        self.settle().await?;
        self.read(|tables, txn| reading::explain_address(tables, txn, address))
    }

    async fn check(&self) -> Result<CheckReport> {
        self.settle().await?;
        self.read(check::check)
    }
}

#[async_trait]
impl Archive for LmdbStore {
    async fn dump(&self, cursor: DumpCursor, limit: usize) -> Result<DumpPage> {
        self.settle().await?;
        self.read(|tables, txn| archive::dump(tables, txn, cursor, limit))
    }

    async fn load(&self, pieces: Vec<Piece>) -> Result<()> {
        self.write(move |writer| writer.load(pieces)).await?;
        self.subscriptions.send_modify(|version| *version += 1);
        Ok(())
    }
}
