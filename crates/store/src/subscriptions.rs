//! In-memory copy of the node-level subscriptions (S-1). Ingest and purges read the policies of topics from it.

use std::collections::BTreeMap;

use kukuri_domain::{
    TopicId, capacity,
    retention::TopicRetention,
    subscription::{IngestPolicy, NodeSubscription},
};

/// All node-level subscriptions.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    by_topic: BTreeMap<TopicId, NodeSubscription>,
    first_to_go: Option<u8>,
}

impl Subscriptions {
    /// Adds a subscription, or replaces the one of the same topic.
    pub fn insert(&mut self, subscription: NodeSubscription) {
        self.by_topic.insert(subscription.topic.clone(), subscription);
        self.find_first_to_go();
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

    /// Whether a topic of this priority is shed first (P-6).
    pub fn is_first_to_go(&self, topic: &TopicId) -> bool {
        self.first_to_go == Some(self.policy(topic).priority)
    }

    fn find_first_to_go(&mut self) {
        let enabled = self.by_topic.values().filter(|subscription| subscription.enabled);
        self.first_to_go = capacity::shed_priority(enabled.map(|subscription| subscription.policy.priority));
    }
}

impl FromIterator<NodeSubscription> for Subscriptions {
    fn from_iter<I: IntoIterator<Item = NodeSubscription>>(some: I) -> Self {
        let by_topic = some.into_iter().map(|subscription| (subscription.topic.clone(), subscription)).collect();
        let mut all = Self { by_topic, first_to_go: None };
        all.find_first_to_go();
        all
    }
}
