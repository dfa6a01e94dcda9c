//! Retention of the control database (N-4): once a day a job removes what is older than it may be, table by table, in bounded steps.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_domain::Timestamp;
use serde_json::json;

use crate::{
    Control, Result, Transaction,
    database::{Database, Row, sql},
    job::{
        self, Claim, JobError, NewJob,
        worker::{Clock, Handler},
    },
    usage::day_of,
};

/// The job.
pub const KIND: &str = "retention";
/// Rows that one transaction removes.
const STEP: u64 = 500;
const DAY: u64 = 24 * 3_600;
const YEAR: u64 = 365 * DAY;

/// When rows of a table are over.
struct Rule {
    table: &'static str,
    /// Columns of the primary key.
    key: &'static str,
    /// How long rows are kept, in seconds.
    keep: u64,
    /// Rows that are over, with the end of retention as `$1`.
    is_over: &'static str,
}

/// Rows that are over, and recent ones that a request in progress has left behind when its account was deleted (N-2).
macro_rules! or_is_left {
    ($is_over:literal, $is_recent:literal) => {
        concat!(
            $is_over,
            " OR (",
            $is_recent,
            " AND length(pubkey) = 64 AND NOT EXISTS \
              (SELECT 1 FROM cn_user.subscriber_accounts a WHERE a.subscriber_pubkey = pubkey))"
        )
    };
}

/// All tables with a retention. Others keep what they have: accounts, invites, bans, policies, plans, secrets, names.
const RULES: [Rule; 15] = [
    Rule { table: "cn_user.auth_challenges", key: "challenge", keep: 0, is_over: "expires_at <= $1" },
    Rule { table: "cn_user.ended_tokens", key: "jti", keep: 0, is_over: "expires_at <= $1" },
    Rule { table: "cn_user.used_credentials", key: "credential", keep: 0, is_over: "expires_at <= $1" },
    Rule {
        table: "cn_user.idempotent_requests",
        key: "pubkey, idempotency_key",
        keep: DAY,
        is_over: "created_at <= $1",
    },
    Rule {
        table: "cn_user.usage_events",
        key: "usage_id",
        keep: 180 * DAY,
        is_over: or_is_left!("created_at <= $1", "created_at > $1 + 178 * 86400"),
    },
    Rule {
        table: "cn_user.usage_counters_daily",
        key: "pubkey, metric, day",
        keep: 90 * DAY,
        is_over: or_is_left!("day < CAST($1 AS bigint) / 86400", "day > CAST($1 AS bigint) / 86400 + 88"),
    },
    Rule {
        table: "cn_user.topic_subscriptions",
        key: "subscriber_pubkey, topic_id",
        keep: YEAR,
        is_over: "status = 'ended' AND ended_at <= $1",
    },
    Rule {
        table: "cn_user.subscriptions",
        key: "subscription_id",
        keep: YEAR,
        is_over: "status = 'ended' AND ended_at <= $1",
    },
    // The request by which a person has a topic lasts as long as the subscription.
    Rule {
        table: "cn_user.topic_subscription_requests",
        key: "request_id",
        keep: YEAR,
        is_over: "reviewed_at <= $1 AND (status IN ('rejected', 'cancelled') OR (status = 'active' AND NOT EXISTS \
            (SELECT 1 FROM cn_user.topic_subscriptions s WHERE s.subscriber_pubkey = requester_pubkey \
            AND s.topic_id = cn_user.topic_subscription_requests.topic_id)))",
    },
    // Consents of an account are kept as long as the account is, receipts of a deleted one for two years more.
    Rule { table: "cn_user.policy_consents", key: "consent_id", keep: 2 * YEAR, is_over: "deleted_at <= $1" },
    Rule {
        table: "cn_user.personal_data_deletion_requests",
        key: "deletion_request_id",
        keep: 2 * YEAR,
        is_over: "completed_at <= $1",
    },
    // Archives are removed when they expire; here goes what a failed job has left.
    Rule {
        table: "cn_user.personal_data_export_parts",
        key: "export_request_id, part",
        keep: DAY,
        is_over: "export_request_id IN (SELECT e.export_request_id FROM cn_user.personal_data_export_requests e \
            JOIN cn_admin.jobs j ON j.job_id = e.job_id WHERE e.created_at <= $1 AND j.status NOT IN ('queued', 'running') \
            AND (e.download_expires_at IS NULL OR e.download_expires_at - 86400 <= $1))",
    },
    Rule {
        table: "cn_user.personal_data_export_requests",
        key: "export_request_id",
        keep: 90 * DAY,
        is_over: "created_at <= $1 AND NOT EXISTS (SELECT 1 FROM cn_user.personal_data_export_parts p \
            WHERE p.export_request_id = cn_user.personal_data_export_requests.export_request_id)",
    },
    // A deletion that failed waits for an operator. The job of an export goes with it.
    Rule {
        table: "cn_admin.jobs",
        key: "job_id",
        keep: 90 * DAY,
        is_over: "completed_at <= $1 AND NOT (status = 'failed' AND kind = 'personal-data.deletion') AND NOT EXISTS \
            (SELECT 1 FROM cn_user.personal_data_export_requests e WHERE e.job_id = cn_admin.jobs.job_id)",
    },
    // The newest row stays: the next one is numbered after it.
    Rule {
        table: "cn_admin.audit_logs",
        key: "audit_id",
        keep: 180 * DAY,
        is_over: "created_at < $1 AND audit_id < (SELECT max(audit_id) FROM cn_admin.audit_logs)",
    },
];

/// The last sweep of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRun {
    /// The table.
    pub table: String,
    /// When it was swept.
    pub ran_at: Timestamp,
    /// Rows from before were over.
    pub cutoff: Timestamp,
    /// How many rows were removed.
    pub removed: u64,
}

impl RetentionRun {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self { table: row.get(0)?, ran_at: row.get(1)?, cutoff: row.get(2)?, removed: row.get(3)? })
    }
}

/// The last sweep of each table, by name.
pub async fn list(database: &Database) -> Result<Vec<RetentionRun>> {
    let select = sql("SELECT table_name, ran_at, cutoff, removed FROM cn_admin.retention_runs ORDER BY table_name");
    database.read(select).await?.iter().map(RetentionRun::of_row).collect()
}

/// Queues the sweep of a day, once for all nodes on the database.
pub async fn enqueue(database: &Database, now: Timestamp) -> Result<()> {
    let job = NewJob { kind: KIND, subject: None, parameters: json!({}), run_at: now };
    job::enqueue_once(database, &format!("{KIND}-{}", day_of(now)), job, now).await
}

/// Sweeps all tables.
pub struct RetentionHandler {
    /// The control plane.
    pub control: Arc<Control>,
    /// Whether the clock may be wrong: then nothing is removed (P-5).
    pub is_clock_held: Box<dyn Fn() -> bool + Send + Sync>,
}

#[async_trait]
impl Handler for RetentionHandler {
    async fn run(&self, claim: &Claim, clock: &Clock) -> Result<(), JobError> {
        if (self.is_clock_held)() {
            return Err(JobError::NotNow(
                "the clock may be wrong, so nothing is removed by age; see `kukuri-node clock`",
            ));
        }
        let now = clock();
        for rule in &RULES {
            let mut removed = 0;
            loop {
                let mut transaction = claim.begin(self.control.database()).await?;
                let step = rule.remove_some(&mut transaction, removed, now).await?;
                transaction.commit().await?;
                removed += step;
                if step < STEP {
                    break;
                }
            }
            if removed > 0 {
                tracing::info!(table = rule.table, removed, "rows removed after their retention");
            }
        }
        Ok(())
    }
}

impl Rule {
    /// One bounded step. `removed`: what earlier steps have removed. Returns how many rows this one has.
    async fn remove_some(&self, transaction: &mut Transaction, removed: u64, now: Timestamp) -> Result<u64> {
        let cutoff = now.0.saturating_sub(self.keep);
        // First: the audit log lets go only what is older than the cutoff that is noted here.
        let note = sql(
            "INSERT INTO cn_admin.retention_runs (table_name, ran_at, cutoff, removed) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (table_name) DO UPDATE SET ran_at = excluded.ran_at, cutoff = excluded.cutoff, removed = excluded.removed",
        );
        let note = |removed: u64| note.clone().bind(self.table).bind(now).bind(cutoff).bind(removed);
        transaction.execute(note(removed)).await?;
        let Self { table, key, is_over, .. } = self;
        let delete = format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {is_over} LIMIT $2) RETURNING 1"
        );
        let step = transaction.fetch(sql(delete).bind(cutoff).bind(STEP)).await?.len() as u64;
        if step > 0 {
            transaction.execute(note(removed + step)).await?;
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::personal_data::deletion;

    #[test]
    fn failed_deletions_are_kept_by_their_kind() {
        let rule = RULES.iter().find(|rule| rule.table == "cn_admin.jobs");
        assert!(rule.is_some_and(|rule| rule.is_over.contains(&format!("kind = '{}'", deletion::KIND))));
    }
}
