//! Bans: whom this node does not serve. A ban is local, has a public reason, and an end or none. It outlives the account: the
//! person then stands there as a pseudonym.

use kukuri_domain::{PublicKey, Timestamp};

use crate::{
    Refused, Result, account,
    database::{Database, Row, Transaction, sql},
    secret::Secrets,
};

/// The longest reason, in characters.
pub const MAX_REASON: usize = 500;

/// A ban that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The key. `None`: the account was deleted.
    pub pubkey: Option<PublicKey>,
    /// The pseudonym of the person.
    pub pseudonym: String,
    /// Shown to the person.
    pub reason: String,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ends. `None`: never.
    pub until: Option<Timestamp>,
}

pub(crate) const COLUMNS: &str = "pubkey, pseudonym, reason, created_at, until";
/// With the time as `$1`.
pub(crate) const IS_IN_FORCE: &str = "lifted_at IS NULL AND (until IS NULL OR until > $1)";

impl Ban {
    pub(crate) fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            pubkey: row.get(0)?,
            pseudonym: row.get(1)?,
            reason: row.get(2)?,
            created_at: row.get(3)?,
            until: row.get(4)?,
        })
    }
}

/// The ban of a person that is in force, in a transaction.
pub(crate) async fn find(
    transaction: &mut Transaction,
    secrets: &Secrets,
    pubkey: &PublicKey,
    now: Timestamp,
) -> Result<Option<Ban>> {
    for pseudonym in secrets.pseudonyms(pubkey) {
        let select = sql(format!("SELECT {COLUMNS} FROM cn_user.bans WHERE pseudonym = $2 AND {IS_IN_FORCE}"));
        if let Some(row) = transaction.fetch_first(select.bind(now).bind(pseudonym)).await? {
            return Ban::of_row(&row).map(Some);
        }
    }
    Ok(None)
}

/// Bans a person, who need not have an account. A ban that is in force is replaced. Returns it.
pub async fn ban(
    transaction: &mut Transaction,
    secrets: &Secrets,
    pubkey: &PublicKey,
    reason: &str,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Ban>, Refused> {
    if reason.trim().is_empty() || reason.chars().count() > MAX_REASON {
        return Err(Refused::invalid("reason", format!("must have 1 to {MAX_REASON} characters")));
    }
    if until.is_some_and(|until| until <= now) {
        return Err(Refused::invalid("until", "the ban would be over already"));
    }
    let before = find(transaction, secrets, pubkey, now).await?;
    let pseudonym = match &before {
        Some(ban) => ban.pseudonym.clone(),
        None => secrets.pseudonym(pubkey)?,
    };
    let insert = sql(
        "INSERT INTO cn_user.bans (pubkey, pseudonym, reason, created_at, until, revision) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (pseudonym) DO UPDATE SET pubkey = excluded.pubkey, reason = excluded.reason, \
         created_at = excluded.created_at, until = excluded.until, lifted_at = NULL, revision = excluded.revision",
    );
    let revision = transaction.revision();
    let insert = insert.bind(pubkey).bind(pseudonym).bind(reason).bind(now).bind(until).bind(revision);
    transaction.execute(insert).await?;
    account::touch(transaction, pubkey).await?;
    Ok(before)
}

/// Lifts the ban of a person. Returns it.
pub async fn lift(
    transaction: &mut Transaction,
    secrets: &Secrets,
    pubkey: &PublicKey,
    now: Timestamp,
) -> Result<Ban, Refused> {
    let ban = find(transaction, secrets, pubkey, now).await?;
    let ban = ban.ok_or_else(|| Refused::InvalidState("this key is not banned".to_owned()))?;
    let update = sql("UPDATE cn_user.bans SET lifted_at = $2, revision = $3 WHERE pseudonym = $1");
    let revision = transaction.revision();
    transaction.execute(update.bind(&ban.pseudonym).bind(now).bind(revision)).await?;
    account::touch(transaction, pubkey).await?;
    Ok(ban)
}

/// All bans in force, the newest first.
pub async fn list(database: &Database, now: Timestamp) -> Result<Vec<Ban>> {
    let select = format!("SELECT {COLUMNS} FROM cn_user.bans WHERE {IS_IN_FORCE} ORDER BY created_at DESC, pseudonym");
    database.read(sql(select).bind(now)).await?.iter().map(Ban::of_row).collect()
}
