//! In-memory copy of the node-level subscriptions (S-1). Ingest and purges read the policies of topics from it.

use std::collections::BTreeMap;

use kukuri_domain::{
    TopicId,
    capacity::{self, Capacity},
    retention::TopicRetention,
    subscription::{IngestPolicy, NodeSubscription},
};

/// All node-level subscriptions.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    by_topic: BTreeMap<TopicId, NodeSubscription>,
    /// The lowest priority of enabled subscriptions, if not all have the same.
    shed_priority: Option<u8>,
}

impl Subscriptions {
    /// Adds a subscription, or replaces the one of the same topic; removes that if the new one is forgettable (T-10).
    pub fn insert(&mut self, subscription: NodeSubscription) {
        if subscription.is_forgettable() {
            self.by_topic.remove(&subscription.topic);
        } else {
            self.by_topic.insert(subscription.topic.clone(), subscription);
        }
        self.update_shed_priority();
    }

    /// Whether the record of a topic is kept while it holds nothing (T-10).
    pub fn keeps(&self, topic: &TopicId) -> bool {
        self.get(topic).is_some_and(NodeSubscription::keeps_topic)
    }

    /// Topics with a capacity of their own, in order: only these can be in a stage above `Open` (P-6).
    pub fn with_capacity(&self) -> impl Iterator<Item = &TopicId> {
        let has_capacity = |one: &&NodeSubscription| one.policy.capacity() != Capacity::default();
        self.all().filter(has_capacity).map(|subscription| &subscription.topic)
    }

    /// Topics with a retention of their own, in order.
    pub fn with_retention(&self) -> impl Iterator<Item = &NodeSubscription> {
        self.all().filter(|subscription| subscription.policy.retention != TopicRetention::default())
    }

    /// The subscription of a topic.
    pub fn get(&self, topic: &TopicId) -> Option<&NodeSubscription> {
        self.by_topic.get(topic)
    }

    /// All subscriptions, ordered by topic.
    pub fn all(&self) -> impl Iterator<Item = &NodeSubscription> {
        self.by_topic.values()
    }

    /// The policy of a topic; the default policy for a topic without subscription.
    pub fn policy(&self, topic: &TopicId) -> IngestPolicy {
        self.get(topic).map(|subscription| subscription.policy).unwrap_or_default()
    }

    /// The topics' own retentions.
    pub fn retentions(&self) -> impl Iterator<Item = &TopicRetention> {
        self.all().map(|subscription| &subscription.policy.retention)
    }

    /// Whether events of this topic are shed first (P-6).
    pub fn is_shed_first(&self, topic: &TopicId) -> bool {
        self.shed_priority == Some(self.policy(topic).priority)
    }

    fn update_shed_priority(&mut self) {
        let enabled = self.by_topic.values().filter(|subscription| subscription.enabled);
        self.shed_priority = capacity::shed_priority(enabled.map(|subscription| subscription.policy.priority));
    }
}

impl FromIterator<NodeSubscription> for Subscriptions {
    fn from_iter<I: IntoIterator<Item = NodeSubscription>>(subscriptions: I) -> Self {
        let keyed = subscriptions.into_iter().map(|subscription| (subscription.topic.clone(), subscription));
        let mut all = Self { by_topic: keyed.collect(), shed_priority: None };
        all.update_shed_priority();
        all
    }
}
