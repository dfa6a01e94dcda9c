//! Jobs: cancelled, and tried again.

use super::record;
use crate::{
    Refused, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    job::{self, Job, JobStatus},
};

/// Cancels a job that is queued or running.
#[derive(Clone, Debug)]
pub struct CancelJob {
    /// The job's id.
    pub id: String,
}

impl Action for CancelJob {
    type Done = Job;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<Job, Refused> {
        let before = job::cancel(transaction, &self.id, acting.now).await?;
        record(transaction, acting, change("job.cancel", &before, JobStatus::Cancelled)).await?;
        Ok(before)
    }
}

/// Queues a failed or cancelled job again.
#[derive(Clone, Debug)]
pub struct RetryJob {
    /// The job's id.
    pub id: String,
}

impl Action for RetryJob {
    type Done = Job;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<Job, Refused> {
        let before = job::retry(transaction, &self.id, acting.now).await?;
        record(transaction, acting, change("job.retry", &before, JobStatus::Queued)).await?;
        Ok(before)
    }
}

fn change(action: &'static str, before: &Job, status: JobStatus) -> Entry {
    Entry::new(action, Target::Thing("job", before.id.clone())).field("status", before.status.name(), status.name())
}
