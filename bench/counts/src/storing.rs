//! The embedded store, with 10,000 events in it.

use std::{fs, path::Path};

use anyhow::ensure;
use kukuri_domain::{Admitted, EventId, Filter, Letter, Viewer};
use kukuri_store::{Outcome, Query, Store};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use tokio::runtime::{Builder, Runtime};

use crate::{
    count, counted,
    samples::{NOW, admitted, mixed, topic},
};

const STORED: u64 = 10_000;
const BATCH: u64 = 512;
const TIMES: usize = 20;

/// Makes a store of 10,000 events for the operations that need one. This is not counted, so it need not be slow.
pub fn fill(directory: &Path) -> anyhow::Result<()> {
    let (store, runtime) = open(directory)?;
    for batch in (0..STORED).collect::<Vec<_>>().chunks(BATCH as usize) {
        runtime.block_on(store.ingest(events(batch.iter().copied())?, NOW))?;
    }
    Ok(())
}

/// A batch into a copy of the store; counted by event. The store writes on a thread of its own, which is counted from its
/// beginning: so this comes first and alone.
pub(crate) fn ingest(directory: &Path) -> anyhow::Result<u32> {
    let copy = directory.with_extension("copy");
    fs::create_dir_all(&copy)?;
    fs::copy(directory.join("data.mdb"), copy.join("data.mdb"))?;
    let batch = events(STORED..STORED + BATCH)?;
    let (store, runtime) = open(&copy)?;
    let mut ingested = None;
    counted(&mut || ingested = Some(runtime.block_on(store.ingest(batch.clone(), NOW))));
    drop((store, runtime));
    fs::remove_dir_all(&copy)?;
    let outcomes = ingested.transpose()?.map(|ingested| ingested.outcomes).unwrap_or_default();
    ensure!(outcomes.len() as u64 == BATCH && outcomes.iter().all(|outcome| *outcome == Outcome::Stored));
    Ok(BATCH as u32)
}

/// The newest fifty of a topic.
pub(crate) fn newest(directory: &Path) -> anyhow::Result<u32> {
    count_queries(directory, Filter::new().with_tag(Letter::T, [topic(1).as_str()]).with_limit(50))
}

/// Fifty by their ids, from all over the store.
pub(crate) fn by_ids(directory: &Path) -> anyhow::Result<u32> {
    let ids: Vec<EventId> = (0..50).map(|number| mixed(number * 190).id).collect();
    count_queries(directory, Filter::new().with_ids(ids))
}

fn count_queries(directory: &Path, filter: Filter) -> anyhow::Result<u32> {
    let (store, runtime) = open(directory)?;
    let query = Query::of(filter, Viewer::stranger(), NOW);
    count(TIMES, || runtime.block_on(store.query(&query)).is_ok_and(|answer| answer.events.len() == 50))
}

fn events(numbers: impl IntoIterator<Item = u64>) -> anyhow::Result<Vec<Admitted>> {
    numbers.into_iter().map(|number| admitted(mixed(number))).collect()
}

fn open(directory: &Path) -> anyhow::Result<(LmdbStore, Runtime)> {
    // A terabyte of addresses, as a node asks for, is more than valgrind has.
    let options = LmdbOptions { map_size: 1 << 30, ..LmdbOptions::default() };
    Ok((LmdbStore::open(directory, options)?, Builder::new_current_thread().build()?))
}
