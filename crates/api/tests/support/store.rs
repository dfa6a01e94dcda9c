//! A store that can be away, and counts who reads its outbox.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, Sketch, State, Timestamp, TopicId,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    AddressExplanation, Answer, BoundEvent, CheckReport, ConsumerOffset, Count, Explanation, Holder, Ingested,
    OutboxRow, PurgeCursor, PurgeStep, Purged, Query, Raised, Result, Seq, Shared, SharedPage, SharedSet,
    SnapshotCursor, SnapshotPage, Span, Stats, Store, StoreError, StoreRules, Swept, model::ModelStore,
};
use tokio::sync::watch;

pub(crate) struct TestStore {
    pub(crate) is_away: AtomicBool,
    pub(crate) outbox_reads: AtomicUsize,
    inner: ModelStore,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        let inner = ModelStore::new(StoreRules::default());
        Self { is_away: AtomicBool::new(false), outbox_reads: AtomicUsize::new(0), inner }
    }

    fn there(&self) -> Result<&ModelStore> {
        if self.is_away.load(Relaxed) { Err(StoreError::Engine("the server is away".into())) } else { Ok(&self.inner) }
    }
}

#[async_trait]
impl Store for TestStore {
    async fn ingest(&self, a: Vec<Admitted>, b: Millis) -> Result<Ingested> {
        self.there()?.ingest(a, b).await
    }
    async fn recall(&self, a: &[EventId], b: Millis) -> Result<Vec<Option<State>>> {
        self.there()?.recall(a, b).await
    }
    async fn flush(&self) -> Result<()> {
        self.there()?.flush().await
    }
    async fn query(&self, a: &Query) -> Result<Answer> {
        self.there()?.query(a).await
    }
    async fn ids(&self, a: &Query, b: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        self.there()?.ids(a, b).await
    }
    async fn count(&self, a: &Query, b: Option<Sketch>) -> Result<Count> {
        self.there()?.count(a, b).await
    }
    async fn get(&self, a: &[EventId], b: Millis) -> Result<Vec<Option<BoundEvent>>> {
        self.there()?.get(a, b).await
    }
    async fn shared(&self, a: &SharedSet, b: Span, c: usize) -> Result<SharedPage> {
        self.there()?.shared(a, b, c).await
    }
    async fn share(&self, a: &SharedSet, b: &[EventId]) -> Result<Vec<Option<Shared>>> {
        self.there()?.share(a, b).await
    }
    async fn raise_floors(&self, a: &TopicId, b: Vec<FloorHint>, c: Millis) -> Result<Raised> {
        self.there()?.raise_floors(a, b, c).await
    }
    async fn expire_some(&self, a: Millis) -> Result<(Swept, bool)> {
        self.there()?.expire_some(a).await
    }
    async fn purge_some(&self, a: &Retention, b: Millis, c: PurgeCursor) -> Result<PurgeStep> {
        self.there()?.purge_some(a, b, c).await
    }
    async fn preview_purge(&self, a: &Retention, b: Millis) -> Result<Purged> {
        self.there()?.preview_purge(a, b).await
    }
    async fn confirm_clock(&self, a: Millis) -> Result<()> {
        self.there()?.confirm_clock(a).await
    }
    async fn outbox(&self, a: Seq, b: usize) -> Result<Vec<OutboxRow>> {
        self.outbox_reads.fetch_add(1, Relaxed);
        self.there()?.outbox(a, b).await
    }
    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        self.inner.watch_outbox()
    }
    async fn snapshot(&self, a: SnapshotCursor, b: usize) -> Result<SnapshotPage> {
        self.there()?.snapshot(a, b).await
    }
    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        self.there()?.offsets().await
    }
    async fn set_offset(&self, a: &str, b: Seq, c: Millis) -> Result<()> {
        self.there()?.set_offset(a, b, c).await
    }
    async fn lease(&self, a: &str, b: Holder, c: Millis, d: Millis) -> Result<bool> {
        self.there()?.lease(a, b, c, d).await
    }
    async fn release(&self, a: &str, b: Holder) -> Result<()> {
        self.there()?.release(a, b).await
    }
    async fn advance(&self, a: &str, b: Holder, c: Seq, d: Millis) -> Result<()> {
        self.there()?.advance(a, b, c, d).await
    }
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        self.there()?.subscriptions().await
    }
    async fn change_subscription(&self, a: &TopicId, b: SubscriptionChange, c: Millis) -> Result<NodeSubscription> {
        self.there()?.change_subscription(a, b, c).await
    }
    fn watch_subscriptions(&self) -> watch::Receiver<u64> {
        self.inner.watch_subscriptions()
    }
    async fn stats(&self) -> Result<Stats> {
        self.there()?.stats().await
    }
    async fn explain(&self, a: &EventId) -> Result<Explanation> {
        self.there()?.explain(a).await
    }
    async fn explain_address(&self, a: &Address) -> Result<AddressExplanation> {
        self.there()?.explain_address(a).await
    }
    async fn check(&self) -> Result<CheckReport> {
        self.there()?.check().await
    }
}
