//! Acknowledged means durable: events survive a kill, and are synced to the disk before their acknowledgement.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kukuri_store::{
    conformance::{crash::everything_acknowledged_survives_a_kill, sync::trace},
    port::*,
};
use kukuri_store_lmdb::{Durability, LmdbOptions, LmdbStore};
use kukuri_testing::test_name;

const DATA_FILE: &str = "data.mdb";
const WAL: &str = "wal.log";

async fn open(place: &str) -> Arc<dyn Store> {
    Arc::new(LmdbStore::open(place, LmdbOptions::default()).unwrap())
}

/// Without group commit: each batch is one transaction, committed before it is acknowledged.
async fn open_without_gathering(place: &str) -> Arc<dyn Store> {
    Arc::new(
        LmdbStore::open(place, LmdbOptions { group_commit_window: Duration::ZERO, ..LmdbOptions::default() }).unwrap(),
    )
}

async fn open_without_sync(place: &str) -> Arc<dyn Store> {
    Arc::new(
        LmdbStore::open(place, LmdbOptions { durability: Durability::Unsynced, ..LmdbOptions::default() }).unwrap(),
    )
}

/// Serialises the tests: a child inherits, until its exec, the open files of the other tests, and so their locks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn acknowledged_events_survive_a_kill() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    everything_acknowledged_survives_a_kill(test_name!(acknowledged_events_survive_a_kill), &place(&dir), open);
}

#[test]
fn acknowledged_events_survive_a_kill_without_group_commit() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let name = test_name!(acknowledged_events_survive_a_kill_without_group_commit);
    everything_acknowledged_survives_a_kill(name, &place(&dir), open_without_gathering);
}

/// Not a test itself: the child process without syncs that `a_batch_is_synced_before_it_is_acknowledged` traces.
#[test]
fn a_child_that_does_not_sync() {
    if std::env::var_os("KUKURI_CRASH_PLACE").is_some() {
        everything_acknowledged_survives_a_kill(test_name!(a_child_that_does_not_sync), "", open_without_sync);
    }
}

#[test]
fn a_batch_is_synced_before_it_is_acknowledged() {
    let _alone = alone();
    let children = [
        (test_name!(acknowledged_events_survive_a_kill), WAL),
        (test_name!(acknowledged_events_survive_a_kill_without_group_commit), DATA_FILE),
    ];
    for (child, file) in children {
        let dir = tempfile::tempdir().unwrap();
        let synced = trace(child, &place(&dir), file, 20).expect("strace");
        synced.assert_synced();
        assert!(synced.writes >= 20, "every batch is written to {file}: {synced:?}");
    }

    let dir = tempfile::tempdir().unwrap();
    let unsynced = trace(test_name!(a_child_that_does_not_sync), &place(&dir), WAL, 20).expect("strace");
    assert!(!unsynced.problems.is_empty(), "a store that does not sync is found out: {unsynced:?}");
}

fn place(dir: &tempfile::TempDir) -> String {
    dir.path().to_str().unwrap().to_owned()
}
