//! `job`: work in the background, such as exports and deletions.

use clap::Subcommand;
use kukuri_control::{
    Control,
    actions::{CancelJob, RetryJob},
    job::{self, Job, JobStatus},
    retention,
};
use serde_json::json;

use super::{
    people::{Lines, as_lines, named, perform},
    table::{moment, one_line, table},
};
use crate::{config::Settings, output, wiring};

const PAGE: usize = 1_000;

/// Commands about jobs. They work beside a running node too.
#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// Lists jobs, the oldest first.
    List {
        /// Only those in this state: queued, running, completed, failed or cancelled.
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        lines: Lines,
    },
    /// Queues a failed or cancelled job again.
    Retry {
        /// The job's id.
        id: String,
    },
    /// Cancels a job that is queued or running. The deletion of an account can't be cancelled.
    Cancel {
        /// The job's id.
        id: String,
    },
    /// Prints when each table of the control database was last swept by its retention, and what was removed.
    Retention(Lines),
}

pub(crate) async fn run(settings: &Settings, command: JobCommand) -> anyhow::Result<()> {
    let control = wiring::control::for_command(settings);
    match command {
        JobCommand::List { status, lines } => {
            let parse = |name: String| named("--status", &name, JobStatus::ALL, JobStatus::name);
            let status = status.map(parse).transpose()?;
            list(&*control.await?, status, &lines).await
        }
        JobCommand::Retry { id } => {
            let job = perform(&*control.await?, RetryJob { id }).await?;
            output::print(&format!("job {} ({}) is queued, was {}\n", job.id, job.kind, job.status))
        }
        JobCommand::Cancel { id } => {
            let job = perform(&*control.await?, CancelJob { id }).await?;
            output::print(&format!("job {} ({}) is cancelled, was {}\n", job.id, job.kind, job.status))
        }
        JobCommand::Retention(lines) => print_retention(&*control.await?, &lines).await,
    }
}

async fn list(control: &Control, status: Option<JobStatus>, lines: &Lines) -> anyhow::Result<()> {
    let jobs = all(control, status).await?;
    if lines.json {
        return output::print(&as_lines(jobs.iter().map(as_value)));
    }
    let rows = jobs.iter().map(|job| {
        [
            job.id.clone(),
            job.kind.clone(),
            job.status.to_string(),
            job.attempts.to_string(),
            moment(job.created_at),
            when(job),
            job.error.as_deref().map(one_line).unwrap_or_default(),
        ]
    });
    output::print(&table(["id", "kind", "status", "attempts", "queued", "next or end", "error"], rows))
}

/// When a queued job is due, or when one ended.
fn when(job: &Job) -> String {
    match job.status {
        JobStatus::Queued => moment(job.next_run_at),
        _ => job.completed_at.map(moment).unwrap_or_default(),
    }
}

async fn all(control: &Control, status: Option<JobStatus>) -> anyhow::Result<Vec<Job>> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let page = job::list(control.database(), status, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(jobs) };
        after = Some((last.created_at, last.id.clone()));
        jobs.extend(page);
    }
}

/// Without the parameters, which may name a person.
fn as_value(job: &Job) -> serde_json::Value {
    json!({
        "id": job.id,
        "kind": job.kind,
        "status": job.status.name(),
        "subject": job.subject,
        "attempts": job.attempts,
        "error": job.error,
        "created_at": job.created_at.0,
        "next_run_at": job.next_run_at.0,
        "started_at": job.started_at.map(|time| time.0),
        "completed_at": job.completed_at.map(|time| time.0),
    })
}

async fn print_retention(control: &Control, lines: &Lines) -> anyhow::Result<()> {
    let runs = retention::list(control.database()).await?;
    if lines.json {
        return output::print(&as_lines(runs.iter().map(|run| {
            json!({
                "table": run.table,
                "ran_at": run.ran_at.0,
                "cutoff": run.cutoff.0,
                "removed": run.removed,
            })
        })));
    }
    let rows =
        runs.iter().map(|run| [run.table.clone(), moment(run.ran_at), moment(run.cutoff), run.removed.to_string()]);
    output::print(&table(["table", "last sweep", "rows from before", "removed"], rows))
}
