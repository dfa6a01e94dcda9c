//! `retention`: purges now instead of within a minute, or prints what a purge would remove.

use clap::Subcommand;
use kukuri_engine::Engine;
use kukuri_store::{DryRun, maintenance::MAX_DRY_RUN_ROWS};

use super::table::count_table;
use crate::{
    admin_socket::{AdminRequest, client::AdminClient},
    config::Settings,
    output,
};

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
    let mut client = AdminClient::open(settings, None).await?;
    if confirm_clock && !dry_run {
        client.ask::<()>(AdminRequest::ConfirmClock).await?;
    }
    let text: String = client.ask(AdminRequest::Purge { dry_run }).await?;
    client.close().await?;
    output::print(&text)
}

/// Purges, or counts what a purge would remove. Returns the text for the operator.
pub(crate) async fn purge(engine: &Engine, dry_run: bool) -> anyhow::Result<String> {
    let DryRun { purged, is_complete } = match dry_run {
        true => engine.dry_run_purge().await?,
        false => DryRun { purged: engine.purge().await?, is_complete: true },
    };
    if purged.held {
        return Ok(
            "the clock jumped, purges are suspended. If it is right now: kukuri-node retention run --confirm-clock\n"
                .to_owned(),
        );
    }
    let counts = [
        ("events past their retention", purged.by_retention),
        ("events over the capacity", purged.by_capacity),
        ("ids past their retention", purged.ids),
        ("outbox rows", purged.outbox),
        ("tombstones, floors and vanish marks", purged.memories),
    ];
    let table = count_table(if dry_run { "would be purged" } else { "purged" }, &counts);
    Ok(match is_complete {
        true => table,
        false => format!("counted in {MAX_DRY_RUN_ROWS} rows only; more would be purged\n{table}"),
    })
}
