//! Node-level subscriptions (S-1).

use async_trait::async_trait;
use kukuri_domain::{
    Millis, TopicId,
    subscription::{NodeSubscription, SubscriptionChange},
};
use tokio::sync::watch;

use crate::error::Result;

/// Node-level subscriptions: the topics that this node carries (S-1).
#[async_trait]
pub trait Topics: Send + Sync + 'static {
    /// All node-level subscriptions, ordered by topic (S-1).
    async fn subscriptions(&self) -> Result<Vec<NodeSubscription>>;

    /// Changes a subscription, or creates it.
    async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription>;

    /// Watches a number that changes with every change of the subscriptions.
    fn watch_subscriptions(&self) -> watch::Receiver<u64>;
}
