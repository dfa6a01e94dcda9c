//! The reference model: an in-memory store, simple enough to be obviously right.
//!
//! All data is in plain collections and every read scans them: no index, no counter, no duplicated data. Tests compare
//! other stores with this one; it is not meant to be fast.
//!
//! The model has its own ingest procedure instead of that in `ingest`: an independent check of the order of steps.
//!
//! - `memory`: the data, and ingest.
//! - `reading`: queries and reports. `sharing`: the shared set of a topic, and floor hints. `upkeep`: expiry and purges.
//! - This file: the outbox and the subscriptions.

mod memory;
mod reading;
mod sharing;
mod upkeep;

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use kukuri_domain::{
    Millis, TopicId,
    subscription::{NodeSubscription, SubscriptionChange},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{
    error::{Result, StoreError},
    ingest::StoreRules,
    lease::{Holder, Leases},
    outbox::{self, ConsumerOffset, Epoch, OutboxRow, Seq, SnapshotCursor, SnapshotPage},
    port::{Outbox, Topics},
};
use memory::{Memory, Row};

/// The in-memory store.
pub struct ModelStore {
    memory: Mutex<Memory>,
    head: watch::Sender<Seq>,
    epoch: watch::Sender<Epoch>,
    subscriptions: watch::Sender<u64>,
    leases: Leases,
}

/// A state of the model, to go back to.
pub struct SavedModel(Memory);

/// Each model has its own epochs.
fn new_epoch() -> Epoch {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Epoch(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

impl ModelStore {
    /// An empty store.
    pub fn new(rules: StoreRules) -> Self {
        Self {
            memory: Mutex::new(Memory { rules, ..Memory::default() }),
            head: watch::Sender::new(Seq::default()),
            epoch: watch::Sender::new(new_epoch()),
            subscriptions: watch::Sender::new(0),
            leases: Leases::default(),
        }
    }

    /// The state now.
    pub fn save(&self) -> SavedModel {
        SavedModel(self.memory().clone())
    }

    /// Goes back to a saved state while the store is open, as by a fail-over that lost commits (Y-5).
    pub fn go_back(&self, saved: &SavedModel) {
        let mut memory = self.memory();
        *memory = saved.0.clone();
        self.epoch.send_replace(new_epoch());
        self.head.send_replace(memory.head);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Changes the memory and wakes outbox watchers.
    fn write<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memory = self.memory();
        let result = change(&mut memory);
        self.head.send_if_modified(|head| std::mem::replace(head, memory.head) != memory.head);
        result
    }
}

#[async_trait]
impl Outbox for ModelStore {
    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        let memory = self.memory();
        if after < memory.outbox_dropped {
            return Err(StoreError::Truncated { after, first: memory.outbox_dropped.next() });
        }
        Ok(memory.outbox.iter().filter(|row| row.seq > after).take(limit).cloned().collect())
    }

    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        self.head.subscribe()
    }

    fn watch_epoch(&self) -> watch::Receiver<Epoch> {
        self.epoch.subscribe()
    }

    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
        let memory = self.memory();
        let seq = cursor.seq.unwrap_or(memory.head);
        let rest: Vec<&Row> = memory.rows.iter().filter(|row| row.effective && row.place > cursor.after).collect();
        let mut bytes = 0;
        let fits = |row: &&&Row| {
            bytes += row.json.len();
            bytes <= outbox::MAX_SNAPSHOT_PAGE_BYTES || bytes == row.json.len()
        };
        let page = &rest[..rest.iter().take(limit).take_while(fits).count()];
        let next = (page.len() < rest.len())
            .then(|| SnapshotCursor { seq: Some(seq), after: page.last().map_or(cursor.after, |row| row.place) });
        Ok(SnapshotPage { seq, events: page.iter().map(|row| row.bound()).collect(), next })
    }

    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        Ok(self.memory().offsets.values().cloned().collect())
    }

    async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        outbox::check_consumer(consumer)?;
        let mut memory = self.memory();
        if seq > memory.head {
            return Err(StoreError::OffsetAhead { offset: seq, head: memory.head });
        }
        let offset = ConsumerOffset { consumer: consumer.to_owned(), last_seq: seq, updated_at: now };
        memory.offsets.insert(consumer.to_owned(), offset);
        Ok(())
    }

    async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool> {
        outbox::check_consumer(consumer)?;
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
impl Topics for ModelStore {
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        Ok(self.memory().subscriptions.values().cloned().collect())
    }

    async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription> {
        let mut memory = self.memory();
        let changed = change.apply(topic, memory.subscriptions.get(topic).cloned(), now);
        if changed.is_forgettable() {
            memory.subscriptions.remove(topic);
        } else {
            memory.subscriptions.insert(topic.clone(), changed.clone());
        }
        memory.update_stages();
        drop(memory);
        self.subscriptions.send_modify(|version| *version += 1);
        Ok(changed)
    }

    fn watch_subscriptions(&self) -> watch::Receiver<u64> {
        self.subscriptions.subscribe()
    }
}
