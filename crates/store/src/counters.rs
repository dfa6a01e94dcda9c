//! Running counters of a topic or of the node, and what follows from them (P-6). For stores that count.

use kukuri_domain::{
    TopicId,
    capacity::{Capacity, Load, Stage, Thresholds, Usage},
};

use crate::{
    ingest::StageChange,
    report::{lasting, total},
};

/// What is stored in a topic, or on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Effective events.
    pub effective: u64,
    /// Rows by what they are to retention, in the order of `RetentionClass::ALL`.
    pub by_class: [Usage; 4],
    /// How short of room it is.
    pub stage: Stage,
}

impl Counters {
    /// How loaded a place is that has so much room.
    pub fn load(&self, capacity: Capacity) -> Load {
        Load { stage: self.stage, is_full: capacity.is_reached(lasting(&self.by_class), 100) }
    }

    /// Brings the stage up to date. Returns the change, told of this topic or of the node.
    pub fn update_stage(
        &mut self,
        topic: Option<&TopicId>,
        capacity: Capacity,
        thresholds: &Thresholds,
    ) -> Option<StageChange> {
        let from = self.stage;
        self.stage = from.next(total(&self.by_class), capacity, thresholds);
        (from != self.stage).then(|| StageChange { topic: topic.cloned(), from, to: self.stage })
    }

    /// Whether a purge has to throw away what gives way, and has not done so enough.
    pub fn must_make_room(&self, capacity: Capacity, thresholds: &Thresholds) -> bool {
        self.stage == Stage::Purging && capacity.is_exceeded(total(&self.by_class), thresholds.purge_to)
    }
}
