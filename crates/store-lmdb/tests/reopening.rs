//! State that a store keeps across a restart, and state that it computes again when it opens.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use kukuri_domain::capacity::{Capacity, Stage};
use kukuri_store::{
    StoreRules,
    conformance::build::{NOW, admitted, later, note},
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use support::{block_on, quick};

#[test]
fn duplicate_counts_are_written_when_the_store_is_closed() {
    // P-1
    let dir = tempfile::tempdir().unwrap();
    let post = note("often sent").build();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    for _ in 0..3 {
        block_on(store.ingest(vec![admitted(&post)], NOW)).unwrap();
    }
    block_on(store.known_states(&[post.id], NOW)).unwrap();
    drop(store);
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    assert_eq!(block_on(store.explain(&post.id)).unwrap().record.unwrap().seen_count, 4);
}

#[test]
fn duplicate_counts_are_written_every_ten_seconds_while_events_arrive() {
    // P-1
    let dir = tempfile::tempdir().unwrap();
    let post = note("often sent").build();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    let on_disk = |name: &str| {
        let copy = dir.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        store.copy_to(copy.join("data.mdb")).unwrap();
        let copy = LmdbStore::open(copy, quick()).unwrap();
        block_on(copy.explain(&post.id)).unwrap().record.unwrap().seen_count
    };
    for _ in 0..2 {
        block_on(store.ingest(vec![admitted(&post)], NOW)).unwrap();
    }
    assert_eq!(on_disk("at once"), 1, "a repeat costs no commit of its own");
    block_on(store.ingest(vec![admitted(&note("a little later").build())], later(9))).unwrap();
    assert_eq!(on_disk("nine seconds later"), 1);
    block_on(store.ingest(vec![admitted(&note("later").build())], later(10))).unwrap();
    assert_eq!(on_disk("ten seconds later"), 2);
}

#[test]
fn capacity_stage_is_recomputed_when_the_store_opens() {
    // P-6
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    let notes = (0..10).map(|n| admitted(&note(&format!("note {n}")).build())).collect();
    block_on(store.ingest(notes, NOW)).unwrap();
    assert_eq!(block_on(store.stats()).unwrap().stage, Stage::Open);
    drop(store);
    let capacity = Capacity { max_events: Some(10), max_bytes: None };
    let rules = StoreRules { capacity, ..StoreRules::default() };
    let store = LmdbStore::open(dir.path(), LmdbOptions { rules, ..quick() }).unwrap();
    assert_eq!(block_on(store.stats()).unwrap().stage, Stage::Purging);
}
