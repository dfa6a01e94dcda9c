//! What is removed by age (N-4).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use kukuri_control::{
    Control as ControlPlane,
    audit::{self, Actor, Entry, Target},
    database::sql,
    job::{
        self, JobStatus,
        worker::{Handler, Worker, WorkerSettings},
    },
    metric::Metric,
    retention::{self, RetentionHandler},
    usage,
};
use kukuri_domain::Timestamp;

use crate::{
    jobs::TestClock,
    support::{Control, START, on_both, person},
};

const DAY: u64 = 24 * 3_600;
const YEAR: u64 = 365 * DAY;

/// Seconds before the sweep.
fn ago(seconds: u64) -> u64 {
    START.0 - seconds
}

/// Sweeps at [`START`].
async fn sweep(control: &Control, is_held: bool) {
    let plane = Arc::new(ControlPlane::open(control.database.clone(), START).await.unwrap());
    retention::enqueue(&control.database, START).await.unwrap();
    let held = Arc::new(AtomicBool::new(is_held));
    let handler = RetentionHandler { control: plane, is_clock_held: Box::new(move || held.load(SeqCst)) };
    let handlers: [(&'static str, Arc<dyn Handler>); 1] = [(retention::KIND, Arc::new(handler))];
    let clock = TestClock::new().clock();
    let worker = Worker::new(control.database.clone(), handlers, WorkerSettings::default(), clock);
    assert!(worker.run_one().await.unwrap());
}

/// A table, the column that tells its rows apart, a statement that adds a row with that as `$1` and its time as `$2`, and the ages
/// of rows in seconds, each with whether such a row is over.
type Rows = (&'static str, &'static str, &'static str, &'static [(&'static str, bool)]);

const ROWS: [Rows; 13] = [
    (
        "cn_user.auth_challenges",
        "challenge",
        "INSERT INTO cn_user.auth_challenges (challenge, pubkey, created_at, expires_at) VALUES ($1, 'x', $2, $2)",
        &[("0", true), ("-1", false)],
    ),
    (
        "cn_user.ended_tokens",
        "jti",
        "INSERT INTO cn_user.ended_tokens (jti, expires_at, revision) VALUES ($1, $2, 0)",
        &[("0", true), ("-1", false)],
    ),
    (
        "cn_user.used_credentials",
        "credential",
        "INSERT INTO cn_user.used_credentials (credential, expires_at) VALUES ($1, $2)",
        &[("0", true), ("-1", false)],
    ),
    (
        "cn_user.idempotent_requests",
        "idempotency_key",
        "INSERT INTO cn_user.idempotent_requests (pubkey, idempotency_key, content_hash, created_at) VALUES ('x', $1, 'h', $2)",
        &[("86400", true), ("86399", false)],
    ),
    (
        "cn_user.usage_events",
        "usage_id",
        "INSERT INTO cn_user.usage_events (usage_id, pubkey, metric, day, units, outcome, created_at) VALUES ($1, 'x', 'm', 1, 1, 'ok', $2)",
        &[("15552000", true), ("15551999", false)],
    ),
    (
        "cn_user.usage_counters_daily",
        "metric",
        "INSERT INTO cn_user.usage_counters_daily (pubkey, metric, day, count) VALUES ('x', $1, $2 / 86400, 1)",
        // 91 days, and 90.
        &[("7862400", true), ("7776000", false)],
    ),
    (
        "cn_user.topic_subscriptions",
        "topic_id",
        "INSERT INTO cn_user.topic_subscriptions (topic_id, subscriber_pubkey, services, status, started_at, ended_at) \
         VALUES ($1, 'x', 'relay', 'ended', 1, $2)",
        &[("31536000", true), ("31535999", false)],
    ),
    (
        "cn_user.subscriptions",
        "subscription_id",
        "INSERT INTO cn_user.subscriptions (subscription_id, subscriber_pubkey, plan_id, status, started_at, ended_at) \
         VALUES ($1, 'x', 'free', 'ended', 1, $2)",
        &[("31536000", true), ("31535999", false)],
    ),
    (
        "cn_user.topic_subscription_requests",
        "request_id",
        "INSERT INTO cn_user.topic_subscription_requests (request_id, requester_pubkey, topic_id, requested_services, status, \
         created_at, reviewed_at) VALUES ($1, 'x', 't', 'relay', 'rejected', 1, $2)",
        &[("31536000", true), ("31535999", false)],
    ),
    (
        "cn_user.policy_consents",
        "consent_id",
        "INSERT INTO cn_user.policy_consents (consent_id, accepter_hmac, deleted_at, policy_type, version, locale, content_hash, \
         accepted_at) VALUES ($1, 'h', $2, 'terms', '1', 'ja', 'h', 1)",
        &[("63072000", true), ("63071999", false)],
    ),
    (
        "cn_user.personal_data_deletion_requests",
        "deletion_request_id",
        "INSERT INTO cn_user.personal_data_deletion_requests (deletion_request_id, requester_pseudonym, job_id, receipt_hash, \
         include_events, created_at, completed_at) VALUES ($1, 'p', 'j', 'h', 0, 1, $2)",
        &[("63072000", true), ("63071999", false)],
    ),
    (
        "cn_user.personal_data_export_requests",
        "export_request_id",
        "INSERT INTO cn_user.personal_data_export_requests (export_request_id, requester_pubkey, job_id, download_token_hash, \
         created_at) VALUES ($1, 'x', 'j', 'h', $2)",
        &[("7776000", true), ("7775999", false)],
    ),
    (
        "cn_admin.jobs",
        "job_id",
        "INSERT INTO cn_admin.jobs (job_id, kind, parameters_json, status, attempts, next_run_at, created_at, completed_at) \
         VALUES ($1, 'x', '{}', 'completed', 1, 1, 1, $2)",
        &[("7776000", true), ("7775999", false)],
    ),
];

async fn values(control: &Control, table: &str, column: &str) -> Vec<String> {
    let rows = control.database.read(sql(format!("SELECT {column} FROM {table} ORDER BY 1"))).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

on_both! {
    async fn each_table_loses_what_is_over_and_nothing_else(control) {
        for (_, _, insert, rows) in ROWS {
            for (age, _) in rows {
                let time = START.0.saturating_add_signed(-age.parse::<i64>().unwrap());
                control.database.change(sql(insert).bind(*age).bind(time)).await.unwrap();
            }
        }
        sweep(control, false).await;
        for (table, column, _, rows) in ROWS {
            let left = values(control, table, column).await;
            for (age, is_over) in rows {
                assert_eq!(left.iter().any(|value| value == age), !is_over, "{table}, {age} s old");
            }
        }
        let runs = retention::list(&control.database).await.unwrap();
        for (table, ..) in ROWS {
            let run = runs.iter().find(|run| run.table == table).unwrap_or_else(|| panic!("{table}"));
            assert_eq!((run.ran_at, run.removed), (START, 1), "{table}");
        }
        assert_eq!(runs.len(), ROWS.len() + 2, "and the audit log, and parts of exports");
    }

    async fn more_rows_than_one_step_removes_go(control) {
        for number in 0..1_200 {
            let insert = sql("INSERT INTO cn_user.used_credentials (credential, expires_at) VALUES ($1, 1)");
            control.database.change(insert.bind(number.to_string())).await.unwrap();
        }
        sweep(control, false).await;
        assert!(values(control, "cn_user.used_credentials", "credential").await.is_empty());
        let runs = retention::list(&control.database).await.unwrap();
        let run = runs.iter().find(|run| run.table == "cn_user.used_credentials").unwrap();
        assert_eq!(run.removed, 1_200);
    }

    async fn what_a_request_in_progress_left_of_a_deleted_account_goes(control) {
        // N-2
        control.join(&person(1)).await;
        control.join(&person(2)).await;
        for number in [1, 2] {
            let reserved = usage::reserve(&control.database, &person(number), Metric::SearchRequests, None, START).await;
            usage::settle(&control.database, reserved.unwrap(), usage::Outcome::Ok, None, START).await.unwrap();
        }
        let delete = sql("DELETE FROM cn_user.subscriber_accounts WHERE subscriber_pubkey = $1").bind(&person(2));
        control.database.change(delete).await.unwrap();
        sweep(control, false).await;
        for table in ["cn_user.usage_events", "cn_user.usage_counters_daily"] {
            assert_eq!(values(control, table, "pubkey").await, [person(1).to_string()], "{table}");
        }
    }

    async fn audit_log_is_kept_for_180_days_and_its_numbers_go_on(control) {
        // K-2
        let record = async |seconds: u64| {
            let mut transaction = control.begin().await;
            let entry = Entry::new("account.ban", Target::Person(person(1)));
            audit::record(&mut transaction, &control.secrets, &Actor::command(), entry, Timestamp(seconds)).await.unwrap();
            transaction.commit().await.unwrap();
        };
        let ids = async || {
            let rows = audit::list(&control.database, None, 10).await.unwrap();
            rows.iter().map(|row| row.id).collect::<Vec<_>>()
        };
        for age in [YEAR, 180 * DAY + 1, 180 * DAY] {
            record(ago(age)).await;
        }
        sweep(control, false).await;
        assert_eq!(ids().await, [3]);
        for refused in ["DELETE FROM cn_admin.audit_logs", "UPDATE cn_admin.audit_logs SET action = 'x'"] {
            let refused = control.database.change(sql(refused)).await.unwrap_err().to_string();
            assert!(refused.contains("append-only"), "{refused}");
        }
        record(START.0).await;
        assert_eq!(ids().await, [4, 3]);
    }

    async fn newest_audit_row_stays_however_old_it_is(control) {
        let mut transaction = control.begin().await;
        let entry = Entry::new("account.ban", Target::Person(person(1)));
        audit::record(&mut transaction, &control.secrets, &Actor::command(), entry, Timestamp(1)).await.unwrap();
        transaction.commit().await.unwrap();
        sweep(control, false).await;
        assert_eq!(audit::list(&control.database, None, 10).await.unwrap().len(), 1);
    }

    async fn wrong_clock_removes_nothing(control) {
        // P-5
        let insert = sql("INSERT INTO cn_user.used_credentials (credential, expires_at) VALUES ('x', 1)");
        control.database.change(insert).await.unwrap();
        sweep(control, true).await;
        assert_eq!(values(control, "cn_user.used_credentials", "credential").await, ["x"]);
        assert!(retention::list(&control.database).await.unwrap().is_empty());
        let jobs = job::list(&control.database, Some(JobStatus::Queued), None, 10).await.unwrap();
        assert_eq!(jobs.len(), 1, "it is tried again");
        assert!(jobs[0].error.as_ref().unwrap().contains("clock"), "{jobs:?}");
    }

    async fn failed_deletion_waits_for_an_operator(control) {
        let insert = sql("INSERT INTO cn_admin.jobs (job_id, kind, parameters_json, status, attempts, next_run_at, created_at, \
            completed_at) VALUES ($1, $2, '{}', 'failed', 12, 1, 1, 1)");
        for kind in ["personal-data.deletion", "personal-data.export"] {
            control.database.change(insert.clone().bind(kind).bind(kind)).await.unwrap();
        }
        sweep(control, false).await;
        let failed = job::list(&control.database, Some(JobStatus::Failed), None, 10).await.unwrap();
        assert_eq!(failed.iter().map(|job| job.kind.as_str()).collect::<Vec<_>>(), ["personal-data.deletion"]);
    }
}
