//! Ingest: the argument and return types of the port, and the procedure by which stores ingest events.
//!
//! - This file: rules, outcomes, reports.
//! - [`Ledger`]: the facts and writes that a store supplies.
//! - `procedure`: [`ingest_batch`] → `ingest_event` → `verdict_on` → `apply`. `hints`: floor hints of other nodes.

mod hints;
mod ledger;
mod procedure;

use kukuri_domain::{
    DeletionMode, Millis, Refusal, TopicId,
    capacity::{Capacity, PermanentShare, Stage, Thresholds},
    clock::{Clock, ClockRules},
    deletion::DeletionResult,
};

use crate::outbox::Seq;

pub use hints::apply_hints;
pub use ledger::Ledger;
pub use procedure::{BatchEffect, EventFailure, ingest_batch, leave_local_mark, replay_event};

/// Configuration of a store, given when it is opened.
#[derive(Clone, Debug, Default)]
pub struct StoreRules {
    /// Whether deleted rows are hidden or removed (D-7).
    pub deletion: DeletionMode,
    /// Capacity of the node; each topic has its own in its subscription (P-6).
    pub capacity: Capacity,
    /// Thresholds of the capacity stages.
    pub thresholds: Thresholds,
    /// How much of a capacity rows that are never purged may fill.
    pub permanent: PermanentShare,
    /// When purges and sweeps wait because of the clock (P-5).
    pub clock: ClockRules,
}

impl StoreRules {
    /// The store's clock after reading the system clock. A store that has written no outbox row yet has nothing to lose:
    /// whatever it recorded before, its time is no jump.
    pub fn tick(&self, clock: Clock, head: Seq, now: Millis) -> Clock {
        let recorded = if head == Seq::default() { Clock::default() } else { clock };
        recorded.tick(now, &self.clock)
    }
}

/// The result of ingesting one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The event is new, stored and effective. Durable when this is returned.
    Stored,
    /// The event is already stored and effective.
    Duplicate,
    /// The event is delivered live only and not stored (E-5).
    Ephemeral,
    /// The event was refused.
    Refused(Refusal),
}

/// Report of one ingested batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// One outcome per event, in order.
    pub outcomes: Vec<Outcome>,
    /// The highest outbox sequence after the batch.
    pub head: Seq,
    /// Total over all deletion requests of the batch.
    pub deletions: DeletionResult,
    /// Changes of capacity stages.
    pub stages: Vec<StageChange>,
}

impl Ingested {
    /// Adds the report of the next batch.
    pub fn append(&mut self, next: Self) {
        self.outcomes.extend(next.outcomes);
        self.stages.extend(next.stages);
        self.head = self.head.max(next.head);
        self.deletions.deleted_count += next.deletions.deleted_count;
        self.deletions.skipped_count += next.deletions.skipped_count;
    }
}

/// A change of the capacity stage of a topic or of the node (P-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageChange {
    /// The topic. `None`: the node.
    pub topic: Option<TopicId>,
    /// The stage that was left.
    pub from: Stage,
    /// The stage that was entered.
    pub to: Stage,
}

impl StageChange {
    /// Merges successive changes into one per topic (or the node), from its first stage to its last.
    pub fn summed_up(changes: Vec<Self>) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for change in changes {
            match sums.iter_mut().find(|sum| sum.topic == change.topic) {
                Some(sum) => sum.to = change.to,
                None => sums.push(change),
            }
        }
        sums.retain(|sum| sum.from != sum.to);
        sums
    }
}
