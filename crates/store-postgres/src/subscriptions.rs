//! Node-level subscriptions (S-1), held in memory for as long as the node's row says that they have not changed.

use std::collections::BTreeMap;

use kukuri_domain::{
    TopicId, capacity,
    retention::TopicRetention,
    subscription::{IngestPolicy, Keeper, NodeSubscription},
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use crate::{
    codes::{millis, signed, unsigned},
    error::{Result, damaged},
};

/// All node-level subscriptions.
#[derive(Clone, Default)]
pub(crate) struct Subscriptions {
    by_topic: BTreeMap<TopicId, NodeSubscription>,
    first_to_go: Option<u8>,
}

impl Subscriptions {
    pub(crate) async fn load(connection: &mut PgConnection) -> Result<Self> {
        let rows = sqlx::query("SELECT * FROM cn_relay.node_subscriptions").fetch_all(connection).await?;
        let mut all = Self::default();
        for row in &rows {
            let subscription = read(row)?;
            all.by_topic.insert(subscription.topic.clone(), subscription);
        }
        let enabled = all.by_topic.values().filter(|subscription| subscription.enabled);
        all.first_to_go = capacity::shed_priority(enabled.map(|subscription| subscription.policy.priority));
        Ok(all)
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

fn read(row: &PgRow) -> Result<NodeSubscription> {
    let topic = TopicId::trusted(row.try_get("topic_id")?);
    let policy: &str = row.try_get("ingest_policy")?;
    Ok(NodeSubscription {
        enabled: row.try_get("enabled")?,
        keeper: match row.try_get("keeper")? {
            "use" => Keeper::Use,
            _ => Keeper::Operator,
        },
        ref_count: unsigned(row.try_get("ref_count")?),
        policy: serde_json::from_str::<IngestPolicy>(policy)
            .map_err(|error| damaged(format!("the policy of {topic}: {error}")))?,
        created_at: millis(row.try_get("created_at")?),
        updated_at: millis(row.try_get("updated_at")?),
        topic,
    })
}

/// Writes one, and that they have changed.
pub(crate) async fn write(subscription: &NodeSubscription, connection: &mut PgConnection) -> Result<()> {
    let policy = serde_json::to_string(&subscription.policy)
        .map_err(|error| damaged(format!("a policy can't be written: {error}")))?;
    sqlx::query(
        "INSERT INTO cn_relay.node_subscriptions \
         (topic_id, enabled, keeper, ref_count, ingest_policy, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (topic_id) DO UPDATE SET enabled = excluded.enabled, keeper = excluded.keeper, \
         ref_count = excluded.ref_count, ingest_policy = excluded.ingest_policy, updated_at = excluded.updated_at",
    )
    .bind(subscription.topic.as_str())
    .bind(subscription.enabled)
    .bind(match subscription.keeper {
        Keeper::Operator => "operator",
        Keeper::Use => "use",
    })
    .bind(signed(subscription.ref_count))
    .bind(policy)
    .bind(signed(subscription.created_at.0))
    .bind(signed(subscription.updated_at.0))
    .execute(connection)
    .await?;
    Ok(())
}
