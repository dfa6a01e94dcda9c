//! Expiry, purges and the clock.

use async_trait::async_trait;
use kukuri_domain::{Millis, retention::Retention};

use crate::{
    error::Result,
    maintenance::{DryRun, PurgeCursor, PurgeStep, Purged, Swept},
};

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
    /// time of the first step.
    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep>;

    /// Runs a purge in a transaction that is aborted: no change, no outbox rows. It stops after about `max_rows` rows,
    /// because it blocks the writer. Pending counts of copies are written first (P-1).
    async fn dry_run_purge(&self, retention: &Retention, now: Millis, max_rows: usize) -> Result<DryRun>;

    /// Records an operator's confirmation, after a jump of the clock, that `now` is the right time (P-5).
    async fn confirm_clock(&self, now: Millis) -> Result<()>;
}
