//! Implementation of the store port.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, PublicKey, Sketch, State, Timestamp, TopicId,
    clock::Clock,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_postgres::{Listener, Pool};
use kukuri_store::{
    AddressExplanation, Answer, Archive, BoundEvent, CheckReport, ConsumerOffset, Count, DryRun, DumpCursor, DumpPage,
    Epoch, Explanation, Holder, Ingested, OutboxRow, Piece, PurgeCursor, PurgeStep, Query, Raised, Result, Seq, Shared,
    SharedPage, SharedSet, SnapshotCursor, SnapshotPage, Span, StageChange, Stats, Swept, TopicStats, port::*,
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    archive::Dumping,
    attempt::QueryPools,
    check,
    error::Failure,
    follow, lookup,
    open::{self, MIGRATIONS, PostgresOptions, Sessions},
    query, sharing,
    state_lookup::StateLookups,
    subscriptions,
    writer::Writer,
};

/// The store on Postgres: the schema `cn_relay` of one database. Any number of processes may have it open.
pub struct PostgresStore {
    pub(crate) pools: QueryPools,
    /// Sessions for [`Events::get`] and [`Outbox::outbox`], by which clients, services and other nodes read without a permit.
    pub(crate) lookups: Pool,
    /// Sessions for short reads that publishing, live delivery and health wait for: no query, and none of the reads above,
    /// takes one (Y-4).
    pub(crate) publishing: Pool,
    state_lookups: Arc<StateLookups>,
    pub(crate) writer: Arc<Writer>,
    follower: JoinHandle<()>,
    dumping: Dumping,
}

impl PostgresStore {
    /// Opens the store of a database; creates or migrates its tables if the options allow it.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self> {
        let Sessions { pools, lookups, publishing, writer, listener } = open::connect(url, &options).await?;
        let writer = Arc::new(Writer::new(writer, &options, false));
        writer.review_stages().await?;
        follow::observe(&publishing, &writer, true).await?;
        Ok(Self::following(pools, lookups, publishing, listener, writer))
    }

    /// Opens the store of a database read-only: neither this call nor the store changes anything.
    pub async fn connect_for_reading(url: &str, options: PostgresOptions) -> Result<Self> {
        let options = PostgresOptions { migrate: false, ..options };
        let Sessions { pools, lookups, publishing, writer, listener } = open::connect(url, &options).await?;
        let writer = Arc::new(Writer::new(writer, &options, true));
        writer.read_standing(&publishing).await?;
        follow::observe(&publishing, &writer, true).await?;
        Ok(Self::following(pools, lookups, publishing, listener, writer))
    }

    fn following(pools: QueryPools, lookups: Pool, publishing: Pool, listener: Listener, writer: Arc<Writer>) -> Self {
        let follower = tokio::spawn(follow::follow(publishing.clone(), listener, Arc::clone(&writer)));
        let state_lookups = StateLookups::new(publishing.clone());
        Self { pools, lookups, publishing, state_lookups, writer, follower, dumping: Dumping::default() }
    }

    /// Only creates or migrates the tables of a database. Returns the versions before (0 if there were no tables) and
    /// after.
    pub async fn migrate(url: &str) -> Result<(u32, u32)> {
        let migrated = MIGRATIONS.run_at(url, PostgresOptions::default().acquire_timeout).await;
        Ok(migrated.map_err(Failure::from)?)
    }

    /// Writes the pending repeat counts and closes all sessions.
    pub async fn close(self) -> Result<()> {
        self.writer.write_duplicate_counts().await?;
        self.follower.abort();
        self.pools.quick.close().await;
        self.pools.readers.close().await;
        self.lookups.close().await;
        self.publishing.close().await;
        self.writer.pool.close().await;
        Ok(())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

#[async_trait]
impl Events for PostgresStore {
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        Ok(self.writer.ingest(&batch, now).await?)
    }

    async fn leave_vanish_mark(&self, author: &PublicKey, until: Timestamp, now: Millis) -> Result<Vec<StageChange>> {
        Ok(self.writer.leave_vanish_mark(author, until, now).await?)
    }

    async fn known_states(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>> {
        let states = self.state_lookups.look_up(ids).await?;
        let known = ids.iter().zip(&states).filter(|(_, state)| state.is_some());
        self.writer.repeats.note(known.map(|(id, _)| *id), self.writer.stamp(now));
        Ok(states)
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn write_duplicate_counts(&self) -> Result<()> {
        Ok(self.writer.write_duplicate_counts().await?)
    }

    async fn query(&self, query: &Query) -> Result<Answer> {
        Ok(query::query(&self.pools, query).await?)
    }

    async fn ids(&self, query: &Query, most: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        Ok(query::ids(&self.pools, query, most).await?)
    }

    async fn count(&self, query: &Query, sketch: Option<Sketch>) -> Result<Count> {
        Ok(query::count(&self.pools, query, sketch).await?)
    }

    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        Ok(query::get(&self.lookups, ids, now).await?)
    }

    async fn get_for_delivery(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        Ok(query::get(&self.publishing, ids, now).await?)
    }
}

#[async_trait]
impl Sharing for PostgresStore {
    async fn shared(&self, set: &SharedSet, span: Span, most: usize) -> Result<SharedPage> {
        Ok(sharing::shared(&self.pools.readers, set, span, most).await?)
    }

    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>> {
        Ok(sharing::share(&self.pools.readers, set, ids).await?)
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised> {
        Ok(self.writer.raise_floors(topic, &hints, now).await?)
    }
}

#[async_trait]
impl Upkeep for PostgresStore {
    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        Ok(self.writer.expire_some(now).await?)
    }

    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep> {
        Ok(self.writer.purge_some(*retention, now, cursor).await?)
    }

    async fn dry_run_purge(&self, retention: &Retention, now: Millis, max_rows: usize) -> Result<DryRun> {
        Ok(self.writer.dry_run_purge(*retention, now, max_rows).await?)
    }

    async fn observe_clock(&self, now: Millis) -> Result<Clock> {
        Ok(self.writer.observe_clock(now).await?)
    }

    async fn confirm_clock(&self, now: Millis) -> Result<()> {
        Ok(self.writer.confirm_clock(now).await?)
    }
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        Ok(lookup::outbox(&self.lookups, after, limit).await?)
    }

    async fn outbox_for_delivery(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        Ok(lookup::outbox(&self.publishing, after, limit).await?)
    }

    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        self.writer.head.subscribe()
    }

    fn watch_epoch(&self) -> watch::Receiver<Epoch> {
        self.writer.epoch.subscribe()
    }

    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
        Ok(lookup::snapshot(&self.pools.readers, cursor, limit).await?)
    }

    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        Ok(lookup::offsets(&self.lookups).await?)
    }

    async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        Ok(self.writer.set_offset(consumer, seq, now).await?)
    }

    async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool> {
        Ok(self.writer.lease(consumer, holder, until, now).await?)
    }

    async fn release(&self, consumer: &str, holder: Holder) -> Result<()> {
        Ok(self.writer.release(consumer, holder).await?)
    }

    async fn advance(&self, consumer: &str, holder: Holder, seq: Seq, now: Millis) -> Result<()> {
        Ok(self.writer.advance(consumer, holder, seq, now).await?)
    }
}

#[async_trait]
impl Topics for PostgresStore {
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        let session = self.publishing.acquire().await.map_err(Failure::from)?;
        let all = subscriptions::load(&session).await?;
        session.release();
        Ok(all.all().cloned().collect())
    }

    async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription> {
        Ok(self.writer.change_subscription(topic, change, now).await?)
    }

    fn watch_subscriptions(&self) -> watch::Receiver<u64> {
        self.writer.subscription_version.subscribe()
    }
}

#[async_trait]
impl Inspect for PostgresStore {
    async fn stats(&self) -> Result<Stats> {
        Ok(lookup::stats(&self.publishing).await?)
    }

    async fn topic_stats(&self, topics: &[TopicId]) -> Result<Vec<Option<TopicStats>>> {
        Ok(lookup::topic_stats(&self.publishing, topics).await?)
    }

    async fn list_topics(&self, after: Option<&TopicId>, limit: usize) -> Result<Vec<TopicStats>> {
        Ok(lookup::list_topics(&self.lookups, after, limit).await?)
    }

    async fn explain(&self, id: &EventId) -> Result<Explanation> {
        let mut explanation = lookup::explain(&self.pools.readers, id).await?;
        if let (Some(record), Some(repeat)) = (&mut explanation.record, self.writer.repeats.get(id)) {
            repeat.add_to(record);
        }
        Ok(explanation)
    }

    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation> {
        Ok(lookup::explain_address(&self.pools.readers, address).await?)
    }

    async fn check(&self) -> Result<CheckReport> {
        Ok(check::check(&self.pools.readers).await?)
    }
}

#[async_trait]
impl Archive for PostgresStore {
    /// Blocks all writers from the first page to the last: see `archive`.
    async fn dump(&self, cursor: DumpCursor, limit: usize) -> Result<DumpPage> {
        Ok(self.dumping.page(&self.pools.readers, &self.writer, cursor, limit).await?)
    }

    async fn load(&self, pieces: Vec<Piece>) -> Result<()> {
        Ok(self.writer.load(pieces).await?)
    }
}
