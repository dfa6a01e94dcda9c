//! The only writer of a store: its state between transactions.

use std::{collections::HashMap, fs::File, sync::Arc, time::Duration};

use kukuri_domain::{
    EventId, Millis, TopicId,
    clock::Clock,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    Seq, StoreError, StoreRules,
    counters::Tally as _,
    outbox::check_consumer,
    repeats::{Repeat, Repeats},
    subscriptions::Subscriptions,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    batch::{Batch, BatchContext},
    error::Result,
    format,
    open::LmdbOptions,
    record::{NodeRecord, OffsetRecord},
    space::FreeSpace,
    subscriptions,
    tables::{LmdbEnv, Table, Tables},
    upkeep::Scanned,
    wal::Uncommitted,
    wal::{Log, LogRecord},
};

/// Every write to the store goes through the writer.
pub(crate) struct Writer {
    pub(crate) env: LmdbEnv,
    pub(crate) tables: Tables,
    pub(crate) rules: StoreRules,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) repeats: Arc<Repeats>,
    pub(crate) space: FreeSpace,
    pub(crate) scanned: Scanned,
    /// The clock as last seen. Shared, because repeated copies of events are stamped while a commit is in progress.
    pub(crate) clock: Arc<Mutex<Clock>>,
    pub(crate) group_commit_window: Duration,
    pub(crate) wal: Log,
    /// Acknowledged records that are not committed, in order; then the view of them for readers.
    pub(crate) pending: Vec<LogRecord>,
    pub(crate) uncommitted: Arc<Uncommitted>,
    /// The head of the outbox as its followers know it.
    pub(crate) head: Arc<watch::Sender<Seq>>,
    #[cfg(test)]
    pub(crate) faults: kukuri_store::conformance::faults::Faults,
    /// Held while the store is open: only one process writes.
    _lock: File,
}

impl Writer {
    /// `pending` holds the records that a crash left uncommitted.
    pub(crate) fn new(
        env: LmdbEnv,
        tables: Tables,
        options: LmdbOptions,
        lock: File,
        wal: Log,
        pending: Vec<LogRecord>,
    ) -> Result<Self> {
        let txn = env.read_txn()?;
        let subscriptions = subscriptions::load(&tables, &txn)?;
        let clock = format::node_record(&tables, &txn)?.clock;
        drop(txn);
        let space = FreeSpace::new(&env, options.reserve as u64)?;
        let mut writer = Self {
            env,
            tables,
            rules: options.rules,
            subscriptions,
            repeats: Arc::default(),
            space,
            scanned: Scanned::default(),
            clock: Arc::new(Mutex::new(clock)),
            group_commit_window: options.group_commit_window,
            wal,
            pending,
            uncommitted: Arc::default(),
            head: Arc::new(watch::Sender::new(Seq::default())),
            #[cfg(test)]
            faults: Default::default(),
            _lock: lock,
        };
        writer.commit_pending()?;
        writer.wal.remove_former_file();
        writer.review_stages()?;
        notify_head(&writer.head, writer.stored()?.head);
        Ok(writer)
    }

    /// Closes the writer. If pending records can't be committed, nothing else may be: the next start replays them.
    pub(crate) fn close(mut self) {
        if let Err(error) = self.commit_pending() {
            tracing::error!(%error, "can't commit acknowledged events at shutdown; the next start replays them");
            return;
        }
        if let Err(error) = self.write_duplicate_counts() {
            tracing::warn!(%error, "can't write the counts of repeated events at shutdown; they are lost");
        }
        if let Err(error) = Batch::resume(self.context()).and_then(Batch::commit_clock) {
            tracing::warn!(%error, "can't persist the clock at shutdown");
        }
        self.wal.remove();
    }

    pub(crate) fn context(&self) -> BatchContext<'_> {
        BatchContext {
            env: &self.env,
            tables: self.tables,
            rules: &self.rules,
            subscriptions: &self.subscriptions,
            clock: *self.clock.lock(),
        }
    }

    /// Records the clock that a batch has seen.
    pub(crate) fn note_clock(&self, clock: Clock) {
        *self.clock.lock() = clock;
    }

    /// Recomputes capacity stages, because the configuration may have changed while the store was closed.
    fn review_stages(&mut self) -> Result<()> {
        let mut batch = Batch::resume(self.context())?;
        batch.touch_all();
        batch.update_stages()?;
        batch.commit()?;
        Ok(())
    }

    // Repeated copies.

    /// Repeat counts may be lost, so a failed write fails no other operation.
    pub(crate) fn write_duplicate_counts_if_due(&mut self, now: Millis) {
        if self.repeats.are_due(now) {
            self.write_duplicate_counts_or_warn();
        }
    }

    pub(crate) fn write_duplicate_counts_or_warn(&mut self) {
        if let Err(error) = self.write_duplicate_counts() {
            tracing::warn!(%error, "can't write the counts of repeated events; trying again later");
        }
    }

    /// Writes the pending repeat counts.
    pub(crate) fn write_duplicate_counts(&mut self) -> Result<()> {
        let counts = self.repeats.take();
        if counts.is_empty() {
            return Ok(());
        }
        let written = self.write_repeats(&counts);
        if written.is_err() {
            self.repeats.put_back(counts, Millis::default());
        }
        written
    }

    fn write_repeats(&self, counts: &HashMap<EventId, Repeat>) -> Result<()> {
        let mut batch = Batch::resume(self.context())?;
        for (id, repeat) in counts {
            // The id was forgotten in the meantime: nothing to count.
            let Some(mut known) = batch.known_id(id)? else { continue };
            repeat.add_to(&mut known.record);
            batch.put_record(id.as_bytes(), &known)?;
        }
        batch.commit()?;
        Ok(())
    }

    // Small writes.

    pub(crate) fn confirm_clock(&mut self, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self.context())?;
        batch.node.clock = batch.node.clock.confirmed(now);
        self.note_clock(batch.commit()?.clock);
        Ok(())
    }

    pub(crate) fn set_offset(&mut self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        check_consumer(consumer)?;
        let mut batch = Batch::resume(self.context())?;
        if seq > batch.node.head {
            return Err(StoreError::OffsetAhead { offset: seq, head: batch.node.head }.into());
        }
        batch.put_record(consumer.as_bytes(), &OffsetRecord { last_seq: seq, updated_at: now })?;
        batch.commit()?;
        Ok(())
    }

    pub(crate) fn change_subscription(
        &mut self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription> {
        let changed = change.apply(topic, self.subscriptions.get(topic).cloned(), now);
        let mut subscriptions = self.subscriptions.clone();
        subscriptions.insert(changed.clone());
        let mut batch = Batch::resume(BatchContext { subscriptions: &subscriptions, ..self.context() })?;
        batch.put(Table::Subscriptions, topic.as_str().as_bytes(), &subscriptions::pack(&changed)?)?;
        batch.touch(topic)?;
        batch.update_stages()?;
        batch.commit()?;
        self.subscriptions = subscriptions;
        self.scanned.forget();
        Ok(changed)
    }

    /// The node's own counters as committed.
    pub(crate) fn stored(&self) -> Result<NodeRecord> {
        let txn = self.env.read_txn()?;
        format::node_record(&self.tables, &txn)
    }
}

/// Publishes the new head to outbox followers.
pub(crate) fn notify_head(head: &watch::Sender<Seq>, to: Seq) {
    head.send_if_modified(|known| {
        let is_news = to > *known;
        *known = to.max(*known);
        is_news
    });
}
