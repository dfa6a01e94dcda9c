//! Running counters of a topic or of the node, and the capacity stages that follow from them (P-6). For stores that
//! keep counters.

use kukuri_domain::{
    Kind, State, TopicId,
    capacity::{Capacity, Load, Permanent, PermanentShare, Stage, Usage},
    retention::RetentionClass,
};

use crate::{
    error::StoreError,
    ingest::{StageChange, StoreRules},
    report::{permanent, total},
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

    /// Whether any row is stored, effective or hidden.
    pub fn has_rows(&self) -> bool {
        self.by_class.iter().any(|usage| usage.events > 0)
    }

    /// The load of a topic under this capacity.
    pub fn load(&self, capacity: Capacity, share: &PermanentShare) -> Load {
        let permanent = permanent(&self.by_class);
        Load {
            stage: self.stage,
            is_full: capacity.is_reached(permanent.stored(), 100),
            is_share_filled: share.is_filled_in_topic(permanent, capacity),
            ..Load::default()
        }
    }

    /// The rows that count for the stages.
    fn counted(&self, capacity: Capacity, share: &PermanentShare) -> Usage {
        share.counted_for_stages(total(&self.by_class), permanent(&self.by_class), capacity)
    }
}

/// The running counters that a write transaction changes, and the capacity rules over them (P-6).
pub trait Tally {
    /// The store's error type.
    type Error: From<StoreError>;
    /// Identifies a topic that has a record.
    type TopicNo: Copy + Ord;

    /// The store's configuration.
    fn rules(&self) -> &StoreRules;

    /// The node-level subscriptions, which hold the policies of topics.
    fn subscriptions(&self) -> &Subscriptions;

    /// The number of a topic. `None`: it has no record, so no event is bound to it (T-10).
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

    /// Whether a topic is known: enabled, or with stored events (T-9). Depends on nothing but the state of this
    /// transaction, so that a replay finds the same.
    fn is_known_topic(&mut self, topic: &TopicId) -> Result<bool, Self::Error> {
        if self.subscriptions().get(topic).is_some_and(|subscription| subscription.enabled) {
            return Ok(true);
        }
        match self.find_topic(topic)? {
            Some(no) => Ok(self.counters(Some(no))?.has_rows()),
            None => Ok(false),
        }
    }

    /// Whether the record of a topic goes: the topic holds nothing, is not enabled, and has no policy (T-10).
    fn is_topic_over(&self, topic: &TopicId, counters: &Counters) -> bool {
        !counters.has_rows() && !self.subscriptions().keeps(topic)
    }

    /// The load of the node.
    fn node_load(&mut self) -> Result<Load, Self::Error> {
        let (capacity, share) = (self.rules().capacity, self.rules().permanent);
        let counters = self.counters(None)?;
        let is_share_filled = share.is_filled_in_node(permanent(&counters.by_class), capacity);
        Ok(Load { is_share_filled, ..counters.load(capacity, &share) })
    }

    /// The load of a topic.
    fn topic_load(&mut self, topic: &TopicId) -> Result<Load, Self::Error> {
        let capacity = self.subscriptions().policy(topic).capacity();
        let is_shed_first = self.subscriptions().is_shed_first(topic);
        let share = self.rules().permanent;
        let load = match self.find_topic(topic)? {
            Some(no) => self.counters(Some(no))?.load(capacity, &share),
            None => Counters::default().load(capacity, &share),
        };
        Ok(Load { is_shed_first, ..load })
    }

    /// Whether permanent rows fill their share of the node or of one of these topics, if `more` of them come in.
    fn would_fill_share<'t>(
        &mut self,
        topics: impl IntoIterator<Item = &'t TopicId>,
        more: Permanent,
    ) -> Result<bool, Self::Error> {
        let (capacity, share) = (self.rules().capacity, self.rules().permanent);
        if share.is_filled_in_node(permanent(&self.counters(None)?.by_class).with(more), capacity) {
            return Ok(true);
        }
        for topic in topics {
            let capacity = self.subscriptions().policy(topic).capacity();
            let Some(no) = self.find_topic(topic)? else {
                if share.is_filled_in_topic(more, capacity) {
                    return Ok(true);
                }
                continue;
            };
            if share.is_filled_in_topic(permanent(&self.counters(Some(no))?.by_class).with(more), capacity) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Updates the stages of the node and of every changed topic.
    fn update_stages(&mut self) -> Result<(), Self::Error> {
        let (thresholds, share) = (self.rules().thresholds, self.rules().permanent);
        let mut changed = std::mem::take(self.changed_topics());
        changed.sort_unstable();
        changed.dedup();
        for topic in std::iter::once(None).chain(changed.into_iter().map(Some)) {
            let (id, capacity) = self.capacity(topic)?;
            let counters = self.counters(topic)?;
            let counted = counters.counted(capacity, &share);
            let (from, to) = (counters.stage, counters.stage.next(counted, capacity, &thresholds));
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
        let (purge_to, share) = (self.rules().thresholds.purge_to, self.rules().permanent);
        let counters = self.counters(topic)?;
        Ok(counters.stage == Stage::Purging && capacity.is_exceeded(counters.counted(capacity, &share), purge_to))
    }
}
