//! The embedded index passes the suite.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::sync::Arc;

use kukuri_search::{IndexError, SearchIndex, TantivyIndex, conformance};
use proptest::prelude::*;

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: conformance::cases(24), ..ProptestConfig::default() })]

    #[test]
    fn it_finds_what_a_look_at_every_document_finds(life in conformance::lives()) {
        // C-1, O-6
        let directory = tempfile::tempdir().unwrap();
        block_on(conformance::live(life, async |before: Option<TantivyIndex>| {
            drop(before);
            TantivyIndex::open(directory.path()).unwrap()
        }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: conformance::cases(12), max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_with_what_is_effective(following in conformance::followings()) {
        // O-6, O-7, O-8, C-1
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(conformance::follow(following, async || {
            Arc::new(TantivyIndex::open(directory.path()).unwrap()) as _
        }));
    }
}

#[test]
fn the_better_stands_first() {
    let directory = tempfile::tempdir().unwrap();
    block_on(conformance::rank(&TantivyIndex::open(directory.path()).unwrap()));
}

#[test]
fn people_find_what_they_look_for() {
    let directory = tempfile::tempdir().unwrap();
    block_on(conformance::relevance(&TantivyIndex::open(directory.path()).unwrap()));
}

#[test]
fn one_process_has_it_and_what_is_damaged_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let index = TantivyIndex::open(directory.path()).unwrap();
    block_on(conformance::rank(&index));
    let second = TantivyIndex::open(directory.path()).err().unwrap();
    assert!(matches!(second, IndexError::Locked(_)), "{second}");
    drop(index);
    std::fs::write(directory.path().join("1/meta.json"), "{").unwrap();
    let index = TantivyIndex::open(directory.path()).unwrap();
    assert_eq!(block_on(index.reached()).unwrap(), None, "it has to be built anew");
}
