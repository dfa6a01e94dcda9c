//! The one writer of a store: what it holds between transactions.

use std::{
    collections::HashMap,
    fs::File,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kukuri_domain::{
    EventId, Millis, TopicId,
    clock::Clock,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    Seq, StoreError, StoreRules,
    outbox::check_consumer,
    repeats::{Repeat, Repeats},
    subscriptions::Subscriptions,
};
use tokio::sync::watch;

use crate::{
    ahead::{Ahead, Taken},
    batch::{Batch, Surroundings},
    error::Result,
    format,
    open::LmdbOptions,
    pack::Pack,
    record::NodeRecord,
    room::Room,
    subscriptions,
    tables::{LmdbEnv, Table, Tables},
    unsettled::Unsettled,
    upkeep::Walked,
};

/// Everything that changes the store goes through here.
pub(crate) struct Writer {
    pub(crate) env: LmdbEnv,
    pub(crate) tables: Tables,
    pub(crate) rules: StoreRules,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) repeats: Arc<Repeats>,
    pub(crate) room: Room,
    pub(crate) walked: Walked,
    /// The clock as it was last seen. Shared: a copy of an event is stamped while a commit is under way.
    pub(crate) clock: Arc<Mutex<Clock>>,
    /// For how long a transaction stays open for more events.
    pub(crate) gather: Duration,
    pub(crate) ahead: Ahead,
    /// What is acknowledged and not committed, in order, and what readers know of it.
    pub(crate) pending: Vec<Taken>,
    pub(crate) unsettled: Arc<Unsettled>,
    /// The highest sequence that those who follow the outbox were told.
    pub(crate) head: Arc<watch::Sender<Seq>>,
    #[cfg(test)]
    pub(crate) faults: kukuri_store::conformance::faults::Faults,
    /// Held for as long as the store is open: there is one writing process.
    _lock: File,
}

impl Writer {
    /// With what a crash has left uncommitted.
    pub(crate) fn new(
        env: LmdbEnv,
        tables: Tables,
        options: LmdbOptions,
        lock: File,
        ahead: Ahead,
        pending: Vec<Taken>,
    ) -> Result<Self> {
        let txn = env.read_txn().map_err(crate::error::engine)?;
        let subscriptions = subscriptions::load(&tables, &txn)?;
        let clock = format::node_record(&tables, &txn)?.clock;
        drop(txn);
        let room = Room::new(&env, options.reserve as u64)?;
        let mut writer = Self {
            env,
            tables,
            rules: options.rules,
            subscriptions,
            repeats: Arc::default(),
            room,
            walked: Walked::default(),
            clock: Arc::new(Mutex::new(clock)),
            gather: options.gather,
            ahead,
            pending,
            unsettled: Arc::default(),
            head: Arc::new(watch::Sender::new(Seq::default())),
            #[cfg(test)]
            faults: Default::default(),
            _lock: lock,
        };
        writer.pay()?;
        writer.review_stages()?;
        tell(&writer.head, writer.stored()?.head);
        Ok(writer)
    }

    /// Ends: everything that is acknowledged is committed, or it is tried again with the next start. Then nothing else may
    /// be committed either: it would be in the place of the transaction that the file ahead belongs to.
    pub(crate) fn close(mut self) {
        if let Err(error) = self.pay() {
            tracing::error!(%error, "what was acknowledged is not committed; the next start does that");
            return;
        }
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "repeats counted since the last flush are lost");
        }
        if let Err(error) = Batch::resume(self.around()).and_then(Batch::commit_clock) {
            tracing::warn!(%error, "the time of the last minute is not written");
        }
        self.ahead.remove();
    }

    /// What a batch works with.
    pub(crate) fn around(&self) -> Surroundings<'_> {
        Surroundings {
            env: &self.env,
            tables: self.tables,
            rules: &self.rules,
            subscriptions: &self.subscriptions,
            clock: *locked(&self.clock),
        }
    }

    /// Takes note of the time that a batch has seen.
    pub(crate) fn saw(&self, clock: Clock) {
        *locked(&self.clock) = clock;
    }

    /// The configuration may have changed since the store was last open.
    fn review_stages(&mut self) -> Result<()> {
        let mut batch = Batch::resume(self.around())?;
        batch.touch_all();
        batch.update_stages()?;
        batch.commit()?;
        Ok(())
    }

    // Repeats.

    /// Counts may be lost, so a failure to write them is no failure of what they were counted for.
    pub(crate) fn flush_if_due(&mut self, now: Millis) {
        if !self.repeats.are_due(now) {
            return;
        }
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "repeats could not be written; they stay counted");
        }
    }

    /// Writes what was counted.
    pub(crate) fn flush(&mut self) -> Result<()> {
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
        let mut batch = Batch::resume(self.around())?;
        for (id, repeat) in counts {
            // Forgotten in the meantime: there is nothing to count for.
            let Some(mut known) = batch.known_id(id)? else { continue };
            repeat.add_to(&mut known.record);
            batch.put(Table::Ids, id.as_bytes(), &known.pack())?;
        }
        batch.commit()?;
        Ok(())
    }

    // Small changes.

    pub(crate) fn confirm_clock(&mut self, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self.around())?;
        batch.node.clock = batch.node.clock.confirmed(now);
        let clock = batch.commit()?.clock;
        self.saw(clock);
        Ok(())
    }

    pub(crate) fn set_offset(&mut self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        check_consumer(consumer)?;
        let mut batch = Batch::resume(self.around())?;
        if seq > batch.node.head {
            return Err(StoreError::OffsetAhead { offset: seq, head: batch.node.head }.into());
        }
        batch.put(Table::Offsets, consumer.as_bytes(), &Pack::default().u64(seq.0).millis(now).done())?;
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
        let mut batch = Batch::resume(Surroundings { subscriptions: &subscriptions, ..self.around() })?;
        batch.put(Table::Subscriptions, topic.as_str().as_bytes(), &subscriptions::pack(&changed)?)?;
        batch.touch(topic)?;
        batch.update_stages()?;
        batch.commit()?;
        self.subscriptions = subscriptions;
        self.walked.forget();
        Ok(changed)
    }

    /// What is committed of the node's own counters.
    pub(crate) fn stored(&self) -> Result<NodeRecord> {
        let txn = self.env.read_txn().map_err(crate::error::engine)?;
        format::node_record(&self.tables, &txn)
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic inside a batch aborts its transaction; what the lock guards stays sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells those who follow the outbox how far it reaches.
pub(crate) fn tell(head: &watch::Sender<Seq>, to: Seq) {
    head.send_if_modified(|known| {
        let is_news = to > *known;
        *known = to.max(*known);
        is_news
    });
}
