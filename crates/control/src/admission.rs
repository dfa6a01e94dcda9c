//! Who gets an account here: anybody, people with an invite, or people on a list. An existing account is never locked out
//! by a change of the mode.

use kukuri_domain::{PublicKey, Timestamp};

use crate::{
    Error, Refused, Result, account, ban,
    database::{Database, Transaction, sql},
    invite,
    secret::Secrets,
    setting,
};

const SETTING: &str = "admission";

/// Who gets an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmissionMode {
    /// Every key.
    #[default]
    Open,
    /// Keys with an invite code.
    Invite,
    /// Keys on the list.
    Allowlist,
}

impl AdmissionMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Open, Self::Invite, Self::Allowlist];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Invite => "invite",
            Self::Allowlist => "allowlist",
        }
    }

    fn of_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| Error::Damaged(format!("the admission mode is `{name}`")))
    }
}

/// The mode now.
pub async fn mode(database: &Database) -> Result<AdmissionMode> {
    let name = setting::read(database, SETTING).await?;
    name.map_or(Ok(AdmissionMode::default()), |name| AdmissionMode::of_name(&name))
}

/// Sets the mode. Returns the one before.
pub async fn set_mode(transaction: &mut Transaction, mode: AdmissionMode, now: Timestamp) -> Result<AdmissionMode> {
    let before = setting::set(transaction, SETTING, Some(mode.name()), now).await?;
    before.map_or(Ok(AdmissionMode::default()), |name| AdmissionMode::of_name(&name))
}

/// Adds a key to the list, or removes it.
pub async fn set_allowed(
    transaction: &mut Transaction,
    pubkey: &PublicKey,
    is_allowed: bool,
    now: Timestamp,
) -> Result<()> {
    let change = match is_allowed {
        true => {
            sql("INSERT INTO cn_user.allowlist (pubkey, created_at) VALUES ($1, $2) ON CONFLICT (pubkey) DO NOTHING")
                .bind(pubkey)
                .bind(now)
        }
        false => sql("DELETE FROM cn_user.allowlist WHERE pubkey = $1").bind(pubkey),
    };
    transaction.execute(change).await
}

/// The listed keys.
pub async fn allowed(database: &Database) -> Result<Vec<PublicKey>> {
    let rows = database.read(sql("SELECT pubkey FROM cn_user.allowlist ORDER BY created_at, pubkey")).await?;
    rows.iter().map(|row| row.get(0)).collect()
}

/// Lets a person in who has proven to own the key. Makes the account if there is none and the mode allows it; redeems the invite in
/// the same transaction. In this order: a ban, an existing account, the mode.
pub async fn admit(
    transaction: &mut Transaction,
    secrets: &Secrets,
    pubkey: &PublicKey,
    invite_code: Option<&str>,
    now: Timestamp,
) -> Result<(), Refused> {
    if let Some(ban) = ban::find(transaction, secrets, pubkey, now).await? {
        return Err(Refused::Banned { reason: ban.reason, until: ban.until });
    }
    if let Some(account) = account::find_in(transaction, pubkey).await? {
        return account.status.require_active();
    }
    let name = setting::read_in(transaction, SETTING).await?;
    match name.map_or(Ok(AdmissionMode::default()), |name| AdmissionMode::of_name(&name))? {
        AdmissionMode::Open => {}
        AdmissionMode::Invite => {
            let code = invite_code.ok_or(Refused::InviteRequired)?;
            invite::redeem(transaction, code, now).await?;
        }
        AdmissionMode::Allowlist => {
            let listed = sql("SELECT 1 FROM cn_user.allowlist WHERE pubkey = $1").bind(pubkey);
            if transaction.fetch(listed).await?.is_empty() {
                return Err(Refused::NotAllowlisted);
            }
        }
    }
    Ok(account::create(transaction, pubkey, now).await?)
}
