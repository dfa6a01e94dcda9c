//! A store that does not answer.

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, Sketch, State, Timestamp, TopicId,
    retention::Retention,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{
    AddressExplanation, Answer, BoundEvent, CheckReport, ConsumerOffset, Count, Explanation, Holder, Ingested,
    OutboxRow, PurgeCursor, PurgeStep, Purged, Query, Result, Seq, SnapshotCursor, SnapshotPage, Stats, Store,
    StoreError, Swept,
};
use tokio::sync::watch;

pub(crate) struct Away;

fn away<T>() -> Result<T> {
    Err(StoreError::Engine("the server is away".into()))
}

#[async_trait]
impl Store for Away {
    async fn ingest(&self, _: Vec<Admitted>, _: Millis) -> Result<Ingested> {
        away()
    }
    async fn recall(&self, _: &[EventId], _: Millis) -> Result<Vec<Option<State>>> {
        away()
    }
    async fn flush(&self) -> Result<()> {
        away()
    }
    async fn query(&self, _: &Query) -> Result<Answer> {
        away()
    }
    async fn ids(&self, _: &Query, _: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        away()
    }
    async fn count(&self, _: &Query, _: Option<Sketch>) -> Result<Count> {
        away()
    }
    async fn get(&self, _: &[EventId], _: Millis) -> Result<Vec<Option<BoundEvent>>> {
        away()
    }
    async fn expire_some(&self, _: Millis) -> Result<(Swept, bool)> {
        away()
    }
    async fn purge_some(&self, _: &Retention, _: Millis, _: PurgeCursor) -> Result<PurgeStep> {
        away()
    }
    async fn preview_purge(&self, _: &Retention, _: Millis) -> Result<Purged> {
        away()
    }
    async fn confirm_clock(&self, _: Millis) -> Result<()> {
        away()
    }
    async fn outbox(&self, _: Seq, _: usize) -> Result<Vec<OutboxRow>> {
        away()
    }
    fn watch_outbox(&self) -> watch::Receiver<Seq> {
        watch::channel(Seq::default()).1
    }
    async fn snapshot(&self, _: SnapshotCursor, _: usize) -> Result<SnapshotPage> {
        away()
    }
    async fn offsets(&self) -> Result<Vec<ConsumerOffset>> {
        away()
    }
    async fn set_offset(&self, _: &str, _: Seq, _: Millis) -> Result<()> {
        away()
    }
    async fn lease(&self, _: &str, _: Holder, _: Millis, _: Millis) -> Result<bool> {
        away()
    }
    async fn release(&self, _: &str, _: Holder) -> Result<()> {
        away()
    }
    async fn advance(&self, _: &str, _: Holder, _: Seq, _: Millis) -> Result<()> {
        away()
    }
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>> {
        away()
    }
    async fn change_subscription(&self, _: &TopicId, _: SubscriptionChange, _: Millis) -> Result<NodeSubscription> {
        away()
    }
    fn watch_subscriptions(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    async fn stats(&self) -> Result<Stats> {
        away()
    }
    async fn explain(&self, _: &EventId) -> Result<Explanation> {
        away()
    }
    async fn explain_address(&self, _: &Address) -> Result<AddressExplanation> {
        away()
    }
    async fn check(&self) -> Result<CheckReport> {
        away()
    }
}
