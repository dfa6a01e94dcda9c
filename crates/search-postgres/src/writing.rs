//! Changes to a copy, and a copy in the place of another.
//!
//! Documents, how far they reach, and the figures change in one transaction (O-6). It begins by locking the copy's row and
//! comparing it with what this instance last saw: one that was overtaken writes nothing.

use std::{collections::HashMap, time::Duration};

use kukuri_domain::EventId;
use kukuri_postgres::Asking;
use kukuri_search::{Change, Place as Reached, analyzer::VERSION};
use kukuri_store::Seq;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Row as _};

use crate::{
    error::{Failure, Result},
    row::{Rows, signed},
};

/// Which of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Current,
    Next,
}

impl Which {
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

/// A copy, and how far it reaches: what a writer compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    generation: i64,
    pub(crate) reached: Option<Seq>,
}

/// Whoever searches holds a table for as long as a search takes. New searches wait for this long at most.
const SWITCH: &str = "BEGIN; SET LOCAL lock_timeout = '500ms'";
/// So often a switch is tried, and after such a while.
const TRIES: u32 = 60;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// Makes changes to a copy that is as it was expected to be; `None`: as it is.
pub(crate) async fn write(
    pool: &PgPool,
    which: Which,
    expected: Option<Place>,
    changes: &[Change],
    reached: Option<&Reached>,
) -> Result<Place> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin().await?;
    let found = lock(&mut txn, which).await?.ok_or(Failure::NotBegun)?;
    if expected.is_some_and(|expected| expected != found) {
        return Err(Failure::Overtaken);
    }
    // The last change of a document counts.
    let last: HashMap<EventId, &Change> = changes.iter().map(|change| (id_of(change), change)).collect();
    let (gone, words_gone) = take_away(&mut txn, which, &last).await?;
    let (put, words_put) = put(&mut txn, which, &last).await?;
    sqlx::query(
        "UPDATE cn_search.copies SET reached = $2, mark = $6, documents = documents + $3, words = words + $4, \
         version = CASE WHEN reached IS NULL THEN $5 ELSE version END WHERE name = $1",
    )
    .bind(which.name())
    .bind(reached.map(|reached| signed(reached.seq.0)))
    .bind(put - gone)
    .bind(words_put - words_gone)
    .bind(VERSION.cast_signed())
    .bind(reached.map_or("", |reached| reached.mark.as_str()))
    .execute(&mut *txn)
    .await?;
    txn.commit().await?;
    asking.done();
    Ok(Place { reached: reached.map(|reached| reached.seq), ..found })
}

/// The copy, locked until the transaction ends.
async fn lock(connection: &mut PgConnection, which: Which) -> Result<Option<Place>> {
    let row = sqlx::query("SELECT generation, reached FROM cn_search.copies WHERE name = $1 FOR UPDATE");
    let row = row.bind(which.name()).fetch_optional(connection).await?;
    row.map(|row| Ok(Place { generation: row.try_get("generation")?, reached: seq(row.try_get("reached")?) }))
        .transpose()
}

/// The copy that is searched, and its mark. One whose texts were taken apart in another way reaches nowhere.
pub(crate) async fn place(pool: &PgPool) -> Result<(Place, String)> {
    let mut asking = Asking::of(pool).await?;
    let row = sqlx::query("SELECT generation, reached, mark, version FROM cn_search.copies WHERE name = 'current'");
    let row = row.fetch_one(&mut *asking).await?;
    asking.done();
    let version: i32 = row.try_get("version")?;
    let reached = seq(row.try_get("reached")?).filter(|_| version == VERSION.cast_signed());
    Ok((Place { generation: row.try_get("generation")?, reached }, row.try_get("mark")?))
}

fn seq(column: Option<i64>) -> Option<Seq> {
    column.map(|seq| Seq(seq.unsigned_abs()))
}

fn id_of(change: &Change) -> EventId {
    match change {
        Change::Put(document) => document.id,
        Change::Remove(id) => *id,
    }
}

/// Takes away whatever is changed. Returns how many there were, and their words.
async fn take_away(
    connection: &mut PgConnection,
    which: Which,
    changes: &HashMap<EventId, &Change>,
) -> Result<(i64, i64)> {
    let sql = format!(
        "WITH gone AS (DELETE FROM {} WHERE document_id = ANY ($1::bytea[]) RETURNING length) \
         SELECT count(*), coalesce(sum(length), 0)::bigint FROM gone",
        which.table()
    );
    let ids: Vec<[u8; 32]> = changes.keys().map(|id| *id.as_bytes()).collect();
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(ids).fetch_one(connection).await?)
}

/// Puts in what is there from now on. Returns how many, and their words.
async fn put(connection: &mut PgConnection, which: Which, changes: &HashMap<EventId, &Change>) -> Result<(i64, i64)> {
    let mut rows = Rows::default();
    for change in changes.values() {
        if let Change::Put(document) = change {
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
        which.table()
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
        .execute(connection)
        .await?;
    Ok((signed(put.rows_affected()), words))
}

/// Makes an empty copy beside the one that is searched. One that was begun before, by whomever, is thrown away.
pub(crate) async fn begin(pool: &PgPool) -> Result<Place> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin().await?;
    // Whoever begins at the same time waits here.
    lock(&mut txn, Which::Current).await?;
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
    asking.done();
    Ok(Place { generation, reached: None })
}

/// Puts the copy that was begun in the place of the one that is searched.
pub(crate) async fn switch(pool: &PgPool, begun: Place) -> Result<()> {
    for _ in 1..TRIES {
        match try_switch(pool, begun).await {
            Err(failure) if failure.is_lock_timeout() => tokio::time::sleep(BETWEEN_TRIES).await,
            done => return done,
        }
    }
    try_switch(pool, begun).await
}

async fn try_switch(pool: &PgPool, begun: Place) -> Result<()> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(SWITCH).await?;
    // In this order, as `begin` does.
    lock(&mut txn, Which::Current).await?;
    if lock(&mut txn, Which::Next).await? != Some(begun) {
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
    asking.done();
    Ok(())
}
