//! Proving to own a key: the node makes a challenge, the person signs it.

use kukuri_domain::{PublicKey, Timestamp};
use uuid::Uuid;

use crate::{
    Refused, Result, admission,
    database::{Database, sql},
    secret::Secrets,
};

/// Seconds that a challenge is valid.
pub const CHALLENGE_TTL: u64 = 300;
/// How far the time of the signed event may be from the node's, in seconds.
pub const MAX_TIME_DIFFERENCE: u64 = 600;

/// A challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// To be signed.
    pub challenge: String,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// Makes a challenge for a key. Removes those that have expired.
pub async fn challenge(database: &Database, pubkey: &PublicKey, now: Timestamp) -> Result<Challenge> {
    database.change(sql("DELETE FROM cn_user.auth_challenges WHERE expires_at <= $1").bind(now)).await?;
    let made = Challenge { challenge: Uuid::new_v4().to_string(), expires_at: Timestamp(now.0 + CHALLENGE_TTL) };
    let insert =
        sql("INSERT INTO cn_user.auth_challenges (challenge, pubkey, created_at, expires_at) VALUES ($1, $2, $3, $4)");
    database.change(insert.bind(&made.challenge).bind(pubkey).bind(now).bind(made.expires_at)).await?;
    Ok(made)
}

/// Signs a person in who has signed this challenge: uses it up, and lets the person in, in one transaction. A refused person
/// may try again with the same challenge.
pub async fn sign_in(
    database: &Database,
    secrets: &Secrets,
    pubkey: &PublicKey,
    challenge: &str,
    invite_code: Option<&str>,
    now: Timestamp,
) -> Result<(), Refused> {
    let mut transaction = database.begin().await?;
    let update = sql("UPDATE cn_user.auth_challenges SET used_at = $3 \
         WHERE challenge = $1 AND pubkey = $2 AND used_at IS NULL AND expires_at > $3 RETURNING 1");
    let used = transaction.fetch_first(update.bind(challenge).bind(pubkey).bind(now)).await?;
    used.ok_or(Refused::AuthFailed)?;
    admission::admit(&mut transaction, secrets, pubkey, invite_code, now).await?;
    Ok(transaction.commit().await?)
}

/// Lets a person in who has proven to own the key in another way (NIP-98), if the key has no account yet.
pub async fn first_visit(
    database: &Database,
    secrets: &Secrets,
    pubkey: &PublicKey,
    invite_code: Option<&str>,
    now: Timestamp,
) -> Result<(), Refused> {
    let mut transaction = database.begin().await?;
    admission::admit(&mut transaction, secrets, pubkey, invite_code, now).await?;
    Ok(transaction.commit().await?)
}

/// Uses up something that may be used once, such as an event of NIP-98. Returns whether it was unused.
pub async fn use_once(database: &Database, credential: &str, expires_at: Timestamp, now: Timestamp) -> Result<bool> {
    database.change(sql("DELETE FROM cn_user.used_credentials WHERE expires_at <= $1").bind(now)).await?;
    let insert = sql("INSERT INTO cn_user.used_credentials (credential, expires_at) VALUES ($1, $2) \
         ON CONFLICT (credential) DO NOTHING RETURNING 1");
    Ok(!database.change(insert.bind(credential).bind(expires_at)).await?.is_empty())
}
