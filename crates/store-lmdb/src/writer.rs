//! The only writer of a store: its state between transactions.

use std::{collections::HashMap, fs::File, sync::Arc, time::Duration};

use kukuri_domain::{
    EventId, Millis, TopicId,
    clock::{Clock, ClockRules},
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
    batch::{Batch, BatchContext, Committed},
    error::Result,
    files, format,
    open::LmdbOptions,
    record::OffsetRecord,
    space::FreeSpace,
    subscriptions,
    tables::{Table, Tables},
    upkeep::Scanned,
    wal::{Log, LogRecord, Uncommitted},
};

/// State of the writer that readers use, too.
#[derive(Default)]
pub(crate) struct SharedState {
    pub(crate) repeats: Repeats,
    /// The clock as last seen: repeated copies of events are stamped while a commit is in progress.
    pub(crate) clock: Mutex<Clock>,
    clock_rules: ClockRules,
    /// The pending records, for readers.
    pub(crate) uncommitted: Uncommitted,
    /// The head of the outbox as its followers know it.
    pub(crate) head: watch::Sender<Seq>,
}

impl SharedState {
    /// The timestamp for copies of known events, which do not advance the clock.
    pub(crate) fn stamp_of_copies(&self, now: Millis) -> Millis {
        self.clock.lock().tick(now, &self.clock_rules).latest
    }

    /// Publishes the new head to outbox followers.
    pub(crate) fn notify_head(&self, to: Seq) {
        self.head.send_if_modified(|known| {
            let is_news = to > *known;
            *known = to.max(*known);
            is_news
        });
    }
}

/// Every write to the store goes through the writer.
pub(crate) struct Writer {
    pub(crate) tables: Tables,
    pub(crate) rules: StoreRules,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) space: FreeSpace,
    pub(crate) scanned: Scanned,
    pub(crate) group_commit_window: Duration,
    pub(crate) wal: Log,
    /// Acknowledged records that are not committed, in order.
    pub(crate) pending: Vec<LogRecord>,
    pub(crate) shared: Arc<SharedState>,
    #[cfg(test)]
    pub(crate) faults: kukuri_store::conformance::faults::Faults,
    /// Held while the store is open: only one process writes.
    _lock: File,
}

impl Writer {
    /// `pending` holds the records that a crash left uncommitted.
    pub(crate) fn new(
        tables: Tables,
        options: LmdbOptions,
        lock: File,
        wal: Log,
        pending: Vec<LogRecord>,
    ) -> Result<Self> {
        let shared = SharedState { clock_rules: options.rules.clock, ..SharedState::default() };
        let mut writer = Self {
            rules: options.rules,
            subscriptions: tables.read(subscriptions::load)?,
            space: FreeSpace::new(&tables.env, options.reserve as u64)?,
            tables,
            scanned: Scanned::default(),
            group_commit_window: options.group_commit_window,
            wal,
            pending,
            shared: Arc::new(shared),
            #[cfg(test)]
            faults: Default::default(),
            _lock: lock,
        };
        writer.commit_pending()?;
        files::end_restoring(writer.wal.directory(), |is_restored| format::ensure_epoch(&writer.tables, is_restored))?;
        *writer.shared.clock.lock() = writer.tables.read(|view| view.node())?.clock;
        writer.wal.remove_former_file();
        writer.review_stages()?;
        writer.notify_head()?;
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
            tables: &self.tables,
            rules: &self.rules,
            subscriptions: &self.subscriptions,
            clock: *self.shared.clock.lock(),
            #[cfg(test)]
            faults: &self.faults,
        }
    }

    /// Commits a batch, and notes the clock that it has seen.
    pub(crate) fn commit(&self, batch: Batch<'_>) -> Result<Committed> {
        let committed = batch.commit()?;
        *self.shared.clock.lock() = committed.clock;
        Ok(committed)
    }

    /// Wakes outbox followers after a commit.
    pub(crate) fn notify_head(&self) -> Result<()> {
        self.shared.notify_head(self.tables.read(|view| view.node())?.head);
        Ok(())
    }

    /// Recomputes capacity stages, because the configuration may have changed while the store was closed.
    fn review_stages(&mut self) -> Result<()> {
        let mut batch = Batch::resume(self.context())?;
        batch.touch_topics_with_capacity()?;
        batch.update_stages()?;
        self.commit(batch).map(drop)
    }

    // Repeated copies.

    /// Repeat counts may be lost, so a failed write fails no other operation.
    pub(crate) fn write_duplicate_counts_if_due(&mut self, now: Millis) {
        if self.shared.repeats.are_due(now) {
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
        let counts = self.shared.repeats.take();
        if counts.is_empty() {
            return Ok(());
        }
        let written = self.write_repeats(&counts);
        if written.is_err() {
            self.shared.repeats.put_back(counts, Millis::default());
        }
        written
    }

    fn write_repeats(&self, counts: &HashMap<EventId, Repeat>) -> Result<()> {
        let mut batch = Batch::resume(self.context())?;
        for (id, repeat) in counts {
            // The id was forgotten in the meantime: nothing to count.
            let Some(mut known) = batch.view().known_id(id)? else { continue };
            repeat.add_to(&mut known.record);
            batch.put_record(id.as_bytes(), &known)?;
        }
        self.commit(batch).map(drop)
    }

    // Small writes.

    pub(crate) fn observe_clock(&mut self, now: Millis) -> Result<Clock> {
        Ok(self.commit(Batch::begin(self.context(), now)?)?.clock)
    }

    pub(crate) fn confirm_clock(&mut self, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self.context())?;
        batch.node.clock = batch.node.clock.confirmed(now);
        self.commit(batch).map(drop)
    }

    pub(crate) fn set_offset(&mut self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        check_consumer(consumer)?;
        let mut batch = Batch::resume(self.context())?;
        if seq > batch.node.head {
            return Err(StoreError::OffsetAhead { offset: seq, head: batch.node.head }.into());
        }
        batch.put_record(consumer.as_bytes(), &OffsetRecord { last_seq: seq, updated_at: now })?;
        self.commit(batch).map(drop)
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
        let key = topic.as_str().as_bytes();
        if changed.is_forgettable() {
            batch.delete(Table::Subscriptions, key)?;
        } else {
            batch.put(Table::Subscriptions, key, &subscriptions::pack(&changed)?)?;
        }
        batch.touch(topic)?;
        batch.update_stages()?;
        batch.commit()?;
        self.subscriptions = subscriptions;
        self.scanned.forget();
        Ok(changed)
    }
}
