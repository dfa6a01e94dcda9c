//! What people have used. A unit is reserved by one conditional statement before the work, and given back if the work fails:
//! requests at the same time can't exceed a limit. Every use leaves a row with its outcome.

use std::collections::{BTreeMap, HashMap};

use kukuri_domain::{PublicKey, Timestamp};
use uuid::Uuid;

use crate::{
    Refused, Result, account,
    database::{Database, Statement, sql},
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
            let upsert = sql("INSERT INTO cn_user.usage_counters_daily AS counter (pubkey, metric, day, count) \
                 SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS bigint), 1 \
                 WHERE EXISTS (SELECT 1 FROM cn_user.subscriber_accounts a WHERE a.subscriber_pubkey = $1) \
                 ON CONFLICT (pubkey, metric, day) DO UPDATE SET count = counter.count + 1 WHERE counter.count < $4 \
                 RETURNING count");
            database.change(upsert.bind(person).bind(metric.name()).bind(day).bind(most)).await?.into_iter().next()
        }
    };
    match reserved {
        Some(_) => Ok(Reservation { person: *person, metric, day }),
        None if account::find(database, person).await?.is_none() => Err(Refused::UnknownAccount),
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
         SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bigint), 1, CAST($5 AS text), \
         CAST($6 AS text), CAST($7 AS bigint) \
         WHERE EXISTS (SELECT 1 FROM cn_user.subscriber_accounts a WHERE a.subscriber_pubkey = $2)",
    );
    let insert = insert.bind(Uuid::new_v4().to_string()).bind(&person).bind(metric.name()).bind(day);
    database.change(insert.bind(outcome.name()).bind(request_id).bind(now)).await.map(drop)
}

/// Units of a person's day that were counted in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyUse {
    /// The person.
    pub person: PublicKey,
    /// The metric.
    pub metric: Metric,
    /// The day, since 1970, UTC.
    pub day: u64,
    /// The units.
    pub units: u64,
}

/// The numbers of rows that one statement adds: a database keeps few statements prepared.
const BATCH_LENS: [usize; 3] = [64, 8, 1];

/// How many of some counters the next [`add_all`] takes.
pub fn batch_len(counters: usize) -> usize {
    BATCH_LENS.into_iter().find(|len| *len <= counters).unwrap_or(0)
}

/// Adds units that were counted in memory to counters, each of which is named once: all in one statement. Returns the day's
/// counts on all nodes, in the order of the units. Of a person whose account was deleted meanwhile nothing is written (N-2).
pub async fn add_all(database: &Database, units: &[DailyUse]) -> Result<Vec<u64>> {
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let row = |at: usize| {
        let [person, metric, day, units] = [1, 2, 3, 4].map(|column| 4 * at + column);
        format!("(CAST(${person} AS text), CAST(${metric} AS text), CAST(${day} AS bigint), CAST(${units} AS bigint))")
    };
    let rows = (0..units.len()).map(row).collect::<Vec<_>>().join(", ");
    let upsert = sql(format!(
        "INSERT INTO cn_user.usage_counters_daily AS counter (pubkey, metric, day, count) \
         SELECT column1, column2, column3, column4 FROM (VALUES {rows}) AS used \
         WHERE EXISTS (SELECT 1 FROM cn_user.subscriber_accounts a WHERE a.subscriber_pubkey = column1) \
         ON CONFLICT (pubkey, metric, day) DO UPDATE SET count = counter.count + excluded.count \
         RETURNING pubkey, metric, day, count"
    ));
    let bind = |upsert: Statement, one: &DailyUse| {
        upsert.bind(&one.person).bind(one.metric.name()).bind(one.day).bind(one.units)
    };
    let mut totals = HashMap::new();
    for row in database.change(units.iter().fold(upsert, bind)).await? {
        totals.insert((row.get::<PublicKey>(0)?, row.get::<String>(1)?, row.get::<u64>(2)?), row.get(3)?);
    }
    let total = |one: &DailyUse| totals.get(&(one.person, one.metric.name().to_owned(), one.day)).copied().unwrap_or(0);
    Ok(units.iter().map(total).collect())
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
