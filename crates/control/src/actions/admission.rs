//! Admission: the mode, and the list of allowed keys.

use kukuri_domain::PublicKey;

use super::record;
use crate::{
    Refused, Transaction,
    admission::{self, AdmissionMode},
    audit::{Entry, Target},
    control::{Acting, Action},
    database::sql,
};

/// Sets the admission mode. Answers with the one before.
#[derive(Clone, Copy, Debug)]
pub struct SetAdmission {
    /// Who gets an account.
    pub mode: AdmissionMode,
}

impl Action for SetAdmission {
    type Done = AdmissionMode;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<AdmissionMode, Refused> {
        let before = admission::set_mode(transaction, self.mode, acting.now).await?;
        let entry = Entry::new("admission.mode", Target::Thing("setting", "admission".to_owned()));
        record(transaction, acting, entry.field("mode", before.name(), self.mode.name())).await?;
        Ok(before)
    }
}

/// Adds a key to the list of allowed keys, or removes it. Answers whether it was listed before.
#[derive(Clone, Copy, Debug)]
pub struct SetAllowed {
    /// The key.
    pub pubkey: PublicKey,
    /// Whether it is allowed.
    pub is_allowed: bool,
}

impl Action for SetAllowed {
    type Done = bool;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<bool, Refused> {
        let Self { pubkey, is_allowed } = self;
        let select = sql("SELECT 1 FROM cn_user.allowlist WHERE pubkey = $1").bind(pubkey);
        let was_allowed = transaction.fetch_first(select).await?.is_some();
        admission::set_allowed(transaction, pubkey, *is_allowed, acting.now).await?;
        let action = if *is_allowed { "admission.allow" } else { "admission.disallow" };
        let entry = Entry::new(action, Target::Person(*pubkey)).field("allowed", was_allowed, *is_allowed);
        record(transaction, acting, entry).await?;
        Ok(was_allowed)
    }
}
