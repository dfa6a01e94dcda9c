//! Policies: drafted and published. The audit log has hashes of the texts, not the texts.

use kukuri_domain::Timestamp;

use super::record;
use crate::{
    Refused, Result, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    database::sql,
    policy::{self, PolicyText, PolicyVersion},
};

/// Writes a text of a version that is not published, or replaces it.
#[derive(Clone, Debug)]
pub struct DraftPolicy {
    /// The version.
    pub of: PolicyVersion,
    /// The language: `ja`, `en`, `en-GB`.
    pub locale: String,
    /// The text, in Markdown. Its first heading is the title.
    pub content: String,
}

impl Action for DraftPolicy {
    type Done = PolicyText;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<PolicyText, Refused> {
        let Self { of, locale, content } = self;
        let before = content_hash(transaction, of, locale).await?;
        let text = policy::draft(transaction, of, locale, content, acting.now).await?;
        let field = format!("content_hash.{locale}");
        let entry = Entry::new("policy.draft", target(of)).field(&field, before, text.content_hash.clone());
        record(transaction, acting, entry).await?;
        Ok(text)
    }
}

/// Publishes a version. Answers with the time at which it takes effect.
#[derive(Clone, Debug)]
pub struct PublishPolicy {
    /// The version.
    pub of: PolicyVersion,
    /// When it takes effect. `None`: at once.
    pub effective_at: Option<Timestamp>,
}

impl Action for PublishPolicy {
    type Done = Timestamp;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<Timestamp, Refused> {
        let effective_at = policy::publish(transaction, &self.of, self.effective_at, acting.now).await?;
        let entry = Entry::new("policy.publish", target(&self.of)).field("published", false, true).field(
            "effective_at",
            (),
            effective_at.0,
        );
        record(transaction, acting, entry).await?;
        Ok(effective_at)
    }
}

fn target(of: &PolicyVersion) -> Target {
    Target::Thing("policy", format!("{}:{}", of.policy_type, of.version))
}

/// The hash of a text. The locale is compared here, because it is not checked yet.
async fn content_hash(transaction: &mut Transaction, of: &PolicyVersion, locale: &str) -> Result<Option<String>> {
    let select = sql("SELECT locale, content_hash FROM cn_admin.policy_texts WHERE policy_type = $1 AND version = $2");
    for row in transaction.fetch(select.bind(of.policy_type.name()).bind(&of.version)).await? {
        if row.get::<String>(0)? == locale {
            return row.get(1).map(Some);
        }
    }
    Ok(None)
}
