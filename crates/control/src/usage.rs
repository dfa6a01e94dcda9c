//! What people have used. A unit is reserved by one conditional statement before the work, and given back if the work fails:
//! requests at the same time can't exceed a limit. Every use leaves a row with its outcome.

use std::collections::BTreeMap;

use kukuri_domain::{PublicKey, Timestamp};
use uuid::Uuid;

use crate::{
    Refused, Result,
    database::{Database, sql},
    metric::Metric,
};

const DAY: u64 = 24 * 3_600;

/// What became of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, and counts.
    Ok,
    /// The request was refused for another reason, and does not count.
    Rejected,
    /// The node failed, and it does not count.
    Error,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Rejected => "rejected",
            Self::Error => "error",
        }
    }
}

/// A unit that is reserved. It counts until it is settled otherwise.
#[derive(Debug)]
#[must_use = "a reserved unit is settled with the outcome of the work"]
pub struct Reservation {
    person: PublicKey,
    metric: Metric,
    day: u64,
}

/// The day of a time: days since 1970, UTC.
pub fn day_of(time: Timestamp) -> u64 {
    time.0 / DAY
}

/// When the day of a time ends.
pub fn reset_at(time: Timestamp) -> Timestamp {
    Timestamp((day_of(time) + 1) * DAY)
}

/// Reserves a unit of a daily metric. `limit`: that of the person's plan, if it has one.
pub async fn reserve(
    database: &Database,
    person: &PublicKey,
    metric: Metric,
    limit: Option<u64>,
    now: Timestamp,
) -> Result<Reservation, Refused> {
    let (day, most) = (day_of(now), limit.unwrap_or(u64::MAX));
    let reserved = match most {
        0 => None,
        _ => {
            let upsert = sql(
                "INSERT INTO cn_user.usage_counters_daily AS counter (pubkey, metric, day, count) VALUES ($1, $2, $3, 1) \
                 ON CONFLICT (pubkey, metric, day) DO UPDATE SET count = counter.count + 1 WHERE counter.count < $4 \
                 RETURNING count",
            );
            database.change(upsert.bind(person).bind(metric.name()).bind(day).bind(most)).await?.into_iter().next()
        }
    };
    match reserved {
        Some(_) => Ok(Reservation { person: *person, metric, day }),
        None => Err(Refused::QuotaExceeded { metric, current: most, limit: most, reset_at: Some(reset_at(now)) }),
    }
}

/// Notes what became of a reserved unit, and gives it back if the work was not done.
pub async fn settle(
    database: &Database,
    reservation: Reservation,
    outcome: Outcome,
    request_id: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let Reservation { person, metric, day } = reservation;
    if outcome != Outcome::Ok {
        let release = sql("UPDATE cn_user.usage_counters_daily SET count = count - 1 \
             WHERE pubkey = $1 AND metric = $2 AND day = $3 AND count > 0");
        database.change(release.bind(&person).bind(metric.name()).bind(day)).await?;
    }
    let insert = sql(
        "INSERT INTO cn_user.usage_events (usage_id, pubkey, metric, day, units, outcome, request_id, created_at) \
         VALUES ($1, $2, $3, $4, 1, $5, $6, $7)",
    );
    let insert = insert.bind(Uuid::new_v4().to_string()).bind(&person).bind(metric.name()).bind(day);
    database.change(insert.bind(outcome.name()).bind(request_id).bind(now)).await.map(drop)
}

/// Adds units that were counted in memory. Returns the day's count on all nodes.
pub async fn add(database: &Database, person: &PublicKey, metric: Metric, units: u64, now: Timestamp) -> Result<u64> {
    let upsert = sql(
        "INSERT INTO cn_user.usage_counters_daily AS counter (pubkey, metric, day, count) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (pubkey, metric, day) DO UPDATE SET count = counter.count + excluded.count RETURNING count",
    );
    let rows = database.change(upsert.bind(person).bind(metric.name()).bind(day_of(now)).bind(units)).await?;
    rows.first().map_or(Ok(units), |row| row.get(0))
}

/// What a person has used today.
pub async fn of_day(database: &Database, person: &PublicKey, now: Timestamp) -> Result<BTreeMap<Metric, u64>> {
    let select = sql("SELECT metric, count FROM cn_user.usage_counters_daily WHERE pubkey = $1 AND day = $2");
    let rows = database.read(select.bind(person).bind(day_of(now))).await?;
    let mut used = BTreeMap::new();
    for row in rows {
        if let Some(metric) = Metric::of_name(&row.get::<String>(0)?) {
            used.insert(metric, row.get(1)?);
        }
    }
    Ok(used)
}

/// A count of a person's day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyCount {
    /// The metric's name.
    pub metric: String,
    /// The day, since 1970, UTC.
    pub day: u64,
    /// The count.
    pub count: u64,
}

/// What a person has used on the last days, the newest first.
pub async fn of_days(database: &Database, person: &PublicKey, days: u64, now: Timestamp) -> Result<Vec<DailyCount>> {
    let select = sql("SELECT metric, day, count FROM cn_user.usage_counters_daily WHERE pubkey = $1 AND day > $2 \
         ORDER BY day DESC, metric");
    // The day that far back is not one of them. Days may be fewer than that since 1970.
    let since = i64::try_from(day_of(now)).unwrap_or(i64::MAX).saturating_sub_unsigned(days);
    let rows = database.read(select.bind(person).bind(since)).await?;
    rows.iter().map(|row| Ok(DailyCount { metric: row.get(0)?, day: row.get(1)?, count: row.get(2)? })).collect()
}
