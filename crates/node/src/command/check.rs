//! `check`: whether the parts of a store are consistent, and those of the control database.

use kukuri_store::Store;

use crate::{
    config::Settings,
    output,
    wiring::{self, stores},
};

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    check(&*stores::for_reading(settings).await?).await?;
    if wiring::control::exists(&settings.control_place()) {
        check_control(&wiring::control::database_for_command(settings).await?).await?;
    }
    Ok(())
}

/// Reads the whole store and prints every inconsistency.
pub(crate) async fn check(store: &dyn Store) -> anyhow::Result<()> {
    let report = store.check().await?;
    print("events and indexes", report.rows, &report.problems)
}

/// Checks the control database in the same way.
pub(crate) async fn check_control(control: &kukuri_control::Database) -> anyhow::Result<()> {
    let rows = control.counts().await?.iter().map(|(_, count)| count).sum();
    print("accounts and settings", rows, &control.check().await?)
}

fn print<P: std::fmt::Display>(what: &str, rows: u64, problems: &[P]) -> anyhow::Result<()> {
    if problems.is_empty() {
        return output::print(&format!("{what}: {rows} rows checked: all is well\n"));
    }
    output::print(&problems.iter().map(|problem| format!("{problem}\n")).collect::<String>())?;
    anyhow::bail!("{what}: {rows} rows checked, {} problems found", problems.len())
}
