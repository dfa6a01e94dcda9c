//! `retention`: purges now instead of within a minute, or prints what a purge would remove.

use clap::Subcommand;
use kukuri_domain::clock::Clock;
use kukuri_engine::Engine;
use kukuri_store::{DryRun, PurgeCursor, maintenance::MAX_DRY_RUN_ROWS};

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
        /// Confirms the clock first, like `clock confirm`.
        #[arg(long, hide = true)]
        confirm_clock: bool,
    },
}

pub(crate) async fn run(settings: &Settings, command: Retention) -> anyhow::Result<()> {
    let Retention::Run { dry_run, confirm_clock } = command;
    let mut client = AdminClient::open(settings, None).await?;
    if confirm_clock && !dry_run {
        client.ask::<Clock>(AdminRequest::ConfirmClock).await?;
    }
    let text: String = client.ask(AdminRequest::Purge { dry_run }).await?;
    client.close().await?;
    output::print(&text)
}

/// Purges, or counts what a purge would remove. Returns the text for the operator.
pub(crate) async fn purge(engine: &Engine, dry_run: bool) -> anyhow::Result<String> {
    let DryRun { purged, is_complete } = match dry_run {
        true => engine.dry_run_purge().await?,
        false => DryRun { purged: engine.purge(PurgeCursor::default()).await?, is_complete: true },
    };
    let counts = [
        ("events past their retention", purged.by_retention),
        ("events over the capacity", purged.by_capacity),
        ("ids past their retention", purged.ids),
        ("outbox rows", purged.outbox),
        ("tombstones, floors and vanish marks", purged.memories),
    ];
    let table = count_table(if dry_run { "would be purged" } else { "purged" }, &counts);
    let held = match purged.held {
        true => "the clock is held: only the capacity counts until `kukuri-node clock confirm`\n",
        false => "",
    };
    let bounded = match is_complete {
        true => String::new(),
        false => format!("counted in {MAX_DRY_RUN_ROWS} rows only; more would be purged\n"),
    };
    Ok(format!("{held}{bounded}{table}"))
}
