//! The embedded index passes the conformance suite of all indexes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::sync::Arc;

use kukuri_search::{IndexError, SearchIndex, conformance};
use kukuri_search_tantivy::TantivyIndex;
use proptest::prelude::*;

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: kukuri_testing::long::scaled(24), ..ProptestConfig::default() })]

    #[test]
    fn search_finds_the_same_as_a_scan_of_all_documents(history in conformance::index_histories()) {
        // C-1, O-6
        let directory = tempfile::tempdir().unwrap();
        block_on(conformance::run_index_history(history, async |before: Option<TantivyIndex>| {
            drop(before);
            TantivyIndex::open(directory.path()).unwrap()
        }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: kukuri_testing::long::scaled(12), max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn index_holds_exactly_the_effective_events_after_crashes_and_rebuilds(history in conformance::store_histories()) {
        // O-6, O-7, O-8, C-1
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(conformance::run_store_history(history, async || {
            Arc::new(TantivyIndex::open(directory.path()).unwrap()) as _
        }));
    }
}

#[test]
fn better_hits_come_first() {
    let directory = tempfile::tempdir().unwrap();
    block_on(conformance::ranking(&TantivyIndex::open(directory.path()).unwrap()));
}

#[test]
fn relevance_corpus_is_answered_as_expected() {
    let directory = tempfile::tempdir().unwrap();
    block_on(conformance::relevance(&TantivyIndex::open(directory.path()).unwrap()));
}

#[test]
fn second_open_is_refused_and_a_damaged_index_becomes_empty() {
    let directory = tempfile::tempdir().unwrap();
    let index = TantivyIndex::open(directory.path()).unwrap();
    block_on(conformance::ranking(&index));
    let second = TantivyIndex::open(directory.path()).err().unwrap();
    assert!(matches!(second, IndexError::Locked(_)), "{second}");
    drop(index);
    std::fs::write(directory.path().join("1/meta.json"), "{").unwrap();
    let index = TantivyIndex::open(directory.path()).unwrap();
    assert_eq!(block_on(index.reached()).unwrap(), None, "the consumer rebuilds it");
}
