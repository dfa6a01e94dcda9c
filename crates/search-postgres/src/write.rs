//! Changes to a copy of the index, and the switch to a rebuilt copy.
//!
//! Documents, position and counters change in one transaction (O-6). It begins by locking the copy's row and comparing its
//! version with the one that this instance last saw: a writer that is out of date writes nothing.

use std::{collections::HashMap, time::Duration};

use kukuri_domain::EventId;
use kukuri_postgres::QuerySession;
use kukuri_search::{DocumentChange, IndexPosition, analyzer::VERSION};
use kukuri_store::Seq;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row as _};

use crate::{
    error::{Failure, Result},
    row::{Rows, signed},
};

/// The searched copy, or the one that a rebuild fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyName {
    Current,
    Next,
}

impl CopyName {
    fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::Current => "cn_search.post_search_documents",
            Self::Next => "cn_search.post_search_documents_next",
        }
    }
}

/// Generation and position of a copy, which a writer compares before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyVersion {
    generation: i64,
    pub(crate) reached: Option<Seq>,
}

/// A switch waits for running searches, and new searches wait for the switch: 500 ms at most.
const BEGIN_SWITCH: &str = "BEGIN; SET LOCAL lock_timeout = '500ms'";
const MAX_SWITCH_ATTEMPTS: u32 = 60;
const SWITCH_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Applies changes to a copy if its version is the expected one; `None`: any version.
pub(crate) async fn write(
    pool: &PgPool,
    copy: CopyName,
    expected: Option<CopyVersion>,
    changes: &[DocumentChange],
    reached: Option<&IndexPosition>,
) -> Result<CopyVersion> {
    let mut txn = QuerySession::begin(pool, "BEGIN").await?;
    let found = lock(&mut txn, copy).await?.ok_or(Failure::NotBegun)?;
    if expected.is_some_and(|expected| expected != found) {
        return Err(Failure::Overtaken);
    }
    // Only the last change of a document takes effect.
    let last: HashMap<EventId, &DocumentChange> = changes.iter().map(|change| (id_of(change), change)).collect();
    let (removed, words_removed) = remove(&mut txn, copy, &last).await?;
    let (put, words_put) = put(&mut txn, copy, &last).await?;
    sqlx::query(
        "UPDATE cn_search.copies SET reached = $2, mark = $6, documents = documents + $3, words = words + $4, \
         version = CASE WHEN reached IS NULL THEN $5 ELSE version END WHERE name = $1",
    )
    .bind(copy.name())
    .bind(reached.map(|reached| signed(reached.seq.0)))
    .bind(put - removed)
    .bind(words_put - words_removed)
    .bind(VERSION.cast_signed())
    .bind(reached.map_or("", |reached| reached.fingerprint.as_str()))
    .execute(&mut *txn)
    .await?;
    txn.commit().await?;
    Ok(CopyVersion { reached: reached.map(|reached| reached.seq), ..found })
}

/// Locks the copy's row until the transaction ends.
async fn lock(txn: &mut PgConnection, copy: CopyName) -> Result<Option<CopyVersion>> {
    let row = sqlx::query("SELECT generation, reached FROM cn_search.copies WHERE name = $1 FOR UPDATE");
    let row = row.bind(copy.name()).fetch_optional(txn).await?;
    row.map(|row| Ok(CopyVersion { generation: row.try_get("generation")?, reached: seq(row.try_get("reached")?) }))
        .transpose()
}

/// Version and fingerprint of the searched copy. A copy of another analyzer version has no position.
pub(crate) async fn current_version(pool: &PgPool) -> Result<(CopyVersion, String)> {
    let mut session = QuerySession::acquire(pool).await?;
    let row = sqlx::query("SELECT generation, reached, mark, version FROM cn_search.copies WHERE name = 'current'");
    let row = row.fetch_one(&mut *session).await?;
    session.release();
    let version: i32 = row.try_get("version")?;
    let reached = seq(row.try_get("reached")?).filter(|_| version == VERSION.cast_signed());
    Ok((CopyVersion { generation: row.try_get("generation")?, reached }, row.try_get("mark")?))
}

fn seq(column: Option<i64>) -> Option<Seq> {
    column.map(|seq| Seq(seq.unsigned_abs()))
}

fn id_of(change: &DocumentChange) -> EventId {
    match change {
        DocumentChange::Put(document) => document.id,
        DocumentChange::Remove(id) => *id,
    }
}

/// Removes all changed documents. Returns their number and words.
async fn remove(
    txn: &mut PgConnection,
    copy: CopyName,
    changes: &HashMap<EventId, &DocumentChange>,
) -> Result<(i64, i64)> {
    let sql = format!(
        "WITH gone AS (DELETE FROM {} WHERE document_id = ANY ($1::bytea[]) RETURNING length) \
         SELECT count(*), coalesce(sum(length), 0)::bigint FROM gone",
        copy.table()
    );
    let ids: Vec<[u8; 32]> = changes.keys().map(|id| *id.as_bytes()).collect();
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(ids).fetch_one(txn).await?)
}

/// Inserts the documents of all puts. Returns their number and words.
async fn put(
    txn: &mut PgConnection,
    copy: CopyName,
    changes: &HashMap<EventId, &DocumentChange>,
) -> Result<(i64, i64)> {
    let mut rows = Rows::default();
    for change in changes.values() {
        if let DocumentChange::Put(document) = change {
            rows.push(document);
        }
    }
    let words = rows.lengths.iter().copied().map(i64::from).sum();
    let sql = format!(
        "INSERT INTO {} (document_id, author, kind, created_at, topics, terms, title_counts, body_counts, length) \
         SELECT document_id, author, kind, created_at, string_to_array(topics, chr(31)), string_to_array(terms, ' '), \
         string_to_array(title_counts, ' ')::smallint[], string_to_array(body_counts, ' ')::smallint[], length \
         FROM unnest($1::bytea[], $2::bytea[], $3::integer[], $4::bigint[], $5::text[], $6::text[], $7::text[], \
         $8::text[], $9::integer[]) AS put (document_id, author, kind, created_at, topics, terms, title_counts, \
         body_counts, length)",
        copy.table()
    );
    let put = sqlx::query(AssertSqlSafe(sql))
        .bind(rows.ids)
        .bind(rows.authors)
        .bind(rows.kinds)
        .bind(rows.created_at)
        .bind(rows.topics)
        .bind(rows.terms)
        .bind(rows.title_counts)
        .bind(rows.body_counts)
        .bind(rows.lengths)
        .execute(txn)
        .await?;
    Ok((signed(put.rows_affected()), words))
}

/// Creates an empty copy beside the searched one. A copy begun earlier, by any process, is discarded.
pub(crate) async fn begin(pool: &PgPool) -> Result<CopyVersion> {
    let mut txn = QuerySession::begin(pool, "BEGIN").await?;
    // Serializes processes that begin at the same time.
    lock(&mut txn, CopyName::Current).await?;
    sqlx::raw_sql(
        "DELETE FROM cn_search.copies WHERE name = 'next'; DROP TABLE IF EXISTS cn_search.post_search_documents_next; \
         CREATE TABLE cn_search.post_search_documents_next (LIKE cn_search.post_search_documents INCLUDING ALL)",
    )
    .execute(&mut *txn)
    .await?;
    let made =
        sqlx::query_scalar("INSERT INTO cn_search.copies (name, version) VALUES ('next', $1) RETURNING generation");
    let generation = made.bind(VERSION.cast_signed()).fetch_one(&mut *txn).await?;
    txn.commit().await?;
    Ok(CopyVersion { generation, reached: None })
}

/// Replaces the searched copy by the one that was begun.
pub(crate) async fn switch(pool: &PgPool, begun: CopyVersion) -> Result<()> {
    for _ in 1..MAX_SWITCH_ATTEMPTS {
        match try_switch(pool, begun).await {
            Err(failure) if failure.is_lock_timeout() => tokio::time::sleep(SWITCH_RETRY_DELAY).await,
            done => return done,
        }
    }
    try_switch(pool, begun).await
}

async fn try_switch(pool: &PgPool, begun: CopyVersion) -> Result<()> {
    let mut txn = QuerySession::begin(pool, BEGIN_SWITCH).await?;
    // The same lock order as `begin`.
    lock(&mut txn, CopyName::Current).await?;
    if lock(&mut txn, CopyName::Next).await? != Some(begun) {
        return Err(Failure::NotBegun);
    }
    sqlx::raw_sql(
        "DROP TABLE cn_search.post_search_documents; \
         ALTER TABLE cn_search.post_search_documents_next RENAME TO post_search_documents; \
         DELETE FROM cn_search.copies WHERE name = 'current'; \
         UPDATE cn_search.copies SET name = 'current' WHERE name = 'next'",
    )
    .execute(&mut *txn)
    .await?;
    txn.commit().await?;
    Ok(())
}
