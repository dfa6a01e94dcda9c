//! Jobs (N-3): work that outlives a request and a crash, in one table for all nodes on a database.
//!
//! - This file: the rows. A worker takes a job by one conditional statement, which gives it a lease. A claim whose lease is over is
//!   taken over by another worker; everything that a job writes goes through its [`Claim`], so a claim that was lost writes nothing.
//! - [`worker`]: the loop that runs them.

pub mod worker;

use std::fmt;

use kukuri_domain::Timestamp;
use serde_json::Value as Json;
use uuid::Uuid;

use crate::{
    Error, Refused, Result,
    database::{Database, Row, Statement, Transaction, sql},
    personal_data,
};

/// A job that failed as often as this stays failed, until an operator has it retried: about four hours after the first attempt.
pub const MAX_ATTEMPTS: u32 = 12;
/// Wait after the first failed attempt; it doubles with each further one.
const FIRST_RETRY_INTERVAL: u64 = 10;
/// The longest wait.
const MAX_RETRY_INTERVAL: u64 = 3_600;
/// The longest error that is kept, in characters.
const MAX_ERROR: usize = 300;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobStatus {
    /// It waits for a worker, or for its time.
    Queued,
    /// A worker has a lease on it.
    Running,
    /// It is done.
    Completed,
    /// It failed in every attempt.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobStatus {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn read(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|status| status.name() == name);
        found.ok_or_else(|| Error::Damaged(format!("a job is `{name}`")))
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// The kind of work.
    pub kind: String,
    /// The pseudonym of the person whom it is about.
    pub subject: Option<String>,
    /// Parameters for its handler.
    pub parameters: Json,
    /// Its state.
    pub status: JobStatus,
    /// How often it was begun.
    pub attempts: u32,
    /// When a queued job is due.
    pub next_run_at: Timestamp,
    /// Until when the worker has it.
    pub lease_until: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// When it was queued first.
    pub created_at: Timestamp,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

const COLUMNS: &str = "job_id, kind, subject, parameters_json, status, attempts, next_run_at, lease_until, error_message, \
    created_at, started_at, completed_at";

/// Jobs that a worker may take, with the time as `$1`.
const IS_DUE: &str = "((status = 'queued' AND next_run_at <= $1) OR (status = 'running' AND lease_until <= $1))";

impl Job {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            kind: row.get(1)?,
            subject: row.get(2)?,
            parameters: serde_json::from_str(&row.get::<String>(3)?).unwrap_or_default(),
            status: JobStatus::read(&row.get::<String>(4)?)?,
            attempts: row.get(5)?,
            next_run_at: row.get(6)?,
            lease_until: row.get(7)?,
            error: row.get(8)?,
            created_at: row.get(9)?,
            started_at: row.get(10)?,
            completed_at: row.get(11)?,
        })
    }

    /// A text among the parameters.
    pub fn parameter(&self, name: &str) -> Result<&str> {
        let text = self.parameters.get(name).and_then(Json::as_str);
        text.ok_or_else(|| Error::Damaged(format!("job {} has no `{name}`", self.id)))
    }
}

/// A job to be queued.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// The kind of work.
    pub kind: &'static str,
    /// The pseudonym of the person whom it is about.
    pub subject: Option<String>,
    /// Parameters for its handler.
    pub parameters: Json,
    /// When it is due.
    pub run_at: Timestamp,
}

/// Queues a job, in the transaction of what makes it necessary. Returns its id.
pub async fn enqueue(transaction: &mut Transaction, job: NewJob, now: Timestamp) -> Result<String> {
    let id = Uuid::new_v4().to_string();
    transaction.execute(insert(&id, job, now)).await?;
    Ok(id)
}

/// Queues a job that has its id from what it is for, such as a day, unless there is one already.
pub async fn enqueue_once(database: &Database, id: &str, job: NewJob, now: Timestamp) -> Result<()> {
    database.change(insert(id, job, now)).await.map(drop)
}

fn insert(id: &str, job: NewJob, now: Timestamp) -> Statement {
    let insert = sql(
        "INSERT INTO cn_admin.jobs (job_id, kind, subject, parameters_json, status, attempts, next_run_at, created_at) \
         VALUES ($1, $2, $3, $4, 'queued', 0, $5, $6) ON CONFLICT (job_id) DO NOTHING",
    );
    let insert = insert.bind(id).bind(job.kind).bind(job.subject).bind(job.parameters.to_string());
    insert.bind(job.run_at).bind(now)
}

/// A job in the hands of one worker. It is lost when its lease is over and another worker takes the job, or when the job is
/// cancelled.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The job, as it was claimed.
    pub job: Job,
    holder: String,
}

/// Takes the job of these kinds that is due for longest, until `lease_until`. A job whose worker died in its last attempt fails.
pub async fn claim(
    database: &Database,
    kinds: &[&str],
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Option<Claim>> {
    let with_kinds = |text: &str, first: usize| {
        let places: Vec<String> = (first..first + kinds.len()).map(|place| format!("${place}")).collect();
        text.replace("KINDS", &places.join(", "))
    };
    let bind_kinds = |statement: Statement| kinds.iter().fold(statement, |statement, kind| statement.bind(*kind));
    let due = with_kinds(&format!("SELECT 1 FROM cn_admin.jobs WHERE {IS_DUE} AND kind IN (KINDS) LIMIT 1"), 2);
    // Most of the time there is none, and a read disturbs nobody.
    while database.read_first(bind_kinds(sql(due.clone()).bind(now))).await?.is_some() {
        let holder = Uuid::new_v4().to_string();
        // The condition stands twice: on Postgres, another worker may take the row while this statement waits for it.
        let update = with_kinds(
            &format!(
                "UPDATE cn_admin.jobs SET status = 'running', holder = $2, lease_until = $3, attempts = attempts + 1, \
                 started_at = coalesce(started_at, $1) \
                 WHERE {IS_DUE} AND job_id = (SELECT job_id FROM cn_admin.jobs WHERE {IS_DUE} AND kind IN (KINDS) \
                 ORDER BY next_run_at, job_id LIMIT 1) RETURNING {COLUMNS}"
            ),
            4,
        );
        let update = bind_kinds(sql(update).bind(now).bind(&holder).bind(lease_until));
        // Another worker was faster; there may be other jobs the next time.
        let Some(row) = database.change(update).await?.into_iter().next() else { return Ok(None) };
        let claim = Claim { job: Job::of_row(&row)?, holder };
        if claim.job.attempts <= MAX_ATTEMPTS {
            return Ok(Some(claim));
        }
        claim.fail(database, "the node ended in the middle of every attempt", now).await?;
    }
    Ok(None)
}

/// Why a job did not go on.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Another worker has the job, or it was cancelled. Nothing is to be done.
    #[error("the job was cancelled, or its lease is over")]
    Lost,
    /// The control database failed.
    #[error(transparent)]
    Control(#[from] Error),
    /// The store of events failed.
    #[error("the event store failed: {0}")]
    Events(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// An archive could not be written.
    #[error(transparent)]
    Archive(#[from] zip::result::ZipError),
    /// The job can't run now.
    #[error("{0}")]
    NotNow(&'static str),
    /// The handler panicked.
    #[error("the job panicked; the log has the reason")]
    Panicked,
}

impl Claim {
    fn update(&self, set: &str) -> Statement {
        let update = format!(
            "UPDATE cn_admin.jobs SET {set} WHERE job_id = $1 AND holder = $2 AND status = 'running' RETURNING 1"
        );
        sql(update).bind(&self.job.id).bind(&self.holder)
    }

    /// Extends the lease. `false`: the claim is lost.
    pub async fn renew(&self, database: &Database, lease_until: Timestamp) -> Result<bool> {
        Ok(!database.change(self.update("lease_until = $3").bind(lease_until)).await?.is_empty())
    }

    /// Begins a transaction for changes of the job. Fails if the claim is lost, and keeps it until the transaction ends.
    pub async fn begin(&self, database: &Database) -> Result<Transaction, JobError> {
        let mut transaction = database.begin().await?;
        // On Postgres this locks the row against another worker.
        let held = transaction.fetch_first(self.update("lease_until = lease_until")).await?;
        held.map(|_| transaction).ok_or(JobError::Lost)
    }

    fn completed(&self, now: Timestamp) -> Statement {
        let set = "status = 'completed', completed_at = $3, lease_until = NULL, holder = NULL, error_message = NULL";
        self.update(set).bind(now)
    }

    /// Ends the job together with its last change.
    pub async fn complete_in(&self, transaction: &mut Transaction, now: Timestamp) -> Result<()> {
        transaction.execute(self.completed(now)).await
    }

    /// Ends the job, unless it has ended or the claim is lost.
    pub async fn complete(&self, database: &Database, now: Timestamp) -> Result<()> {
        database.change(self.completed(now)).await.map(drop)
    }

    /// Notes that an attempt failed. The job waits for the next, or has failed. Returns which.
    pub async fn fail(&self, database: &Database, error: &str, now: Timestamp) -> Result<JobStatus> {
        let is_last = self.job.attempts >= MAX_ATTEMPTS;
        let status = if is_last { JobStatus::Failed } else { JobStatus::Queued };
        let set =
            "status = $3, error_message = $4, next_run_at = $5, completed_at = $6, lease_until = NULL, holder = NULL";
        let error: String = error.chars().filter(|character| *character != '\0').take(MAX_ERROR).collect();
        let update = self.update(set).bind(status.name()).bind(error).bind(now.0 + retry_interval(self.job.attempts));
        database.change(update.bind(is_last.then_some(now))).await?;
        Ok(status)
    }

    /// Gives the job back, due at once: its node stops. The attempt does not count.
    pub async fn release(&self, database: &Database, now: Timestamp) -> Result<()> {
        let set = "status = 'queued', next_run_at = $3, attempts = attempts - 1, lease_until = NULL, holder = NULL";
        database.change(self.update(set).bind(now)).await.map(drop)
    }
}

/// Seconds between a failed attempt and the next.
fn retry_interval(attempts: u32) -> u64 {
    let doubled = FIRST_RETRY_INTERVAL.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    doubled.min(MAX_RETRY_INTERVAL)
}

/// Cancels a job that is queued or running; its worker notices. Returns it as it was.
pub async fn cancel(transaction: &mut Transaction, id: &str, now: Timestamp) -> Result<Job, Refused> {
    let job = find_in(transaction, id).await?;
    if job.kind == personal_data::deletion::KIND {
        // The account would stay as it is, with no way on and no way back.
        return Err(Refused::InvalidState("the deletion of an account can't be cancelled".to_owned()));
    }
    let update =
        sql("UPDATE cn_admin.jobs SET status = 'cancelled', completed_at = $2, lease_until = NULL, holder = NULL \
         WHERE job_id = $1 AND status IN ('queued', 'running') RETURNING 1");
    match transaction.fetch_first(update.bind(id).bind(now)).await? {
        Some(_) => Ok(job),
        None => Err(Refused::InvalidState(format!("the job is {}, neither queued nor running", job.status))),
    }
}

/// Cancels all jobs of a kind about a person that have not ended.
pub(crate) async fn cancel_all(transaction: &mut Transaction, kind: &str, subject: &str, now: Timestamp) -> Result<()> {
    let update =
        sql("UPDATE cn_admin.jobs SET status = 'cancelled', completed_at = $3, lease_until = NULL, holder = NULL \
         WHERE subject = $1 AND kind = $2 AND status IN ('queued', 'running')");
    transaction.execute(update.bind(subject).bind(kind).bind(now)).await
}

/// Queues a failed or cancelled job again, with all its attempts. Returns it as it was.
pub async fn retry(transaction: &mut Transaction, id: &str, now: Timestamp) -> Result<Job, Refused> {
    let job = find_in(transaction, id).await?;
    let update =
        sql("UPDATE cn_admin.jobs SET status = 'queued', attempts = 0, next_run_at = $2, completed_at = NULL \
         WHERE job_id = $1 AND status IN ('failed', 'cancelled') RETURNING 1");
    match transaction.fetch_first(update.bind(id).bind(now)).await? {
        Some(_) => Ok(job),
        None => Err(Refused::InvalidState(format!("the job is {}, neither failed nor cancelled", job.status))),
    }
}

async fn find_in(transaction: &mut Transaction, id: &str) -> Result<Job, Refused> {
    let row = transaction.fetch_first(by_id(id)).await?.ok_or(Refused::UnknownJob)?;
    Ok(Job::of_row(&row)?)
}

fn by_id(id: &str) -> Statement {
    sql(format!("SELECT {COLUMNS} FROM cn_admin.jobs WHERE job_id = $1")).bind(id)
}

/// Reads a job.
pub async fn find(database: &Database, id: &str) -> Result<Option<Job>> {
    let row = database.read_first(by_id(id)).await?;
    row.as_ref().map(Job::of_row).transpose()
}

/// A position in a list of jobs: time and id of the last one read.
pub type JobCursor = (Timestamp, String);

/// A page of jobs, the oldest first: in a state, or all.
pub async fn list(
    database: &Database,
    status: Option<JobStatus>,
    after: Option<JobCursor>,
    limit: usize,
) -> Result<Vec<Job>> {
    let (since, last) = after.unwrap_or_default();
    let select = sql(format!(
        "SELECT {COLUMNS} FROM cn_admin.jobs WHERE (created_at, job_id) > ($1, $2) AND ($3 = '' OR status = $3) \
         ORDER BY created_at, job_id LIMIT $4"
    ));
    let status = status.map_or("", JobStatus::name);
    let rows = database.read(select.bind(since).bind(last).bind(status).bind(limit as u64)).await?;
    rows.iter().map(Job::of_row).collect()
}

/// A person's jobs lose what could name the person.
pub(crate) async fn forget_person(transaction: &mut Transaction, subjects: &[String]) -> Result<()> {
    for subject in subjects {
        let update = sql("UPDATE cn_admin.jobs SET parameters_json = '{}', error_message = NULL WHERE subject = $1")
            .bind(subject);
        transaction.execute(update).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_up_to_an_hour() {
        let waits: Vec<u64> = (1..=MAX_ATTEMPTS).map(retry_interval).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600]);
    }
}
