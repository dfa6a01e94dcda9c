//! Changes to a copy of the index, and the switch to a rebuilt copy.
//!
//! Documents, position and counters change in one transaction (O-6). It begins by locking the copy's row and comparing its
//! version with the one that this instance last saw: a writer that is out of date writes nothing.

use std::{collections::HashMap, time::Duration};

use kukuri_postgres::{FixedBytes, Pool, Session, query, signed};
use kukuri_search::{Document, DocumentChange, IndexError, IndexPosition, analyzer::VERSION};

use crate::{
    error::Result,
    words::{TOPIC_SEPARATOR, Words, column, joined},
};

/// A copy's name in `cn_search.copies`, and its table.
#[derive(Clone, Copy)]
pub(crate) struct IndexCopy {
    name: &'static str,
    table: &'static str,
}

/// The searched copy.
pub(crate) const CURRENT: IndexCopy = IndexCopy { name: "current", table: "cn_search.post_search_documents" };
/// The copy that a rebuild fills.
pub(crate) const NEXT: IndexCopy = IndexCopy { name: "next", table: "cn_search.post_search_documents_next" };

/// Generation and position of a copy, which a writer compares before it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyVersion {
    generation: i64,
    pub(crate) reached: Option<i64>,
}

/// A switch waits for running searches, and new searches wait for the switch: 500 ms at most.
const BEGIN_SWITCH: &str = "BEGIN; SET LOCAL lock_timeout = '500ms'";
const MAX_SWITCH_ATTEMPTS: u32 = 60;
const SWITCH_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Applies changes to a copy if its version is the expected one; `None`: any version.
pub(crate) async fn write(
    pool: &Pool,
    copy: IndexCopy,
    expected: Option<CopyVersion>,
    changes: &[DocumentChange],
    reached: Option<&IndexPosition>,
) -> Result<CopyVersion> {
    let txn = pool.begin("BEGIN").await?;
    let found = lock(&txn, copy).await?.ok_or_else(|| not_begun(pool))?;
    if expected.is_some_and(|expected| expected != found) {
        return Err(IndexError::Overtaken(pool.name().to_owned()).into());
    }
    // Only the last change of a document takes effect.
    let (mut last, mut present) = (HashMap::new(), Vec::new());
    for change in changes {
        let (id, document) = match change {
            DocumentChange::Put(document) | DocumentChange::Add(document) => (document.id, Some(&**document)),
            DocumentChange::Remove(id) => (*id, None),
        };
        let is_first = last.insert(id, document).is_none();
        if is_first && !matches!(change, DocumentChange::Add(_)) {
            present.push(FixedBytes(*id.as_bytes()));
        }
    }
    let (removed, words_removed) = remove(&txn, copy, present).await?;
    let (put, words_put) = put(&txn, copy, last.into_values().flatten().collect()).await?;
    let seq = reached.map(|reached| signed(reached.seq.0));
    query(
        "UPDATE cn_search.copies SET reached = $2, mark = $6, documents = documents + $3, words = words + $4, \
         version = CASE WHEN reached IS NULL THEN $5 ELSE version END WHERE name = $1",
    )
    .bind(copy.name)
    .bind(seq)
    .bind(put - removed)
    .bind(words_put - words_removed)
    .bind(VERSION.cast_signed())
    .bind(reached.map_or("", |reached| reached.fingerprint.as_str()))
    .execute(&txn)
    .await?;
    txn.commit().await?;
    Ok(CopyVersion { reached: seq, ..found })
}

/// There is no copy to fill or to switch to.
pub(crate) fn not_begun(pool: &Pool) -> IndexError {
    IndexError::NotBegun(pool.name().to_owned())
}

/// Locks the copy's row until the transaction ends.
async fn lock(txn: &Session, copy: IndexCopy) -> Result<Option<CopyVersion>> {
    let row = query("SELECT generation, reached FROM cn_search.copies WHERE name = $1 FOR UPDATE");
    let row = row.bind(copy.name).fetch_optional(txn).await?;
    Ok(match row {
        Some(row) => Some(CopyVersion { generation: row.get(0)?, reached: row.get(1)? }),
        None => None,
    })
}

/// Version and fingerprint of the searched copy. A copy of another analyzer version has no position.
pub(crate) async fn current_version(pool: &Pool) -> Result<(CopyVersion, String)> {
    let session = pool.acquire().await?;
    let row = query("SELECT generation, reached, mark, version FROM cn_search.copies WHERE name = 'current'");
    let row = row.fetch_one(&session).await?;
    session.release();
    let reached: Option<i64> = row.get("reached")?;
    let version: i32 = row.get("version")?;
    let reached = reached.filter(|_| version == VERSION.cast_signed());
    Ok((CopyVersion { generation: row.get("generation")?, reached }, row.get("mark")?))
}

/// Removes documents that may be there. Returns their number and words.
async fn remove(txn: &Session, copy: IndexCopy, ids: Vec<FixedBytes<32>>) -> Result<(i64, i64)> {
    if ids.is_empty() {
        return Ok((0, 0));
    }
    let sql = format!(
        "WITH gone AS (DELETE FROM {} WHERE document_id = ANY ($1::bytea[]) RETURNING length) \
         SELECT count(*), coalesce(sum(length), 0)::bigint FROM gone",
        copy.table
    );
    let row = query(sql).bind(ids).fetch_one(txn).await?;
    Ok((row.get(0)?, row.get(1)?))
}

/// Inserts the documents of all puts. Returns their number and words.
async fn put(txn: &Session, copy: IndexCopy, documents: Vec<&Document>) -> Result<(i64, i64)> {
    let words = column(&documents, |document| Words::of(&document.text));
    let sql = format!(
        "INSERT INTO {} (document_id, author, kind, created_at, topics, terms, title_counts, body_counts, length) \
         SELECT document_id, author, kind, created_at, string_to_array(topics, chr(31)), string_to_array(terms, ' '), \
         string_to_array(title_counts, ' ')::smallint[], string_to_array(body_counts, ' ')::smallint[], length \
         FROM unnest($1::bytea[], $2::bytea[], $3::integer[], $4::bigint[], $5::text[], $6::text[], $7::text[], \
         $8::text[], $9::integer[]) AS put (document_id, author, kind, created_at, topics, terms, title_counts, \
         body_counts, length)",
        copy.table
    );
    let put = query(sql)
        .bind(column(&documents, |document| FixedBytes(*document.id.as_bytes())))
        .bind(column(&documents, |document| FixedBytes(*document.author.as_bytes())))
        .bind(column(&documents, |document| i32::from(document.kind.0)))
        .bind(column(&documents, |document| signed(document.created_at.0)))
        .bind(column(&documents, |document| joined(document.topics.iter(), TOPIC_SEPARATOR)))
        .bind(column(&words, |words| words.terms.as_str()))
        .bind(column(&words, |words| words.title_counts.as_str()))
        .bind(column(&words, |words| words.body_counts.as_str()))
        .bind(column(&words, |words| words.length))
        .execute(txn)
        .await?;
    Ok((signed(put), words.iter().map(|words| i64::from(words.length)).sum()))
}

/// Creates an empty copy beside the searched one. A copy begun earlier, by any process, is discarded.
pub(crate) async fn begin(pool: &Pool) -> Result<CopyVersion> {
    let txn = pool.begin("BEGIN").await?;
    // Serializes processes that begin at the same time.
    lock(&txn, CURRENT).await?;
    txn.run(
        "DELETE FROM cn_search.copies WHERE name = 'next'; DROP TABLE IF EXISTS cn_search.post_search_documents_next; \
         CREATE TABLE cn_search.post_search_documents_next (LIKE cn_search.post_search_documents INCLUDING ALL)",
    )
    .await?;
    let made = query("INSERT INTO cn_search.copies (name, version) VALUES ('next', $1) RETURNING generation");
    let generation = made.bind(VERSION.cast_signed()).fetch_value(&txn).await?;
    txn.commit().await?;
    Ok(CopyVersion { generation, reached: None })
}

/// Replaces the searched copy by the one that was begun.
pub(crate) async fn switch(pool: &Pool, begun: CopyVersion) -> Result<()> {
    for _ in 1..MAX_SWITCH_ATTEMPTS {
        match try_switch(pool, begun).await {
            Err(failure) if failure.is_lock_timeout() => tokio::time::sleep(SWITCH_RETRY_DELAY).await,
            done => return done,
        }
    }
    try_switch(pool, begun).await
}

async fn try_switch(pool: &Pool, begun: CopyVersion) -> Result<()> {
    let txn = pool.begin(BEGIN_SWITCH).await?;
    // The same lock order as `begin`.
    lock(&txn, CURRENT).await?;
    if lock(&txn, NEXT).await? != Some(begun) {
        return Err(not_begun(pool).into());
    }
    txn.run(
        "DROP TABLE cn_search.post_search_documents; \
         ALTER TABLE cn_search.post_search_documents_next RENAME TO post_search_documents; \
         DELETE FROM cn_search.copies WHERE name = 'current'; \
         UPDATE cn_search.copies SET name = 'current' WHERE name = 'next'",
    )
    .await?;
    txn.commit().await?;
    Ok(())
}
