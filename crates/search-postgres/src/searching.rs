//! Which documents have the words, and which of them is best.
//!
//! Scores are BM25's, but for one thing: every document that is found has all the words, so a rare word counts no more
//! than a common one. The newest that are found are ranked, no more than `MOST_RANKED`: older ones are not shown.

use kukuri_domain::{EventId, Timestamp};
use kukuri_postgres::Asking;
use kukuri_search::{
    Hit, Search,
    ranking::{TITLE_WEIGHT, recency},
};
use sqlx::{PgPool, Row as _, postgres::PgRow};

use crate::{
    error::{Failure, Result},
    row::signed,
};

/// As many are ranked. A word that is in more of them narrows little, and what is recent counts for more anyway.
const MOST_RANKED: i64 = 2_000;

/// Words are looked up only in the documents that are ranked.
const CANDIDATES: &str = "SELECT document_id, created_at, length, \
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

/// How soon more of the same word counts for little.
const SATURATION: f32 = 1.2;
/// How much the length of a text counts.
const LENGTH_WEIGHT: f32 = 0.75;

pub(crate) async fn search(pool: &PgPool, search: &Search) -> Result<Vec<Hit>> {
    let mut asking = Asking::of(pool).await?;
    let topics: Option<Vec<&str>> = some(&search.topics, |topic| topic.as_str());
    let rows = sqlx::query(CANDIDATES)
        .bind(search.query.tokens())
        .bind(topics)
        .bind(some(&search.kinds, |kind| i32::from(kind.0)))
        .bind(some(&search.authors, |author| *author.as_bytes()))
        .bind(search.since.map(|time| signed(time.0)))
        .bind(search.until.map(|time| signed(time.0)))
        .bind(MOST_RANKED)
        .fetch_all(&mut *asking)
        .await?;
    asking.done();
    let mut hits: Vec<Hit> = rows.iter().map(|row| hit(row, search.now)).collect::<Result<_>>()?;
    hits.sort_by(|left, right| right.score.total_cmp(&left.score).then(left.id.cmp(&right.id)));
    Ok(hits.into_iter().skip(search.skip).take(search.limit).collect())
}

fn some<'s, T, U>(list: &'s Option<Vec<T>>, value: impl Fn(&'s T) -> U) -> Option<Vec<U>> {
    list.as_ref().map(|list| list.iter().map(value).collect())
}

fn hit(row: &PgRow, now: Timestamp) -> Result<Hit> {
    let created_at: i64 = row.try_get("created_at")?;
    let length: i32 = row.try_get("length")?;
    let average: f64 = row.try_get("average")?;
    let in_title: Vec<i16> = row.try_get("in_title")?;
    let in_body: Vec<i16> = row.try_get("in_body")?;
    let relative_length = length as f32 / (average as f32).max(1.0);
    let words = in_title.iter().map(|times| TITLE_WEIGHT * worth(*times, 1.0)).sum::<f32>()
        + in_body.iter().map(|times| worth(*times, relative_length)).sum::<f32>();
    Ok(Hit { id: id(row)?, score: words * recency(Timestamp(created_at.unsigned_abs()), now) })
}

/// What a word counts that stands so often in a text.
fn worth(times: i16, relative_length: f32) -> f32 {
    let times = f32::from(times);
    times * (SATURATION + 1.0) / (times + SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative_length))
}

pub(crate) fn id(row: &PgRow) -> Result<EventId> {
    let bytes: &[u8] = row.try_get("document_id")?;
    let bytes = bytes.try_into().map_err(|_| Failure::Damaged("an id that is none"))?;
    Ok(EventId::from_bytes(bytes))
}
