//! The storage port: one small trait per concern.
//!
//! A store reads the facts that a decision needs, lets `kukuri_domain` decide, and writes the result, all in one
//! transaction (P-3). Time is always an argument. A returned `Ok` is durable.
//!
//! `use kukuri_store::port::*` brings all methods into scope. Callers with a `dyn Store` need only [`Store`].

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, PublicKey, Sketch, State, Timestamp, TopicId,
    clock::Clock,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use tokio::sync::watch;

use crate::{
    error::Result,
    ingest::{Ingested, StageChange},
    lease::Holder,
    maintenance::{DryRun, PurgeCursor, PurgeStep, Purged, Swept},
    outbox::{ConsumerOffset, Epoch, OutboxRow, Seq, SnapshotCursor, SnapshotPage},
    query::{Answer, BoundEvent, Count, Query},
    report::{AddressExplanation, CheckReport, Explanation, Stats, TopicStats},
    sharing::{Raised, Shared, SharedPage, SharedSet, Span},
};

/// An event store that follows the rules of `kukuri_domain`.
pub trait Store: Events + Sharing + Upkeep + Outbox + Topics + Inspect {}

impl<S: Events + Sharing + Upkeep + Outbox + Topics + Inspect> Store for S {}

/// Ingest and queries of events.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Ingests events, in order, in one durable transaction. An event whose decision or write fails is refused alone.
    /// An error means that nothing of the batch was stored.
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested>;

    /// Removes all events of an author up to a time and keeps them out, like a vanish request of which no other node is told
    /// (D-12, N-2). One durable transaction; done again, it changes nothing. Returns changes of capacity stages.
    async fn leave_vanish_mark(&self, author: &PublicKey, until: Timestamp, now: Millis) -> Result<Vec<StageChange>>;

    /// The states of these ids, in their order. A known id is counted as seen again (P-1), so that the caller can
    /// answer a copy of an event without verifying it.
    async fn known_states(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>>;

    /// Whether reads wait for a network. Then a client's next events are taken in while one of them is looked up.
    fn is_remote(&self) -> bool {
        false
    }

    /// Writes the repeats counted so far (P-1). A crash before that loses counts, never ids.
    async fn write_duplicate_counts(&self) -> Result<()>;

    /// The events that answer a query. If the budget is spent, the first of them; if not even one is known,
    /// [`TooCostly`](crate::StoreError::TooCostly) (Y-2).
    async fn query(&self, query: &Query) -> Result<Answer>;

    /// `created_at` and id of the events that answer a query: lowest first, each once. `None`: there are more than
    /// `max`. The store holds no more than about `max` of them in memory (NIP-77). [`Query::bytes`] does not apply.
    /// Fails with [`TooCostly`](crate::StoreError::TooCostly) if the budget is spent.
    async fn ids(&self, query: &Query, max: usize) -> Result<Option<Vec<(Timestamp, EventId)>>>;

    /// The number of distinct events that match, ignoring limits. Adds their authors to the sketch, if one is given.
    /// Fails with [`TooCostly`](crate::StoreError::TooCostly) if the budget is spent.
    async fn count(&self, query: &Query, sketch: Option<Sketch>) -> Result<Count>;

    /// The effective events with these ids, in the order of `ids`.
    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>>;

    /// [`Self::get`] for live delivery, which the OK to a publisher waits for: other reads do not delay it (Y-4).
    async fn get_for_delivery(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        self.get(ids, now).await
    }
}

/// The shared set that nodes reconcile per topic (G-7).
#[async_trait]
pub trait Sharing: Send + Sync + 'static {
    /// The first items of a span of the shared set, at most `limit` (G-7). Read from indexes, newest first, so that a
    /// set of any size can be read span by span.
    async fn shared(&self, set: &SharedSet, span: Span, limit: usize) -> Result<SharedPage>;

    /// The events or hints of these items, in the order of `ids`. An id outside the set gets `None`.
    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>>;

    /// Applies another node's floor hints for versions in a topic that were deleted by id, in one durable transaction:
    /// raises floors, removes effective versions below them (D-9), and adds accepted hints to this node's shared set
    /// (G-7).
    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised>;
}

/// Expiry, purges (P-5, P-6) and the clock.
#[async_trait]
pub trait Upkeep: Send + Sync + 'static {
    /// Removes expired events from the effective set.
    async fn expire(&self, now: Millis) -> Result<Swept> {
        let mut expired = 0;
        loop {
            let (swept, more) = self.expire_some(now).await?;
            expired += swept.expired;
            if !more {
                return Ok(Swept { expired, ..swept });
            }
        }
    }

    /// One bounded step of [`Self::expire`]. Returns also whether more is left.
    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)>;

    /// Removes rows whose retention ended, and rows that exceed capacity (P-5, P-6). An interrupted purge continues
    /// with the next one.
    async fn purge(&self, retention: &Retention, now: Millis) -> Result<Purged> {
        let mut cursor = PurgeCursor::default();
        loop {
            let step = self.purge_some(retention, now, cursor).await?;
            match step.next {
                Some(next) => cursor = next,
                None => return Ok(step.purged),
            }
        }
    }

    /// One bounded step of [`Self::purge`]; [`PurgeCursor::default`] starts a purge. All steps get the retention and
    /// time of the first step. While the clock is held, only capacity is enforced.
    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep>;

    /// Runs a purge in a transaction that is aborted: no change, no outbox rows. It stops after about `max_rows` rows,
    /// because it blocks the writer. Pending counts of copies are written first (P-1).
    async fn dry_run_purge(&self, retention: &Retention, now: Millis, max_rows: usize) -> Result<DryRun>;

    /// Reads the clock as every write does, and records a hold that begins or ends (P-5).
    async fn observe_clock(&self, now: Millis) -> Result<Clock>;

    /// Trusts `now` as the right time, by an operator's decision, and ends a hold of the clock (P-5).
    async fn confirm_clock(&self, now: Millis) -> Result<()>;
}

/// Outbox rows, snapshots, consumers' offsets and leases (O-1 to O-8).
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// The rows after a sequence, in order, at most `limit`.
    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>>;

    /// [`Self::outbox`] for live delivery, which the OK to a publisher waits for: other reads do not delay it (Y-4).
    async fn outbox_for_delivery(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
        self.outbox(after, limit).await
    }

    /// Watches the highest sequence, which changes with every commit that writes rows. Only a wake-up; the rows are
    /// authoritative (O-4).
    fn watch_outbox(&self) -> watch::Receiver<Seq>;

    /// Watches the epoch of the sequences (Y-5). It changes only if the store went back while it was open, up to a second later.
    /// A reader that tells sequences to others takes the epoch before it reads rows: a position with a former epoch is refused
    /// later, one with a newer epoch than its rows would skip some.
    fn watch_epoch(&self) -> watch::Receiver<Epoch>;

    /// One page of the effective set; [`SnapshotCursor::default`] starts a snapshot (O-8). A page is bounded in events, in bytes
    /// ([`MAX_SNAPSHOT_PAGE_BYTES`](crate::outbox::MAX_SNAPSHOT_PAGE_BYTES)) and in the rows that are looked at for it.
    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage>;

    /// The offsets of all consumers, ordered by name.
    async fn offsets(&self) -> Result<Vec<ConsumerOffset>>;

    /// Sets a consumer's offset: ahead after the effect of the rows is in place, or back to replay (O-6, O-8).
    async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()>;

    /// Acquires or renews the lease on a consumer until the given time. One instance at a time holds it (O-6). `false`:
    /// another instance holds it.
    async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool>;

    /// Releases the lease, if `holder` still holds it.
    async fn release(&self, consumer: &str, holder: Holder) -> Result<()>;

    /// Sets the offset like `set_offset`, but fails with `LeaseLost` if another instance has taken the lease.
    async fn advance(&self, consumer: &str, holder: Holder, seq: Seq, now: Millis) -> Result<()>;
}

/// Node-level subscriptions: the topics that this node carries (S-1).
#[async_trait]
pub trait Topics: Send + Sync + 'static {
    /// All node-level subscriptions, ordered by topic (S-1).
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>>;

    /// Changes a subscription, or creates it.
    async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription>;

    /// Watches a number that changes with every change of the subscriptions.
    fn watch_subscriptions(&self) -> watch::Receiver<u64>;
}

/// Statistics, explanations and checks for operators.
#[async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// Statistics of the whole store, from running counters. Costs the same however many topics there are (T-10).
    async fn stats(&self) -> Result<Stats>;

    /// Statistics of these topics, in their order. `None`: the topic has no record, because it holds nothing, is not
    /// enabled and has no policy, or because it never had an event (T-10).
    async fn topic_stats(&self, topics: &[TopicId]) -> Result<Vec<Option<TopicStats>>>;

    /// Statistics of the first topics after this one, ordered by id, at most `limit`. An empty page is the last.
    async fn list_topics(&self, after: Option<&TopicId>, limit: usize) -> Result<Vec<TopicStats>>;

    /// Explains why an event is, or is not, visible.
    async fn explain(&self, id: &EventId) -> Result<Explanation>;

    /// The floor, tombstone and vanish mark of a key.
    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation>;

    /// Reads the whole store and checks its indexes, counters, outbox and events against each other. Slow; changes
    /// nothing.
    async fn check(&self) -> Result<CheckReport>;
}
