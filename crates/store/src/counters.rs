//! Running counters of a topic or of the node, and the capacity stages that follow from them (P-6). For stores that
//! keep counters.

use kukuri_domain::{
    Kind, State, TopicId,
    capacity::{Capacity, Load, Stage, Usage},
    retention::RetentionClass,
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
    /// Adds (1) or subtracts (-1) a stored row.
    pub fn count(&mut self, kind: Kind, state: State, bytes: usize, sign: i64) {
        let is_effective = state == State::Effective;
        let usage = &mut self.by_class[RetentionClass::of(kind, is_effective) as usize];
        usage.events = usage.events.saturating_add_signed(sign);
        usage.bytes = usage.bytes.saturating_add_signed(sign * bytes as i64);
        self.effective = self.effective.saturating_add_signed(sign * i64::from(is_effective));
    }

    /// The load under this capacity.
    pub fn load(&self, capacity: Capacity) -> Load {
        let is_full = capacity.is_reached(lasting(&self.by_class), 100);
        Load { stage: self.stage, is_full, is_shed_first: false }
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

    /// The number of a topic. `None`: no event was ever bound to it.
    fn find_topic(&mut self, topic: &TopicId) -> Result<Option<Self::TopicNo>, Self::Error>;

    /// The id of a topic.
    fn topic_id(&mut self, topic: Self::TopicNo) -> Result<TopicId, Self::Error>;

    /// The counters of a topic, or of the node (`None`).
    fn counters(&mut self, topic: Option<Self::TopicNo>) -> Result<&mut Counters, Self::Error>;

    /// Topics whose counters or policy changed since the last [`Self::update_stages`], in any order.
    fn changed_topics(&mut self) -> &mut Vec<Self::TopicNo>;

    /// The stage changes of this transaction.
    fn stage_changes(&mut self) -> &mut Vec<StageChange>;

    /// The id and the capacity of a topic, or of the node (`None`).
    fn capacity(&mut self, topic: Option<Self::TopicNo>) -> Result<(Option<TopicId>, Capacity), Self::Error> {
        let Some(no) = topic else { return Ok((None, self.rules().capacity)) };
        let id = self.topic_id(no)?;
        let capacity = self.subscriptions().policy(&id).capacity();
        Ok((Some(id), capacity))
    }

    /// The load of the node.
    fn node_load(&mut self) -> Result<Load, Self::Error> {
        let capacity = self.rules().capacity;
        Ok(self.counters(None)?.load(capacity))
    }

    /// The load of a topic.
    fn topic_load(&mut self, topic: &TopicId) -> Result<Load, Self::Error> {
        let capacity = self.subscriptions().policy(topic).capacity();
        let is_shed_first = self.subscriptions().is_shed_first(topic);
        let load = match self.find_topic(topic)? {
            Some(no) => self.counters(Some(no))?.load(capacity),
            None => Counters::default().load(capacity),
        };
        Ok(Load { is_shed_first, ..load })
    }

    /// Updates the stages of the node and of every changed topic.
    fn update_stages(&mut self) -> Result<(), Self::Error> {
        let thresholds = self.rules().thresholds;
        let mut changed = std::mem::take(self.changed_topics());
        changed.sort_unstable();
        changed.dedup();
        for topic in std::iter::once(None).chain(changed.into_iter().map(Some)) {
            let (id, capacity) = self.capacity(topic)?;
            let counters = self.counters(topic)?;
            let (from, to) = (counters.stage, counters.stage.next(total(&counters.by_class), capacity, &thresholds));
            counters.stage = to;
            if from != to {
                self.stage_changes().push(StageChange { topic: id, from, to });
            }
        }
        Ok(())
    }

    /// Whether a purge must remove rows from a topic, or from the node (`None`), to get down to the `purge_to`
    /// threshold.
    fn must_make_room(&mut self, topic: Option<Self::TopicNo>) -> Result<bool, Self::Error> {
        let (_, capacity) = self.capacity(topic)?;
        let purge_to = self.rules().thresholds.purge_to;
        let counters = self.counters(topic)?;
        Ok(counters.stage == Stage::Purging && capacity.is_exceeded(total(&counters.by_class), purge_to))
    }
}
