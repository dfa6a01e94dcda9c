//! Taking events in: what a store is told and what it answers.

use kukuri_domain::{
    DeletionMode, Refusal, TopicId,
    capacity::{Capacity, Stage, Thresholds},
    deletion::DeletionResult,
};

use crate::outbox::Seq;

/// How a store treats what it takes in. Configuration, given when it is opened.
#[derive(Clone, Debug, Default)]
pub struct StoreRules {
    /// What becomes of deleted rows (D-7).
    pub deletion: DeletionMode,
    /// How much the node may hold; topics have their own in their subscriptions (P-6).
    pub capacity: Capacity,
    /// When the stages of a capacity begin.
    pub thresholds: Thresholds,
}

/// The answer for one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new, stored and effective. Durable when this is returned.
    Stored,
    /// It is known and effective.
    Duplicate,
    /// It is for those who listen now; nothing was kept (E-5).
    Ephemeral,
    /// It was not taken in.
    Refused(Refusal),
}

impl Outcome {
    /// The first word of its `OK`: whether the event is, or was, accepted.
    pub fn is_accepted(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// What a batch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// One outcome per event, in order.
    pub outcomes: Vec<Outcome>,
    /// The highest outbox sequence after the batch.
    pub head: Seq,
    /// What the deletion requests of the batch did, together.
    pub deletions: DeletionResult,
    /// Capacity stages that were entered or left.
    pub stages: Vec<StageChange>,
}

/// A topic, or the node, has become fuller or emptier (P-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageChange {
    /// The topic; `None` is the node.
    pub topic: Option<TopicId>,
    /// The stage that was left.
    pub from: Stage,
    /// The stage that was entered.
    pub to: Stage,
}

impl StageChange {
    /// What several changes, one after the other, come to: one per place, from the first stage to the last.
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
