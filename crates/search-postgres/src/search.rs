//! Searching: SQL selects the newest `MAX_RANKED` documents that match; this module ranks them.
//!
//! The score is BM25 without inverse document frequency: every candidate has all the words. Older documents than the ranked
//! ones are not found.

use kukuri_domain::{EventId, Timestamp};
use kukuri_postgres::{FixedBytes, Pool, SqlRow, query, signed};
use kukuri_search::{
    Hit, IndexError, IndexStats, Search,
    ranking::{TITLE_WEIGHT, recency},
};

use crate::error::Result;

/// Maximum number of candidates per search.
const MAX_RANKED: i64 = 2_000;

/// Word counts are computed for the candidates only.
const CANDIDATES_SQL: &str = "SELECT document_id, created_at, length, \
     ARRAY(SELECT title_counts[array_position(terms, word)] FROM unnest($1::text[]) AS word) AS in_title, \
     ARRAY(SELECT body_counts[array_position(terms, word)] FROM unnest($1::text[]) AS word) AS in_body, \
     (SELECT words::float8 / greatest(documents, 1) FROM cn_search.copies WHERE name = 'current') AS average \
     FROM (SELECT * FROM cn_search.post_search_documents WHERE terms @> $1::text[] \
     AND ($2::text[] IS NULL OR topics && $2::text[]) \
     AND ($3::integer[] IS NULL OR kind = ANY ($3::integer[])) \
     AND ($4::bytea[] IS NULL OR author = ANY ($4::bytea[])) \
     AND ($5::bigint IS NULL OR created_at >= $5::bigint) \
     AND ($6::bigint IS NULL OR created_at <= $6::bigint) \
     ORDER BY created_at DESC, document_id LIMIT $7) AS newest";

/// BM25 k1: term frequency saturation.
const K1: f32 = 1.2;
/// BM25 b: weight of the document length.
const B: f32 = 0.75;

pub(crate) async fn search(pool: &Pool, search: &Search) -> Result<Vec<Hit>> {
    let candidates = query(CANDIDATES_SQL)
        .bind(search.query.tokens())
        .bind(mapped(&search.topics, |topic| topic.as_str()))
        .bind(mapped(&search.kinds, |kind| i32::from(kind.0)))
        .bind(mapped(&search.authors, |author| FixedBytes(*author.as_bytes())))
        .bind(search.since.map(|time| signed(time.0)))
        .bind(search.until.map(|time| signed(time.0)))
        .bind(MAX_RANKED);
    let rows = pool.fetch_all(candidates).await?;
    let mut hits: Vec<Hit> = rows.iter().map(|row| hit(row, search.now)).collect::<Result<_>>()?;
    hits.sort_by(|left, right| right.score.total_cmp(&left.score).then(left.id.cmp(&right.id)));
    Ok(hits.into_iter().skip(search.skip).take(search.limit).collect())
}

fn mapped<'s, T, U>(list: &'s Option<Vec<T>>, value: impl Fn(&'s T) -> U) -> Option<Vec<U>> {
    list.as_ref().map(|list| list.iter().map(value).collect())
}

fn hit(row: &SqlRow, now: Timestamp) -> Result<Hit> {
    let created_at: i64 = row.get("created_at")?;
    let length: i32 = row.get("length")?;
    let average: f64 = row.get("average")?;
    let in_title: Vec<i16> = row.get("in_title")?;
    let in_body: Vec<i16> = row.get("in_body")?;
    let relative_length = length as f32 / (average as f32).max(1.0);
    let words = in_title.iter().map(|count| TITLE_WEIGHT * term_score(*count, 1.0)).sum::<f32>()
        + in_body.iter().map(|count| term_score(*count, relative_length)).sum::<f32>();
    Ok(Hit { id: id(row)?, score: words * recency(Timestamp(created_at.unsigned_abs()), now) })
}

/// BM25 of one word. `relative_length`: length of the text by the average.
fn term_score(count: i16, relative_length: f32) -> f32 {
    let count = f32::from(count);
    count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * relative_length))
}

/// The ids of all documents, in order, after one.
pub(crate) async fn ids(pool: &Pool, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
    let ids = query(
        "SELECT document_id FROM cn_search.post_search_documents WHERE $1::bytea IS NULL OR document_id > $1::bytea \
         ORDER BY document_id LIMIT $2",
    );
    let ids = ids.bind(after.map(|id| FixedBytes(*id.as_bytes()))).bind(signed(limit as u64));
    pool.fetch_all(ids).await?.iter().map(id).collect()
}

pub(crate) async fn stats(pool: &Pool) -> Result<IndexStats> {
    let session = pool.acquire().await?;
    let stats = query(
        "SELECT documents, pg_total_relation_size('cn_search.post_search_documents') FROM cn_search.copies \
         WHERE name = 'current'",
    );
    let row = stats.fetch_one(&session).await?;
    let (documents, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
    session.release();
    Ok(IndexStats { documents: documents.unsigned_abs(), bytes: bytes.unsigned_abs() })
}

fn id(row: &SqlRow) -> Result<EventId> {
    let bytes: &[u8] = row.get("document_id")?;
    let bytes = bytes.try_into();
    let bytes = bytes.map_err(|_| IndexError::Damaged("a document_id that is not 32 bytes".to_owned()))?;
    Ok(EventId::from_bytes(bytes))
}
