//! Loading and asking a store, at growing sizes: does the cost of a query stay the same?
//!
//! - [`figures`]: measurements at one size.
//! - [`server`]: a store on a server alone: its limits, the sessions it needs.
//! - [`writers`]: several processes that write to one database.

mod figures;
mod server;
pub(crate) mod writers;

use anyhow::ensure;
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::parts::Bench;
use figures::Subject;

pub(crate) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let embedded = LmdbStore::open(bench.dir.join("store"), LmdbOptions::default())?;
    let mut subjects = vec![Subject::new("embedded", Box::new(embedded))];
    let url = bench.options.database()?.map(str::to_owned);
    if let Some(url) = &url {
        let store = PostgresStore::connect(url, PostgresOptions::default()).await?;
        subjects.push(Subject::new("postgres", Box::new(store)));
    }
    for subject in &subjects {
        ensure!(subject.store.stats().await?.ids == 0, "there are events in this store already");
    }
    for size in bench.options.sizes.clone() {
        for subject in &mut subjects {
            let server = url.as_deref().filter(|_| subject.name == "postgres");
            subject.measure(bench, size, server).await?;
        }
    }
    if let (Some(url), Some(subject)) = (url, subjects.pop()) {
        server::measure(&url, subject, bench).await?;
    }
    Ok(())
}
