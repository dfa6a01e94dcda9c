//! Node-level subscriptions (S-1) as rows.

use kukuri_domain::{
    TopicId,
    subscription::{IngestPolicy, Keeper, NodeSubscription},
};
use kukuri_store::subscriptions::Subscriptions;
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use crate::{
    codes::{millis, signed, unsigned},
    error::{Result, damaged},
};

pub(crate) async fn load(connection: &mut PgConnection) -> Result<Subscriptions> {
    let rows = sqlx::query("SELECT * FROM cn_relay.node_subscriptions").fetch_all(connection).await?;
    rows.iter().map(read).collect()
}

pub(crate) fn read(row: &PgRow) -> Result<NodeSubscription> {
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

pub(crate) async fn write(some: &[NodeSubscription], connection: &mut PgConnection) -> Result<()> {
    let policies = some.iter().map(|subscription| serde_json::to_string(&subscription.policy));
    let policies: Result<Vec<String>, _> = policies.collect();
    let keeper = |subscription: &NodeSubscription| match subscription.keeper {
        Keeper::Operator => "operator",
        Keeper::Use => "use",
    };
    sqlx::query(
        "INSERT INTO cn_relay.node_subscriptions \
         (topic_id, enabled, keeper, ref_count, ingest_policy, created_at, updated_at) \
         SELECT * FROM unnest($1::text[], $2::boolean[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], \
         $7::bigint[]) \
         ON CONFLICT (topic_id) DO UPDATE SET enabled = excluded.enabled, keeper = excluded.keeper, \
         ref_count = excluded.ref_count, ingest_policy = excluded.ingest_policy, updated_at = excluded.updated_at",
    )
    .bind(some.iter().map(|one| one.topic.as_str().to_owned()).collect::<Vec<_>>())
    .bind(some.iter().map(|one| one.enabled).collect::<Vec<_>>())
    .bind(some.iter().map(keeper).collect::<Vec<_>>())
    .bind(some.iter().map(|one| signed(one.ref_count)).collect::<Vec<_>>())
    .bind(policies.map_err(|error| damaged(format!("a policy can't be written: {error}")))?)
    .bind(some.iter().map(|one| signed(one.created_at.0)).collect::<Vec<_>>())
    .bind(some.iter().map(|one| signed(one.updated_at.0)).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}
