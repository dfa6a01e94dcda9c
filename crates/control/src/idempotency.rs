//! Answers to requests that may be sent again: a client that did not get the answer repeats the request with the same
//! `Idempotency-Key`, and gets the answer without the work being done again.

use kukuri_domain::{PublicKey, Timestamp};

use crate::{
    Result,
    database::{Database, Statement, sql},
};

/// Seconds for which an answer is kept.
pub const ANSWER_TTL: u64 = 24 * 3_600;
/// Seconds after which a request without an answer is taken for one whose process ended: the work may be done again.
pub const ABANDONED_AFTER: u64 = 120;
/// Answers that are kept for one person.
pub const MAX_KEPT: u64 = 1_000;

/// A request that may be sent again.
#[derive(Clone, Debug)]
pub struct RepeatableRequest {
    /// The person who sends it.
    pub person: PublicKey,
    /// The key that the person chose.
    pub key: String,
    /// The hash of what is asked for: method, path and body.
    pub content_hash: String,
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// The state of a request with an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: its work may begin, and is noted.
    New,
    /// It is being worked on.
    InProgress,
    /// It was answered.
    Answered(KeptAnswer),
    /// The key belongs to a request with other content.
    OtherContent,
    /// As many answers as may be are kept for the person.
    TooMany,
}

/// Notes that a request is worked on, or says what is known of it: one conditional statement decides.
pub async fn begin(database: &Database, request: &RepeatableRequest, now: Timestamp) -> Result<Begun> {
    let claim =
        sql("INSERT INTO cn_user.idempotent_requests AS known (pubkey, idempotency_key, content_hash, created_at) \
         SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bigint) \
         WHERE EXISTS (SELECT 1 FROM cn_user.idempotent_requests k WHERE k.pubkey = $1 AND k.idempotency_key = $2) \
         OR (SELECT count(*) FROM cn_user.idempotent_requests k WHERE k.pubkey = $1 AND k.created_at > $5) < $7 \
         ON CONFLICT (pubkey, idempotency_key) DO UPDATE SET content_hash = excluded.content_hash, \
         status = NULL, answer = NULL, created_at = excluded.created_at \
         WHERE known.created_at <= $5 \
         OR (known.status IS NULL AND known.created_at <= $6 AND known.content_hash = excluded.content_hash) \
         RETURNING created_at");
    let claim = request.bind(claim).bind(&request.content_hash).bind(now);
    let claim = claim.bind(now.0.saturating_sub(ANSWER_TTL)).bind(now.0.saturating_sub(ABANDONED_AFTER)).bind(MAX_KEPT);
    if !database.change(claim).await?.is_empty() {
        return Ok(Begun::New);
    }
    let select = sql("SELECT content_hash, status, answer FROM cn_user.idempotent_requests \
         WHERE pubkey = $1 AND idempotency_key = $2");
    let Some(known) = database.read_first(request.bind(select)).await? else { return Ok(Begun::TooMany) };
    if known.get::<String>(0)? != request.content_hash {
        return Ok(Begun::OtherContent);
    }
    let status = known.get::<Option<u32>>(1)?.and_then(|status| u16::try_from(status).ok());
    Ok(match (status, known.get::<Option<String>>(2)?) {
        (Some(status), Some(body)) => Begun::Answered(KeptAnswer { status, body }),
        _ => Begun::InProgress,
    })
}

/// Keeps the answer to a request whose work began at a time.
pub async fn keep(
    database: &Database,
    request: &RepeatableRequest,
    answer: &KeptAnswer,
    began_at: Timestamp,
) -> Result<()> {
    let update = sql("UPDATE cn_user.idempotent_requests SET status = $4, answer = $5 \
         WHERE pubkey = $1 AND idempotency_key = $2 AND created_at = $3 AND status IS NULL");
    let update = request.bind(update).bind(began_at).bind(u32::from(answer.status)).bind(&answer.body);
    database.change(update).await.map(drop)
}

/// Forgets a request whose work began at a time, and has no final answer: it may be sent again.
pub async fn forget(database: &Database, request: &RepeatableRequest, began_at: Timestamp) -> Result<()> {
    let delete = sql("DELETE FROM cn_user.idempotent_requests \
         WHERE pubkey = $1 AND idempotency_key = $2 AND created_at = $3 AND status IS NULL");
    database.change(request.bind(delete).bind(began_at)).await.map(drop)
}

impl RepeatableRequest {
    /// Binds person and key as the first two values.
    fn bind(&self, statement: Statement) -> Statement {
        statement.bind(&self.person).bind(&self.key)
    }
}
