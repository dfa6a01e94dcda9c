//! Acknowledged means durable: after a kill, and on the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::sync::Arc;

use kukuri_store::{
    Store,
    conformance::{crash::everything_acknowledged_survives_a_kill, sync::trace},
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore, Sync};

const DATA_FILE: &str = "data.mdb";

async fn open(place: &str) -> Arc<dyn Store> {
    Arc::new(LmdbStore::open(place, LmdbOptions::default()).unwrap())
}

async fn open_without_sync(place: &str) -> Arc<dyn Store> {
    Arc::new(LmdbStore::open(place, LmdbOptions { sync: Sync::Off, ..LmdbOptions::default() }).unwrap())
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    everything_acknowledged_survives_a_kill("what_was_acknowledged_survives_a_kill", &place(&dir), open);
}

/// Not a test by itself: the child that the next one traces, with syncing switched off.
#[test]
fn a_child_that_does_not_sync() {
    if std::env::var_os("KUKURI_CRASH_PLACE").is_some() {
        everything_acknowledged_survives_a_kill("a_child_that_does_not_sync", "", open_without_sync);
    }
}

#[test]
fn a_batch_is_synced_before_it_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let synced = trace("what_was_acknowledged_survives_a_kill", &place(&dir), DATA_FILE, 20).expect("strace");
    synced.assert_synced();

    let dir = tempfile::tempdir().unwrap();
    let unsynced = trace("a_child_that_does_not_sync", &place(&dir), DATA_FILE, 20).expect("strace");
    assert!(!unsynced.problems.is_empty(), "a store that does not sync is found out: {unsynced:?}");
}

fn place(dir: &tempfile::TempDir) -> String {
    dir.path().to_str().unwrap().to_owned()
}
