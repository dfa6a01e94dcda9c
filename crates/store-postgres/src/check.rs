//! Consistency check of a store: every row against its JSON and its index rows, the counters against the rows, and the
//! outbox against the effective set.

use futures_util::TryStreamExt;
use kukuri_domain::{Address, EventId, TopicId, retention::RetentionClass};
use kukuri_postgres::{Pool, Session};
use kukuri_store::CheckReport;

use crate::{
    columns::{Column as _, Digest, ReadColumn as _, TagDigest, query},
    error::Result,
    open::SNAPSHOT_WITH_ANY_PLAN,
    records::{self, topic_ids},
};

/// The report lists at most this many problems.
const MAX_PROBLEMS: usize = 100;

/// Comparisons that run on the server: each statement selects mismatches, described in words.
const COMPARISONS: &str = include_str!("check.sql");

pub(crate) async fn check(pool: &Pool) -> Result<CheckReport> {
    let session = pool.begin(SNAPSHOT_WITH_ANY_PLAN).await?;
    let mut report = CheckReport::default();
    rows(&session, &mut report).await?;
    for comparison in COMPARISONS.split(";\n").filter(|statement| statement.contains("SELECT")) {
        let mut problems = query(comparison).fetch(&session).await?;
        while let Some(row) = problems.try_next().await? {
            if report.problems.len() < MAX_PROBLEMS {
                report.problems.push(row.get(0)?);
            }
        }
    }
    session.commit().await?;
    Ok(report)
}

/// Checks that the columns of every row agree with its JSON.
async fn rows(session: &Session, report: &mut CheckReport) -> Result<()> {
    let rows = concat!("SELECT e.*, ", topic_ids!(), " AS topic_ids FROM cn_relay.events e");
    let mut rows = query(rows).fetch(session).await?;
    while let Some(row) = rows.try_next().await? {
        report.rows += 1;
        let id: EventId = row.read("id")?;
        let event = records::event(&id, row.get("json")?)?;
        let topics: Vec<TopicId> = row.read("topic_ids")?;
        let address = event.address();
        let agrees = event.id == id
            && event.pubkey == row.read("pubkey")?
            && event.created_at.to_sql() == row.get::<i64>("created_at")?
            && event.kind == row.read("kind")?
            && event.expiration().to_sql() == row.get::<Option<i64>>("expires_at")?
            && RetentionClass::of(event.kind, row.read("effective")?) == row.read("retention")?
            && address.as_ref().map(Address::digest) == row.read("key")?
            && address.as_ref().and_then(records::identifier) == row.get("identifier")?
            && records::tag_digests(&event, &topics) == row.get::<Vec<TagDigest>>("tags")?
            && records::parties(&event) == row.get::<Option<Vec<Digest>>>("parties")?;
        if !agrees && report.problems.len() < MAX_PROBLEMS {
            report.problems.push(format!("event {id}: its row does not say what its JSON says"));
        }
    }
    Ok(())
}
