//! Node-level subscriptions (S-1) as rows.

use kukuri_domain::{TopicId, subscription::NodeSubscription};
use kukuri_postgres::{Session, SqlRow};
use kukuri_store::subscriptions::Subscriptions;

use crate::{
    columns::{Column as _, ReadColumn as _, bind_arrays, from_columns, query},
    error::{Result, damaged},
};

pub(crate) async fn load(session: &Session) -> Result<Subscriptions> {
    let rows = query("SELECT * FROM cn_relay.node_subscriptions").fetch_all(session).await?;
    rows.iter().map(read).collect()
}

pub(crate) fn read(row: &SqlRow) -> Result<NodeSubscription> {
    let policy = serde_json::from_str(row.get("ingest_policy")?);
    Ok(from_columns!(row => NodeSubscription {
        enabled, keeper, ref_count, created_at, updated_at;
        topic: row.read("topic_id")?,
        policy: policy.map_err(|error| damaged(format!("the policy of a topic can't be read: {error}")))?
    }))
}

pub(crate) async fn remove(topic: &TopicId, session: &Session) -> Result<()> {
    let remove = query("DELETE FROM cn_relay.node_subscriptions WHERE topic_id = $1").bind(topic.to_sql());
    remove.execute(session).await?;
    Ok(())
}

pub(crate) async fn write(subscriptions: &[NodeSubscription], session: &Session) -> Result<()> {
    let policies = subscriptions.iter().map(|subscription| serde_json::to_string(&subscription.policy));
    let policies: Result<Vec<String>, _> = policies.collect();
    let query = query(
        "INSERT INTO cn_relay.node_subscriptions \
         (ingest_policy, topic_id, enabled, keeper, ref_count, created_at, updated_at) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::text[], $5::bigint[], $6::bigint[], \
         $7::bigint[]) \
         ON CONFLICT (topic_id) DO UPDATE SET enabled = excluded.enabled, keeper = excluded.keeper, \
         ref_count = excluded.ref_count, ingest_policy = excluded.ingest_policy, updated_at = excluded.updated_at",
    );
    let query = query.bind(policies.map_err(|error| damaged(format!("a policy can't be written: {error}")))?);
    let query = bind_arrays!(query, for it in subscriptions; it.topic, it.enabled, it.keeper, it.ref_count, it.created_at,
        it.updated_at);
    query.execute(session).await?;
    Ok(())
}
