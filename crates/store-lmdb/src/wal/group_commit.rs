//! Group commit: batches are logged one by one and committed in one transaction.

use std::{collections::HashSet, sync::mpsc::Receiver, time::Instant};

use kukuri_domain::{Admitted, Millis};
use kukuri_store::{Ingested, StoreError, ingest::replay_event};
use tokio::sync::oneshot;

use crate::{
    batch::{Batch, BatchContext},
    error::Result,
    space::{FreeSpace, WriteEstimate},
    writer::{SharedState, Writer},
    writer_thread::Job,
};

use super::{Log, LogRecord};

/// A transaction of this size is committed: a larger one is cheaper per event, but its commit takes longer.
const MAX_TRANSACTION_EVENTS: usize = 2_048;
const MAX_TRANSACTION_BYTES: usize = 2 << 20;

/// A batch to ingest, and the channel for its outcomes.
pub(crate) struct IngestJob {
    pub(crate) events: Vec<Admitted>,
    pub(crate) now: Millis,
    pub(crate) answer: oneshot::Sender<Result<Ingested>>,
}

/// Why a group takes no more batches.
enum GroupEnd {
    /// The group is large or old enough, or nothing was logged, or this job has to run next.
    WindowOver(Option<Job>),
    /// This batch does not fit into the transaction, or into the log.
    TooLarge(IngestJob),
    /// This batch failed, and the transaction with it.
    Failed(IngestJob),
}

impl Writer {
    /// Ingests a batch and those that arrive within the group commit window. Returns the next job.
    pub(crate) fn ingest_grouped(&mut self, first: IngestJob, jobs: &Receiver<Job>) -> Option<Job> {
        let until = Instant::now() + self.group_commit_window;
        if self.group_commit_window.is_zero() || !self.pending.is_empty() {
            self.ingest_alone(first);
            return None;
        }
        let mut group = match self.begin_group() {
            Ok(group) => group,
            Err(error) => {
                let _ = first.answer.send(Err(error));
                return None;
            }
        };
        let end = group.collect(first, jobs, until);
        if let GroupEnd::Failed(_) = end {
            drop(group);
        } else if let Err(error) = group.commit() {
            tracing::error!(%error, "can't commit acknowledged events; trying again before the next write");
        } else {
            self.clear_pending();
        }
        match end {
            GroupEnd::WindowOver(next) => next,
            GroupEnd::TooLarge(job) | GroupEnd::Failed(job) => {
                self.ingest_alone(job);
                None
            }
        }
    }

    /// Ingests a batch in its own transaction, committed before the answer.
    fn ingest_alone(&mut self, job: IngestJob) {
        let ingested = self.commit_pending().and_then(|()| self.ingest_committed(&job.events, job.now));
        if let Ok(ingested) = &ingested {
            self.shared.notify_head(ingested.head);
        }
        let _ = job.answer.send(ingested);
    }

    fn begin_group(&mut self) -> Result<GroupCommit<'_>> {
        let ctx = BatchContext {
            tables: &self.tables,
            rules: &self.rules,
            subscriptions: &self.subscriptions,
            clock: *self.shared.clock.lock(),
            #[cfg(test)]
            faults: &self.faults,
        };
        let mut batch = Batch::resume(ctx)?;
        batch.emitted = Some(Vec::new());
        Ok(GroupCommit {
            batch,
            space: &mut self.space,
            wal: &mut self.wal,
            pending: &mut self.pending,
            shared: &self.shared,
            load: WriteEstimate::default(),
        })
    }

    /// Replays and commits the records that are not in LMDB yet, after a crash or a failed commit.
    pub(crate) fn commit_pending(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.replay_pending()?;
        self.clear_pending();
        Ok(())
    }

    fn replay_pending(&self) -> Result<()> {
        // From the clock on disk, and then by the clock of each record: outbox rows that were read since carry its
        // timestamps. The clock in memory has seen all of them.
        let clock = self.tables.read(|view| view.node())?.clock;
        let mut batch = Batch::resume(BatchContext { clock, ..self.context() })?;
        for record in &self.pending {
            match record.clock {
                Some(clock) => batch.node.clock = clock,
                None => batch.tick(record.now),
            }
            for event in &record.events {
                #[cfg(test)]
                self.faults.strike(event)?;
                replay_event(&mut batch, event, record.now)?;
            }
        }
        batch.commit().map(drop)
    }

    /// Call it when all records are committed.
    fn clear_pending(&mut self) {
        let now = self.pending.last().map(|record| record.now);
        self.pending.clear();
        self.shared.uncommitted.clear();
        if let Some(now) = now {
            self.write_duplicate_counts_if_due(now);
        }
    }
}

/// An open transaction and its batches.
struct GroupCommit<'w> {
    batch: Batch<'w>,
    space: &'w mut FreeSpace,
    wal: &'w mut Log,
    pending: &'w mut Vec<LogRecord>,
    shared: &'w SharedState,
    load: WriteEstimate,
}

impl GroupCommit<'_> {
    fn collect(&mut self, first: IngestJob, jobs: &Receiver<Job>, until: Instant) -> GroupEnd {
        let mut job = first;
        loop {
            match self.fits(&job.events) {
                Ok(true) => {}
                Ok(false) => return GroupEnd::TooLarge(job),
                Err(_) => return GroupEnd::Failed(job),
            }
            match self.log_batch(&job) {
                Ok(ingested) => drop(job.answer.send(Ok(ingested))),
                Err(error) => {
                    tracing::debug!(%error, "can't ingest a batch with others; ingesting it alone");
                    return GroupEnd::Failed(job);
                }
            }
            let is_large = self.load.events >= MAX_TRANSACTION_EVENTS
                || self.load.bytes >= MAX_TRANSACTION_BYTES
                || self.space.reserve_taken(self.load, self.batch.written) > 0.5;
            if is_large || self.pending.is_empty() {
                return GroupEnd::WindowOver(None);
            }
            match self.next_job(jobs, until) {
                Some(Job::Ingest(more)) => job = more,
                other => return GroupEnd::WindowOver(other),
            }
        }
    }

    /// The next job within the window. Statistics are read in the open transaction.
    fn next_job(&self, jobs: &Receiver<Job>, until: Instant) -> Option<Job> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            match jobs.recv_timeout(left).ok()? {
                Job::Stats(answer) => drop(answer.send(self.batch.stats())),
                job => return Some(job),
            }
        }
    }

    fn fits(&mut self, events: &[Admitted]) -> Result<bool> {
        let has_space = self.space.fits(self.batch.view(), self.load.with(WriteEstimate::of(events)))?;
        Ok(has_space && self.wal.fits(self.batch.transaction(), events))
    }

    /// Ingests a batch and logs it. Durable when it returns. After an error the transaction must be dropped.
    fn log_batch(&mut self, job: &IngestJob) -> Result<Ingested> {
        let batch = &mut self.batch;
        let effect = batch.ingest(&job.events, &HashSet::new(), job.now).map_err(|failure| failure.error)?;
        let (rows, stages, head) = (batch.take_outbox_rows(), std::mem::take(&mut batch.stages), batch.node.head);
        let events = effect.applied.iter().map(|index| job.events[*index].clone()).collect();
        let record = LogRecord { events, now: job.now, clock: Some(batch.node.clock) };
        let load = self.load.with(WriteEstimate::of(&record.events));
        if self.space.reserve_taken(load, batch.written) > 1.0 {
            // In its own transaction it is committed before the answer, and fails if there is no space.
            return Err(StoreError::Full("the batch retires more rows than the reserve can hold".to_owned()).into());
        }
        if !record.events.is_empty() {
            self.wal.append(batch.transaction(), &record)?;
            self.load = load;
            self.shared.uncommitted.add(&record.events, rows);
            self.pending.push(record);
        }
        *self.shared.clock.lock() = batch.node.clock;
        self.shared.repeats.note(effect.repeats, batch.stamp_of_copies(job.now));
        self.shared.notify_head(head);
        Ok(Ingested { outcomes: effect.outcomes, head, deletions: effect.deletions, stages })
    }

    fn commit(self) -> Result<()> {
        self.batch.commit().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use kukuri_store::{
        Seq,
        conformance::build::{NOW, admitted, note},
        port::*,
    };

    use super::*;
    use crate::{Durability, LmdbOptions, LmdbStore};

    #[test]
    fn acknowledged_events_survive_a_stop_after_a_failed_commit() {
        // P-3, O-5
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options.clone()).unwrap();
        let event = admitted(&note("acknowledged").build());
        let id = event.event().id;
        // The state after a failed commit: the clock has advanced, and repeated copies were counted.
        store.with_writer(move |writer| {
            let record = LogRecord { events: vec![event], now: NOW, clock: None };
            writer.wal.append(writer.tables.env.info().last_txn_id as u64 + 1, &record).unwrap();
            writer.faults.failing = vec![id];
            writer.pending.push(record);
            let clock = writer.rules.tick(writer.context().clock, Seq::default(), NOW);
            *writer.shared.clock.lock() = clock;
            writer.shared.repeats.note(vec![id], NOW);
        });
        drop(store);
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(store.get(&[id], NOW)).unwrap()[0].is_some());
    }

    #[test]
    fn statistics_count_pending_events_and_commit_nothing() {
        // Y-4
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions {
            durability: Durability::Unsynced,
            map_size: 1 << 26,
            group_commit_window: std::time::Duration::from_secs(60),
            ..LmdbOptions::default()
        };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let before = store.transactions();
            for number in 0..3_u64 {
                store.ingest(vec![admitted(&note(&number.to_string()).build())], NOW).await.unwrap();
                let stats = store.stats().await.unwrap();
                assert_eq!((stats.effective, stats.head, stats.ids), (number + 1, Seq(number + 1), number + 1));
            }
            assert_eq!(store.transactions(), before, "the transaction is still open");
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
            assert_eq!(store.transactions(), before + 1, "other reads commit it");
        });
    }

    #[test]
    fn jump_of_the_clock_is_reported_before_it_is_committed() {
        // P-5
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        // The state between the answer to a batch of refused events and its commit.
        store.with_writer(|writer| {
            let rules = writer.rules.clock;
            let clock = writer.context().clock.tick(NOW, &rules).tick(NOW.after(rules.max_jump * 2), &rules);
            *writer.shared.clock.lock() = clock;
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(store.stats()).unwrap().clock_held);
    }

    #[test]
    fn failed_commit_is_retried_before_any_other_read_or_write() {
        // P-3, W-9
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let owe = |text: &str| {
            let event = admitted(&note(text).build());
            let (id, record) = (event.event().id, LogRecord { events: vec![event], now: NOW, clock: None });
            // The state after a failed commit.
            store.with_writer(move |writer| {
                writer.shared.uncommitted.add(&record.events, Vec::new());
                writer.pending.push(record);
            });
            id
        };
        runtime.block_on(async {
            let read = owe("somebody reads");
            assert!(store.get(&[read], NOW).await.unwrap()[0].is_some());
            let written = owe("something else is written");
            store.set_offset("a-consumer", Seq::default(), NOW).await.unwrap();
            let more = owe("more comes in");
            let later = admitted(&note("later").build());
            store.ingest(vec![later.clone()], NOW).await.unwrap();
            let found = store.get(&[written, more, later.event().id], NOW).await.unwrap();
            assert!(found.iter().all(Option::is_some));
            let rows = store.outbox(Seq::default(), 10).await.unwrap();
            let order: Vec<_> = rows.iter().map(|row| row.event_id).collect();
            assert_eq!(order, [read, written, more, later.event().id]);
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        });
    }
}
