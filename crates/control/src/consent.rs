//! What people agreed to (L-2): once for each person and version, with the text that was shown. Never changed, only added to.

use kukuri_domain::{PublicKey, Timestamp};
use uuid::Uuid;

use crate::{
    Refused, Result, account,
    database::{Database, Row, Transaction, sql},
    policy::{self, PolicyType, PolicyVersion, Published},
};

/// The most policies in one request.
pub const MAX_ACCEPTED: usize = 20;

/// A consent to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// What is accepted.
    pub of: PolicyVersion,
    /// Hash of the text that was shown, in any language.
    pub content_hash: String,
}

/// A consent that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consent {
    /// What was accepted.
    pub of: PolicyVersion,
    /// The language of the text that was shown.
    pub locale: String,
    /// Its hash.
    pub content_hash: String,
    /// When.
    pub accepted_at: Timestamp,
}

impl Consent {
    fn of_row(row: &Row) -> Result<Option<Self>> {
        let name: String = row.get(0)?;
        let Some(policy_type) = PolicyType::of_name(&name) else { return Ok(None) };
        let of = PolicyVersion { policy_type, version: row.get(1)? };
        Ok(Some(Self { of, locale: row.get(2)?, content_hash: row.get(3)?, accepted_at: row.get(4)? }))
    }
}

/// The consents of a person, in the order in which they were given.
pub async fn list(database: &Database, person: &PublicKey) -> Result<Vec<Consent>> {
    let select = sql("SELECT policy_type, version, locale, content_hash, accepted_at FROM cn_user.policy_consents \
         WHERE accepter_pubkey = $1 ORDER BY accepted_at, policy_type, version");
    let rows = database.read(select.bind(person)).await?;
    rows.iter().filter_map(|row| Consent::of_row(row).transpose()).collect()
}

/// Which of the policies in effect a person has not accepted.
pub fn missing(published: &Published, accepted: &[Consent]) -> Vec<PolicyVersion> {
    let is_missing = |version: &&PolicyVersion| {
        version.policy_type.needs_consent() && !accepted.iter().any(|consent| consent.of == **version)
    };
    published.current.iter().filter(is_missing).cloned().collect()
}

/// Records a person's consents: all of them or none. Policies in effect can be accepted, and those that are published to come.
pub async fn accept(
    database: &Database,
    person: &PublicKey,
    acceptances: &[Acceptance],
    now: Timestamp,
) -> Result<(), Refused> {
    if acceptances.is_empty() || acceptances.len() > MAX_ACCEPTED {
        return Err(Refused::invalid("accept", format!("must name 1 to {MAX_ACCEPTED} policies")));
    }
    let mut transaction = database.begin().await?;
    let account = account::find_in(&mut transaction, person).await?.ok_or(Refused::UnknownAccount)?;
    account.status.require_active()?;
    // Published versions do not change; the transaction keeps new ones from coming in between.
    let published = policy::published(database, now).await?;
    let mut is_new = false;
    for acceptance in acceptances {
        is_new |= accept_one(&mut transaction, person, acceptance, &published, now).await?;
    }
    // Repeated consents change nothing: no revision, no recheck of clients.
    if !is_new {
        return Ok(());
    }
    account::touch(&mut transaction, person).await?;
    Ok(transaction.commit().await?)
}

/// Returns whether the consent is new.
async fn accept_one(
    transaction: &mut Transaction,
    person: &PublicKey,
    acceptance: &Acceptance,
    published: &Published,
    now: Timestamp,
) -> Result<bool, Refused> {
    let Acceptance { of, content_hash } = acceptance;
    let (policy_type, version) = (of.policy_type.name(), of.version.as_str());
    let is_coming = published.coming.iter().any(|(coming, _)| coming == of);
    if !is_coming && !published.current.contains(of) {
        return Err(Refused::PolicyNotCurrent { policy_type: policy_type.to_owned(), version: version.to_owned() });
    }
    let select =
        sql("SELECT locale FROM cn_admin.policy_texts WHERE policy_type = $1 AND version = $2 AND content_hash = $3 \
         ORDER BY locale");
    let shown = transaction.fetch_first(select.bind(policy_type).bind(version).bind(content_hash)).await?;
    let Some(shown) = shown else {
        return Err(Refused::OtherPolicyText { policy_type: policy_type.to_owned(), version: version.to_owned() });
    };
    let insert = sql("INSERT INTO cn_user.policy_consents \
         (consent_id, accepter_pubkey, policy_type, version, locale, content_hash, accepted_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (accepter_pubkey, policy_type, version) DO NOTHING \
         RETURNING 1");
    let insert = insert.bind(Uuid::new_v4().to_string()).bind(person).bind(policy_type).bind(version);
    let insert = insert.bind(shown.get::<String>(0)?).bind(content_hash).bind(now);
    Ok(transaction.fetch_first(insert).await?.is_some())
}
