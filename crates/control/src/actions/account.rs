//! Accounts: disabled and enabled, banned and no longer.

use kukuri_domain::{PublicKey, Timestamp};

use super::record;
use crate::{
    Refused, Transaction,
    account::{self, AccountStatus},
    audit::{Entry, Target},
    ban,
    control::{Acting, Action},
};

/// Disables or enables an account.
#[derive(Clone, Debug)]
pub struct SetAccountStatus {
    /// The account.
    pub pubkey: PublicKey,
    /// [`AccountStatus::Active`] or [`AccountStatus::Disabled`].
    pub status: AccountStatus,
    /// Why, for the person.
    pub reason: Option<String>,
}

impl Action for SetAccountStatus {
    type Done = ();

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<(), Refused> {
        let Self { pubkey, status, reason } = self;
        if *status == AccountStatus::Deleting {
            return Err(Refused::InvalidState("only its owner can have an account deleted".to_owned()));
        }
        let before = account::set_status(transaction, pubkey, *status, reason.as_deref(), acting.now).await?;
        let action = if *status == AccountStatus::Active { "account.enable" } else { "account.disable" };
        let entry = Entry::new(action, Target::Person(*pubkey));
        let entry = entry.field("status", before.status.name(), status.name()).public_reason(reason.as_deref());
        record(transaction, acting, entry).await
    }
}

/// Bans a person.
#[derive(Clone, Debug)]
pub struct Ban {
    /// The person, with or without an account.
    pub pubkey: PublicKey,
    /// Why, for the person.
    pub reason: String,
    /// When it ends. `None`: never.
    pub until: Option<Timestamp>,
}

impl Action for Ban {
    type Done = ();

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<(), Refused> {
        let Self { pubkey, reason, until } = self;
        let before = ban::ban(transaction, acting.secrets, pubkey, reason, *until, acting.now).await?;
        let seconds = |until: Option<Timestamp>| until.map(|until| until.0);
        let entry = Entry::new("account.ban", Target::Person(*pubkey)).field("banned", before.is_some(), true).field(
            "until",
            before.and_then(|ban| seconds(ban.until)),
            seconds(*until),
        );
        record(transaction, acting, entry.public_reason(Some(reason))).await
    }
}

/// Lifts the ban of a person.
#[derive(Clone, Debug)]
pub struct LiftBan {
    /// The person.
    pub pubkey: PublicKey,
}

impl Action for LiftBan {
    type Done = ();

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<(), Refused> {
        ban::lift(transaction, acting.secrets, &self.pubkey, acting.now).await?;
        let entry = Entry::new("account.unban", Target::Person(self.pubkey)).field("banned", true, false);
        record(transaction, acting, entry).await
    }
}
