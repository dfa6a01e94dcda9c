//! What a purge would leave behind, for stores that tell it without doing it.

use kukuri_domain::{
    capacity::{Capacity, Stage, Thresholds, Usage},
    retention::TopicRetention,
};

use crate::{counters::Counters, report::total};

/// A topic, or the node, as a purge would leave it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where it differs from the node in what it keeps.
    pub retention: TopicRetention,
    capacity: Capacity,
    stage: Stage,
    /// What would be left in it.
    usage: Usage,
}

impl Place {
    /// As it is before a purge.
    pub fn new(retention: TopicRetention, capacity: Capacity, counters: &Counters) -> Self {
        Self { retention, capacity, stage: counters.stage, usage: total(&counters.by_class) }
    }

    /// A row with so many bytes would go. Counters were read at the beginning: one that was purged since is not taken off
    /// twice for real.
    pub fn lose(&mut self, bytes: u64) {
        self.usage.events = self.usage.events.saturating_sub(1);
        self.usage.bytes = self.usage.bytes.saturating_sub(bytes);
    }

    /// Whether it would be at its last stage.
    pub fn purges(&self, thresholds: &Thresholds) -> bool {
        self.stage.next(self.usage, self.capacity, thresholds) == Stage::Purging
    }

    /// Whether a purge for room would go on.
    pub fn holds_too_much(&self, thresholds: &Thresholds) -> bool {
        self.capacity.is_exceeded(self.usage, thresholds.purge_to)
    }
}
