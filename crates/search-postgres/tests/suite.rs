//! The index on Postgres passes the suite of all indexes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod elsewhere;
#[path = "../../store-postgres/tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use kukuri_search::conformance;
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use proptest::prelude::*;

use elsewhere::Elsewhere;
use support::{Database, block_on};

async fn open(database: &Database) -> PostgresIndex {
    let options = PostgresIndexOptions { readers: 2, ..PostgresIndexOptions::default() };
    PostgresIndex::connect(&database.hasty_url(), options).await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: conformance::cases(12), max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn it_finds_what_a_look_at_every_document_finds(life in conformance::lives()) {
        // C-1, O-6
        block_on(async {
            let database = Database::new().await;
            conformance::live(life, async |before: Option<PostgresIndex>| {
                if let Some(before) = before {
                    before.close().await;
                }
                open(&database).await
            })
            .await;
        });
    }

    #[test]
    fn whatever_happens_it_ends_with_what_is_effective(following in conformance::followings()) {
        // O-6, O-7, O-8, C-1
        let database = elsewhere::block_on(Database::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(conformance::follow(following, async || {
            let url = database.hasty_url();
            let index = elsewhere::run(async move {
                PostgresIndex::connect(&url, PostgresIndexOptions::default()).await.unwrap()
            });
            Arc::new(Elsewhere::of(index.await)) as _
        }));
    }
}

#[test]
fn the_better_stands_first() {
    block_on(async {
        let database = Database::new().await;
        conformance::rank(&open(&database).await).await;
    });
}

#[test]
fn people_find_what_they_look_for() {
    block_on(async {
        let database = Database::new().await;
        conformance::relevance(&open(&database).await).await;
    });
}
