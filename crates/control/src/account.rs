//! Accounts: a key that has signed in here.

use kukuri_domain::{PublicKey, Timestamp};

use crate::{
    Error, Refused, Result,
    database::{Database, Row, Transaction, sql},
};

/// The state of an account. A deleted account leaves no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    /// It is served.
    Active,
    /// The operator disabled it.
    Disabled,
    /// Its owner asked for its deletion, which is under way.
    Deleting,
}

impl AccountStatus {
    const ALL: [Self; 3] = [Self::Active, Self::Disabled, Self::Deleting];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Deleting => "deleting",
        }
    }

    pub(crate) fn of_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|status| status.name() == name);
        found.ok_or_else(|| Error::Damaged(format!("an account is `{name}`")))
    }

    /// Whether the account is served.
    pub const fn require_active(self) -> Result<(), Refused> {
        match self {
            Self::Active => Ok(()),
            Self::Disabled => Err(Refused::AccountDisabled),
            Self::Deleting => Err(Refused::AccountDeleted),
        }
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its key.
    pub pubkey: PublicKey,
    /// Its state.
    pub status: AccountStatus,
    /// Why the operator disabled it.
    pub reason: Option<String>,
    /// Tokens from before are not valid.
    pub tokens_from: Timestamp,
    /// When it signed in first.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub updated_at: Timestamp,
}

const COLUMNS: &str = "subscriber_pubkey, status, reason, tokens_from, created_at, updated_at";

impl Account {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            pubkey: row.get(0)?,
            status: AccountStatus::of_name(&row.get::<String>(1)?)?,
            reason: row.get(2)?,
            tokens_from: row.get(3)?,
            created_at: row.get(4)?,
            updated_at: row.get(5)?,
        })
    }
}

/// Reads an account.
pub async fn find(database: &Database, pubkey: &PublicKey) -> Result<Option<Account>> {
    let row = database.read_first(by_key(pubkey)).await?;
    row.as_ref().map(Account::of_row).transpose()
}

/// Reads an account in a transaction.
pub(crate) async fn find_in(transaction: &mut Transaction, pubkey: &PublicKey) -> Result<Option<Account>> {
    let row = transaction.fetch_first(by_key(pubkey)).await?;
    row.as_ref().map(Account::of_row).transpose()
}

fn by_key(pubkey: &PublicKey) -> crate::database::Statement {
    sql(format!("SELECT {COLUMNS} FROM cn_user.subscriber_accounts WHERE subscriber_pubkey = $1")).bind(pubkey)
}

/// A page of accounts, in the order in which they came.
pub async fn list(database: &Database, after: Option<(Timestamp, PublicKey)>, limit: usize) -> Result<Vec<Account>> {
    let (since, key) = after.map_or((Timestamp(0), String::new()), |(since, key)| (since, key.to_string()));
    let select = sql(format!(
        "SELECT {COLUMNS} FROM cn_user.subscriber_accounts WHERE (created_at, subscriber_pubkey) > ($1, $2) \
         ORDER BY created_at, subscriber_pubkey LIMIT $3"
    ));
    let rows = database.read(select.bind(since).bind(key).bind(limit as u64)).await?;
    rows.iter().map(Account::of_row).collect()
}

/// Makes an account. The caller has checked that the key may have one.
pub(crate) async fn create(transaction: &mut Transaction, pubkey: &PublicKey, now: Timestamp) -> Result<()> {
    let insert = sql("INSERT INTO cn_user.subscriber_accounts \
         (subscriber_pubkey, status, tokens_from, created_at, updated_at, revision) VALUES ($1, 'active', $2, $2, $2, $3)");
    let revision = transaction.revision();
    transaction.execute(insert.bind(pubkey).bind(now).bind(revision)).await
}

/// Sets an account's state, with the operator's reason. Fails if it is being deleted, which has no way back.
pub async fn set_status(
    transaction: &mut Transaction,
    pubkey: &PublicKey,
    status: AccountStatus,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Account, Refused> {
    let known = find_in(transaction, pubkey).await?.ok_or(Refused::UnknownAccount)?;
    if known.status == AccountStatus::Deleting {
        return Err(Refused::AccountDeleted);
    }
    let update =
        sql("UPDATE cn_user.subscriber_accounts SET status = $2, reason = $3, updated_at = $4, revision = $5 \
         WHERE subscriber_pubkey = $1");
    let revision = transaction.revision();
    transaction.execute(update.bind(pubkey).bind(status.name()).bind(reason).bind(now).bind(revision)).await?;
    Ok(known)
}

/// Ends all tokens of an account that were made before `now`.
pub async fn end_tokens(transaction: &mut Transaction, pubkey: &PublicKey, now: Timestamp) -> Result<()> {
    let update =
        sql("UPDATE cn_user.subscriber_accounts SET tokens_from = $2, revision = $3 WHERE subscriber_pubkey = $1");
    let revision = transaction.revision();
    transaction.execute(update.bind(pubkey).bind(now).bind(revision)).await
}

/// Notes that something which is held in memory for this person has changed ([`crate::people`]).
pub(crate) async fn touch(transaction: &mut Transaction, pubkey: &PublicKey) -> Result<()> {
    let update = sql("UPDATE cn_user.subscriber_accounts SET revision = $2 WHERE subscriber_pubkey = $1");
    let revision = transaction.revision();
    transaction.execute(update.bind(pubkey).bind(revision)).await
}
