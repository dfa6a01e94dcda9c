//! Plans (Q-1): what people may use. A person without one has `free`; a metric without a limit is unlimited.

use std::collections::BTreeMap;

use kukuri_domain::{PublicKey, Timestamp};
use uuid::Uuid;

use crate::{
    Refused, Result, account,
    database::{Database, Transaction, sql},
    metric::Metric,
    setting,
};

/// The plan of people who have no other.
pub const FREE: &str = "free";
const MAX_ID_LEN: usize = 40;

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether it can be assigned.
    pub is_active: bool,
    /// Its limits.
    pub limits: BTreeMap<Metric, u64>,
}

/// All plans.
pub async fn list(database: &Database) -> Result<Vec<Plan>> {
    let plans = database.read(sql("SELECT plan_id, name, is_active FROM cn_user.plans ORDER BY plan_id")).await?;
    let limits = database.read(sql(r#"SELECT plan_id, metric, "limit" FROM cn_user.plan_limits"#)).await?;
    let mut all = Vec::with_capacity(plans.len());
    for row in plans {
        let id: String = row.get(0)?;
        let mut plan = Plan { name: row.get(1)?, is_active: row.get(2)?, limits: BTreeMap::new(), id };
        for limit in &limits {
            // A metric that only a newer program knows limits nothing here.
            if let Some(metric) = Metric::of_name(&limit.get::<String>(1)?)
                && limit.get::<String>(0)? == plan.id
            {
                plan.limits.insert(metric, limit.get(2)?);
            }
        }
        all.push(plan);
    }
    Ok(all)
}

/// Sets a limit of a plan, or removes it; makes the plan if there is none. Returns the limit before.
pub async fn set_limit(
    transaction: &mut Transaction,
    plan: &str,
    metric: Metric,
    limit: Option<u64>,
    now: Timestamp,
) -> Result<Option<u64>, Refused> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if !(1..=MAX_ID_LEN).contains(&plan.len()) || !plan.bytes().all(is_letter) {
        let reason = format!("must have 1 to {MAX_ID_LEN} lowercase letters, digits, dots or hyphens");
        return Err(Refused::invalid("plan", reason));
    }
    let insert = sql("INSERT INTO cn_user.plans (plan_id, name, is_active, created_at) VALUES ($1, $1, 1, $2) \
         ON CONFLICT (plan_id) DO NOTHING");
    transaction.execute(insert.bind(plan).bind(now)).await?;
    let (name, window) = (metric.name(), metric.window().name());
    let select = sql(r#"SELECT "limit" FROM cn_user.plan_limits WHERE plan_id = $1 AND metric = $2 AND "window" = $3"#);
    let before = transaction.fetch_first(select.bind(plan).bind(name).bind(window)).await?;
    let change = match limit {
        None => sql(r#"DELETE FROM cn_user.plan_limits WHERE plan_id = $1 AND metric = $2 AND "window" = $3"#)
            .bind(plan)
            .bind(name)
            .bind(window),
        Some(limit) => sql(
            r#"INSERT INTO cn_user.plan_limits (plan_id, metric, "window", "limit") VALUES ($1, $2, $3, $4) ON CONFLICT (plan_id, metric, "window") DO UPDATE SET "limit" = excluded."limit""#,
        )
        .bind(plan)
        .bind(name)
        .bind(window)
        .bind(limit),
    };
    transaction.execute(change).await?;
    setting::touch_shared(transaction).await?;
    Ok(before.map(|row| row.get(0)).transpose()?)
}

/// Assigns a plan to a person. Returns the one before.
pub async fn assign(
    transaction: &mut Transaction,
    person: &PublicKey,
    plan: &str,
    now: Timestamp,
) -> Result<String, Refused> {
    account::find_in(transaction, person).await?.ok_or(Refused::UnknownAccount)?;
    let known = sql("SELECT 1 FROM cn_user.plans WHERE plan_id = $1 AND is_active = 1").bind(plan);
    transaction.fetch_first(known).await?.ok_or_else(|| Refused::UnknownPlan(plan.to_owned()))?;
    let end = sql("UPDATE cn_user.subscriptions SET status = 'ended', ended_at = $2 \
         WHERE subscriber_pubkey = $1 AND status = 'active' RETURNING plan_id");
    let before = transaction.fetch_first(end.bind(person).bind(now)).await?;
    if plan != FREE {
        let insert =
            sql("INSERT INTO cn_user.subscriptions (subscription_id, subscriber_pubkey, plan_id, status, started_at) \
             VALUES ($1, $2, $3, 'active', $4)");
        let insert = insert.bind(Uuid::new_v4().to_string()).bind(person).bind(plan).bind(now);
        transaction.execute(insert).await?;
    }
    account::touch(transaction, person).await?;
    before.map_or(Ok(FREE.to_owned()), |row| Ok(row.get(0)?))
}

/// The limit of a metric for a person, in a transaction. `None`: there is none.
pub(crate) async fn limit_in(transaction: &mut Transaction, person: &PublicKey, metric: Metric) -> Result<Option<u64>> {
    let select = sql(
        r#"SELECT "limit" FROM cn_user.plan_limits WHERE metric = $2 AND plan_id = coalesce((SELECT plan_id FROM cn_user.subscriptions WHERE subscriber_pubkey = $1 AND status = 'active'), $3)"#,
    );
    let row = transaction.fetch_first(select.bind(person).bind(metric.name()).bind(FREE)).await?;
    row.map(|row| row.get(0)).transpose()
}
