//! What the node asks of a store.

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Millis, Sketch, State, Timestamp, TopicId,
    retention::Retention,
    sharing::FloorHint,
    subscription::{NodeSubscription, SubscriptionChange},
};
use tokio::sync::watch;

use crate::{
    error::Result,
    event::BoundEvent,
    ingest::Ingested,
    lease::Holder,
    maintenance::{PurgeCursor, PurgeStep, Purged, Swept},
    outbox::{ConsumerOffset, OutboxRow, Seq, SnapshotCursor, SnapshotPage},
    query::{Answer, Count, Query},
    report::{AddressExplanation, CheckReport, Explanation, Stats},
    sharing::{Raised, Shared, SharedPage, SharedSet, Span},
};

/// A place where events are kept by the rules of `kukuri_domain`.
///
/// A store reads what a decision needs, asks the domain, and writes what it answered, all in one transaction (P-3).
/// Time is always an argument. A returned `Ok` is durable.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Takes events in, in order, in one durable transaction. One that can't be decided on or stored is refused
    /// alone. An error means that nothing of the batch was kept.
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested>;

    /// What these ids are known as. A known one is counted as seen again (P-1): this is the way to answer for a copy of
    /// an event without verifying it.
    async fn recall(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>>;

    /// Writes the repeats counted so far (P-1). Loss of them costs counts, never ids.
    async fn flush(&self) -> Result<()>;

    /// The events that answer a query.
    async fn query(&self, query: &Query) -> Result<Answer>;

    /// When the events that answer a query were made, and their ids: lowest first, each once. `None`: there are more
    /// than `most`. No more than about that many are held at a time (NIP-77).
    async fn ids(&self, query: &Query, most: usize) -> Result<Option<Vec<(Timestamp, EventId)>>>;

    /// How many different events match, limits aside; their authors are noted in the sketch, if there is one.
    async fn count(&self, query: &Query, sketch: Option<Sketch>) -> Result<Count>;

    /// The effective events of these ids, in their order.
    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>>;

    /// The first items of a part of what nodes tell each other of a topic, no more than `most` (G-7). Read from indexes,
    /// newest first: a set of any size can be gone through part by part.
    async fn shared(&self, set: &SharedSet, span: Span, most: usize) -> Result<SharedPage>;

    /// What these items of the set stand for, in their order. Nothing that is not in the set is given out.
    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>>;

    /// Takes what another node knows of versions in a topic that were deleted by id, in one durable transaction: floors
    /// rise, effective versions below them go (D-9), and what was taken is told on from here (G-7).
    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised>;

    /// Turns off what has expired.
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

    /// Some of the same, short enough for others to wait for it. Returns also whether more is due.
    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)>;

    /// Throws away what has stayed long enough or has to make room (P-5, P-6). Interrupted, it goes on next time.
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

    /// Some of the same, from the beginning with [`PurgeCursor::default`], short enough for others to wait for it. What is
    /// to be kept, and since when, is as it was said at the beginning.
    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep>;

    /// What a purge would do now, and nothing of it done. Counted as a purge counts: room is made after retention.
    /// Works on a store that is open for reading only, beside a writer: exact if that one rests and has written what it
    /// counted (P-1). `stages` stays empty.
    async fn preview_purge(&self, retention: &Retention, now: Millis) -> Result<Purged>;

    /// An operator confirms, after a jump of the clock, that `now` is the time (P-5).
    async fn confirm_clock(&self, now: Millis) -> Result<()>;

    /// The rows after a sequence, in order, no more than `limit`.
    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>>;

    /// The highest sequence, changing with every commit that wrote rows. A wake-up, not a promise (O-4).
    fn watch_outbox(&self) -> watch::Receiver<Seq>;

    /// A page of the effective set, from the beginning with [`SnapshotCursor::default`] (O-8).
    async fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage>;

    /// How far all consumers have come, by name.
    async fn offsets(&self) -> Result<Vec<ConsumerOffset>>;

    /// Moves a consumer: ahead after its effect is in place, or back to replay (O-6, O-8).
    async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()>;

    /// Takes the right to run a consumer, or keeps it, until a moment: one instance at a time has it (O-6). `false`:
    /// another has it.
    async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool>;

    /// Gives that right back.
    async fn release(&self, consumer: &str, holder: Holder) -> Result<()>;

    /// Moves a consumer ahead as `set_offset` does, unless another instance has taken over.
    async fn advance(&self, consumer: &str, holder: Holder, seq: Seq, now: Millis) -> Result<()>;

    /// All node-level subscriptions, by topic (S-1).
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>>;

    /// Changes one, or makes it.
    async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription>;

    /// A number that changes with the subscriptions.
    fn watch_subscriptions(&self) -> watch::Receiver<u64>;

    /// Figures, from running counters.
    async fn stats(&self) -> Result<Stats>;

    /// Why an event is, or is not, visible.
    async fn explain(&self, id: &EventId) -> Result<Explanation>;

    /// What is known about a key.
    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation>;

    /// Reads everything and compares the parts: slow, changes nothing.
    async fn check(&self) -> Result<CheckReport>;
}
