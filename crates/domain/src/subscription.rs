//! Node-level subscriptions: the topics that this node carries, and their policies (S-1).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    capacity::Capacity,
    retention::{Keep, TopicRetention},
    time::Millis,
    topic::TopicId,
};

/// The subscription of this node to a topic, enabled or disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSubscription {
    /// The topic.
    pub topic: TopicId,
    /// Whether events of the topic are admitted (T-8).
    pub enabled: bool,
    /// Whether an operator, use or members decide on `enabled`.
    pub keeper: Keeper,
    /// The number of members that subscribe to the topic, if they keep it.
    pub ref_count: u64,
    /// Retention, capacity and priority.
    pub policy: IngestPolicy,
    /// When the topic was first enabled.
    pub created_at: Millis,
    /// When the subscription last changed.
    pub updated_at: Millis,
}

/// Whether an operator, use or members open and close a topic (T-8, S-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeper {
    /// An operator: only an operator changes it.
    #[default]
    Operator,
    /// Use: a first event opens the topic, idleness may close it, and use may open it again.
    Use,
    /// Members: the topic is open while one of them subscribes to it.
    People,
}

impl NodeSubscription {
    /// Whether an event may open a topic with this subscription, or with none.
    pub fn may_open_by_use(known: Option<&Self>) -> bool {
        known.is_none_or(|known| !known.enabled && known.keeper != Keeper::Operator)
    }

    /// What the number of members that subscribe to a topic changes (S-7). Only what members keep, and what nobody else has open, is
    /// touched. Applied again it changes nothing.
    pub fn follow_members(known: Option<&Self>, members: u64, stop_unused: bool) -> Option<SubscriptionChange> {
        let is_members = known.is_some_and(|known| known.keeper == Keeper::People);
        if members > 0 && (is_members || Self::may_open_by_use(known)) {
            let is_done = known.is_some_and(|known| is_members && known.enabled && known.ref_count == members);
            return (!is_done).then(|| SubscriptionChange::follow_members(true, members));
        }
        let known = known.filter(|_| is_members && members == 0)?;
        let enabled = known.enabled && !stop_unused;
        (known.enabled != enabled || known.ref_count > 0).then(|| SubscriptionChange::follow_members(enabled, 0))
    }

    /// Whether the topic's record is kept while it holds nothing: it is enabled, or has a policy of its own (T-10).
    pub fn keeps_topic(&self) -> bool {
        self.enabled || self.policy != IngestPolicy::default()
    }

    /// Whether the subscription says nothing that a topic without one does not say: use or members opened it, and it is closed
    /// again (T-8, T-10).
    pub fn is_forgettable(&self) -> bool {
        !self.keeps_topic() && self.keeper != Keeper::Operator && self.ref_count == 0
    }

    /// Whether the topic is idle: use opened it, no user subscribes to it, and for `idle` no event arrived and the
    /// subscription did not change.
    pub fn is_idle(&self, last_event: Option<Millis>, idle: Duration, now: Millis) -> bool {
        let is_over = |at: Millis| Keep::For(idle).is_over(at, now);
        self.enabled
            && self.keeper == Keeper::Use
            && self.ref_count == 0
            && is_over(self.updated_at)
            && last_event.is_none_or(is_over)
    }
}

/// The policy for ingesting and keeping a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestPolicy {
    /// Overrides of the node's retention.
    pub retention: TopicRetention,
    /// Maximum number of rows.
    pub max_events: Option<u64>,
    /// Maximum bytes of JSON.
    pub max_bytes: Option<u64>,
    /// Priority under capacity pressure; 0 is shed first.
    pub priority: u8,
    /// Whether history is fetched from peers.
    pub backfill: bool,
    /// How late an event may arrive. `None`: no bound.
    pub max_delay: Option<Duration>,
}

impl Default for IngestPolicy {
    fn default() -> Self {
        Self {
            retention: TopicRetention::default(),
            max_events: None,
            max_bytes: None,
            priority: 1,
            backfill: true,
            max_delay: None,
        }
    }
}

impl IngestPolicy {
    /// The capacity of the topic.
    pub fn capacity(&self) -> Capacity {
        Capacity { max_events: self.max_events, max_bytes: self.max_bytes }
    }
}

/// A change of a node-level subscription. A field that is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionChange {
    /// Enables or disables the topic.
    pub enabled: Option<bool>,
    /// Whether an operator, use or members decide from now on.
    pub keeper: Option<Keeper>,
    /// The number of members that subscribe.
    pub ref_count: Option<u64>,
    /// A new policy.
    pub policy: Option<IngestPolicy>,
}

impl SubscriptionChange {
    /// An operator enables a topic.
    pub fn enable() -> Self {
        Self { enabled: Some(true), keeper: Some(Keeper::Operator), ..Self::default() }
    }

    /// An operator disables a topic.
    pub fn disable() -> Self {
        Self { enabled: Some(false), keeper: Some(Keeper::Operator), ..Self::default() }
    }

    /// Use enables a topic.
    pub fn open() -> Self {
        Self { enabled: Some(true), keeper: Some(Keeper::Use), ..Self::default() }
    }

    fn follow_members(enabled: bool, members: u64) -> Self {
        Self { enabled: Some(enabled), keeper: Some(Keeper::People), ref_count: Some(members), ..Self::default() }
    }

    /// Disables an idle topic, until it is used again.
    pub fn close_idle() -> Self {
        Self { enabled: Some(false), ..Self::default() }
    }

    /// Applies the change to the known subscription, or to a new one.
    pub fn apply(self, topic: &TopicId, known: Option<NodeSubscription>, now: Millis) -> NodeSubscription {
        let known = known.unwrap_or_else(|| NodeSubscription {
            topic: topic.clone(),
            enabled: false,
            keeper: Keeper::default(),
            ref_count: 0,
            policy: IngestPolicy::default(),
            created_at: now,
            updated_at: now,
        });
        NodeSubscription {
            enabled: self.enabled.unwrap_or(known.enabled),
            keeper: self.keeper.unwrap_or(known.keeper),
            ref_count: self.ref_count.unwrap_or(known.ref_count),
            policy: self.policy.unwrap_or(known.policy),
            updated_at: now,
            ..known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn after(changes: &[SubscriptionChange]) -> Option<NodeSubscription> {
        let topic = TopicId::global();
        changes.iter().fold(None, |known, change| Some(change.apply(&topic, known, Millis::from_secs(1_000))))
    }

    #[test]
    fn use_opens_new_and_idle_topics_but_none_that_an_operator_closed() {
        // T-8
        let (enable, disable) = (SubscriptionChange::enable(), SubscriptionChange::disable());
        let (open, close) = (SubscriptionChange::open(), SubscriptionChange::close_idle());
        let policy = SubscriptionChange { policy: Some(IngestPolicy::default()), ..SubscriptionChange::default() };
        for (why, changes, may_open) in [
            ("never heard of", &[][..], true),
            ("open already", &[open], false),
            ("closed by idleness", &[open, close], true),
            ("opened again and closed again", &[open, close, open, close], true),
            ("a policy is no word on whether it is open", &[open, close, policy], true),
            ("disabled by an operator", &[disable], false),
            ("enabled, then disabled by an operator", &[enable, disable], false),
            ("opened by use, disabled by an operator", &[open, disable], false),
            ("known by a policy an operator made", &[policy], false),
        ] {
            assert_eq!(NodeSubscription::may_open_by_use(after(changes).as_ref()), may_open, "{why}");
        }
    }

    #[test]
    fn members_open_and_stop_what_they_keep_and_nothing_else() {
        // S-3, S-7
        let (enable, disable) = (SubscriptionChange::enable(), SubscriptionChange::disable());
        let (open, close) = (SubscriptionChange::open(), SubscriptionChange::close_idle());
        let carry = |members| SubscriptionChange::follow_members(true, members);
        let stop = SubscriptionChange::follow_members(false, 0);
        for (why, changes, members, expected) in [
            ("never heard of", &[][..], 2, Some(carry(2))),
            ("nobody wants it", &[], 0, None),
            ("another member", &[carry(2)], 3, Some(carry(3))),
            ("as it is", &[carry(2)], 2, None),
            ("the last member leaves", &[carry(2)], 0, Some(stop)),
            ("stopped already", &[carry(2), stop], 0, None),
            ("wanted again", &[carry(2), stop], 1, Some(carry(1))),
            ("use has it open", &[open], 1, None),
            ("use had it open", &[open, close], 1, Some(carry(1))),
            ("an operator keeps it", &[enable], 1, None),
            ("an operator keeps it closed", &[disable], 1, None),
            ("an operator took it over", &[carry(1), enable], 0, None),
        ] {
            let known = after(changes);
            let change = NodeSubscription::follow_members(known.as_ref(), members, true);
            assert_eq!(change, expected, "{why}");
            let Some(change) = change else { continue };
            let followed = change.apply(&TopicId::global(), known, Millis(0));
            assert_eq!(NodeSubscription::follow_members(Some(&followed), members, true), None, "{why}: once");
        }
        let kept = NodeSubscription::follow_members(after(&[carry(2)]).as_ref(), 0, false);
        assert_eq!(kept, Some(carry(0)), "unused topics are not stopped");
    }

    #[test]
    fn topic_is_idle_if_opened_by_use_and_unchanged_for_the_idle_time() {
        // T-8
        let opened = after(&[SubscriptionChange::open()]).unwrap();
        let at = Millis::from_secs;
        let wanted = NodeSubscription { ref_count: 1, ..opened.clone() };
        let kept = NodeSubscription { keeper: Keeper::Operator, ..opened.clone() };
        let closed = NodeSubscription { enabled: false, ..opened.clone() };
        for (why, subscription, last_event, now, is_idle) in [
            ("just opened", &opened, None, 1_059, false),
            ("long enough ago", &opened, None, 1_060, true),
            ("an event came since", &opened, Some(at(1_001)), 1_060, false),
            ("that was long ago, too", &opened, Some(at(1_001)), 1_061, true),
            ("an event from before it was opened again", &opened, Some(at(1)), 1_060, true),
            ("somebody subscribes to it", &wanted, None, 9_999, false),
            ("an operator keeps it", &kept, None, 9_999, false),
            ("closed already", &closed, None, 9_999, false),
        ] {
            assert_eq!(subscription.is_idle(last_event, IDLE, at(now)), is_idle, "{why}");
        }
    }
}
