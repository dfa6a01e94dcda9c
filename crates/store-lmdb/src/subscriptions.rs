//! Node-level subscriptions (S-1), held in memory and written through.

use std::collections::BTreeMap;

use heed::RoTxn;
use kukuri_domain::{
    Millis, TopicId, capacity,
    retention::TopicRetention,
    subscription::{IngestPolicy, Keeper, NodeSubscription},
};
use kukuri_store::StoreError;

use crate::{
    error::{Result, damaged, engine},
    pack::{Pack, Unpack},
    record::{code_of, decode},
    tables::{Table, Tables},
};

/// All node-level subscriptions.
#[derive(Clone, Default)]
pub(crate) struct Subscriptions {
    by_topic: BTreeMap<TopicId, NodeSubscription>,
    first_to_go: Option<u8>,
}

impl Subscriptions {
    pub(crate) fn load(tables: &Tables, txn: &RoTxn<'_>) -> Result<Self> {
        let mut all = Self::default();
        for entry in tables.of(Table::Subscriptions).iter(txn).map_err(engine)? {
            let (topic, record) = entry.map_err(engine)?;
            let topic = std::str::from_utf8(topic).map_err(|_| damaged("a subscription has no topic"))?;
            let subscription = unpack(TopicId::trusted(topic), record)?;
            all.by_topic.insert(subscription.topic.clone(), subscription);
        }
        all.find_first_to_go();
        Ok(all)
    }

    pub(crate) fn insert(&mut self, subscription: NodeSubscription) {
        self.by_topic.insert(subscription.topic.clone(), subscription);
        self.find_first_to_go();
    }

    fn find_first_to_go(&mut self) {
        let enabled = self.by_topic.values().filter(|subscription| subscription.enabled);
        self.first_to_go = capacity::shed_priority(enabled.map(|subscription| subscription.policy.priority));
    }

    pub(crate) fn get(&self, topic: &TopicId) -> Option<&NodeSubscription> {
        self.by_topic.get(topic)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &NodeSubscription> {
        self.by_topic.values()
    }

    pub(crate) fn policy(&self, topic: &TopicId) -> IngestPolicy {
        self.get(topic).map(|subscription| subscription.policy).unwrap_or_default()
    }

    pub(crate) fn retentions(&self) -> impl Iterator<Item = &TopicRetention> {
        self.all().map(|subscription| &subscription.policy.retention)
    }

    /// Whether a topic of this priority is shed first (P-6).
    pub(crate) fn is_first_to_go(&self, topic: &TopicId) -> bool {
        self.first_to_go == Some(self.policy(topic).priority)
    }
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
