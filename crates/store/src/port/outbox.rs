//! The outbox and its consumers (O-1 to O-8).

use async_trait::async_trait;
use kukuri_domain::Millis;
use tokio::sync::watch;

use crate::{
    error::Result,
    lease::Holder,
    outbox::{ConsumerOffset, OutboxRow, Seq, SnapshotCursor, SnapshotPage},
};

/// Outbox rows, snapshots, consumers' offsets and leases (O-1 to O-8).
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// The rows after a sequence, in order, at most `limit`.
    async fn outbox(&self, after: Seq, limit: usize) -> Result<Vec<OutboxRow>>;

    /// Watches the highest sequence, which changes with every commit that writes rows. Only a wake-up; the rows are
    /// authoritative (O-4).
    fn watch_outbox(&self) -> watch::Receiver<Seq>;

    /// One page of the effective set; [`SnapshotCursor::default`] starts a snapshot (O-8).
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
