//! The deletion of an account (N-2). At once, in one transaction: tokens and subscriptions end, pending requests and exports are cancelled, the
//! account is `deleting`. A job does the rest, and leaves pseudonyms where something has to stay. The same key may register anew
//! afterwards; a ban survives.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_domain::{PublicKey, Timestamp};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::{
    PersonEvents,
    deletion_list::{DeletionList, ListedDeletion},
    export,
};
use crate::{
    Control, Error, Refused, Result, Transaction, account,
    account::AccountStatus,
    audit::{self, Actor, Entry, Target},
    database::{Database, Row, Statement, sql},
    job::{
        self, Claim, JobError, JobStatus, NewJob,
        worker::{Clock, Handler},
    },
    secret::{self, Secrets},
    setting, subscription,
};

/// Jobs that delete an account.
pub const KIND: &str = "personal-data.deletion";
/// Rows that one transaction changes.
const STEP: u64 = 500;
/// Accounts that are compared with the list at a time.
const PAGE: usize = 1_000;

/// A deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its id.
    pub id: String,
    /// The state of its job.
    pub status: JobStatus,
    /// Whether the person's events go as well.
    pub include_events: bool,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was done.
    pub completed_at: Option<Timestamp>,
}

impl Deletion {
    fn of_row(row: &Row) -> Result<Self> {
        let completed_at: Option<Timestamp> = row.get(4)?;
        let status = match (completed_at, row.get::<Option<String>>(1)?) {
            // Jobs are kept for less long.
            (Some(_), _) => JobStatus::Completed,
            (None, Some(status)) => JobStatus::read(&status)?,
            (None, None) => JobStatus::Failed,
        };
        Ok(Self { id: row.get(0)?, status, include_events: row.get(2)?, created_at: row.get(3)?, completed_at })
    }
}

/// Asks for the deletion of a person's account. Returns it with its receipt, with which it can be read when the account is gone.
pub async fn request(
    database: &Database,
    secrets: &Secrets,
    person: &PublicKey,
    include_events: bool,
    now: Timestamp,
) -> Result<(Deletion, String), Refused> {
    let mut transaction = database.begin().await?;
    let begun = begin(&mut transaction, secrets, person, include_events.then_some(now), now).await?;
    transaction.commit().await?;
    Ok(begun)
}

/// Everything that happens at once. `events_until`: the person's events up to this time go as well.
async fn begin(
    transaction: &mut Transaction,
    secrets: &Secrets,
    person: &PublicKey,
    events_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(Deletion, String), Refused> {
    account::set_status(transaction, person, AccountStatus::Deleting, None, now).await?;
    account::end_tokens(transaction, person, Timestamp(now.0 + 1)).await?;
    subscription::end_all(transaction, person, now).await?;
    for pseudonym in secrets.pseudonyms(person) {
        job::cancel_all(transaction, export::KIND, &pseudonym, now).await?;
    }
    let (token, receipt_hash) = secret::one_time_token()?;
    let (id, pseudonym) = (Uuid::new_v4().to_string(), secrets.pseudonym(person)?);
    let job = NewJob {
        kind: KIND,
        subject: Some(pseudonym.clone()),
        parameters: json!({
            "deletion_request_id": id,
            "pubkey": person,
            "events_until": events_until.map(|until| until.0),
        }),
        run_at: now,
    };
    let job = job::enqueue(transaction, job, now).await?;
    let include_events = events_until.is_some();
    let insert = sql("INSERT INTO cn_user.personal_data_deletion_requests \
         (deletion_request_id, requester_pseudonym, job_id, receipt_hash, include_events, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6)");
    let insert = insert.bind(&id).bind(pseudonym).bind(job).bind(receipt_hash).bind(include_events).bind(now);
    transaction.execute(insert).await?;
    let status = JobStatus::Queued;
    Ok((Deletion { id, status, include_events, created_at: now, completed_at: None }, token))
}

/// A deletion, for who has its receipt.
pub async fn find(database: &Database, id: &str, receipt: &str) -> Result<Option<Deletion>> {
    let select = sql("SELECT d.deletion_request_id, j.status, d.include_events, d.created_at, d.completed_at \
         FROM cn_user.personal_data_deletion_requests d LEFT JOIN cn_admin.jobs j ON j.job_id = d.job_id \
         WHERE d.deletion_request_id = $1 AND d.receipt_hash = $2");
    let row = database.read_first(select.bind(id).bind(secret::hash_of_token(receipt))).await?;
    row.as_ref().map(Deletion::of_row).transpose()
}

/// Deletes again what a restored backup has brought back: accounts from before their deletion. Returns how many deletions begin.
pub async fn repeat_listed(control: &Control, list: &DeletionList, now: Timestamp) -> Result<usize, JobError> {
    let listed = list.read()?;
    if listed.is_empty() {
        return Ok(0);
    }
    let (secrets, database) = (control.secrets(), control.database());
    let (mut begun, mut after) = (0, None);
    loop {
        let page = account::list(database, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.pubkey));
        for account in page.iter().filter(|account| account.status != AccountStatus::Deleting) {
            let pseudonyms = secrets.pseudonyms(&account.pubkey);
            let found = pseudonyms.iter().find_map(|pseudonym| listed.get(pseudonym));
            let Some(ListedDeletion { deleted_at, include_events }) = found else { continue };
            // An account made after the deletion stays.
            if account.created_at >= *deleted_at {
                continue;
            }
            let mut transaction = database.begin().await?;
            let until = include_events.then_some(*deleted_at);
            match begin(&mut transaction, &secrets, &account.pubkey, until, now).await {
                Ok(_) => transaction.commit().await?,
                // Another node was faster.
                Err(Refused::AccountDeleted | Refused::UnknownAccount) => continue,
                Err(Refused::Failed(error)) => return Err(error.into()),
                Err(refused) => return Err(Error::Damaged(refused.to_string()).into()),
            }
            begun += 1;
        }
    }
    if begun > 0 {
        control.refresh(now).await?;
    }
    Ok(begun)
}

/// Deletes accounts.
pub struct DeletionHandler {
    /// The control plane.
    pub control: Arc<Control>,
    /// The events.
    pub events: Arc<dyn PersonEvents>,
    /// Where completed deletions are noted.
    pub list: DeletionList,
}

/// The person of a job, and how it is written.
struct Person {
    key: PublicKey,
    pseudonym: String,
    pseudonyms: Vec<String>,
}

#[async_trait]
impl Handler for DeletionHandler {
    async fn run(&self, claim: &Claim, clock: &Clock) -> Result<(), JobError> {
        let (database, secrets) = (self.control.database(), self.control.secrets());
        let key = PublicKey::from_hex(claim.job.parameter("pubkey")?)
            .map_err(|_| Error::Damaged(format!("job {} has no key", claim.job.id)))?;
        let person = Person { pseudonym: secrets.pseudonym(&key)?, pseudonyms: secrets.pseudonyms(&key), key };
        let events_until = claim.job.parameters.get("events_until").and_then(Json::as_u64).map(Timestamp);
        if let Some(until) = events_until {
            self.events.vanish(&person.key, until).await?;
        }
        for statement in person.steps() {
            in_steps(claim, database, statement).await?;
        }
        // Before the account goes: what is noted and not done is done by this job, what is done and not noted would come back.
        let listed = ListedDeletion { deleted_at: clock(), include_events: events_until.is_some() };
        self.list.append(&person.pseudonyms, listed).await?;
        let now = clock();
        let mut transaction = claim.begin(database).await?;
        person.delete(&mut transaction, now).await?;
        let id = claim.job.parameter("deletion_request_id")?;
        let update =
            sql("UPDATE cn_user.personal_data_deletion_requests SET completed_at = $2 WHERE deletion_request_id = $1");
        transaction.execute(update.bind(id).bind(now)).await?;
        let entry = Entry::new("account.delete", Target::Thing("deletion", id.to_owned()));
        let entry = entry.field("status", AccountStatus::Deleting.name(), "deleted");
        audit::record(&mut transaction, &secrets, &Actor::system(), entry, now).await?;
        job::forget_person(&mut transaction, &person.pseudonyms).await?;
        claim.complete_in(&mut transaction, now).await?;
        transaction.commit().await?;
        self.control.refresh(now).await?;
        Ok(())
    }
}

/// Runs a statement that changes at most [`STEP`] rows, until none is left.
async fn in_steps(claim: &Claim, database: &Database, statement: Statement) -> Result<(), JobError> {
    loop {
        let mut transaction = claim.begin(database).await?;
        let changed = transaction.fetch(statement.clone()).await?.len() as u64;
        transaction.commit().await?;
        if changed < STEP {
            return Ok(());
        }
    }
}

impl Person {
    /// Tables in which a person may have many rows. Each statement changes at most [`STEP`] of them.
    fn steps(&self) -> [Statement; 3] {
        let usage = sql("UPDATE cn_user.usage_events SET pubkey = $2, request_id = NULL WHERE usage_id IN \
             (SELECT usage_id FROM cn_user.usage_events WHERE pubkey = $1 LIMIT $3) RETURNING 1");
        let counters = sql("DELETE FROM cn_user.usage_counters_daily WHERE pubkey = $1 AND (metric, day) IN \
             (SELECT metric, day FROM cn_user.usage_counters_daily WHERE pubkey = $1 LIMIT $2) RETURNING 1");
        let parts = sql("DELETE FROM cn_user.personal_data_export_parts WHERE (export_request_id, part) IN \
             (SELECT p.export_request_id, p.part FROM cn_user.personal_data_export_parts p \
             JOIN cn_user.personal_data_export_requests e ON e.export_request_id = p.export_request_id \
             WHERE e.requester_pubkey = $1 LIMIT $2) RETURNING 1");
        [
            usage.bind(&self.key).bind(&self.pseudonym).bind(STEP),
            counters.bind(&self.key).bind(STEP),
            parts.bind(&self.key).bind(STEP),
        ]
    }

    /// Everything that is left. Consents, usage and bans stay under a pseudonym.
    async fn delete(&self, transaction: &mut Transaction, now: Timestamp) -> Result<()> {
        // Rows that were written between the steps and now.
        for statement in self.steps() {
            while transaction.fetch(statement.clone()).await?.len() as u64 == STEP {}
        }
        let consents =
            sql("UPDATE cn_user.policy_consents SET accepter_pubkey = NULL, accepter_hmac = $2, deleted_at = $3 \
             WHERE accepter_pubkey = $1");
        transaction.execute(consents.bind(&self.key).bind(&self.pseudonym).bind(now)).await?;
        let bans = sql("UPDATE cn_user.bans SET pubkey = NULL, revision = $2 WHERE pubkey = $1");
        let revision = transaction.revision();
        transaction.execute(bans.bind(&self.key).bind(revision)).await?;
        for delete in [
            "DELETE FROM cn_user.auth_challenges WHERE pubkey = $1",
            "DELETE FROM cn_user.allowlist WHERE pubkey = $1",
            "DELETE FROM cn_user.idempotent_requests WHERE pubkey = $1",
            "DELETE FROM cn_user.topic_subscription_requests WHERE requester_pubkey = $1",
            "DELETE FROM cn_user.topic_subscriptions WHERE subscriber_pubkey = $1",
            "DELETE FROM cn_user.subscriptions WHERE subscriber_pubkey = $1",
            "DELETE FROM cn_user.personal_data_export_requests WHERE requester_pubkey = $1",
            "DELETE FROM cn_admin.persons WHERE pubkey = $1",
            "DELETE FROM cn_user.subscriber_accounts WHERE subscriber_pubkey = $1",
        ] {
            transaction.execute(sql(delete).bind(&self.key)).await?;
        }
        setting::touch_removed(transaction).await
    }
}
