//! The embedded store, with 10,000 events in it.

use std::{fs, path::Path};

use kukuri_domain::{Admitted, EventId, Filter, Letter, Viewer};
use kukuri_store::{Outcome, Query, port::*};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use tokio::runtime::{Builder, Runtime};

use crate::{
    count, counted,
    samples::{NOW, admitted, mixed, topic},
};

const STORED: u64 = 10_000;
const BATCH: u64 = 512;
const TIMES: u32 = 20;

const DIRECTORY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/counts");
const COPY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/counts-copy");

/// Makes a store of 10,000 events for the operations that need one. It runs before them and without valgrind.
pub(crate) fn fill() {
    let _ = fs::remove_dir_all(DIRECTORY);
    let (store, runtime) = open(DIRECTORY);
    for batch in (0..STORED).collect::<Vec<_>>().chunks(BATCH as usize) {
        runtime.block_on(store.ingest(events(batch.iter().copied()), NOW)).unwrap();
    }
}

/// Ingests a batch into a copy of the store. The store's thread is counted from its beginning.
pub(crate) fn ingest() {
    fs::create_dir_all(COPY).unwrap();
    fs::copy(Path::new(DIRECTORY).join("data.mdb"), Path::new(COPY).join("data.mdb")).unwrap();
    let batch = events(STORED..STORED + BATCH);
    let (store, runtime) = open(COPY);
    let mut ingested = None;
    counted(&mut || ingested = Some(runtime.block_on(store.ingest(batch.clone(), NOW))));
    drop((store, runtime));
    fs::remove_dir_all(COPY).unwrap();
    assert_eq!(ingested.unwrap().unwrap().outcomes, vec![Outcome::Stored; BATCH as usize]);
}

/// The newest fifty of a topic.
pub(crate) fn newest() {
    count_queries(Filter::new().with_tag(Letter::T, [topic(1).as_str()]).with_limit(50));
}

/// Fifty by their ids, from all over the store.
pub(crate) fn by_ids() {
    let ids: Vec<EventId> = (0..50).map(|number| mixed(number * 190).id).collect();
    count_queries(Filter::new().with_ids(ids));
}

fn count_queries(filter: Filter) {
    let (store, runtime) = open(DIRECTORY);
    let query = Query::of(filter, Viewer::unauthenticated(), NOW);
    count(TIMES, || runtime.block_on(store.query(&query)).is_ok_and(|answer| answer.events.len() == 50));
}

fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<Admitted> {
    numbers.into_iter().map(|number| admitted(mixed(number))).collect()
}

fn open(directory: &str) -> (LmdbStore, Runtime) {
    // A node asks for a terabyte of addresses, which is more than valgrind has.
    let options = LmdbOptions { map_size: 1 << 30, ..LmdbOptions::default() };
    (LmdbStore::open(directory, options).unwrap(), Builder::new_current_thread().build().unwrap())
}
