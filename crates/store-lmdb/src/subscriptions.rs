//! Node-level subscriptions (S-1) as records.

use heed::RoTxn;
use kukuri_domain::{TopicId, subscription::NodeSubscription};
use kukuri_store::subscriptions::Subscriptions;

use crate::{
    error::{Result, damaged},
    lookup::topic_of_key,
    pack::{Pack, Unpack},
    tables::{Table, Tables},
};

pub(crate) fn load(tables: &Tables, txn: &RoTxn<'_>) -> Result<Subscriptions> {
    let read = |(topic, record)| unpack(topic_of_key(topic)?, record);
    tables.of(Table::Subscriptions).iter(txn)?.map(|entry| read(entry?)).collect()
}

pub(crate) fn pack(subscription: &NodeSubscription) -> Result<Vec<u8>> {
    let policy = serde_json::to_vec(&subscription.policy)
        .map_err(|error| damaged(format!("a policy can't be written: {error}")))?;
    Ok(Pack::with_capacity(26 + policy.len())
        .field(&subscription.enabled)
        .field(&subscription.keeper)
        .u64(subscription.ref_count)
        .field(&subscription.created_at)
        .field(&subscription.updated_at)
        .bytes(&policy)
        .done())
}

pub(crate) fn unpack(topic: TopicId, record: &[u8]) -> Result<NodeSubscription> {
    let mut record = Unpack::new("subscriptions", record);
    let (enabled, keeper, ref_count) = (record.field()?, record.field()?, record.u64()?);
    let (created_at, updated_at) = (record.field()?, record.field()?);
    let policy = serde_json::from_slice(record.rest()).map_err(|_| record.damaged())?;
    Ok(NodeSubscription { topic, enabled, keeper, ref_count, policy, created_at, updated_at })
}
