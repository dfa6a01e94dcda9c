//! Implementation of the store port: short reads run on the caller's thread, costly ones and writes on threads that may
//! block.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use heed::CompactionOption;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, PublicKey, Sketch, State, Timestamp, TopicId,
    clock::Clock,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    AddressExplanation, Answer, Archive, BoundEvent, CheckReport, ConsumerOffset, Count, DryRun, DumpCursor, DumpPage,
    Epoch, Explanation, Holder, Ingested, OutboxRow, Piece, PurgeCursor, PurgeStep, Query, Raised, ReadStage, Result,
    Seq, Shared, SharedPage, SharedSet, SnapshotCursor, SnapshotPage, Span, StageChange, Stats, StoreError, Swept,
    TopicStats, lease::Leases, outbox::check_consumer, port::*,
};
use tokio::{runtime::Handle, sync::watch};

use crate::{
    answering::{self, Effort},
    archive, check,
    error::Failure,
    files, format, lookup,
    open::{self, InUse, LmdbOptions},
    sharing::{self, SharedScan},
    subscriptions,
    tables::{Tables, View},
    wal::Uncommitted,
    writer::{SharedState, Writer},
    writer_thread::WriterThread,
};

/// The embedded store: one LMDB environment in a directory.
pub struct LmdbStore {
    tables: Tables,
    /// `None` if the store was opened for reading.
    writer: Option<WriterThread>,
    shared: Arc<SharedState>,
    /// Never changes while the store is open: its files are not exchanged.
    epoch: watch::Sender<Epoch>,
    subscriptions: watch::Sender<u64>,
    leases: Leases,
    _in_use: InUse,
}

impl LmdbStore {
    /// Opens the store in a directory for writing; creates it if there is none. Only one process at a time can.
    pub fn open(path: impl AsRef<Path>, options: LmdbOptions) -> Result<Self> {
        let (writer, in_use) = open::writable(path.as_ref(), options)?;
        let (tables, shared) = (writer.tables.clone(), Arc::clone(&writer.shared));
        let writer = WriterThread::start(writer).map_err(Failure::from)?;
        Self::new(tables, Some(writer), shared, in_use)
    }

    /// Opens the store in a directory for reading; another process may be writing to it.
    pub fn open_for_reading(path: impl AsRef<Path>, options: LmdbOptions) -> Result<Self> {
        let (tables, in_use) = open::readable(path.as_ref(), &options)?;
        Self::new(tables, None, Arc::default(), in_use)
    }

    /// Writes a consistent, compacted copy of the data file, during reads and writes.
    pub fn copy_to(&self, file: impl AsRef<Path>) -> Result<()> {
        if let Some(writer) = &self.writer {
            writer.change_blocking(|_| Ok(()))?;
        }
        self.tables.env.copy_to_path(file, CompactionOption::Enabled).map_err(Failure::from)?;
        Ok(())
    }

    /// Opens a store whose write-ahead log is damaged ([`StoreError::DamagedWal`]): replays the intact records and keeps a
    /// copy of the log as `wal.log.damaged`. Returns how many events were replayed.
    pub fn salvage(path: impl AsRef<Path>, options: LmdbOptions) -> Result<usize> {
        Ok(open::salvage(path.as_ref(), options)?)
    }

    /// Rewrites the data file without its free pages. No process may have the store open. Returns its bytes before and
    /// after.
    pub fn compact(path: impl AsRef<Path>, options: &LmdbOptions) -> Result<(u64, u64)> {
        Ok(files::compact(path.as_ref(), options)?)
    }

    /// Creates a store from a data file that [`Self::copy_to`] wrote, in a directory that has none.
    pub fn install(path: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<()> {
        Ok(files::install(path.as_ref(), file.as_ref())?)
    }

    /// High-water mark of the data file in bytes: it never shrinks, but its free pages are reused.
    pub fn file_bytes(&self) -> u64 {
        self.tables.file_bytes()
    }

    /// Number of transactions ever committed.
    pub fn transactions(&self) -> u64 {
        self.tables.env.info().last_txn_id as u64
    }

    fn new(tables: Tables, writer: Option<WriterThread>, shared: Arc<SharedState>, in_use: InUse) -> Result<Self> {
        let epoch = watch::Sender::new(tables.read(format::epoch)?);
        let (subscriptions, leases) = (watch::Sender::new(0), Leases::default());
        Ok(Self { tables, writer, shared, epoch, subscriptions, leases, _in_use: in_use })
    }

    #[cfg(test)]
    pub(crate) fn with_writer<T: Send + 'static>(&self, act: impl FnOnce(&mut Writer) -> T + Send + 'static) -> T {
        self.writer.as_ref().expect("a store opened for writing").change_blocking(|writer| Ok(act(writer))).unwrap()
    }

    fn read<T>(&self, read: impl FnOnce(View<'_>) -> crate::error::Result<T>) -> Result<T> {
        Ok(self.tables.read(read)?)
    }

    /// Runs a write on the writer's thread, then wakes outbox followers.
    async fn write<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> crate::error::Result<T> + Send + 'static,
    {
        let writer = self.writer.as_ref().ok_or(StoreError::ReadOnly)?;
        let changed = writer.change(|writer| {
            let result = change(writer)?;
            // The write has succeeded, even if followers can't be woken.
            let _ = writer.notify_head();
            Ok(result)
        });
        Ok(changed.await?)
    }

    /// Commits pending records first, if they affect the answer (W-9).
    async fn commit_wal_if(&self, is_affected: impl FnOnce(&Uncommitted) -> bool) -> Result<()> {
        match &self.writer {
            Some(writer) if is_affected(&self.shared.uncommitted) => Ok(writer.change(|_| Ok(())).await?),
            _ => Ok(()),
        }
    }

    /// Commits pending records that affect a query. If none do, returns the outbox row up to which its answer holds.
    async fn commit_wal_for(&self, query: &Query) -> Result<Seq> {
        if let Some(unaffected_until) = self.shared.uncommitted.unaffected_until(query) {
            return Ok(unaffected_until);
        }
        self.commit_wal().await?;
        Ok(Seq::default())
    }

    async fn commit_wal(&self) -> Result<()> {
        self.commit_wal_if(Uncommitted::is_some).await
    }

    /// Answers a query: with little effort on this thread, or else with a permit, on a thread that may block.
    async fn answer<T, R>(&self, query: &Query, read: R) -> Result<T>
    where
        T: Send + 'static,
        R: Fn(&Tables, &Query, Effort<'_>) -> crate::error::Result<Option<T>> + Send + 'static,
    {
        if let Some(answer) = read(&self.tables, query, Effort::Quick)? {
            return Ok(answer);
        }
        let permit = query.budget.enter(ReadStage::Costly, usize::MAX).await?;
        let (tables, query) = (self.tables.clone(), query.clone());
        // A caller that drops its future ends the work.
        let cancel = CancelOnDrop(Arc::default());
        let is_cancelled = Arc::clone(&cancel.0);
        let work = move || {
            let _permit = permit;
            read(&tables, &query, Effort::Full(&is_cancelled))
        };
        let answer = match Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(work).await.map_err(|error| StoreError::Backend(Box::new(error)))?,
            Err(_) => work(),
        };
        answer?.ok_or(StoreError::TooCostly)
    }
}

/// Sets the flag when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Events for LmdbStore {
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        let writer = self.writer.as_ref().ok_or(StoreError::ReadOnly)?;
        Ok(writer.send_ingest_job(batch, now).await?)
    }

    async fn leave_vanish_mark(&self, author: &PublicKey, until: Timestamp, now: Millis) -> Result<Vec<StageChange>> {
        let author = *author;
        self.write(move |writer| writer.leave_vanish_mark(&author, until, now)).await
    }

    async fn known_states(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>> {
        self.commit_wal_if(|uncommitted| uncommitted.affects_ids(ids)).await?;
        let states = self.read(|view| lookup::read_states(view, ids))?;
        let known = ids.iter().zip(&states).filter(|(_, state)| state.is_some());
        self.shared.repeats.note(known.map(|(id, _)| *id), self.shared.stamp_of_copies(now));
        Ok(states)
    }

    async fn write_duplicate_counts(&self) -> Result<()> {
        self.write(Writer::write_duplicate_counts).await
    }

    async fn query(&self, query: &Query) -> Result<Answer> {
        let unaffected_until = self.commit_wal_for(query).await?;
        let answer = self.answer(query, answering::query).await?;
        Ok(Answer { seq: answer.seq.max(unaffected_until), ..answer })
    }

    async fn ids(&self, query: &Query, max: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        self.commit_wal_for(query).await?;
        self.answer(query, move |tables, query, effort| answering::ids(tables, query, max, effort)).await
    }

    async fn count(&self, query: &Query, sketch: Option<Sketch>) -> Result<Count> {
        self.commit_wal_for(query).await?;
        let count =
            move |tables: &_, query: &_, effort: Effort<'_>| answering::count(tables, query, sketch.clone(), effort);
        self.answer(query, count).await
    }

    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        self.commit_wal_if(|uncommitted| uncommitted.affects_ids(ids)).await?;
        self.read(|view| ids.iter().map(|id| lookup::get(view, id, now)).collect())
    }
}

#[async_trait]
impl Sharing for LmdbStore {
    async fn shared(&self, set: &SharedSet, span: Span, limit: usize) -> Result<SharedPage> {
        self.commit_wal().await?;
        let mut scan = self.read(|view| SharedScan::new(set, span, limit, view))?;
        while self.read(|view| scan.step(view))? {
            tokio::task::yield_now().await;
        }
        self.read(|view| scan.finish(view))
    }

    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>> {
        self.commit_wal().await?;
        self.read(|view| ids.iter().map(|id| sharing::share(view, set, id)).collect())
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised> {
        let topic = topic.clone();
        self.write(move |writer| writer.raise_floors(&topic, &hints, now)).await
    }
}

#[async_trait]
impl Upkeep for LmdbStore {
    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        self.write(move |writer| writer.expire_some(now)).await
    }

    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep> {
        let retention = *retention;
        self.write(move |writer| writer.purge_some(&retention, now, cursor)).await
    }

    async fn dry_run_purge(&self, retention: &Retention, now: Millis, max_rows: usize) -> Result<DryRun> {
        let retention = *retention;
        self.write(move |writer| writer.dry_run_purge(&retention, now, max_rows)).await
    }

    async fn observe_clock(&self, now: Millis) -> Result<Clock> {
        self.write(move |writer| writer.observe_clock(now)).await
    }

    async fn confirm_clock(&self, now: Millis) -> Result<()> {
        self.write(move |writer| writer.confirm_clock(now)).await
    }
}

#[async_trait]
impl Outbox for LmdbStore {
    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        // Read the pending rows first: rows committed meanwhile are found in LMDB below.
        let (uncommitted, are_all) = self.shared.uncommitted.rows_after(after, limit);
        if are_all {
            return Ok(uncommitted);
        }
        let mut rows = self.read(|view| lookup::outbox(view, after, limit))?;
        let last = rows.last().map_or(after, |row| row.seq);
        let missing = limit - rows.len();
        rows.extend(uncommitted.into_iter().filter(|row| row.seq > last).take(missing));
        Ok(rows)
    }

    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        self.shared.head.subscribe()
    }

    fn watch_epoch(&self) -> watch::Receiver<Epoch> {
        self.epoch.subscribe()
    }

    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
        self.commit_wal().await?;
        self.read(|view| lookup::snapshot(view, cursor, limit))
    }

    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        self.read(lookup::offsets)
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
}

#[async_trait]
impl Topics for LmdbStore {
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        self.read(|view| Ok(subscriptions::load(view)?.all().cloned().collect()))
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
}

#[async_trait]
impl Inspect for LmdbStore {
    async fn stats(&self) -> Result<Stats> {
        // Not `commit_wal`: statistics are asked for by strangers, and a commit for each would end group commit (Y-4).
        let mut stats = match &self.writer {
            Some(writer) if self.shared.uncommitted.is_some() => writer.stats().await?,
            _ => self.read(lookup::stats)?,
        };
        if self.writer.is_some() {
            // A batch of refused events is answered before the clock that it advanced is committed.
            stats.clock_held = self.shared.clock.lock().is_held();
        }
        Ok(stats)
    }

    async fn topic_stats(&self, topics: &[TopicId]) -> Result<Vec<Option<TopicStats>>> {
        self.commit_wal_if(|uncommitted| uncommitted.affects_topics(topics)).await?;
        self.read(|view| lookup::topic_stats(view, topics))
    }

    async fn list_topics(&self, after: Option<&TopicId>, limit: usize) -> Result<Vec<TopicStats>> {
        self.commit_wal().await?;
        self.read(|view| lookup::list_topics(view, after, limit))
    }

    async fn explain(&self, id: &EventId) -> Result<Explanation> {
        self.commit_wal().await?;
        let mut explanation = self.read(|view| lookup::explain(view, id))?;
        if let (Some(record), Some(repeat)) = (&mut explanation.record, self.shared.repeats.get(id)) {
            repeat.add_to(record);
        }
        Ok(explanation)
    }

    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation> {
        self.commit_wal().await?;
        self.read(|view| lookup::explain_address(view, address))
    }

    async fn check(&self) -> Result<CheckReport> {
        self.commit_wal().await?;
        self.read(check::check)
    }
}

#[async_trait]
impl Archive for LmdbStore {
    async fn dump(&self, cursor: DumpCursor, limit: usize) -> Result<DumpPage> {
        self.commit_wal().await?;
        self.read(|view| archive::dump(view, cursor, limit))
    }

    async fn load(&self, pieces: Vec<Piece>) -> Result<()> {
        self.write(move |writer| writer.load(pieces)).await?;
        self.subscriptions.send_modify(|version| *version += 1);
        Ok(())
    }
}
