//! Search: filling an index, asking it, and how soon a post is found that was just accepted.
//!
//! - [`posts`]: what is looked for. [`filling`]: an index by itself, at growing sizes. [`fresh`]: the real binary.

mod filling;
mod fresh;
mod posts;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kukuri_search::{SearchIndex, TantivyIndex};
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};

use crate::{say, timing::millis, yardstick};

/// What `cargo xtask bench search` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Which index. One on Postgres is measured beside the embedded one.
    #[arg(long, value_enum, default_value_t = Kept::Embedded)]
    index: Kept,
    /// The database that an index on Postgres is made in. `cargo xtask bench` brings one.
    #[arg(long, env = "KUKURI_TEST_POSTGRES", hide_env_values = true)]
    url: Option<String>,
    /// Numbers of posts to measure at, ascending.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    sizes: Vec<u64>,
    /// Posts in one commit.
    #[arg(long, default_value_t = 1_000)]
    batch: u64,
    /// How often each shape of question is asked.
    #[arg(long, default_value_t = 1_000)]
    queries: u64,
    /// Posts a second that are published to see how soon they are found.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// For so many seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// The binary; the one beside this program by default.
    #[arg(long)]
    node: Option<PathBuf>,
    /// Where indexes are made; a temporary directory under target/ by default.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Where an index is kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// In files of the node's own.
    Embedded,
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
    if options.rate > 0 {
        fresh::measure(&options, dir.path()).await?;
    }
    let mut indexes: Vec<(&str, Box<dyn SearchIndex>)> =
        vec![("embedded", Box::new(TantivyIndex::open(dir.path().join("index"))?))];
    if options.index == Kept::Postgres {
        let url = options.url.as_deref().context("--url names the database")?;
        indexes.push(("postgres", Box::new(PostgresIndex::connect(url, PostgresIndexOptions::default()).await?)));
    }
    for (name, index) in &indexes {
        filling::measure(name, &**index, &options).await?;
    }
    Ok(())
}
