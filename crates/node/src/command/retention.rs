//! `retention`: purging now instead of at its time, or seeing what would go.

use clap::Subcommand;

use super::table::table;
use crate::{
    config::Settings,
    control::{PurgeReport, Reply, Request, link::Link},
    output,
    wiring::{self, stores},
};

/// What can be done about retention.
#[derive(Subcommand)]
pub(crate) enum Retention {
    /// Purges what has stayed long enough or has to make room. A running node does so by itself every minute.
    Run {
        /// Only says what would go.
        #[arg(long)]
        dry_run: bool,
        /// Says that the clock is right, after it jumped and purges wait.
        #[arg(long)]
        confirm_clock: bool,
    },
}

/// Runs the command.
pub(crate) async fn run(settings: &Settings, command: Retention) -> anyhow::Result<()> {
    let Retention::Run { dry_run, confirm_clock } = command;
    let report = if dry_run {
        let store = stores::for_reading(settings).await?;
        let purged = store.preview_purge(&settings.retention(), wiring::now()).await?;
        PurgeReport::from(&purged)
    } else {
        let mut link = Link::open(settings).await?;
        if confirm_clock {
            link.ask(Request::ConfirmClock).await?;
        }
        let reply = link.ask(Request::Purge).await?;
        link.close().await?;
        match reply {
            Reply::Purged(report) => report,
            _ => anyhow::bail!("the node answers something else"),
        }
    };
    if report.held {
        return Ok(output::print(
            "nothing is purged: the clock jumped. If it is right now: kukuri-node retention run --confirm-clock\n",
        )?);
    }
    let rows = [
        ("events that have stayed long enough", report.by_retention),
        ("events that have to make room", report.by_capacity),
        ("ids that need not be remembered", report.ids),
        ("outbox rows", report.outbox),
        ("tombstones, floors and vanish marks", report.memories),
    ];
    let rows: Vec<Vec<String>> = rows.iter().map(|(what, count)| vec![(*what).to_owned(), count.to_string()]).collect();
    Ok(output::print(&table(&[if dry_run { "would go" } else { "gone" }, "count"], &rows))?)
}
