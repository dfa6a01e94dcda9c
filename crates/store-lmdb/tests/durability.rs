//! Acknowledged means durable: after a kill, and on the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kukuri_store::{
    Store,
    conformance::{crash::everything_acknowledged_survives_a_kill, sync::trace},
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore, Sync};

const DATA_FILE: &str = "data.mdb";
const FILE_AHEAD: &str = "ahead.log";

async fn open(place: &str) -> Arc<dyn Store> {
    Arc::new(LmdbStore::open(place, LmdbOptions::default()).unwrap())
}

/// Each batch in a transaction of its own, committed before it is acknowledged.
async fn open_without_gathering(place: &str) -> Arc<dyn Store> {
    Arc::new(LmdbStore::open(place, LmdbOptions { gather: Duration::ZERO, ..LmdbOptions::default() }).unwrap())
}

async fn open_without_sync(place: &str) -> Arc<dyn Store> {
    Arc::new(LmdbStore::open(place, LmdbOptions { sync: Sync::Off, ..LmdbOptions::default() }).unwrap())
}

/// A process that one test starts has, for a moment, the files of the others open, and so their locks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    everything_acknowledged_survives_a_kill("what_was_acknowledged_survives_a_kill", &place(&dir), open);
}

#[test]
fn what_was_acknowledged_alone_survives_a_kill() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let name = "what_was_acknowledged_alone_survives_a_kill";
    everything_acknowledged_survives_a_kill(name, &place(&dir), open_without_gathering);
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
    let _alone = alone();
    let children = [
        ("what_was_acknowledged_survives_a_kill", FILE_AHEAD),
        ("what_was_acknowledged_alone_survives_a_kill", DATA_FILE),
    ];
    for (child, file) in children {
        let dir = tempfile::tempdir().unwrap();
        let synced = trace(child, &place(&dir), file, 20).expect("strace");
        synced.assert_synced();
        assert!(synced.writes >= 20, "every batch is written to {file}: {synced:?}");
    }

    let dir = tempfile::tempdir().unwrap();
    let unsynced = trace("a_child_that_does_not_sync", &place(&dir), FILE_AHEAD, 20).expect("strace");
    assert!(!unsynced.problems.is_empty(), "a store that does not sync is found out: {unsynced:?}");
}

fn place(dir: &tempfile::TempDir) -> String {
    dir.path().to_str().unwrap().to_owned()
}
