//! Running counters of a topic or of the node, and the capacity stages that follow from them (P-6). For stores that
//! keep counters.

use kukuri_domain::{
    TopicId,
    capacity::{Capacity, Load, Stage, Thresholds, TopicLoad, Usage},
};

use crate::{
    error::StoreError,
    ingest::{StageChange, StoreRules},
    report::{lasting, total},
    subscriptions::Subscriptions,
};

/// Running counters of a topic or of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of effective events.
    pub effective: u64,
    /// Stored rows by retention class, in the order of `RetentionClass::ALL`.
    pub by_class: [Usage; 4],
    /// The capacity stage.
    pub stage: Stage,
}

impl Counters {
    /// The load under this capacity.
    pub fn load(&self, capacity: Capacity) -> Load {
        Load { stage: self.stage, is_full: capacity.is_reached(lasting(&self.by_class), 100) }
    }

    /// Updates the stage. Returns the change, if any, as one of this topic or of the node (`None`).
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

    /// Whether a purge still has to remove rows to get down to the `purge_to` threshold.
    pub fn must_make_room(&self, capacity: Capacity, thresholds: &Thresholds) -> bool {
        self.stage == Stage::Purging && capacity.is_exceeded(total(&self.by_class), thresholds.purge_to)
    }
}

/// The running counters that a write transaction changes, and the capacity rules over them (P-6).
pub trait Tally {
    /// The store's error type.
    type Error: From<StoreError>;
    /// Identifies a topic that an event was ever bound to.
    type TopicNo: Copy + Ord;

    /// The store's configuration.
    fn rules(&self) -> &StoreRules;

    /// The node-level subscriptions, which hold the policies of topics.
    fn subscriptions(&self) -> &Subscriptions;

    /// The counters of the node.
    fn node_counters(&mut self) -> &mut Counters;

    /// The number of a topic. `None`: no event was ever bound to it.
    fn find_topic(&mut self, topic: &TopicId) -> Result<Option<Self::TopicNo>, Self::Error>;

    /// The id of a topic.
    fn topic_id(&mut self, topic: Self::TopicNo) -> Result<TopicId, Self::Error>;

    /// The counters of a topic.
    fn topic_counters(&mut self, topic: Self::TopicNo) -> Result<&mut Counters, Self::Error>;

    /// Topics whose counters or policy changed since the last [`Self::update_stages`], in any order.
    fn changed_topics(&mut self) -> &mut Vec<Self::TopicNo>;

    /// The stage changes of this transaction.
    fn stage_changes(&mut self) -> &mut Vec<StageChange>;

    /// The load of the node.
    fn node_load(&mut self) -> Load {
        let capacity = self.rules().capacity;
        self.node_counters().load(capacity)
    }

    /// The load of a topic.
    fn topic_load(&mut self, topic: &TopicId) -> Result<TopicLoad, Self::Error> {
        let capacity = self.subscriptions().policy(topic).capacity();
        let is_first_to_go = self.subscriptions().is_first_to_go(topic);
        let load = match self.find_topic(topic)? {
            Some(no) => self.topic_counters(no)?.load(capacity),
            None => Counters::default().load(capacity),
        };
        Ok(TopicLoad { load, is_first_to_go })
    }

    /// Updates the stages of the node and of every changed topic.
    fn update_stages(&mut self) -> Result<(), Self::Error> {
        let (capacity, thresholds) = (self.rules().capacity, self.rules().thresholds);
        let change = self.node_counters().update_stage(None, capacity, &thresholds);
        self.stage_changes().extend(change);
        let mut changed = std::mem::take(self.changed_topics());
        changed.sort_unstable();
        changed.dedup();
        for no in changed {
            let id = self.topic_id(no)?;
            let capacity = self.subscriptions().policy(&id).capacity();
            let change = self.topic_counters(no)?.update_stage(Some(&id), capacity, &thresholds);
            self.stage_changes().extend(change);
        }
        Ok(())
    }

    /// Whether a purge must remove rows from a topic, or from the node (`None`), to make room.
    fn must_make_room(&mut self, topic: Option<Self::TopicNo>) -> Result<bool, Self::Error> {
        let thresholds = self.rules().thresholds;
        let (counters, capacity) = match topic {
            Some(no) => {
                let id = self.topic_id(no)?;
                (*self.topic_counters(no)?, self.subscriptions().policy(&id).capacity())
            }
            None => (*self.node_counters(), self.rules().capacity),
        };
        Ok(counters.must_make_room(capacity, &thresholds))
    }
}
