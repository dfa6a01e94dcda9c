//! Consistency check of a store: every row against its JSON and its index rows, the counters against the rows, and the
//! outbox against the effective set.

use futures_util::TryStreamExt;
use kukuri_domain::TopicId;
use kukuri_postgres::Asking;
use kukuri_store::CheckReport;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Row as _};

use crate::{
    codes::{event_id, retention_code, signed},
    error::Result,
    lookup::topic_names,
    open::FREELY,
    records,
    work::TopicNo,
};

/// The report lists at most this many problems.
const PROBLEMS: usize = 100;

/// Comparisons that run on the server: each statement selects mismatches, described in words.
const COMPARISONS: &str = include_str!("check.sql");

pub(crate) async fn check(pool: &PgPool) -> Result<CheckReport> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(FREELY).await?;
    let mut report = CheckReport::default();
    rows(&mut txn, &mut report).await?;
    for comparison in COMPARISONS.split(";\n").filter(|statement| statement.contains("SELECT")) {
        let mut problems = sqlx::query(AssertSqlSafe(comparison)).fetch(&mut *txn);
        while let Some(row) = problems.try_next().await? {
            if report.problems.len() < PROBLEMS {
                report.problems.push(row.try_get(0)?);
            }
        }
    }
    txn.commit().await?;
    asking.done();
    Ok(report)
}

/// Checks that the columns of every row agree with its JSON.
async fn rows(connection: &mut PgConnection, report: &mut CheckReport) -> Result<()> {
    let names = topic_names(connection).await?;
    let mut rows = sqlx::query("SELECT * FROM cn_relay.events").fetch(connection);
    while let Some(row) = rows.try_next().await? {
        report.rows += 1;
        let id = event_id(row.try_get("id")?);
        let event = records::event(&id, &row.try_get::<Vec<u8>, _>("json")?)?;
        let topics: Vec<TopicNo> = row.try_get("topics")?;
        let topics: Vec<TopicId> = topics.iter().filter_map(|no| names.get(no)).cloned().collect();
        let address = event.address();
        let effective: bool = row.try_get("effective")?;
        let class = kukuri_domain::retention::RetentionClass::of(event.kind, effective);
        let agrees = event.id == id
            && row.try_get::<[u8; 32], _>("pubkey")? == *event.pubkey.as_bytes()
            && row.try_get::<i64, _>("created_at")? == signed(event.created_at.0)
            && row.try_get::<i32, _>("kind")? == i32::from(event.kind.0)
            && row.try_get::<i16, _>("retention")? == retention_code(class)
            && row.try_get::<Option<i64>, _>("expires_at")? == records::expires_at(&event)
            && row.try_get::<Option<[u8; 32]>, _>("key")? == address.as_ref().map(|address| address.digest().0)
            && row.try_get::<Option<&str>, _>("identifier")? == address.as_ref().and_then(records::identifier)
            && row.try_get::<Vec<[u8; 16]>, _>("tags")? == records::tag_digests(&event, &topics)
            && row.try_get::<Option<Vec<[u8; 32]>>, _>("parties")? == records::parties(&event);
        if !agrees && report.problems.len() < PROBLEMS {
            report.problems.push(format!("event {id}: its row does not say what its JSON says"));
        }
    }
    Ok(())
}
