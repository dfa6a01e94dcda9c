//! The loop that runs jobs. Every node on a database has one; a job is run by one of them at a time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use kukuri_domain::Timestamp;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{Claim, JobError, JobStatus, claim};
use crate::{Result, database::Database, retention, usage::day_of};

/// The time now.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Does the jobs of one kind. A job may have been begun before, by a worker that died anywhere: doing a step again has the effect of
/// once. It changes the control database through its claim ([`Claim::begin`]).
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does a job.
    async fn run(&self, claim: &Claim, clock: &Clock) -> Result<(), JobError>;
}

/// How long a worker has a job, and how often it looks.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// Without a sign of the worker for this long, in seconds, another takes its job.
    pub lease: u64,
    /// The worker renews its lease, and notices that a job was cancelled.
    pub renew_interval: Duration,
    /// The worker looks for jobs.
    pub poll_interval: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { lease: 60, renew_interval: Duration::from_secs(2), poll_interval: Duration::from_secs(1) }
    }
}

/// Waits until the node stops. Without a sender it has gone.
async fn stops(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Runs jobs, one after the other.
#[derive(Clone)]
pub struct Worker {
    database: Database,
    handlers: BTreeMap<&'static str, Arc<dyn Handler>>,
    settings: WorkerSettings,
    clock: Clock,
}

impl Worker {
    /// A worker for the jobs of these kinds.
    pub fn new(
        database: Database,
        handlers: impl IntoIterator<Item = (&'static str, Arc<dyn Handler>)>,
        settings: WorkerSettings,
        clock: Clock,
    ) -> Self {
        Self { database, handlers: handlers.into_iter().collect(), settings, clock }
    }

    /// Runs jobs until the node stops. A job that is running then is given back.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) {
        let (mut is_failing, mut scheduled_day) = (false, None);
        while !*stopping.borrow() {
            let worked = async {
                self.schedule(&mut scheduled_day).await?;
                self.step(&mut stopping).await
            };
            match worked.await {
                Ok(true) => continue,
                Ok(false) => is_failing = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::error!(%error, "can't read jobs from the control database; trying again");
                    }
                }
            }
            tokio::select! {
                () = sleep(self.settings.poll_interval) => {}
                () = stops(&mut stopping) => return,
            }
        }
    }

    /// Queues what is done once a day on each database.
    async fn schedule(&self, scheduled_day: &mut Option<u64>) -> Result<()> {
        let now = (self.clock)();
        let day = day_of(now);
        if *scheduled_day != Some(day) && self.handlers.contains_key(retention::KIND) {
            retention::enqueue(&self.database, now).await?;
            *scheduled_day = Some(day);
        }
        Ok(())
    }

    /// Runs one job, if one is due. Returns whether one was.
    pub async fn run_one(&self) -> Result<bool> {
        let (_running, mut stopping) = watch::channel(false);
        self.step(&mut stopping).await
    }

    async fn step(&self, stopping: &mut watch::Receiver<bool>) -> Result<bool> {
        let kinds: Vec<&str> = self.handlers.keys().copied().collect();
        let now = (self.clock)();
        let Some(claim) = claim(&self.database, &kinds, now, self.lease_until()).await? else { return Ok(false) };
        let Some(handler) = self.handlers.get(claim.job.kind.as_str()) else { return Ok(false) };
        let (id, kind) = (&claim.job.id, &claim.job.kind);
        tracing::debug!(id, kind, attempt = claim.job.attempts, "job begins");
        // A task of its own: a panic ends the job, not the worker. Dropped, it is aborted.
        let mut task = JoinSet::new();
        let (handler, of_task, clock) = (Arc::clone(handler), claim.clone(), Arc::clone(&self.clock));
        task.spawn(async move { handler.run(&of_task, &clock).await });
        let done = tokio::select! {
            done = task.join_next() => done.and_then(|joined| joined.ok()).unwrap_or(Err(JobError::Panicked)),
            () = self.keep(&claim) => Err(JobError::Lost),
            () = stops(stopping) => {
                claim.release(&self.database, (self.clock)()).await?;
                return Ok(true);
            }
        };
        let now = (self.clock)();
        match done {
            Ok(()) => claim.complete(&self.database, now).await?,
            Err(JobError::Lost) => tracing::info!(id, kind, "job left: it was cancelled, or another node has it"),
            Err(error) => match claim.fail(&self.database, &error.to_string(), now).await? {
                JobStatus::Failed => tracing::error!(
                    id, kind, %error,
                    "job failed in every attempt; run `kukuri-node job retry` when the cause is gone"
                ),
                _ => {
                    tracing::warn!(id, kind, attempt = claim.job.attempts, %error, "job failed; it is tried again later")
                }
            },
        }
        Ok(true)
    }

    fn lease_until(&self) -> Timestamp {
        Timestamp((self.clock)().0 + self.settings.lease)
    }

    /// Renews the lease until the claim is lost.
    async fn keep(&self, claim: &Claim) {
        let mut lease_until = self.lease_until();
        loop {
            sleep(self.settings.renew_interval).await;
            let next = self.lease_until();
            match claim.renew(&self.database, next).await {
                Ok(true) => lease_until = next,
                Ok(false) => return,
                // Another worker may have the job by now.
                Err(_) if (self.clock)() >= lease_until => return,
                Err(_) => {}
            }
        }
    }
}
