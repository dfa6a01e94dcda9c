//! What a store reports of its upkeep.

use std::any::Any;

use kukuri_domain::Timestamp;

use crate::ingest::StageChange;

/// What an expiry sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Events turned off.
    pub expired: u64,
    /// When the next one is due.
    pub next: Option<Timestamp>,
    /// Nothing was done: the clock jumped and waits to be confirmed (P-5).
    pub held: bool,
}

/// What a purge did (P-2, P-5, P-6, O-10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Rows that had stayed long enough, hidden ones too.
    pub by_retention: u64,
    /// Rows thrown away to make room.
    pub by_capacity: u64,
    /// Ids forgotten.
    pub ids: u64,
    /// Outbox rows dropped.
    pub outbox: u64,
    /// Tombstones, floors and vanish marks dropped.
    pub memories: u64,
    /// Capacity stages that were left, or entered.
    pub stages: Vec<StageChange>,
    /// Nothing was done: the clock jumped and waits to be confirmed (P-5).
    pub held: bool,
}

/// Where a purge goes on. Opaque to whoever carries it.
#[derive(Default)]
pub struct PurgeCursor(pub Option<Box<dyn Any + Send>>);

/// A part of a purge.
pub struct PurgeStep {
    /// What this and the parts before it did.
    pub purged: Purged,
    /// The next part, if there is one.
    pub next: Option<PurgeCursor>,
}
