//! The index on Postgres passes the conformance suite of all indexes.

use std::sync::Arc;

use kukuri_search::conformance;
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use proptest::prelude::*;

use crate::own_runtime::{self, OnOwnRuntime};
use crate::patient;
use crate::support::{Database, block_on};

async fn open(database: &Database) -> PostgresIndex {
    let options = PostgresIndexOptions { readers: 2, ..patient() };
    PostgresIndex::connect(&database.hasty_url(), options).await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: kukuri_testing::long::scaled(12), max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn search_finds_the_same_as_a_scan_of_all_documents(history in conformance::index_histories()) {
        // C-1, O-6
        block_on(async {
            let database = Database::new().await;
            conformance::run_index_history(history, async |before: Option<PostgresIndex>| {
                if let Some(before) = before {
                    before.close().await;
                }
                open(&database).await
            })
            .await;
        });
    }

    #[test]
    fn index_holds_exactly_the_effective_events_after_crashes_and_rebuilds(history in conformance::store_histories()) {
        // O-6, O-7, O-8, C-1
        let database = own_runtime::block_on(Database::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(conformance::run_store_history(history, async || {
            let url = database.hasty_url();
            let index = own_runtime::run(async move {
                PostgresIndex::connect(&url, patient()).await.unwrap()
            });
            Arc::new(OnOwnRuntime::of(index.await)) as _
        }));
    }
}

#[test]
fn better_hits_come_first() {
    block_on(async {
        let database = Database::new().await;
        conformance::ranking(&open(&database).await).await;
    });
}

#[test]
fn relevance_corpus_is_answered_as_expected() {
    block_on(async {
        let database = Database::new().await;
        conformance::relevance(&open(&database).await).await;
    });
}
