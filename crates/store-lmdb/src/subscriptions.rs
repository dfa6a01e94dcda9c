//! Node-level subscriptions (S-1) as records.

use heed::RoTxn;
use kukuri_domain::{
    Millis, TopicId,
    subscription::{Keeper, NodeSubscription},
};
use kukuri_store::{StoreError, subscriptions::Subscriptions};

use crate::{
    error::{Result, damaged, engine},
    pack::{Pack, Unpack},
    record::{code_of, decode},
    tables::{Table, Tables},
};

pub(crate) fn load(tables: &Tables, txn: &RoTxn<'_>) -> Result<Subscriptions> {
    let read = |entry: heed::Result<(&[u8], &[u8])>| {
        let (topic, record) = entry.map_err(engine)?;
        let topic = std::str::from_utf8(topic).map_err(|_| damaged("a subscription has no topic"))?;
        Ok(unpack(TopicId::trusted(topic), record)?)
    };
    tables.of(Table::Subscriptions).iter(txn).map_err(engine)?.map(read).collect()
}

const KEEPERS: [Keeper; 2] = [Keeper::Operator, Keeper::Use];

pub(crate) fn pack(subscription: &NodeSubscription) -> Result<Vec<u8>> {
    let policy = serde_json::to_vec(&subscription.policy)
        .map_err(|error| damaged(format!("a policy can't be written: {error}")))?;
    Ok(Pack::with_capacity(26 + policy.len())
        .u8(subscription.enabled.into())
        .u8(code_of(&KEEPERS, &subscription.keeper))
        .u64(subscription.ref_count)
        .millis(subscription.created_at)
        .millis(subscription.updated_at)
        .bytes(&policy)
        .done())
}

pub(crate) fn unpack(topic: TopicId, record: &[u8]) -> Result<NodeSubscription, StoreError> {
    let mut record = Unpack::new("subscriptions", record);
    let enabled = record.u8()? != 0;
    let keeper = decode(&KEEPERS, record.u8()?, &record)?;
    let ref_count = record.u64()?;
    let (created_at, updated_at): (Millis, Millis) = (record.millis()?, record.millis()?);
    let damaged = record.damaged();
    let policy = serde_json::from_slice(record.rest()).map_err(|_| damaged)?;
    Ok(NodeSubscription { topic, enabled, keeper, ref_count, policy, created_at, updated_at })
}
