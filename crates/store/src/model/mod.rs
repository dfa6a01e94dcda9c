//! The reference model: an in-memory store, simple enough to be obviously right.
//!
//! All data is in plain collections and every read scans them: no index, no counter, no duplicated data. Tests compare
//! other stores with this one; it is not meant to be fast.
//!
//! The model has its own ingest procedure instead of that in `ingest`: an independent check of the order of steps.
//!
//! - `memory`: the data, and ingest.
//! - `upkeep`: expiry and purges.
//! - `reading`: queries and reports. `sharing`: the shared set of a topic, and floor hints.

mod memory;
mod reading;
mod sharing;
mod upkeep;

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, Sketch, State, Timestamp, TopicId,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{
    error::{Result, StoreError},
    event::BoundEvent,
    ingest::{Ingested, StoreRules},
    lease::{Holder, Leases},
    maintenance::{DryRun, PurgeCursor, PurgeStep, Swept},
    outbox::{self, ConsumerOffset, OutboxRow, Seq, SnapshotCursor, SnapshotPage},
    port::*,
    query::{Answer, Count, Query},
    report::{AddressExplanation, CheckReport, Explanation, Stats},
    sharing::{Raised, Shared, SharedPage, SharedSet, Span},
};
use memory::Memory;

/// The in-memory store.
pub struct ModelStore {
    memory: Mutex<Memory>,
    head: watch::Sender<Seq>,
    subscriptions: watch::Sender<u64>,
    leases: Leases,
}

impl ModelStore {
    /// An empty store.
    pub fn new(rules: StoreRules) -> Self {
        Self {
            memory: Mutex::new(Memory::new(rules)),
            head: watch::Sender::new(Seq::default()),
            subscriptions: watch::Sender::new(0),
            leases: Leases::default(),
        }
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
impl Events for ModelStore {
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        Ok(self.write(|memory| memory.ingest(&batch, now)))
    }

    async fn recall(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>> {
        let mut memory = self.memory();
        Ok(ids.iter().map(|id| memory.see_again(id, now)).collect())
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn query(&self, query: &Query) -> Result<Answer> {
        Ok(self.memory().query(query))
    }

    async fn ids(&self, query: &Query, most: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        let events = self.memory().query(query).events;
        let mut ids: Vec<_> = events.iter().map(|event| (event.created_at, event.id)).collect();
        ids.sort_unstable();
        Ok((ids.len() <= most).then_some(ids))
    }

    async fn count(&self, query: &Query, sketch: Option<Sketch>) -> Result<Count> {
        Ok(self.memory().count(query, sketch))
    }

    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        Ok(self.memory().get(ids, now))
    }
}

#[async_trait]
impl Sharing for ModelStore {
    async fn shared(&self, set: &SharedSet, span: Span, most: usize) -> Result<SharedPage> {
        Ok(self.memory().shared(set, span, most))
    }

    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>> {
        Ok(self.memory().share(set, ids))
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised> {
        Ok(self.write(|memory| memory.raise_floors(topic, &hints, now)))
    }
}

#[async_trait]
impl Upkeep for ModelStore {
    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        Ok((self.write(|memory| memory.expire(now)), false))
    }

    async fn purge_some(&self, retention: &Retention, now: Millis, _cursor: PurgeCursor) -> Result<PurgeStep> {
        Ok(PurgeStep { purged: self.write(|memory| memory.purge(retention, now))?, next: None })
    }

    async fn dry_run_purge(&self, retention: &Retention, now: Millis, _max_rows: usize) -> Result<DryRun> {
        Ok(DryRun { purged: self.memory().clone().purge(retention, now)?, is_complete: true })
    }

    async fn confirm_clock(&self, now: Millis) -> Result<()> {
        self.write(|memory| memory.clock = memory.clock.confirmed(now));
        Ok(())
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

    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
        Ok(self.memory().snapshot(cursor, limit))
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
        memory.subscriptions.insert(topic.clone(), changed.clone());
        memory.update_stages();
        drop(memory);
        self.subscriptions.send_modify(|version| *version += 1);
        Ok(changed)
    }

    fn watch_subscriptions(&self) -> watch::Receiver<u64> {
        self.subscriptions.subscribe()
    }
}

#[async_trait]
impl Inspect for ModelStore {
    async fn stats(&self) -> Result<Stats> {
        Ok(self.memory().stats())
    }

    async fn explain(&self, id: &EventId) -> Result<Explanation> {
        Ok(self.memory().explain(id))
    }

    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation> {
        Ok(self.memory().explain_address(address))
    }

    async fn check(&self) -> Result<CheckReport> {
        // The model duplicates no data, so nothing can be inconsistent.
        Ok(CheckReport { rows: self.memory().rows.len() as u64, problems: Vec::new() })
    }
}
