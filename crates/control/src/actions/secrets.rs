//! Secrets of the node: exchanged for new ones.

use super::record;
use crate::{
    Refused, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    secret::{self, Purpose},
};

/// Exchanges the secret of access tokens: those that were made with the old one are not valid any more, and people sign in again
/// . Answers with the number of the new version.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceTokenSecret;

impl Action for ReplaceTokenSecret {
    type Done = u32;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<u32, Refused> {
        let version = secret::rotate(transaction, Purpose::Tokens, acting.now).await?;
        secret::remove_before(transaction, Purpose::Tokens, version).await?;
        let entry = Entry::new("secret.replace", Target::Thing("secret", "tokens".to_owned()));
        record(transaction, acting, entry.field("version", version - 1, version)).await?;
        Ok(version)
    }
}
