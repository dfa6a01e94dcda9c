//! `check`: whether the parts of a store are consistent.

use kukuri_store::Store;

use crate::{config::Settings, output, wiring::stores};

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    check(&*stores::for_reading(settings).await?).await
}

/// Reads the whole store and prints every inconsistency.
pub(crate) async fn check(store: &dyn Store) -> anyhow::Result<()> {
    let report = store.check().await?;
    if report.problems.is_empty() {
        return output::print(&format!("{} rows checked: all is well\n", report.rows));
    }
    output::print(&report.problems.iter().map(|problem| format!("{problem}\n")).collect::<String>())?;
    anyhow::bail!("{} rows checked, {} problems found", report.rows, report.problems.len())
}
