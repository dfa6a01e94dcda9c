//! Node-level subscriptions: which topics this node takes in, and how (S-1).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{capacity::Capacity, retention::TopicRetention, time::Millis, topic::TopicId};

/// A topic this node takes in, or took in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSubscription {
    /// The topic.
    pub topic: TopicId,
    /// Whether events of it are taken in (T-8).
    pub enabled: bool,
    /// How many users subscribe to it.
    pub ref_count: u64,
    /// How it is taken in.
    pub policy: IngestPolicy,
    /// When it was first enabled.
    pub created_at: Millis,
    /// When any of this last changed.
    pub updated_at: Millis,
}

/// How a topic is taken in and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestPolicy {
    /// Where it differs from the node's.
    pub retention: TopicRetention,
    /// The most rows it may hold.
    pub max_events: Option<u64>,
    /// The most bytes of JSON it may hold.
    pub max_bytes: Option<u64>,
    /// 0 is the first to be shed.
    pub priority: u8,
    /// Whether history is fetched from peers.
    pub backfill: bool,
    /// How late events may come.
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
    /// How much the topic may hold.
    pub fn capacity(&self) -> Capacity {
        Capacity { max_events: self.max_events, max_bytes: self.max_bytes }
    }
}

/// A change of a node-level subscription. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionChange {
    /// Enable or disable it.
    pub enabled: Option<bool>,
    /// Users that came, less users that left.
    pub ref_count: i64,
    /// A new policy.
    pub policy: Option<IngestPolicy>,
}

impl SubscriptionChange {
    /// Enables a topic.
    pub fn enable() -> Self {
        Self { enabled: Some(true), ..Self::default() }
    }

    /// Disables a topic.
    pub fn disable() -> Self {
        Self { enabled: Some(false), ..Self::default() }
    }

    /// The subscription that follows from `known`, or from none.
    pub fn apply(self, topic: &TopicId, known: Option<NodeSubscription>, now: Millis) -> NodeSubscription {
        let known = known.unwrap_or_else(|| NodeSubscription {
            topic: topic.clone(),
            enabled: false,
            ref_count: 0,
            policy: IngestPolicy::default(),
            created_at: now,
            updated_at: now,
        });
        NodeSubscription {
            enabled: self.enabled.unwrap_or(known.enabled),
            ref_count: known.ref_count.saturating_add_signed(self.ref_count),
            policy: self.policy.unwrap_or(known.policy),
            updated_at: now,
            ..known
        }
    }
}
