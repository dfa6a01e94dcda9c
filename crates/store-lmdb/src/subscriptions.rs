//! Node-level subscriptions (S-1) as records.

use kukuri_domain::{TopicId, subscription::NodeSubscription};
use kukuri_store::subscriptions::Subscriptions;

use crate::{
    error::{Result, damaged},
    lookup::topic_of_key,
    pack::{Pack, take, unpack},
    tables::{Table, View},
};

pub(crate) fn load(view: View<'_>) -> Result<Subscriptions> {
    let read = |(topic, record)| read(topic_of_key(topic)?, record);
    view.iter(Table::Subscriptions)?.map(|entry| read(entry?)).collect()
}

pub(crate) fn pack(subscription: &NodeSubscription) -> Result<Vec<u8>> {
    let policy = serde_json::to_vec(&subscription.policy)
        .map_err(|error| damaged(format!("a policy can't be written: {error}")))?;
    Ok(Pack::with_capacity(26 + policy.len())
        .field(&subscription.enabled)
        .field(&subscription.keeper)
        .field(&subscription.ref_count)
        .field(&subscription.created_at)
        .field(&subscription.updated_at)
        .bytes(&policy)
        .done())
}

pub(crate) fn read(topic: TopicId, record: &[u8]) -> Result<NodeSubscription> {
    unpack(Table::Subscriptions.name(), record, |record| {
        let (enabled, keeper, ref_count) = (take(record)?, take(record)?, take(record)?);
        let (created_at, updated_at) = (take(record)?, take(record)?);
        let policy = serde_json::from_slice(record).ok()?;
        Some(NodeSubscription { topic, enabled, keeper, ref_count, policy, created_at, updated_at })
    })
}
