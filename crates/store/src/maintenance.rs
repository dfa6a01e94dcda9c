//! Reports of expiry sweeps and purges.

use kukuri_domain::{Millis, Timestamp};

use crate::ingest::StageChange;

/// Report of an expiry sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Number of expired events removed from the effective set.
    pub expired: u64,
    /// The earliest expiration among the remaining effective events.
    pub next: Option<Timestamp>,
    /// Nothing was done: the clock is held (P-5).
    pub held: bool,
}

/// Report of a purge (P-2, P-5, P-6, O-10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Rows removed because their retention ended, hidden ones included.
    pub by_retention: u64,
    /// Rows removed because of capacity.
    pub by_capacity: u64,
    /// Id records removed.
    pub ids: u64,
    /// Outbox rows removed.
    pub outbox: u64,
    /// Tombstones, floors and vanish marks removed.
    pub memories: u64,
    /// Changes of capacity stages.
    pub stages: Vec<StageChange>,
    /// Only capacity was enforced: the clock is held (P-5).
    pub held: bool,
}

/// Maximum number of rows that a dry run of a purge reads on a running node. The writer is blocked meanwhile, for about
/// a second.
pub const MAX_DRY_RUN_ROWS: usize = 10_000;

/// Report of a dry run of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// The report that the purge would give, as far as the dry run got.
    pub purged: Purged,
    /// `false`: the dry run stopped at its row limit, and a purge would remove more.
    pub is_complete: bool,
}

/// The position at which a purge continues. Opaque to callers; holds no resource of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeCursor {
    /// When the purge began: retention is counted from there. `None` before the first step.
    pub began_at: Option<Millis>,
    /// Nothing is removed because of its age. A purge is also limited like this while the clock is held.
    pub is_for_capacity_only: bool,
    /// Totals of all steps so far.
    pub purged: Purged,
    /// The phase, in the store's own numbering.
    pub phase: u8,
    /// The last key that the phase read, in the store's own encoding.
    pub after: Vec<u8>,
}

impl PurgeCursor {
    /// Starts a purge that only enforces capacity (P-6).
    pub fn for_capacity_only() -> Self {
        Self { is_for_capacity_only: true, ..Self::default() }
    }
}

/// The result of one bounded step of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeStep {
    /// Totals of this step and all steps before it.
    pub purged: Purged,
    /// The cursor of the next step. `None`: the purge is complete.
    pub next: Option<PurgeCursor>,
}
