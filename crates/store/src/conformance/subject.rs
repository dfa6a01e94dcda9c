//! The store under test: the trait that a store crate implements for the suite, and the suite's handle.

use std::{ops::Deref, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use kukuri_domain::{
    Event, TopicId,
    subscription::{IngestPolicy, SubscriptionChange},
};

use super::build::{NOW, admitted, later};
use crate::{
    archive::{Archive, DumpCursor},
    ingest::{Ingested, Outcome, StoreRules},
    model::ModelStore,
    port::*,
};

/// Creates and opens stores of one kind, for the suite.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The location of one store, such as a directory or a schema. Dropped after the store.
    type Place: Send + Sync;

    /// Creates a new, empty place.
    async fn place(&self) -> Self::Place;

    /// Opens the store of a place, empty the first time. The suite never opens two stores at one place.
    ///
    /// Most tests need no durability, so this may omit syncs; the crash tests open stores by other means.
    async fn open(&self, place: &Self::Place, rules: StoreRules) -> Arc<dyn Store>;

    /// Opens the store of a place as an [`Archive`]: an empty one as the target of a load, or the source of a dump.
    /// `None`: this kind of store does not support dump and load.
    async fn open_archive(&self, _place: &Self::Place, _rules: StoreRules) -> Option<Arc<dyn Archive>> {
        None
    }

    /// The directory of proptest regressions, which every run tests first. Keep it under version control.
    fn regressions(&self) -> PathBuf;

    /// Number of random cases of the convergence test; ten times as many in a long run.
    fn cases(&self) -> u32 {
        2_000
    }
}

/// A store under test with its place.
pub(super) struct Subject<'h, H: Harness> {
    // Dropped in this order: the store, then its place.
    store: Option<Arc<dyn Store>>,
    place: H::Place,
    harness: &'h H,
    rules: StoreRules,
}

impl<'h, H: Harness> Subject<'h, H> {
    /// A new, empty store.
    pub(super) async fn open(harness: &'h H, rules: StoreRules) -> Self {
        let place = harness.place().await;
        let store = harness.open(&place, rules.clone()).await;
        Self { store: Some(store), place, harness, rules }
    }

    /// Ingests events from a client, in one batch, at [`NOW`].
    pub(super) async fn send(&self, events: &[&Event]) -> Ingested {
        self.ingest(events.iter().map(|event| admitted(event)).collect(), NOW).await.expect("a batch")
    }

    /// Ingests one event from a client, `seconds` after [`NOW`].
    pub(super) async fn send_at(&self, seconds: u64, event: &Event) -> Outcome {
        let ingested = self.ingest(vec![admitted(event)], later(seconds)).await.expect("a batch");
        ingested.outcomes.into_iter().next().expect("one outcome per event")
    }

    /// Enables a topic with this policy.
    pub(super) async fn subscribe(&self, topic: &TopicId, policy: IngestPolicy) {
        let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
        self.change_subscription(topic, change, NOW).await.expect("a subscription");
    }

    /// Moves the store to a new place by dump and load, a few pieces at a time. Returns `false` if the store does not
    /// support that.
    pub(super) async fn move_on(&mut self) -> bool {
        let place = self.harness.place().await;
        let Some(target) = self.harness.open_archive(&place, self.rules.clone()).await else { return false };
        self.store = None;
        let source = self.harness.open_archive(&self.place, self.rules.clone()).await.expect("the same kind of store");
        let mut next = Some(DumpCursor::default());
        while let Some(cursor) = next {
            let page = source.dump(cursor, 3).await.expect("a page");
            target.load(page.pieces).await.expect("room for it");
            next = page.next;
        }
        drop((source, target));
        self.store = Some(self.harness.open(&place, self.rules.clone()).await);
        self.place = place;
        true
    }

    /// Closes the store and opens it again.
    pub(super) async fn reopen(&mut self) {
        self.store = None;
        self.store = Some(self.harness.open(&self.place, self.rules.clone()).await);
    }
}

impl<H: Harness> Deref for Subject<'_, H> {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self.store.as_deref().expect("a store is open but while it is reopened")
    }
}

/// The model as a store under test: it must pass the suite, too.
///
/// A place is the store itself, so that reopening finds its data.
pub struct ModelHarness;

#[async_trait]
impl Harness for ModelHarness {
    type Place = std::sync::OnceLock<Arc<ModelStore>>;

    async fn place(&self) -> Self::Place {
        Self::Place::new()
    }

    async fn open(&self, place: &Self::Place, rules: StoreRules) -> Arc<dyn Store> {
        place.get_or_init(|| Arc::new(ModelStore::new(rules))).clone()
    }

    fn regressions(&self) -> PathBuf {
        concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions").into()
    }
}
