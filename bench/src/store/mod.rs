//! Loading and asking a store, at growing sizes: does the cost of a query stay the same?
//!
//! - [`figures`]: what is measured at one size. [`table`]: how it is told.
//! - [`server`]: what only a store on a server is asked: what limits it, how many sessions it needs.
//! - [`writers`]: several processes that write to one database.

mod figures;
mod server;
mod table;
pub(crate) mod writers;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{say, timing::millis, yardstick};
use figures::{Figures, Subject};

/// What `cargo xtask bench store` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Which store. One on Postgres is measured beside the embedded one.
    #[arg(long, value_enum, default_value_t = Kept::Lmdb)]
    store: Kept,
    /// The empty database that a store on Postgres is made in. `cargo xtask bench` brings one.
    #[arg(long, env = "KUKURI_TEST_POSTGRES", hide_env_values = true)]
    url: Option<String>,
    /// Numbers of events to measure at, ascending.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    sizes: Vec<usize>,
    /// The most events in one transaction.
    #[arg(long, default_value_t = 4_096)]
    batch: usize,
    /// How often each query is run.
    #[arg(long, default_value_t = 2_000)]
    queries: usize,
    /// How many events are taken in one by one.
    #[arg(long, default_value_t = 1_000)]
    singles: usize,
    /// How many events several processes write together.
    #[arg(long, default_value_t = 32_768)]
    shared: usize,
    /// Where the store is made; a temporary directory under target/ by default.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The seed of the corpus.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where events are kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// In files of the node's own.
    Lmdb,
    /// On a server.
    Postgres,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let parent = options.dir.clone().unwrap_or_else(|| PathBuf::from("target/bench"));
    std::fs::create_dir_all(&parent)?;
    let dir = tempfile::tempdir_in(&parent).with_context(|| format!("{}", parent.display()))?;

    let verifications = yardstick::verifications_per_second()?;
    let sync = yardstick::sync_time(dir.path())?;
    say(format_args!(
        "yardsticks: {verifications:.0} verifications/s on one core, fdatasync p50 {:.2} ms",
        millis(sync)
    ));
    say(format_args!("durable ingest in batches of up to {}, one thread, corpus seed {}", options.batch, options.seed));

    let embedded = LmdbStore::open(dir.path().join("store"), LmdbOptions::default())?;
    let mut subjects = vec![Subject::new("embedded", Box::new(embedded), &options)?];
    let url = options.url.as_deref().filter(|_| options.store == Kept::Postgres);
    if options.store == Kept::Postgres {
        let url = url.context("--url names the database")?;
        let store = PostgresStore::connect(url, PostgresOptions::default()).await?;
        subjects.push(Subject::new("postgres", Box::new(store), &options)?);
    }
    for subject in &subjects {
        ensure!(subject.store.stats().await?.ids == 0, "there are events in this store already");
    }
    for (place, &size) in options.sizes.iter().enumerate() {
        for subject in &mut subjects {
            let load = url.filter(|_| subject.name == "postgres");
            let figures = subject.measure(&options, size, load).await?;
            subject.figures.push(figures);
        }
        let beside: Vec<(&str, &Figures)> =
            subjects.iter().map(|subject| (subject.name, &subject.figures[place])).collect();
        table::print(&beside, verifications);
    }
    for subject in &subjects {
        table::compare(subject.name, &subject.figures);
    }
    if let (Some(url), Some(subject)) = (url, subjects.pop()) {
        server::measure(url, subject, &options).await?;
    }
    Ok(())
}
