//! The one writer of a store: what it holds between transactions.

use std::{collections::HashMap, fs::File, time::Duration};

use kukuri_domain::{
    EventId, Millis, TopicId,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{Seq, StoreError, StoreRules};

use crate::{
    batch::{Batch, Surroundings},
    error::Result,
    format,
    pack::Pack,
    room::Room,
    subscriptions::{self, Subscriptions},
    tables::{LmdbEnv, Table, Tables},
    upkeep::Walked,
};

/// Repeats are written at least this often (P-1), and when so many wait.
const REPEATS_WAIT: Duration = Duration::from_secs(10);
const REPEATS_AT_MOST: usize = 50_000;

/// Copies of an event that came since its record was last written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeats {
    pub(crate) last_seen_at: Millis,
    pub(crate) count: u64,
}

/// Everything that changes the store goes through here.
pub(crate) struct Writer {
    pub(crate) env: LmdbEnv,
    pub(crate) tables: Tables,
    pub(crate) rules: StoreRules,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) repeats: HashMap<EventId, Repeats>,
    pub(crate) room: Room,
    pub(crate) walked: Walked,
    repeats_since: Option<Millis>,
    #[cfg(test)]
    pub(crate) faults: crate::ingest::Faults,
    /// Held for as long as the store is open: there is one writing process.
    _lock: File,
}

impl Writer {
    pub(crate) fn new(env: LmdbEnv, tables: Tables, rules: StoreRules, reserve: u64, lock: File) -> Result<Self> {
        let txn = env.read_txn().map_err(crate::error::engine)?;
        let subscriptions = Subscriptions::load(&tables, &txn)?;
        drop(txn);
        let room = Room::new(&env, reserve)?;
        let mut writer = Self {
            env,
            tables,
            rules,
            subscriptions,
            repeats: HashMap::new(),
            room,
            walked: Walked::default(),
            repeats_since: None,
            #[cfg(test)]
            faults: crate::ingest::Faults::default(),
            _lock: lock,
        };
        writer.review_stages()?;
        Ok(writer)
    }

    /// What a batch works with.
    pub(crate) fn around(&self) -> Surroundings<'_> {
        Surroundings { env: &self.env, tables: self.tables, rules: &self.rules, subscriptions: &self.subscriptions }
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

    pub(crate) fn note_repeats(&mut self, ids: impl IntoIterator<Item = EventId>, stamp: Millis) {
        for id in ids {
            let repeats = self.repeats.entry(id).or_insert(Repeats { last_seen_at: stamp, count: 0 });
            repeats.last_seen_at = repeats.last_seen_at.max(stamp);
            repeats.count += 1;
            self.repeats_since.get_or_insert(stamp);
        }
    }

    /// Counts may be lost, so a failure to write them is no failure of what they were counted for.
    pub(crate) fn flush_if_due(&mut self, now: Millis) {
        let is_old = self.repeats_since.is_some_and(|since| now >= since.after(REPEATS_WAIT));
        if !is_old && self.repeats.len() <= REPEATS_AT_MOST {
            return;
        }
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "repeats could not be written; they stay counted");
        }
    }

    /// Writes what was counted. On failure it stays counted.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.repeats.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::resume(self.around())?;
        for (id, repeats) in &self.repeats {
            // Forgotten in the meantime: there is nothing to count for.
            let Some(mut known) = batch.known_id(id)? else { continue };
            known.record.last_seen_at = known.record.last_seen_at.max(repeats.last_seen_at);
            known.record.seen_count += repeats.count;
            batch.put(Table::Ids, id.as_bytes(), &known.pack())?;
        }
        batch.commit()?;
        self.repeats.clear();
        self.repeats_since = None;
        Ok(())
    }

    // Small changes.

    pub(crate) fn confirm_clock(&mut self, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self.around())?;
        batch.node.clock = batch.node.clock.confirmed(now);
        batch.commit()?;
        Ok(())
    }

    pub(crate) fn set_offset(&mut self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
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

    pub(crate) fn head(&self) -> Result<Seq> {
        let txn = self.env.read_txn().map_err(crate::error::engine)?;
        Ok(format::node_record(&self.tables, &txn)?.head)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "repeats counted since the last flush are lost");
        }
    }
}
