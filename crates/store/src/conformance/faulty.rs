//! A wrapper around a store, for tests of other crates: forwards all calls to it, counts them, can make all of them fail, and
//! can be as slow as a store over a network.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, PublicKey, Sketch, State, Timestamp, TopicId,
    clock::Clock,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    AddressExplanation, Answer, BoundEvent, CheckReport, ConsumerOffset, Count, DryRun, Epoch, Explanation, Holder,
    Ingested, OutboxRow, PurgeCursor, PurgeStep, Query, Raised, Result, Seq, Shared, SharedPage, SharedSet,
    SnapshotCursor, SnapshotPage, Span, StageChange, Stats, StoreError, Swept, TopicStats, port::*,
};

/// A wrapper around a store that counts calls and can fail them.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    is_away: AtomicBool,
    is_remote: bool,
    calls: Mutex<HashMap<&'static str, usize>>,
}

impl FaultyStore {
    /// Wraps this store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, is_away: AtomicBool::new(false), is_remote: false, calls: Mutex::default() }
    }

    /// Wraps this store as if it were over a network: calls take longer or shorter, so that they end in another order than they
    /// began.
    pub fn remote(inner: Arc<dyn Store>) -> Self {
        Self { is_remote: true, ..Self::new(inner) }
    }

    /// `true`: from now on every call fails, as if the database server were unreachable. `false`: calls are forwarded
    /// again.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Relaxed);
    }

    /// Number of calls of a method of the port.
    pub fn calls(&self, method: &str) -> usize {
        self.calls.lock().get(method).copied().unwrap_or_default()
    }

    async fn call(&self, method: &'static str) -> Result<&dyn Store> {
        let number = {
            let mut calls = self.calls.lock();
            let count = calls.entry(method).or_default();
            *count += 1;
            *count
        };
        if self.is_remote {
            for _ in 0..(number * 7) % 11 {
                tokio::task::yield_now().await;
            }
        }
        if self.is_away.load(Relaxed) {
            Err(StoreError::Backend("the server is away".into()))
        } else {
            Ok(&*self.inner)
        }
    }
}

macro_rules! pass_on {
    ($port:ident { $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* $(@ $watch:ident -> $seen:ty;)* $(+ $more:item)* }) => {
        #[async_trait]
        impl $port for FaultyStore {
            $(async fn $method(&self, $($arg: $type),*) -> Result<$answer> {
                self.call(stringify!($method)).await?.$method($($arg),*).await
            })*
            $(fn $watch(&self) -> watch::Receiver<$seen> {
                self.inner.$watch()
            })*
            $($more)*
        }
    };
}

pass_on!(Events {
    ingest(batch: Vec<Admitted>, now: Millis) -> Ingested;
    leave_vanish_mark(author: &PublicKey, until: Timestamp, now: Millis) -> Vec<StageChange>;
    known_states(ids: &[EventId], now: Millis) -> Vec<Option<State>>;
    write_duplicate_counts() -> ();
    query(query: &Query) -> Answer;
    ids(query: &Query, max: usize) -> Option<Vec<(Timestamp, EventId)>>;
    count(query: &Query, sketch: Option<Sketch>) -> Count;
    get(ids: &[EventId], now: Millis) -> Vec<Option<BoundEvent>>;
    + fn is_remote(&self) -> bool {
        self.is_remote
    }
});

pass_on!(Sharing {
    shared(set: &SharedSet, span: Span, limit: usize) -> SharedPage;
    share(set: &SharedSet, ids: &[EventId]) -> Vec<Option<Shared>>;
    raise_floors(topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Raised;
});

pass_on!(Upkeep {
    expire_some(now: Millis) -> (Swept, bool);
    purge_some(retention: &Retention, now: Millis, cursor: PurgeCursor) -> PurgeStep;
    dry_run_purge(retention: &Retention, now: Millis, max_rows: usize) -> DryRun;
    observe_clock(now: Millis) -> Clock;
    confirm_clock(now: Millis) -> ();
});

pass_on!(Outbox {
    outbox(after: Seq, limit: usize) -> Vec<OutboxRow>;
    snapshot(cursor: SnapshotCursor, limit: usize) -> SnapshotPage;
    offsets() -> Vec<ConsumerOffset>;
    set_offset(consumer: &str, seq: Seq, now: Millis) -> ();
    lease(consumer: &str, holder: Holder, until: Millis, now: Millis) -> bool;
    release(consumer: &str, holder: Holder) -> ();
    advance(consumer: &str, holder: Holder, seq: Seq, now: Millis) -> ();
    @watch_outbox -> Seq;
    @watch_epoch -> Epoch;
});

pass_on!(Topics {
    subscriptions() -> Vec<NodeSubscription>;
    change_subscription(topic: &TopicId, change: SubscriptionChange, now: Millis) -> NodeSubscription;
    @watch_subscriptions -> u64;
});

pass_on!(Inspect {
    stats() -> Stats;
    topic_stats(topics: &[TopicId]) -> Vec<Option<TopicStats>>;
    list_topics(after: Option<&TopicId>, limit: usize) -> Vec<TopicStats>;
    explain(id: &EventId) -> Explanation;
    explain_address(address: &Address) -> AddressExplanation;
    check() -> CheckReport;
});
