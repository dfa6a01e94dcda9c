//! `retention`: purges now instead of within a minute, or prints what a purge would remove.

use clap::Subcommand;
use kukuri_store::maintenance::MAX_DRY_RUN_ROWS;

use super::table::table;
use crate::{
    admin_socket::{AdminReply, AdminRequest, UNEXPECTED_REPLY, client::AdminClient},
    config::Settings,
    output,
};

/// Commands about retention.
#[derive(Subcommand)]
pub(crate) enum Retention {
    /// Purges events whose retention has passed, or that exceed the capacity. A running node does so every minute.
    Run {
        /// Prints what would be purged, and changes nothing.
        #[arg(long)]
        dry_run: bool,
        /// Confirms that the clock is right, after a jump of the clock suspended purges.
        #[arg(long)]
        confirm_clock: bool,
    },
}

pub(crate) async fn run(settings: &Settings, command: Retention) -> anyhow::Result<()> {
    let Retention::Run { dry_run, confirm_clock } = command;
    let mut client = AdminClient::open(settings).await?;
    if confirm_clock && !dry_run {
        client.ask(AdminRequest::ConfirmClock).await?;
    }
    let reply = client.ask(if dry_run { AdminRequest::DryRunPurge } else { AdminRequest::Purge }).await?;
    client.close().await?;
    let AdminReply::Purged(report) = reply else { anyhow::bail!(UNEXPECTED_REPLY) };
    if report.held {
        return Ok(output::print(
            "the clock jumped, purges are suspended. If it is right now: kukuri-node retention run --confirm-clock\n",
        )?);
    }
    let rows = [
        ("events past their retention", report.by_retention),
        ("events over the capacity", report.by_capacity),
        ("ids past their retention", report.ids),
        ("outbox rows", report.outbox),
        ("tombstones, floors and vanish marks", report.memories),
    ];
    let rows: Vec<Vec<String>> = rows.iter().map(|(what, count)| vec![(*what).to_owned(), count.to_string()]).collect();
    if report.is_incomplete {
        output::print(&format!("counted in {MAX_DRY_RUN_ROWS} rows only; more would be purged\n"))?;
    }
    Ok(output::print(&table(&[if dry_run { "would be purged" } else { "purged" }, "count"], &rows))?)
}
